//! Limits that go on over a restart: a daily quota and a lockout are saved every minute and on SIGTERM.
//!
//! ```text
//! cargo run --example restart
//! ```
//!
//! The program starts its server, uses it, sends it SIGTERM and starts it again. The server alone:
//! `cargo run --example restart -- serve /var/lib/app/limits`.

use std::{
    env, fs, io,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use axum::{Router, http::StatusCode, routing::get};
use tokio::{net::TcpListener, task::spawn_blocking, time::interval};
use tower_throttle::{
    FixedWindow, HeaderKey, Lockout, Quota, RateLimitLayer, Settle, store::StateFile,
};

const MINUTE: Duration = Duration::from_mins(1);
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 3961);
const KEY: &str = "x-api-key";

async fn serve(path: &str) -> io::Result<()> {
    let search = FixedWindow::new(Quota::per_day(3));
    let search = RateLimitLayer::new(HeaderKey::new(KEY), search);
    let login = Lockout::new(Quota::per_hour(2));
    let login = RateLimitLayer::new(HeaderKey::new(KEY), login).settle(|response: &_| {
        match axum::response::Response::status(response) {
            StatusCode::UNAUTHORIZED => Settle::Keep,
            _ => Settle::Refund,
        }
    });

    // All limits of the program in one file, which is replaced at once and holds the secret seeds of keys.
    let states = StateFile::new(path)
        .limit("search", search.handle())
        .limit("login", login.handle());
    let states = Arc::new(states);
    // Before the first request. A file that does not fit is no reason not to start.
    if let Err(error) = states.load() {
        eprintln!("some limits begin afresh: {error}");
    }
    let save = move || {
        let states = Arc::clone(&states);
        // Writing waits for the disk.
        spawn_blocking(move || {
            if let Err(error) = states.save() {
                eprintln!("limits are not saved: {error}");
            }
        })
    };
    let every_minute = save.clone();
    tokio::spawn(async move {
        let mut minutes = interval(MINUTE);
        loop {
            minutes.tick().await;
            let _ = every_minute().await;
        }
    });

    let app = Router::new()
        .route("/search", get(async || "found").layer(search))
        .route(
            "/login",
            get(async || StatusCode::UNAUTHORIZED).layer(login),
        );
    axum::serve(TcpListener::bind(ADDRESS).await?, app)
        .with_graceful_shutdown(stopped())
        .await?;
    // After the last request.
    save().await.map_err(io::Error::other)
}

/// Kubernetes, systemd and Docker stop a process by SIGTERM.
async fn stopped() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminated = signal(SignalKind::terminate()).expect("SIGTERM can be handled");
        terminated.recv().await;
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await.expect("it can be handled");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let args: Vec<_> = env::args().skip(1).collect();
    if let [command, path] = &args[..] {
        assert_eq!(command, "serve", "serve PATH");
        return serve(path).await;
    }
    let folder = env::temp_dir().join(format!("restart-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let path = folder.join("limits");

    let mut server = start(&path)?;
    let search = ["/search"; 2].map(|path| status(path, "ann"));
    println!("ann has 3 searches per day and uses 2: {search:?}");
    assert_eq!(search, [200, 200]);
    let logins = ["/login"; 3].map(|path| status(path, "eve"));
    println!("eve fails twice and is locked out:     {logins:?}");
    assert_eq!(logins, [401, 401, 429]);
    stop(&mut server)?;

    let mut server = start(&path)?;
    println!("-- restarted");
    let search = ["/search"; 2].map(|path| status(path, "ann"));
    println!("ann has 1 left:                        {search:?}");
    assert_eq!(search, [200, 429]);
    let login = status("/login", "eve");
    println!("eve is still locked out:               {login}");
    assert_eq!(login, 429);
    stop(&mut server)?;
    fs::remove_dir_all(&folder)
}

fn start(path: &std::path::Path) -> io::Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    let child = command
        .arg("serve")
        .arg(path)
        .stdin(Stdio::null())
        .spawn()?;
    while TcpStream::connect(ADDRESS).is_err() {
        std::thread::yield_now();
    }
    Ok(child)
}

fn stop(server: &mut Child) -> io::Result<()> {
    if cfg!(unix) {
        let pid = server.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status()?;
    } else {
        server.kill()?;
    }
    server.wait().map(drop)
}

/// The status of a response.
fn status(path: &str, key: &str) -> u16 {
    let asked = || -> io::Result<String> {
        let mut stream = TcpStream::connect(ADDRESS)?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: x\r\n{KEY}: {key}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    let response = asked().expect("the server is there");
    response[9..12].parse().expect("a status")
}
