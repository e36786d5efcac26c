//! Faults of a real server. Each test asserts that its fault happened.

use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tower_throttle::algorithm::share_of;
use tower_throttle::store::Fallback;
use tower_throttle::store::redis::Redis;
use tower_throttle::{FixedWindow, Local, Quota, Verdict, store::Backend};

use crate::redis::open;
use crate::redis_server::RedisServer;
use crate::wait::connected;
/// How long a call or a recovery may take on a busy machine; the tests of all faults time it.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn command(server: &RedisServer, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(word);
    }
    command.exec(&mut server.connection()).expect("done");
}

/// A server may count wrong passwords, and lock the user out.
#[tokio::test]
async fn a_wrong_password_is_tried_once_per_two_seconds() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    let tried = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&tried);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            count.fetch_add(1, Ordering::Relaxed);
            // Every command of the handshake gets this reply.
            let refusal = "-WRONGPASS invalid username-password pair\r\n".repeat(8);
            let _ = stream.write_all(refusal.as_bytes());
            std::thread::spawn(move || stream.read_to_end(&mut Vec::new()));
        }
    });
    let redis = Redis::open(&format!("redis://:wrong@127.0.0.1:{port}")).expect("a url");
    let limiter = redis
        .deadline(PATIENCE)
        .limiter("password", FixedWindow::new(Quota::per_day(5)));
    let begun = Instant::now();
    let refused = connected(async || limiter.decide("key", 1).await).await;
    assert!(refused.is_err_and(|error| !error.is_transient()));
    let before = tried.load(Ordering::Relaxed);
    let refused_at = Instant::now();
    while refused_at.elapsed() < Duration::from_millis(500) {
        let error = limiter.decide("key", 1).await.expect_err("no entry");
        assert!(!error.is_transient(), "{error}");
        tokio::task::yield_now().await;
    }
    let again = tried.load(Ordering::Relaxed) - before;
    let most = begun.elapsed().as_secs() / 2;
    assert!(before > 0 && again <= most, "{before}, {again}");
}

/// Shows promise 99.
#[tokio::test]
async fn the_fallback_limits_to_this_machines_share_during_an_outage() {
    let mut server = RedisServer::start();
    let fleet = open(&server.url()).await;
    let window = FixedWindow::new(Quota::per_day(40)).anchored();
    let fleet = fleet.limiter("share", window);
    let share = share_of(&window, 4).expect("a share");
    let limiter = Fallback::new(fleet, Local::new(share));
    let take = async || limiter.decide("key", 1).await.expect("a decision").verdict;
    assert_eq!(take().await, Verdict::Admit);
    assert!(!limiter.is_on_secondary());

    server.kill();
    let mut admitted = 0;
    for _ in 0..50 {
        admitted += u32::from(take().await == Verdict::Admit);
    }
    assert_eq!(admitted, 10, "its share");
    assert!(limiter.is_on_secondary());

    server.restart();
    let begun = Instant::now();
    while limiter.is_on_secondary() {
        assert!(begun.elapsed() < PATIENCE);
        let _ = take().await;
        tokio::task::yield_now().await;
    }
    assert_eq!(take().await, Verdict::Admit);
}

/// Shows promise 77.
#[test]
fn the_error_of_a_wrong_url_says_what_is_wrong() {
    for url in ["http://localhost", "localhost:6379", "redis://:secret@"] {
        let error = Redis::open(url)
            .expect_err("no url of a server")
            .to_string();
        assert!(error.starts_with("Redis URL"), "{error}");
        let is_silent = !error.contains("quota") && !error.contains("secret");
        assert!(is_silent, "{error}");
    }
}
