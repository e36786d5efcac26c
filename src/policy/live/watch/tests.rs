//! What the loop sees, reading by reading.
#![cfg(unix)]

use std::{cell::RefCell, rc::Rc};

use test_support::folder::Folder;

use super::*;
use crate::policy::{Environment, PolicyLayer};

fn policy(limit: u32) -> String {
    format!(
        "version = 1\n[[limit]]\nname = \"all\"\nlimit = \"fixed_window {limit}/h\"\nkey = \"global\"\n"
    )
}

type Reports = Rc<RefCell<Vec<String>>>;
type Report = Result<Reloaded, Box<dyn Error + Send + Sync>>;

/// The loop, moved by hand, and its reports.
fn watch(
    path: PathBuf,
    environment: Environment,
) -> (PolicyLayer, FileWatch<impl FnMut(Report)>, Reports) {
    let file =
        PolicyFile::from_toml(&fs::read_to_string(&path).expect("no error")).expect("no error");
    let layer = PolicyLayer::new(file, environment).expect("no error");
    let reports = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&reports);
    let watch = FileWatch {
        path,
        shared: Arc::downgrade(&layer.handle().backend().shared),
        report: move |report: Report| {
            log.borrow_mut().push(match report {
                Ok(reloaded) => format!("{:?}", reloaded.changed),
                Err(error) => format!("error: {error}"),
            });
        },
        lists: Vec::new(),
        seen: None,
        loaded: None,
    };
    (layer, watch, reports)
}

/// Shows promise 223.
#[test]
fn a_change_is_loaded_at_its_second_reading_and_a_half_written_file_is_not() {
    let folder = Folder::new("second");
    let path = folder.join("policies.toml");
    fs::write(&path, policy(5)).expect("no error");
    let (layer, mut watch, reports) = watch(path.clone(), Environment::new());
    for _ in 0..4 {
        assert!(watch.tick());
    }
    assert_eq!(reports.borrow().len(), 0, "nothing has changed");
    // Half of a file is a file without limits.
    fs::write(&path, "version = 1\n").expect("no error");
    watch.tick();
    fs::write(&path, policy(9)).expect("no error");
    watch.tick();
    assert_eq!(reports.borrow().len(), 0);
    watch.tick();
    assert_eq!(reports.borrow().len(), 1, "{reports:?}");
    assert!(TICK * 3 <= Duration::from_secs(1));
    // A mistake is reported once, and the limits stay.
    fs::write(&path, "version = 2\n").expect("no error");
    for _ in 0..4 {
        watch.tick();
    }
    assert_eq!(reports.borrow().len(), 2, "{reports:?}");
    assert!(reports.borrow()[1].starts_with("error: "), "{reports:?}");
    assert!(layer.handle().limit("all").is_some());
    drop(layer);
    assert!(!watch.tick(), "the limits are gone");
}

/// Shows promise 223.
#[test]
fn files_of_lists_are_watched_and_may_come_later() {
    let folder = Folder::new("lists");
    let path = folder.join("policies.toml");
    let lists = "[lists.bad]\nfile = \"bad.txt\"\n[[deny]]\nlist = \"bad\"\n";
    fs::write(&path, format!("version = 1\n{lists}")).expect("no error");
    fs::write(folder.join("bad.txt"), "192.0.2.0/24\n").expect("no error");
    let (_layer, mut watch, reports) = watch(path, Environment::new().folder(&*folder));
    let mut ticks = |number: usize| {
        for _ in 0..6 {
            watch.tick();
        }
        assert_eq!(reports.borrow().len(), number, "{reports:?}");
        reports.borrow().last().cloned().unwrap_or_default()
    };
    ticks(0);
    fs::write(folder.join("bad.txt"), "198.51.100.0/24\n").expect("no error");
    ticks(1);
    fs::remove_file(folder.join("bad.txt")).expect("no error");
    assert!(ticks(2).contains("bad.txt"));
    fs::write(folder.join("bad.txt"), "203.0.113.0/24\n").expect("no error");
    assert!(!ticks(3).starts_with("error"));
}

/// Shows promise 223.
#[test]
fn the_file_of_a_list_that_an_edit_adds_is_not_read_while_it_is_written() {
    let folder = Folder::new("added");
    let path = folder.join("policies.toml");
    fs::write(&path, "version = 1\n").expect("no error");
    let (_layer, mut watch, reports) = watch(path.clone(), Environment::new().folder(&*folder));
    let mut ticks = |number| (0..number).for_each(|_| assert!(watch.tick()));
    ticks(4);
    let list =
        |name| format!("version = 1\n[lists.bad]\nfile = \"{name}\"\n[[deny]]\nlist = \"bad\"\n");
    fs::write(folder.join("bad.txt"), "192.0.2.0/24\n").expect("no error");
    fs::write(&path, list("bad.txt")).expect("no error");
    ticks(2);
    fs::write(folder.join("bad.txt"), "192.0.2.0/24\n198.51.100.0/24\n").expect("no error");
    ticks(1);
    assert_eq!(reports.borrow().len(), 0, "{reports:?}");
    ticks(4);
    assert_eq!(reports.borrow().len(), 1, "{reports:?}");
    // One with the same contents is another list. One that is missing is reported once.
    fs::copy(folder.join("bad.txt"), folder.join("same.txt")).expect("no error");
    for (name, reported) in [("same.txt", 1), ("missing.txt", 2)] {
        fs::write(&path, list(name)).expect("no error");
        ticks(8);
        assert_eq!(reports.borrow().len(), reported, "{reports:?}");
    }
    assert!(reports.borrow()[1].contains("missing.txt"), "{reports:?}");
}
