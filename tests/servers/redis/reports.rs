//! What an operator sees of a store on a server: the log and the metrics. No key is in either.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;
use tower_throttle::store::{
    cas::{Cas, MemoryStore},
    redis::Redis,
};
use tower_throttle::{FixedWindow, Quota, StoreError, TokenBucket, store::Backend};

use crate::log::log;
use crate::measured::{SECRET, measured};
use crate::proxy::{Protocol, Proxy};
use crate::redis::faults::command;
use crate::redis_server::RedisServer;
use crate::wait::{connected, until};

fn limiter(url: &str, limit: u64) -> Cas<Redis, FixedWindow> {
    limiter_with(Duration::from_secs(10), url, limit)
}

fn limiter_with(deadline: Duration, url: &str, limit: u64) -> Cas<Redis, FixedWindow> {
    let redis = Redis::open(url).expect("a url").deadline(deadline);
    let window = FixedWindow::new(Quota::per_day(limit)).anchored();
    redis.limiter("reports", window)
}

/// Refuses calls until the breaker opens. Returns the last error of the server.
async fn outage(limiter: &Cas<Redis, FixedWindow>, proxy: &Proxy) -> Option<StoreError> {
    let mut last = None;
    let begun = Instant::now();
    loop {
        proxy.refuses("LOADING Redis is loading the dataset in memory", 1);
        match limiter.decide(SECRET, 1).await.err() {
            Some(error) if error.to_string().contains("not asked") => return last,
            error => last = error.or(last),
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "it never opens");
    }
}

async fn recovery(limiter: &Cas<Redis, FixedWindow>, proxy: &Proxy) {
    proxy.refuses("", 0);
    let begun = Instant::now();
    while limiter.decide(SECRET, 1).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it never closes");
        tokio::task::yield_now().await;
    }
}

/// Shows promise 94.
#[test]
fn a_flapping_breaker_does_not_fill_the_log() {
    measured(|metrics| async move {
        let server = RedisServer::start();
        let proxy = Proxy::before(Protocol::Redis, server.port());
        let fleet = limiter(&proxy.url(), 1_000_000);
        let begun = Instant::now();
        for _ in 0..20 {
            outage(&fleet, &proxy).await;
            recovery(&fleet, &proxy).await;
        }
        let text = log();
        // One more per ten seconds.
        let most = 4 + begun.elapsed().as_secs() / 10;
        let lines = text.lines().count() as u64;
        assert!((4..=most).contains(&lines), "{text}");
        let first = text.lines().next().expect("a line");
        let is_logged = first.contains("Redis does not reply: the circuit breaker is open");
        assert!(is_logged, "{text}");
        assert!(
            first.contains("LOADING") || first.contains("loading"),
            "the cause: {text}"
        );
        let is_logged = text.contains("Redis replies again: the circuit breaker is closed");
        assert!(is_logged, "{text}");
        let name = "tower_throttle_switches_total of=breaker to=open";
        assert!(metrics.value(name) >= 20.0, "all are counted");
    });
}

/// Shows promise 241.
#[test]
fn calls_batches_and_the_queue_are_measured() {
    measured(|metrics| async move {
        let server = RedisServer::start();
        let in_redis = limiter(&server.url(), 1_000);
        let _ = in_redis.decide(SECRET, 1).await.expect("a decision");
        let connects = "tower_throttle_store_connects_total store=Redis outcome=ok";
        assert!((metrics.value(connects) - 1.0).abs() < 0.5);
        let calls = metrics.all("tower_throttle_store_call_seconds store=Redis outcome=ok");
        assert_eq!(calls.len(), 1);
        // Batches of Redis are measured on other threads, which have another recorder.
        let begun = Instant::now();
        let limiter = Cas::new(
            MemoryStore::new(),
            "api",
            TokenBucket::new(Quota::per_hour(1_000)),
        )
        .expect("a limit");
        let calls: Vec<_> = (0..100)
            .map(|_| tokio::spawn(limiter.decide(SECRET, 1)))
            .collect();
        for call in calls {
            let _ = call.await.expect("no panic").expect("a decision");
        }
        let calls = metrics.all("tower_throttle_store_call_seconds store=memory outcome=ok");
        assert_eq!(calls.len(), 100);
        let most = begun.elapsed().as_secs_f64();
        assert!(
            calls.iter().all(|took| (0.0..most).contains(took)),
            "{calls:?}, {most}"
        );
        let batches = metrics.all("tower_throttle_store_batch_size store=memory");
        assert_eq!(batches, [100.0]);
    });
}

/// Shows promise 241.
#[test]
fn cached_denials_errors_and_reconnects_are_counted() {
    let errors =
        |class: &str| format!("tower_throttle_store_errors_total store=Redis class={class}");
    measured(|metrics| async move {
        let server = RedisServer::start();
        let proxy = Proxy::before(Protocol::Redis, server.port());
        // One call has no reply.
        let fleet = limiter_with(Duration::from_secs(2), &proxy.url(), 1);
        for _ in 0..3 {
            let decided = connected(async || fleet.decide(SECRET, 1).await).await;
            let _ = decided.expect("a decision");
        }
        let hits = metrics.value("tower_throttle_deny_cache_hits_total store=Redis");
        assert!(hits >= 1.0, "{hits}");

        command(
            &server,
            &[
                "DEL",
                &format!("{{throttle:reports:{SECRET}}}anchored/86400s"),
            ],
        );
        command(
            &server,
            &["RPUSH", "{throttle:reports:list}anchored/86400s", "1"],
        );
        let error = fleet.decide("list", 1).await.expect_err("a list");
        assert!(!error.is_transient(), "{error}");
        assert!((metrics.value(&errors("permanent")) - 1.0).abs() < 0.5);

        proxy.is_silent(true);
        let error = fleet.decide("other", 1).await.expect_err("it is silent");
        assert!(error.to_string().contains("no decision within"), "{error}");
        assert!((metrics.value(&errors("timeout")) - 1.0).abs() < 0.5);
        proxy.is_silent(false);

        proxy.cuts_all();
        let begun = Instant::now();
        while fleet.decide("another", 1).await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(10), "no recovery");
        }
        let connects = "tower_throttle_store_connects_total store=Redis outcome=ok";
        assert!(metrics.value(connects) >= 2.0);
    });
}

/// The error of each fault that a server or a proxy can produce here.
async fn errors() -> BTreeMap<&'static str, StoreError> {
    let decide = async |url: String| {
        let redis = Redis::open(&url).expect("a url");
        let window = FixedWindow::new(Quota::per_day(10));
        let limiter = redis
            .deadline(Duration::from_secs(5))
            .limiter("page", window);
        let decided = connected(async || limiter.decide("key", 1).await).await;
        decided.expect_err("a fault")
    };
    let mut errors = BTreeMap::new();

    let mut server = RedisServer::start();
    server.kill();
    errors.insert("server down", decide(server.url()).await);

    let server = RedisServer::start();
    let redis = Redis::open(&server.url()).expect("a url");
    let limiter = redis.limiter("page", FixedWindow::new(Quota::per_day(10)));
    until("it decides", async || {
        limiter.decide("key", 1).await.is_ok()
    })
    .await;
    server.signal("STOP");
    let error = limiter.decide("key", 1).await.expect_err("no reply");
    errors.insert("server stalled, or cut off", error);
    // One call per interval is a probe.
    let error = loop {
        let error = limiter.decide("key", 1).await.expect_err("no reply");
        if error.to_string().contains("not asked") {
            break error;
        }
    };
    errors.insert("open circuit breaker", error);

    let server = RedisServer::start();
    command(&server, &["ACL", "SETUSER", "small", "on", ">small", "~*"]);
    let url = server.url().replace("redis://", "redis://small:small@");
    errors.insert("missing permission", decide(url).await);
    command(&server, &["RPUSH", "{throttle:page:key}window/86400s", "1"]);
    errors.insert("value of another program", decide(server.url()).await);
    command(&server, &["DEL", "{throttle:page:key}window/86400s"]);
    command(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    errors.insert("full server", decide(server.url()).await);
    command(&server, &["CONFIG", "SET", "maxmemory", "0"]);

    let proxy = Proxy::before(Protocol::Redis, server.port());
    let refusals = [
        ("plain client in a cluster", "MOVED 3999 127.0.0.1:6381"),
        (
            "server that loads its data",
            "LOADING Redis is loading the dataset in memory",
        ),
        (
            "server busy with a script",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL",
        ),
    ];
    for (fault, reply) in refusals {
        proxy.refuses(reply, 10);
        errors.insert(fault, decide(proxy.url()).await);
    }
    let other = RedisServer::start();
    command(
        &server,
        &["REPLICAOF", "127.0.0.1", &other.port().to_string()],
    );
    errors.insert("replica", decide(server.url()).await);
    command(&server, &["REPLICAOF", "NO", "ONE"]);
    command(&server, &["CONFIG", "SET", "requirepass", "right"]);
    errors.insert("wrong password", decide(server.url()).await);
    errors
}

/// Shows promise 128.
#[tokio::test]
async fn the_page_for_operators_has_the_errors_of_all_faults() {
    const PERMANENT: [&str; 4] = [
        "plain client in a cluster",
        "wrong password",
        "missing permission",
        "value of another program",
    ];

    let page = include_str!("../../../docs/redis.md");
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (fault, error) = (cells.next()?, cells.next()?);
        Some((fault, error.strip_prefix('`')?.strip_suffix("` |")?))
    });
    let mut errors = errors().await;
    for (fault, text) in rows {
        // tests/tls has a server with a certificate.
        if fault == "wrong certificate" {
            continue;
        }
        let error = errors
            .remove(fault)
            .unwrap_or_else(|| panic!("{fault} is not tested"));
        assert!(error.to_string().contains(text), "{fault}: {error}");
        assert_eq!(
            error.is_transient(),
            !PERMANENT.contains(&fault),
            "{fault}: {error}"
        );
    }
    assert!(errors.is_empty(), "not on the page: {errors:?}");
}
