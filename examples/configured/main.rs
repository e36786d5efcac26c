//! An app whose limits come from a file, which is loaded again while the app runs.
//!
//! `cargo run --example configured --features policies -- examples/configured/policies.toml` serves on port
//! 3000. Edit the file meanwhile. Without a file the program changes a copy itself and prints what happens.

mod app;

use std::{env, error::Error, fs, net::SocketAddr, path::Path};

use axum::{Router, body::Body, extract::Request};
use tokio::net::TcpListener;
use tower::ServiceExt;
use tower_throttle::key::PeerAddr;

use app::{WatchedFile, app, replace};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    match env::args_os().nth(1) {
        Some(path) => serve(Path::new(&path)).await,
        None => show().await,
    }
}

async fn serve(path: &Path) -> Result<(), Box<dyn Error>> {
    let (limits, _) = WatchedFile::open(path)?;
    limits.handle().watch(path, |report| match report {
        Ok(reloaded) => println!("{reloaded:?}"),
        Err(error) => println!("the limits stay as they were:\n{error}"),
    })?;
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app(limits).into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}

/// Changes a copy of the file, and shows what a client gets before and after.
async fn show() -> Result<(), Box<dyn Error>> {
    let folder = env::temp_dir().join(format!("configured-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let path = folder.join("policies.toml");
    // Slow enough that nothing is refilled meanwhile.
    let policies = include_str!("policies.toml").replace("2/s; burst=3", "1/h; burst=3");
    replace(&path, &policies)?;
    replace(&folder.join("bad.txt"), include_str!("bad.txt"))?;

    let (limits, file) = WatchedFile::open(&path)?;
    let app = app(limits);
    println!("five searches: {:?}", searches(&app).await);
    assert_eq!(searches(&app).await, [429; 5], "the burst of 3 is used");

    replace(&path, &policies.replace("burst=3", "burst=5"))?;
    println!("burst=5 instead of 3: {:?}", file.reload()?);
    let statuses = searches(&app).await;
    println!("five searches: {statuses:?}: three were used before");
    assert_eq!(statuses, [200, 200, 429, 429, 429]);

    replace(&path, &policies.replace("burst=3", "bursts=9"))?;
    let Err(error) = file.reload() else {
        return Err("a mistake was not found".into());
    };
    println!("a mistake:\n{error}");
    assert!(error.to_string().contains("line 10: limit[0].limit"));
    assert_eq!(searches(&app).await, [429; 5], "the limits stay");

    replace(&path, "version = 1\n")?;
    println!("no limits: {:?}", file.reload()?);
    assert_eq!(searches(&app).await, [200; 5]);
    Ok(fs::remove_dir_all(&folder)?)
}

/// The statuses of five searches of one client.
async fn searches(app: &Router) -> [u16; 5] {
    let mut statuses = [0; 5];
    for status in &mut statuses {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = "/search".parse().unwrap_or_default();
        // No server here: set the address that a server would set per connection.
        let peer = PeerAddr(SocketAddr::from(([198, 51, 100, 7], 4711)));
        request.extensions_mut().insert(peer);
        let Ok(response) = app.clone().oneshot(request).await;
        *status = response.status().as_u16();
    }
    statuses
}
