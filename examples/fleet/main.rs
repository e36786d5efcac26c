//! Two apps decide one limit in memory: `cargo run --example fleet --features cas,redis -- redis://127.0.0.1:6379`
//!
//! It needs a Redis server: `docker run --rm -p 6379:6379 redis`, or `redis-server --save ''`.
//! The program starts two apps as processes, sends each of them more requests than the limit allows,
//! kills one of them, and prints what is admitted per half second. Both together admit the limit, and
//! the one that is left admits all of it.

use std::{
    error::Error,
    io::{BufRead, BufReader, Write, stdout},
    process::{Child, Command, Stdio},
    time::Duration,
};

use axum::{Router, routing::get};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, interval},
};
use tower_throttle::{
    HeaderKey, Quota, RateLimitLayer, TokenBucket,
    store::{fleet::Synced, redis::Redis},
};

/// Requests per second that both apps admit together.
const LIMIT: u64 = 40;
/// The time between two exchanges of an app.
const INTERVAL: Duration = Duration::from_millis(100);
/// What each app may take before it has heard of the other, and the refill of some intervals.
const MORE: u64 = 2 * LIMIT + LIMIT / 2;
/// Half seconds with two apps, and with one.
const WITH_TWO: usize = 6;
const WITH_ONE: usize = 6;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &*arguments {
        [url, role] if role == "app" => serve(url).await,
        [url] => watch(url).await,
        _ => watch("redis://127.0.0.1:6379").await,
    }
}

/// The app of one machine. It prints its address.
async fn serve(url: &str) -> Result<(), Box<dyn Error>> {
    let bucket = TokenBucket::new(Quota::per_second(LIMIT));
    let limit = Synced::new(Redis::open(url)?, "fleet", bucket)?.interval(INTERVAL);
    let layer = RateLimitLayer::new(HeaderKey::new("x-tenant"), limit);
    let app = Router::new().route("/", get(async || "served").layer(layer));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    stdout().flush()?;
    Ok(axum::serve(listener, app).await?)
}

/// An app, which is killed when it is dropped.
struct App {
    process: Child,
    address: String,
}

impl App {
    fn start(url: &str) -> Result<Self, Box<dyn Error>> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([url, "app"])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut address)?;
        }
        let address = address.trim().to_owned();
        Ok(Self { process, address })
    }
}

impl Drop for App {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn watch(url: &str) -> Result<(), Box<dyn Error>> {
    let mut apps = vec![App::start(url)?, App::start(url)?];
    // A tenant of its own for each run, so that runs do not count together.
    let tenant = format!("tenant-{}", std::process::id());
    let mut turns = interval(Duration::from_millis(10));
    let begun = Instant::now();
    let (mut total, mut left_alone) = (0, 0);
    println!(
        "      app 1  app 2   the limit is {} per half second",
        LIMIT / 2
    );
    for half in 1..=WITH_TWO + WITH_ONE {
        let end = begun + Duration::from_millis(500) * u32::try_from(half)?;
        let mut admitted = vec![0; apps.len()];
        while Instant::now() < end {
            turns.tick().await;
            for (app, admitted) in apps.iter().zip(&mut admitted) {
                *admitted += u64::from(is_served(&app.address, &tenant).await?);
            }
        }
        let columns: Vec<_> = admitted.iter().map(|count| format!("{count:>7}")).collect();
        println!(
            "{:>3.1} s{}",
            begun.elapsed().as_secs_f32(),
            columns.concat()
        );
        total += admitted.iter().sum::<u64>();
        if half > WITH_TWO {
            left_alone += admitted[0];
        }
        if half == WITH_TWO {
            println!("app 2 is killed");
            apps.truncate(1);
        }
    }
    let limit = LIMIT * (1 + begun.elapsed().as_secs()) + LIMIT;
    println!("{total} admitted, {limit} allowed, {MORE} more at most");
    assert!(total <= limit + MORE, "{total}");
    assert!(left_alone >= LIMIT, "{left_alone}");
    Ok(())
}

/// Sends one request.
async fn is_served(address: &str, tenant: &str) -> Result<bool, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address).await?;
    let head =
        format!("GET / HTTP/1.1\r\nhost: local\r\nconnection: close\r\nx-tenant: {tenant}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response.starts_with("HTTP/1.1 200"))
}
