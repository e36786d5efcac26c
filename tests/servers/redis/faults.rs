//! Faults of a real server. Each test asserts that its fault happened.

use std::{
    future::{Ready, ready},
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tower_throttle::store::Fallback;
use tower_throttle::store::{cas::Cas, redis::Redis};
use tower_throttle::{
    FixedWindow, Limiter, Quota, StoreError, Verdict,
    store::{Backend, Op},
};

use crate::redis::{calls_of, open};
use crate::redis_server::RedisServer;
use crate::wait::{connected, until};

/// Of calls to a server that does not reply.
const DEADLINE: Duration = Duration::from_millis(500);
/// The most that a call may take beyond its deadline.
const GRACE: Duration = Duration::from_millis(250);
/// How long a call or a recovery may take on a busy machine; the tests of all faults time it.
const PATIENCE: Duration = Duration::from_secs(10);

async fn limiter(server: &RedisServer, policy: &str) -> Cas<Redis, FixedWindow> {
    let redis = open(&server.url()).await;
    redis.limiter(policy, FixedWindow::new(Quota::per_day(1_000_000)))
}

fn imopen(server: &RedisServer, policy: &str) -> Cas<Redis, FixedWindow> {
    let redis = Redis::open(&server.url()).expect("a url");
    let window = FixedWindow::new(Quota::per_day(1_000_000));
    redis.deadline(DEADLINE).limiter(policy, window)
}

/// A timer of the same deadline beside a call. On a busy machine both are late: a call may take as
/// long as the timer, and the grace.
struct Control(tokio::task::JoinHandle<Duration>);

impl Control {
    fn start() -> Self {
        let begun = Instant::now();
        Self(tokio::spawn(async move {
            tokio::time::sleep(DEADLINE).await;
            begun.elapsed()
        }))
    }

    async fn allows(self, took: Duration) {
        if took <= DEADLINE + GRACE {
            return;
        }
        let control = self.0.await.expect("a timer");
        assert!(took <= control + GRACE, "{took:?}, the timer {control:?}");
    }
}

/// Calls until one succeeds.
pub(crate) async fn recovers(limiter: &Cas<Redis, FixedWindow>) {
    until("a call succeeds", async || {
        limiter.decide("key", 1).await.is_ok()
    })
    .await;
}

fn used(server: &RedisServer, policy: &str) -> u64 {
    let value: Option<String> = redis::cmd("EVAL")
        .arg("local v = redis.call('GET', KEYS[1]) return v and string.format('%.0f', (struct.unpack('<d', v, #v - 7)))")
        .arg(1)
        .arg(format!("{{throttle:{policy}:key}}window/86400s"))
        .query(&mut server.connection())
        .expect("a value");
    value.map_or(0, |text| text.parse().expect("a number"))
}

pub(crate) fn command(server: &RedisServer, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(word);
    }
    command.exec(&mut server.connection()).expect("done");
}

/// Shows promise 95.
#[tokio::test]
async fn flushed_scripts_are_sent_again_without_an_error() {
    let server = RedisServer::start();
    let limiter = limiter(&server, "flush").await;
    for round in 1..=20 {
        command(&server, &["SCRIPT", "FLUSH"]);
        for call in 1..=5 {
            let decision = limiter.decide("key", 1).await.expect("a decision");
            assert_eq!(decision.remaining(), 1_000_000 - (5 * (round - 1) + call));
        }
    }
    assert!(calls_of(&server, "eval") > 20, "the fault happened");
}

/// Shows promise 86.
#[tokio::test]
async fn no_call_outlives_its_deadline_while_the_server_is_stopped() {
    let server = RedisServer::start();
    let limiter = imopen(&server, "stopped");
    recovers(&limiter).await;
    let mut charged = used(&server, "stopped");
    server.signal("STOP");
    let mut timeouts = 0;
    for _ in 0..10 {
        let (begun, control) = (Instant::now(), Control::start());
        let calls: Vec<_> = (0..20).map(|_| limiter.decide("key", 1)).collect();
        let mut longest = Duration::ZERO;
        for call in calls {
            let error = call.await.expect_err("the server is stopped");
            assert!(error.is_transient());
            longest = begun.elapsed();
            timeouts += u64::from(error.to_string().contains("no decision within"));
        }
        control.allows(longest).await;
        charged += 20;
    }
    assert!(timeouts > 0, "the fault happened");
    server.signal("CONT");
    recovers(&limiter).await;
    assert!(used(&server, "stopped") <= charged + 1, "at most once each");
}

/// Shows promise 95.
#[tokio::test]
async fn broken_connections_are_replaced() {
    let server = RedisServer::start();
    let limiter = limiter(&server, "cut").await;
    let mut errors = 0;
    let mut answers = 0;
    for _ in 0..20 {
        command(
            &server,
            &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
        );
        match limiter.decide("key", 1).await {
            Ok(_) => answers += 1,
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                errors += 1;
                recovers(&limiter).await;
                answers += 1;
            }
        }
    }
    assert!(errors > 0, "the fault happened");
    let used = used(&server, "cut");
    assert!((answers..=answers + errors).contains(&used), "{used}");
}

/// Shows promise 97.
#[tokio::test]
async fn a_missing_permission_is_a_permanent_error() {
    let server = RedisServer::start();
    command(
        &server,
        &[
            "ACL", "SETUSER", "small", "on", ">secret", "~*", "+ping", "+hello", "+client",
        ],
    );
    let url = server.url().replace("redis://", "redis://small:secret@");
    let redis = open(&url).await;
    let limiter = redis.limiter("acl", FixedWindow::new(Quota::per_day(5)));
    for _ in 0..10 {
        let error = limiter.decide("key", 1).await.expect_err("no permission");
        assert!(!error.is_transient(), "{error}");
        assert!(
            error.to_string().contains("let this user run EVAL"),
            "{error}"
        );
        assert!(!error.to_string().contains("secret"));
    }
}

/// Shows promise 97.
#[tokio::test]
async fn a_wrong_password_is_a_permanent_error() {
    let server = RedisServer::start();
    command(&server, &["CONFIG", "SET", "requirepass", "right"]);
    for wrong in ["redis://", "redis://:wrong@"] {
        let redis = Redis::open(&server.url().replace("redis://", wrong)).expect("a url");
        let limiter = redis
            .deadline(PATIENCE)
            .limiter("acl", FixedWindow::new(Quota::per_day(5)));
        let decided = connected(async || limiter.decide("key", 1).await).await;
        let error = decided.expect_err("no entry");
        assert!(!error.is_transient(), "{error}");
        assert!(error.to_string().contains("user or password"), "{error}");
    }
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

/// One limit in this process, shared by all keys.
#[derive(Debug)]
pub(crate) struct Local(pub(crate) Limiter<FixedWindow>);

impl Backend<str> for Local {
    type Future = Ready<Result<tower_throttle::Decision, StoreError>>;

    fn apply(&self, _key: &str, op: Op) -> Self::Future {
        match op {
            Op::Take(cost) => ready(Ok(self.0.check(cost))),
            _ => ready(Ok(self.0.peek(1))),
        }
    }

    fn quotas(&self) -> Vec<Quota> {
        vec![self.0.quota()]
    }
}

/// Shows promise 99.
#[tokio::test]
async fn the_fallback_limits_to_this_machines_share_during_an_outage() {
    let mut server = RedisServer::start();
    let fleet = open(&server.url()).await;
    let window = FixedWindow::new(Quota::per_day(40)).anchored();
    let fleet = fleet.limiter("share", window);
    let share = fleet.share_of(4).expect("a share");
    let limiter = Fallback::new(fleet, Local(Limiter::new(share)));
    let take = async || limiter.decide("key", 1).await.expect("a decision").verdict;
    assert_eq!(take().await, Verdict::Admit);
    assert_eq!((limiter.secondary_calls(), limiter.switches()), (0, 0));

    server.kill();
    let mut admitted = 0;
    for _ in 0..50 {
        admitted += u32::from(take().await == Verdict::Admit);
    }
    assert_eq!(admitted, 10, "its share");
    assert_eq!((limiter.secondary_calls(), limiter.switches()), (50, 1));

    server.restart();
    let begun = Instant::now();
    while limiter.is_on_secondary() {
        assert!(begun.elapsed() < PATIENCE);
        let _ = take().await;
        tokio::task::yield_now().await;
    }
    assert_eq!(limiter.switches(), 2);
    assert_eq!(take().await, Verdict::Admit);
}

/// Shows promise 97.
#[tokio::test]
async fn the_fallback_does_not_cover_permanent_errors() {
    let server = RedisServer::start();
    command(
        &server,
        &["SET", "{throttle:mend:key}window/86400s", "something else"],
    );
    let local = Local(Limiter::new(FixedWindow::new(Quota::per_day(10))));
    let limiter = Fallback::new(limiter(&server, "mend").await, local);
    let error = limiter.decide("key", 1).await.expect_err("not ours");
    assert!(!error.is_transient() && limiter.secondary_calls() == 0);
}

/// Shows promise 94.
#[tokio::test]
async fn errors_of_an_open_breaker_name_the_last_cause() {
    let mut server = RedisServer::start();
    let limiter = limiter(&server, "cause").await;
    let _ = limiter.decide("key", 1).await.expect("a decision");
    server.kill();
    let begun = Instant::now();
    loop {
        let error = limiter.decide("key", 1).await.expect_err("it is dead");
        let text = error.to_string();
        if text.contains("not asked") && text.contains("refused") {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{text}");
        tokio::task::yield_now().await;
    }
}

/// Shows promise 77.
#[test]
fn the_error_of_a_wrong_url_says_what_is_wrong() {
    for url in ["http://localhost", "localhost:6379", "redis://:secret@"] {
        let error = Redis::open(url)
            .expect_err("no url of a server")
            .to_string();
        assert!(error.starts_with("Redis URL"), "{error}");
        assert!(
            !error.contains("quota") && !error.contains("secret"),
            "{error}"
        );
    }
}
