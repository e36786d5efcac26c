//! A Redis server that is hostile, or that is no Redis server: no reply makes a limiter panic, outlive
//! its deadline, take memory without bound, or admit what it would deny in an outage.
use std::{
    convert::Infallible,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use http::{Request, Response, StatusCode};
use test_support::{counting::process_live, random::Random, wait::connected};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    FixedWindow, Global, LeakyBucket, Quota, RateLimitLayer, SlidingGrid, SlidingLog,
    SlidingWindow, StoreError, TokenBucket, WarmUp,
    store::{Backend, cas::Cas, redis::Redis},
};

use crate::ALONE;

const DEADLINE: Duration = Duration::from_millis(50);
/// What a machine under load may add to a deadline.
const LATE: Duration = Duration::from_secs(5);

/// A server on threads of its own, which replies to each script call with bytes of its choice.
struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    reply: Mutex<Vec<u8>>,
    /// Follows the reply until the connection is closed.
    endless: Mutex<Vec<u8>>,
    /// Replies that never ended because the connection was closed.
    cut: AtomicUsize,
    calls: AtomicU64,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::<Shared>::default();
        let accepts = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&accepts);
                thread::spawn(move || shared.serve(&client));
            }
        });
        Self { address, shared }
    }

    fn replies(&self, reply: impl Into<Vec<u8>>, endless: &[u8]) {
        *self.shared.endless.lock().expect("bytes") = endless.to_vec();
        *self.shared.reply.lock().expect("a reply") = reply.into();
    }

    fn redis(&self) -> Redis {
        let redis = Redis::open(&format!("redis://{}", self.address)).expect("a url");
        redis.deadline(DEADLINE)
    }
}

impl Shared {
    /// Replies to the commands of a connection, until it is closed.
    fn serve(&self, client: &TcpStream) -> Option<()> {
        let (mut from, mut to) = (BufReader::new(client), client);
        loop {
            if command(&mut from)?.starts_with("EVAL") {
                self.calls.fetch_add(1, Ordering::Relaxed);
                let reply = self.reply.lock().expect("a reply").clone();
                to.write_all(&reply).ok()?;
                let endless = self.endless.lock().expect("bytes").clone();
                while !endless.is_empty() {
                    if to.write_all(&endless).is_err() {
                        self.cut.fetch_add(1, Ordering::Relaxed);
                        return None;
                    }
                }
            } else {
                to.write_all(b"+OK\r\n").ok()?;
            }
        }
    }
}

/// Reads a command. Returns its name.
fn command(from: &mut impl BufRead) -> Option<String> {
    let number = |from: &mut dyn BufRead| {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        line.trim_end().get(1..)?.parse::<usize>().ok()
    };
    let mut name = None;
    for _ in 0..number(from)? {
        let mut argument = vec![0; number(from)? + 2];
        from.read_exact(&mut argument).ok()?;
        name = name.or_else(|| Some(String::from_utf8_lossy(&argument).trim_end().to_uppercase()));
    }
    name
}

/// A script's reply on one call: the time, and the numbers of the call.
fn script_reply(now: i64, numbers: &[i64]) -> Vec<u8> {
    let numbers = [&[now], numbers].concat();
    let bytes: Vec<_> = numbers.into_iter().flat_map(i64::to_le_bytes).collect();
    [format!("${}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat()
}

/// Replies of Redis that no script of this crate sends.
fn wrong_types() -> Vec<Vec<u8>> {
    let mut replies = [
        "+OK\r\n",
        "+\r\n",
        ":1\r\n",
        ":-1\r\n",
        "$-1\r\n",
        "$0\r\n\r\n",
        "$7\r\n1234567\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*1\r\n:1\r\n",
        "*2\r\n$8\r\n12345678\r\n:1\r\n",
        "_\r\n",
        ",nan\r\n",
        "#t\r\n",
        "%1\r\n+a\r\n+b\r\n",
        "~1\r\n+a\r\n",
        "(12345678901234567890\r\n",
        "=5\r\ntxt:a\r\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec();
    replies.push(script_reply(1, &[1; 1_000]));
    replies
}

/// Errors, and bytes that are no reply or the beginning of one that never ends.
fn broken_replies() -> Vec<Vec<u8>> {
    let mut replies = [
        "-ERR hostile\r\n",
        "-NOSCRIPT again and again\r\n",
        "-MOVED 1 192.0.2.1:6379\r\n",
        "-ASK 1 192.0.2.1:6379\r\n",
        "-\r\n",
        "hello\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "*1000000000\r\n",
        "*9223372036854775807\r\n",
        "%4611686018427387904\r\n",
        "%-1\r\n",
        "$9223372036854775807\r\n",
        "$99999999999999999999\r\n",
        "=-1\r\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec();
    replies.push(b"*1\r\n".repeat(100_000));
    replies.push(b"*4096\r\n".repeat(200));
    replies
}

/// All replies, and whether each is of a wrong type.
fn replies() -> impl Iterator<Item = (Vec<u8>, bool)> {
    let wrong = wrong_types().into_iter().map(|reply| (reply, true));
    wrong.chain(broken_replies().into_iter().map(|reply| (reply, false)))
}

/// The beginning of a reply.
fn shown(reply: &[u8]) -> String {
    String::from_utf8_lossy(&reply[..reply.len().min(50)]).into_owned()
}

/// Counts panics on all threads while `body` runs.
fn panics(body: impl FnOnce()) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&count);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        counts.fetch_add(1, Ordering::Relaxed);
        eprintln!("{info}");
    }));
    body();
    std::panic::set_hook(before);
    count.load(Ordering::Relaxed)
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Shows promise 106.
#[test]
fn no_reply_makes_a_call_panic_or_outlive_its_deadline() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let panics = panics(|| {
        runtime().block_on(async {
            for (reply, _) in replies() {
                let text = shown(&reply);
                let server = Server::start();
                server.replies(reply, b"");
                let redis = server.redis();
                let limiter = redis
                    .limiter("hostile", FixedWindow::new(Quota::per_day(1)))
                    .without_deny_cache();
                let before = process_live();
                for _ in 0..4 {
                    let begun = Instant::now();
                    let decided = limiter.decide("key", 1).await;
                    assert!(decided.is_err(), "{text:?}: {decided:?}");
                    assert!(begun.elapsed() < DEADLINE + LATE, "{text:?}");
                    let more = process_live() - before;
                    assert!(more < 64 << 20, "{text:?}: {more} bytes");
                }
                assert!(server.shared.calls.load(Ordering::Relaxed) > 0);
            }
        });
    });
    assert_eq!(panics, 0);
}

/// The status of a request, denied while there is no store or not, and whether the limiter's error is transient.
async fn status(redis: &Redis, denies: bool) -> (StatusCode, StoreError) {
    let limiter = redis
        .limiter("hostile", FixedWindow::new(Quota::per_day(1)))
        .without_deny_cache();
    let decided = connected(async || limiter.decide("key", 1).await).await;
    let error = decided.expect_err("no decision");
    let fine =
        service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::from("fine"))));
    let mut layer = RateLimitLayer::new(Global, limiter);
    if denies {
        layer = layer.deny_on_store_error();
    }
    let Ok(response) = layer.layer(fine).oneshot(Request::new(())).await;
    (response.status(), error)
}

/// Shows promise 106.
#[test]
fn no_reply_admits_more_than_an_outage_does() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    runtime().block_on(async {
        for (reply, is_wrong_type) in replies() {
            let text = shown(&reply);
            // One of two calls must not end at its deadline only because the machine is busy. What
            // is neither a reply nor an error may never end.
            let ends = is_wrong_type || reply.starts_with(b"-");
            let deadline = Duration::from_millis(if ends { 5_000 } else { 250 });
            let server = Server::start();
            server.replies(reply, b"");
            let redis = || server.redis().deadline(deadline);
            let (denied, _) = status(&redis(), true).await;
            assert_ne!(denied, StatusCode::OK, "{text:?}");
            let (allowed, error) = status(&redis(), false).await;
            // A mistake is never an outage.
            let passes = allowed == StatusCode::OK;
            assert_eq!(passes, error.is_transient(), "{text:?}: {allowed}, {error}");
            assert!(!(passes && is_wrong_type), "{text:?}: {error}");
        }
    });
}

/// Sends random numbers as replies. Returns how many were decisions.
async fn random_replies<A: tower_throttle::algorithm::Algorithm>(
    server: &Server,
    policy: &str,
    algorithm: A,
) -> u32
where
    Cas<Redis, A>:
        Backend<str, Future: Future<Output = Result<tower_throttle::Decision, StoreError>>>,
{
    const NOW: i64 = 1_800_000_000_000_000;
    const NUMBERS: [i64; 10] = [
        0,
        1,
        2,
        -1,
        1_000_000_000,
        NOW,
        9_007_199_254_740_991,
        -9_007_199_254_740_991,
        i64::MAX,
        i64::MIN,
    ];
    let limiter = server
        .redis()
        .limiter(policy, algorithm)
        .without_deny_cache();
    let mut random = Random::new(1);
    let mut next = |most: usize| usize::try_from(random.below(most as u64)).expect("small");
    let mut decisions = 0;
    for at in 0..400 {
        let mut numbers: Vec<_> = (0..2 + at % 5)
            .map(|_| NUMBERS[next(NUMBERS.len())])
            .collect();
        let mut now = NUMBERS[next(NUMBERS.len())];
        if next(2) == 0 {
            // Closer to a reply: a moment, and a status.
            now = NOW;
            numbers[0] = NUMBERS[next(2)];
        }
        server.replies(script_reply(now, &numbers), b"");
        let begun = Instant::now();
        decisions += u32::from(limiter.decide("key", 1).await.is_ok());
        assert!(begun.elapsed() < DEADLINE + LATE, "{numbers:?}");
    }
    decisions
}

/// Shows promise 106.
#[test]
fn no_numbers_in_a_reply_panic() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let panics = panics(|| {
        runtime().block_on(async {
            let server = Server::start();
            let quota = Quota::per_second(3);
            let mut decisions = 0;
            decisions += random_replies(&server, "a", FixedWindow::new(quota)).await;
            decisions += random_replies(&server, "b", SlidingLog::new(quota)).await;
            decisions += random_replies(&server, "c", SlidingWindow::new(quota)).await;
            decisions += random_replies(&server, "d", SlidingGrid::new(quota).cells(3)).await;
            decisions += random_replies(&server, "e", TokenBucket::new(quota)).await;
            decisions += random_replies(&server, "f", LeakyBucket::new(quota)).await;
            let warm_up = WarmUp::new(quota, Duration::from_secs(1));
            decisions += random_replies(&server, "g", warm_up).await;
            assert!(decisions > 10, "{decisions} replies were understood");
        });
    });
    assert_eq!(panics, 0);
}

/// Shows promise 106.
#[test]
fn a_reply_that_never_ends_ends_with_its_connection_and_frees_its_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    runtime().block_on(async {
        for start in ["$8000000000\r\n", "*1000000000\r\n"] {
            let server = Server::start();
            server.replies(start, &b"+0\r\n".repeat(1_024));
            let limiter = server
                .redis()
                .limiter("endless", FixedWindow::new(Quota::per_day(1)))
                .without_deny_cache();
            let before = process_live();
            let begun = Instant::now();
            while server.shared.cut.load(Ordering::Relaxed) == 0 {
                assert!(limiter.decide("key", 1).await.is_err());
                let is_right = begun.elapsed() < 10 * LATE;
                assert!(is_right, "{start:?}: the connection is open");
            }
            // A later call replaces the connection, and its memory is free again.
            server.replies("-ERR hostile\r\n", b"");
            let freed = || process_live() - before < 4 << 20;
            while !freed() {
                assert!(limiter.decide("key", 1).await.is_err());
                let is_right = begun.elapsed() < 20 * LATE;
                assert!(is_right, "{start:?}: the memory is taken");
            }
        }
    });
}
