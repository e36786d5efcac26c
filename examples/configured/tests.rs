//! The app under its own file, and while the file changes.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod app;

use std::{env, fs, net::SocketAddr, path::PathBuf};

use axum::{Router, body::Body, extract::Request, http::Method};
use tower::ServiceExt;
use tower_throttle::key::PeerAddr;

use app::{WatchedFile, app, replace};

const POLICIES: &str = include_str!("policies.toml");

/// A folder with a copy of the file, removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("configured-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let folder = Self(path);
        folder.write(POLICIES);
        replace(&folder.0.join("bad.txt"), include_str!("bad.txt")).unwrap();
        folder
    }

    fn write(&self, text: &str) {
        replace(&self.0.join("policies.toml"), text).unwrap();
    }

    fn open(&self) -> (Router, WatchedFile) {
        let (limits, file) = WatchedFile::open(&self.0.join("policies.toml")).unwrap();
        (app(limits), file)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn request(method: Method, path: &str, address: [u8; 4]) -> Request {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap();
    let peer = PeerAddr(SocketAddr::from((address, 4711)));
    request.extensions_mut().insert(peer);
    request
}

async fn status(app: &Router, request: Request) -> u16 {
    app.clone()
        .oneshot(request)
        .await
        .unwrap()
        .status()
        .as_u16()
}

async fn search(app: &Router, address: [u8; 4]) -> u16 {
    status(app, request(Method::GET, "/search", address)).await
}

async fn log_in(app: &Router, account: &str, password: &str) -> u16 {
    let mut request = request(Method::POST, "/login", [198, 51, 100, 7]);
    for (name, value) in [("x-account", account), ("x-password", password)] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    status(app, request).await
}

#[tokio::test(start_paused = true)]
async fn each_limit_of_the_file_applies() {
    let folder = Folder::new("each");
    let (app, _) = folder.open();
    for expected in [200, 200, 200, 429] {
        assert_eq!(search(&app, [198, 51, 100, 7]).await, expected);
    }
    for _ in 0..5 {
        assert_eq!(search(&app, [192, 0, 2, 1]).await, 200, "the office");
        assert_eq!(search(&app, [203, 0, 113, 1]).await, 403, "a scanner");
        assert_eq!(log_in(&app, "ann", "wrong").await, 401);
        assert_eq!(log_in(&app, "bob", "secret").await, 200);
    }
    assert_eq!(log_in(&app, "ann", "secret").await, 429);
    assert_eq!(log_in(&app, "bob", "secret").await, 200);
}

/// Shows promise 223.
#[tokio::test(start_paused = true)]
async fn a_file_that_changes_is_loaded_and_nothing_is_forgotten() {
    let folder = Folder::new("change");
    // The limit per day, so that time does not refill what was used.
    let policies = |day: u32| {
        let text = POLICIES.replace("token_bucket 2/s; burst=3", "token_bucket 1000/s");
        text.replace("fixed_window 1000/d", &format!("sliding_log {day}/d"))
    };
    folder.write(&policies(2));
    let (app, file) = folder.open();
    let client = [198, 51, 100, 7];
    let reload = || drop(file.reload());
    let statuses = async || {
        let mut statuses = Vec::new();
        for _ in 0..4 {
            statuses.push(search(&app, client).await);
        }
        statuses
    };
    assert_eq!(statuses().await, [200, 200, 429, 429]);
    for _ in 0..10 {
        reload();
        assert_eq!(statuses().await, [429; 4]);
    }
    folder.write(&policies(3));
    reload();
    assert_eq!(statuses().await, [200, 429, 429, 429]);
    // A mistake changes nothing, and neither does a file that is gone.
    folder.write(&policies(9).replace("key =", "kye ="));
    reload();
    assert_eq!(statuses().await, [429; 4]);
    fs::remove_file(folder.0.join("policies.toml")).unwrap();
    reload();
    assert_eq!(statuses().await, [429; 4]);
    // The list is a file of its own.
    folder.write(&policies(3));
    replace(&folder.0.join("bad.txt"), "198.51.100.0/24\n").unwrap();
    reload();
    assert_eq!(search(&app, client).await, 403);
}
