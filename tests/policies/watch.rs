//! A watched file, in a running program.
#![cfg(unix)]

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

use tower_throttle::policy::{Environment, PolicyLayer};

use test_support::folder::Folder;

use crate::support::{file, limit};

const LONG: Duration = Duration::from_secs(20);

struct Watched {
    folder: Folder,
    /// Dropped first.
    layer: Option<PolicyLayer>,
    /// The names of changed limits, or the error.
    reports: Receiver<Result<Vec<String>, String>>,
}

fn text(number: u32) -> String {
    let limit = limit("all", &format!("fixed_window {number}/h"), "\"global\"", "");
    format!("version = 1\n{limit}")
}

impl Watched {
    /// Watches `policies.toml` in a folder that `make` has filled.
    fn new(name: &str, make: impl Fn(&Path)) -> Self {
        Self::reporting(name, make, || {})
    }

    /// Calls `after` at the end of each report.
    fn reporting(
        name: &str,
        make: impl Fn(&Path),
        mut after: impl FnMut() + Send + 'static,
    ) -> Self {
        let folder = Folder::new(name);
        make(&folder);
        let text = fs::read_to_string(folder.join("policies.toml")).unwrap();
        let text = text.trim_start_matches("version = 1\n");
        let layer = PolicyLayer::new(file(text), Environment::new().folder(&*folder)).unwrap();
        let (sender, reports) = channel();
        let path = folder.join("policies.toml");
        let watching = layer.handle().watch(path, move |report| {
            let report = report.map(|reloaded| reloaded.changed);
            let _ = sender.send(report.map_err(|error| error.to_string()));
            after();
        });
        watching.unwrap();
        let layer = Some(layer);
        Self {
            folder,
            layer,
            reports,
        }
    }

    #[track_caller]
    fn next(&self) -> Result<Vec<String>, String> {
        self.reports.recv_timeout(LONG).expect("a report")
    }

    #[track_caller]
    fn expect_change(&self) {
        assert_eq!(self.next(), Ok(vec!["all".to_owned()]));
    }
}

/// Shows promise 223.
#[test]
fn a_file_that_is_replaced_or_edited_is_loaded() {
    let write = |folder: &Path| fs::write(folder.join("policies.toml"), text(5)).unwrap();
    let watched = Watched::new("edits", write);
    let path = watched.folder.join("policies.toml");
    fs::write(&path, text(6)).unwrap();
    watched.expect_change();
    let aside = watched.folder.join("new");
    fs::write(&aside, text(7)).unwrap();
    fs::rename(aside, &path).unwrap();
    watched.expect_change();
    fs::write(&path, "version = 1\nlimits = 3").unwrap();
    assert!(watched.next().unwrap_err().contains("line 2"));
    fs::write(&path, text(8)).unwrap();
    watched.expect_change();
}

/// Shows promise 223.
#[test]
fn a_folder_that_vanishes_keeps_the_limits_and_is_watched_when_it_returns() {
    let write = |folder: &Path| fs::write(folder.join("policies.toml"), text(5)).unwrap();
    let watched = Watched::new("vanishes", write);
    let aside = watched.folder.with_extension("aside");
    let _ = fs::remove_dir_all(&aside);
    fs::rename(&*watched.folder, &aside).unwrap();
    assert!(watched.next().unwrap_err().contains("policies.toml"));
    let limits = watched.layer.as_ref().unwrap().handle();
    assert!(limits.limit("all").is_some());
    fs::write(aside.join("policies.toml"), text(9)).unwrap();
    fs::rename(&aside, &*watched.folder).unwrap();
    watched.expect_change();
}

/// As Kubernetes writes a `ConfigMap`: the file is a link into a folder that is a link, which is swapped.
///
/// Shows promise 223.
#[test]
fn a_link_that_is_swapped_is_seen() {
    let mount = |folder: &Path, version: u32| {
        let data = folder.join(format!("..{version}"));
        fs::create_dir_all(&data).unwrap();
        fs::write(data.join("policies.toml"), text(version)).unwrap();
        symlink(format!("..{version}"), folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
        let _ = symlink("..data/policies.toml", folder.join("policies.toml"));
    };
    let watched = Watched::new("links", |folder| mount(folder, 5));
    for version in 6..9 {
        mount(&watched.folder, version);
        watched.expect_change();
        fs::remove_dir_all(watched.folder.join(format!("..{}", version - 1))).unwrap();
    }
}

/// Shows promise 223.
#[test]
fn a_report_that_panics_does_not_end_the_watch() {
    let write = |folder: &Path| fs::write(folder.join("policies.toml"), text(5)).unwrap();
    // The report of the panic panics as well.
    let mut panics = 3;
    let watched = Watched::reporting("panics", write, move || {
        panics -= i32::from(panics > 0);
        assert_eq!(panics, 0, "a bug of the program");
    });
    let path = watched.folder.join("policies.toml");
    fs::write(&path, text(6)).unwrap();
    watched.expect_change();
    assert!(watched.next().unwrap_err().contains("panicked"));
    fs::write(&path, text(7)).unwrap();
    watched.expect_change();
}

/// Shows promise 223.
#[test]
fn the_watch_ends_with_the_limits() {
    let write = |folder: &Path| fs::write(folder.join("policies.toml"), text(5)).unwrap();
    let mut watched = Watched::new("ends", write);
    drop(watched.layer.take());
    // The thread has dropped the sender.
    let ended = watched.reports.recv_timeout(LONG);
    assert_eq!(ended, Err(RecvTimeoutError::Disconnected));
}
