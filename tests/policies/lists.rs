//! Files of lists: their errors, their encoding, and reading them for long.

use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use tower_throttle::policy::{PolicyFile, PolicyLayer, Problems};

use crate::support::{App, environment, file, from, limit};

/// A folder of its own that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("throttle-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const DENIES: &str = "[lists.bad]\nfile = \"list\"\n[[deny]]\nlist = \"bad\"\n";

fn error(folder: &Folder) -> String {
    let environment = environment().folder(&folder.0);
    PolicyLayer::new(file(DENIES), environment)
        .unwrap_err()
        .to_string()
}

/// Shows promise 221.
#[test]
fn an_error_in_a_list_shows_its_line_and_not_its_text() {
    let folder = Folder::new("secrets");
    for (text, expected) in [
        (
            "10.0.0.0/8\npassword=hunter2\n",
            "line 2 is not allowed; give a network such as",
        ),
        (
            "hunter2/24\n",
            "line 1 is not allowed; give a network such as",
        ),
        (
            "# none\n\n10.0.0.0/hunter2",
            "line 3 is not allowed; give a prefix in decimal digits",
        ),
        (
            "10.0.0.1/8 # hunter2",
            "line 1 is not allowed; give 10.0.0.0/8 for the network",
        ),
        ("10.0.0.0/8\n!hunter2", "line 2 is not allowed"),
    ] {
        folder.write("list", text);
        let error = error(&folder);
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    // A value that is no network is shown where it was written for the policy.
    let inline = "version = 1\n[lists.bad]\ncidrs = [\"hunter2\"]";
    let error = PolicyFile::from_toml(inline).unwrap_err().to_string();
    assert!(error.contains("hunter2"), "{error}");
}

/// Shows promise 221.
#[tokio::test]
async fn a_byte_order_mark_is_ignored() {
    let folder = Folder::new("mark");
    folder.write("list", "\u{feff}192.0.2.0/24\r\n");
    let app = App::within(DENIES, environment().folder(&folder.0));
    assert_eq!(app.status(from("192.0.2.1")).await, 403);
    assert_eq!(app.status(from("198.51.100.1")).await, 200);
    let text = format!(
        "version = 1\n{}",
        limit("a", "fixed_window 1/h", "\"global\"", "")
    );
    let marked = PolicyFile::from_toml(&format!("\u{feff}{text}"));
    assert_eq!(marked.unwrap(), PolicyFile::from_toml(&text).unwrap());
}

/// Whether a file is loaded within `patience` while the list of another one is being read, and what
/// becomes of the other one when its list is there.
fn loads_meanwhile<F>(reload: F, fifo: &PathBuf, patience: Duration) -> (bool, Result<(), Problems>)
where
    F: Fn(&str) -> Result<(), Problems> + Send + Sync + 'static,
{
    let reload = Arc::new(reload);
    let slow = thread::spawn({
        let reload = Arc::clone(&reload);
        move || reload(DENIES)
    });
    // Opens when the other thread has begun to read.
    let mut list = File::options().write(true).open(fifo).unwrap();
    let (done, loaded) = mpsc::channel();
    let quick = thread::spawn(move || {
        reload(&limit("quick", "fixed_window 1/h", "\"global\"", "")).unwrap();
        let _ = done.send(());
    });
    let is_loaded = loaded.recv_timeout(patience).is_ok();
    list.write_all(b"192.0.2.0/24\n").unwrap();
    drop(list);
    quick.join().unwrap();
    (is_loaded, slow.join().unwrap())
}

/// Shows promise 223.
#[test]
fn a_list_that_cannot_be_read_delays_no_other_file() {
    let folder = Folder::new("slow");
    let fifo = folder.0.join("list");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let layer = PolicyLayer::new(file(""), environment().folder(&folder.0)).unwrap();
    let handle = layer.handle();
    let reload = {
        let handle = handle.clone();
        move |text: &str| handle.reload(file(text)).map(drop)
    };
    let (is_loaded, slow) = loads_meanwhile(reload.clone(), &fifo, Duration::from_secs(60));
    assert!(is_loaded);
    // It was given first, so it does not replace the other one.
    let error = slow.unwrap_err().to_string();
    assert_eq!(error, "a file that was given later is loaded already");
    assert!(handle.counts_of("quick").is_some());

    // Planted bug: a lock is held while lists are read.
    let lock = Mutex::new(());
    let locked = move |text: &str| {
        let _held = lock.lock().unwrap();
        reload(text)
    };
    let (is_loaded, slow) = loads_meanwhile(locked, &fifo, Duration::from_millis(100));
    assert!(!is_loaded && slow.is_ok());
}
