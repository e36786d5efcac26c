//! Streams whose limit is in Redis: of two processes, and while the server is gone.

use std::{ops::Range, sync::Arc, time::Duration};

use futures_util::stream::{self, Iter};
use tokio::time::{Instant, timeout};
use tower_throttle::layer::OnStoreError;
use tower_throttle::store::{Backend, Fallback, Op};
use tower_throttle::store::{cas::Cas, redis::Redis};
use tower_throttle::stream::{LimitedStream, StreamLimit};
use tower_throttle::{Local, Quota, TokenBucket};

use crate::redis_server::RedisServer;
use crate::wait::connected;

const PATIENCE: Duration = Duration::from_secs(30);
/// Of the limits whose server is suspended.
const DEADLINE: Duration = Duration::from_millis(600);
const KEY: &str = "alice";

fn limiter(
    server: &RedisServer,
    name: &str,
    deadline: Duration,
    bucket: TokenBucket,
) -> Cas<Redis, TokenBucket> {
    let redis = Redis::open(&server.url()).expect("a url");
    let redis = redis.deadline(deadline).without_deny_cache();
    redis.limiter(name, bucket)
}

type Messages = LimitedStream<Iter<Range<u32>>>;

fn keyed(backend: impl Backend<String>) -> StreamLimit {
    StreamLimit::new(Arc::new(backend), KEY.to_owned())
}

fn numbers(limit: StreamLimit, n: u32) -> Messages {
    LimitedStream::new(stream::iter(0..n), limit)
}

/// Shows promise 396.
#[tokio::test]
async fn streams_of_two_processes_have_one_limit_together() {
    let server = RedisServer::start();
    let bucket = TokenBucket::new(Quota::per_day(100));
    let mut passed = 0;
    for _ in 0..2 {
        let limit = limiter(&server, "all", PATIENCE, bucket);
        let peeked = connected(async || limit.apply(KEY, Op::Peek(0)).await).await;
        let _ = peeked.expect("a decision");
        let mut messages = numbers(keyed(limit).max_wait(Duration::ZERO), 60);
        while let Some(message) = messages.next().await {
            passed += u32::from(message.is_ok());
        }
    }
    assert_eq!(passed, 100);
}

/// What becomes of ten messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    admitted: u32,
    denied: u32,
    /// Because of the server.
    failed: u32,
}

const fn outcome(admitted: u32, denied: u32, failed: u32) -> Outcome {
    Outcome {
        admitted,
        denied,
        failed,
    }
}

async fn next_ten(messages: &mut Messages) -> Outcome {
    let mut outcome = Outcome::default();
    for _ in 0..10 {
        let next = timeout(PATIENCE, messages.next()).await;
        match next.expect("no hang").expect("it goes on") {
            Ok(_) => outcome.admitted += 1,
            Err(denied) if denied.store_error().is_none() => outcome.denied += 1,
            Err(_) => outcome.failed += 1,
        }
    }
    outcome
}

/// How many messages are admitted before ten in a row have that outcome.
async fn until(messages: &mut Messages, expected: Outcome) -> u32 {
    let begun = Instant::now();
    let mut admitted = 0;
    loop {
        let ten = next_ten(messages).await;
        if ten == expected {
            return admitted;
        }
        admitted += ten.admitted;
        assert!(begun.elapsed() < PATIENCE, "{ten:?}, never {expected:?}");
    }
}

/// Streams of two messages per day each, over one server. While it is down the first one passes, the
/// second one fails, and the third one has three messages more.
async fn streams(server: &RedisServer, deadline: Duration) -> [Messages; 3] {
    let bucket = |n| TokenBucket::new(Quota::per_day(n));
    let limit = |name| limiter(server, name, deadline, bucket(2));
    let local = Local::new(bucket(3));
    let fallback = Fallback::new(limit("fallback"), local.clone());
    let mut streams = [
        keyed(limit("allow")),
        keyed(limit("deny")).on_store_error(OnStoreError::Deny),
        keyed(fallback),
    ]
    .map(|limit| numbers(limit.max_wait(Duration::ZERO), u32::MAX));
    for messages in &mut streams {
        until(messages, outcome(0, 10, 0)).await;
    }
    // A call that timed out has used it.
    local.reset(KEY);
    streams
}

/// Shows promise 396.
#[tokio::test]
async fn without_its_server_a_stream_goes_on_as_it_is_set() {
    for (fault, deadline) in [("killed", PATIENCE), ("suspended", DEADLINE)] {
        let mut server = RedisServer::start();
        let [mut allow, mut deny, mut fallback] = streams(&server, deadline).await;
        match fault {
            "killed" => server.kill(),
            _ => server.signal("STOP"),
        }
        let outcomes = tokio::join!(
            next_ten(&mut allow),
            next_ten(&mut deny),
            next_ten(&mut fallback)
        );
        let expected = (outcome(10, 0, 0), outcome(0, 0, 10), outcome(3, 7, 0));
        assert_eq!(outcomes, expected, "{fault}");
        if fault == "killed" {
            server.restart();
            let limited = outcome(0, 10, 0);
            assert!(until(&mut allow, limited).await >= 2);
            assert_eq!(until(&mut deny, limited).await, 2);
            assert_eq!(until(&mut fallback, limited).await, 2);
        }
    }
}
