//! Threads of the operating system on one limiter, table, queue or layer.
//!
//! Miri runs these with many schedules and stale loads, and ThreadSanitizer with real parallelism.
//! Both find data races in `unsafe` code. Each test also checks the promise that a lost or torn
//! update would break. `THREAD_ROUNDS` sets how often each test repeats.
#![cfg(not(tower_throttle_loom))]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::future::{Future, Ready, poll_fn, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll};
use std::time::Duration;

use tower_layer::Layer;
use tower_service::Service;
use tower_throttle::algorithm::{Algorithm, IntoAlgorithm};
use tower_throttle::clock::{Clock, Tick};
use tower_throttle::store::local::Overflow;
use tower_throttle::{
    AsError, FixedWindow, LeakyBucket, Limiter, Local, Quota, RateLimitLayer, RateLimited,
    SlidingLog, TokenBucket,
};

const THREADS: usize = 3;
const LIMIT: usize = 4;

fn rounds() -> usize {
    let rounds = std::env::var("THREAD_ROUNDS").ok();
    rounds.map_or(1, |rounds| rounds.parse().unwrap())
}

fn quota() -> Quota {
    Quota::per_hour(LIMIT as u64)
}

/// A clock that stands still. The lock or the atomics of another clock would order the threads and
/// hide their races.
#[derive(Clone, Debug)]
struct Frozen;

impl Clock for Frozen {
    fn now(&self) -> Tick {
        Tick::from_nanos(1_000_000_000)
    }
}

/// A bucket whose interval has a long remainder.
fn wide_bucket() -> TokenBucket {
    TokenBucket::new(Quota::per(1_021, Duration::from_nanos(3_600_000_000_000_007)).burst(4))
}

/// Runs `work` in threads that start together. Returns the sum of the results.
fn run_threads(work: impl Fn(usize) -> usize + Sync) -> usize {
    let (start, work) = (&Barrier::new(THREADS), &work);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    start.wait();
                    work(thread)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    })
}

#[test]
fn a_limiter_admits_its_limit_once() {
    fn check<A: Algorithm>(algorithm: &A) {
        let limiter = Limiter::new(algorithm.clone()).with_clock(Frozen);
        let admitted = run_threads(|_| {
            (0..LIMIT)
                .filter(|_| limiter.check(1).is_admitted())
                .count()
        });
        assert_eq!(admitted, LIMIT, "{algorithm:?}");
    }
    for _ in 0..rounds() {
        check(&TokenBucket::new(quota()));
        check(&wide_bucket());
        check(&SlidingLog::new(quota()));
        check(&(TokenBucket::new(quota()), FixedWindow::new(quota())).into_algorithm());
    }
}

#[test]
fn a_limiter_that_changes_its_quota_admits_its_limit_once() {
    for _ in 0..rounds() {
        let limiter = Limiter::new(FixedWindow::new(quota())).with_clock(Frozen);
        let admitted = run_threads(|thread| {
            if thread == 0 {
                // The change keeps the count.
                limiter.set_quota(quota()).unwrap();
            }
            (0..LIMIT)
                .filter(|_| limiter.check(1).is_admitted())
                .count()
        });
        assert_eq!(admitted, LIMIT);
    }
}

const KEYS: usize = 3;

/// Each thread requests each key [`LIMIT`] times, in an order of its own. Returns how many were
/// admitted.
fn request_keys<A: Algorithm>(local: &Local<A, Frozen>, thread: usize) -> usize {
    (0..LIMIT * KEYS)
        .filter(|turn| {
            local
                .check(&((turn * (thread + 1) + thread) % KEYS), 1)
                .is_admitted()
        })
        .count()
}

/// How many of the requests of all threads keys with a limit of [`LIMIT`] admit.
fn expected() -> usize {
    let mut requests = [0; KEYS];
    for thread in 0..THREADS {
        for turn in 0..LIMIT * KEYS {
            requests[(turn * (thread + 1) + thread) % KEYS] += 1;
        }
    }
    requests
        .into_iter()
        .map(|sent: usize| sent.min(LIMIT))
        .sum()
}

#[test]
fn a_table_admits_the_limit_of_each_key_once() {
    fn check<A: Algorithm>(algorithm: &A) {
        let local = Local::new(algorithm.clone())
            .with_clock(Frozen)
            .capacity(16);
        let admitted = run_threads(|thread| request_keys(&local, thread));
        assert_eq!(admitted, expected(), "{algorithm:?}");
        assert_eq!(local.stats().evicted, 0);
    }
    for _ in 0..rounds() {
        check(&TokenBucket::new(quota()));
        check(&wide_bucket());
        check(&SlidingLog::new(quota()));
    }
}

#[test]
fn a_table_that_changes_its_quota_admits_the_limit_of_each_key_once() {
    for _ in 0..rounds() {
        let local = Local::new(FixedWindow::new(quota()))
            .with_clock(Frozen)
            .capacity(16);
        let admitted = run_threads(|thread| {
            if thread == 0 {
                local.set_quota(quota()).unwrap();
            }
            request_keys(&local, thread)
        });
        assert_eq!(admitted, expected());
    }
}

/// One thread only reads, so nothing orders its loads before the next write.
#[test]
fn a_state_that_is_read_while_it_is_written_is_whole() {
    fn check<A: Algorithm>(algorithm: &A) {
        let local = Local::new(algorithm.clone())
            .with_clock(Frozen)
            .capacity(16);
        assert!(local.check(&7, 1).is_admitted());
        run_threads(|thread| {
            for _ in 0..2 * LIMIT {
                if thread == 0 {
                    let left = local.peek(&7, 0).remaining();
                    assert!((1..LIMIT as u64).contains(&left), "{left} of {algorithm:?}");
                } else if local.check(&7, 1).is_admitted() {
                    local.refund(&7, 1);
                }
            }
            0
        });
        assert_eq!(local.peek(&7, 0).remaining(), LIMIT as u64 - 1);
    }
    for _ in 0..rounds() {
        check(&TokenBucket::new(quota()));
        check(&wide_bucket());
        check(&SlidingLog::new(quota()));
    }
}

#[test]
fn a_full_table_admits_one_limit_per_slot() {
    fn check<A: Algorithm>(algorithm: &A, overflow: Overflow) {
        let local = Local::new(algorithm.clone())
            .with_clock(Frozen)
            .capacity(1)
            .overflow(overflow);
        let admitted = run_threads(|thread| {
            (0..8 * LIMIT)
                .filter(|turn| {
                    local
                        .check(&((turn * (2 * thread + 1)) % 8), 1)
                        .is_admitted()
                })
                .count()
        });
        assert!(
            admitted <= local.stats().slots * LIMIT,
            "{admitted} by {algorithm:?}"
        );
    }
    for _ in 0..rounds() {
        check(&TokenBucket::new(quota()), Overflow::EvictLeast);
        check(&TokenBucket::new(quota()), Overflow::Deny);
        check(&SlidingLog::new(quota()), Overflow::EvictLeast);
    }
}

/// Counts its requests.
#[derive(Clone)]
struct Counter(Arc<AtomicUsize>);

impl Service<usize> for Counter {
    type Response = ();
    type Error = RateLimited;
    type Future = Ready<Result<(), RateLimited>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RateLimited>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: usize) -> Self::Future {
        self.0.fetch_add(1, Ordering::Relaxed);
        ready(Ok(()))
    }
}

/// Each thread has a runtime. One request of each thread is dropped while it waits.
#[test]
fn queued_requests_of_several_runtimes_are_served_or_leave() {
    for _ in 0..rounds() {
        // A long line: to a thread that stops between its reading of the clock and its decision,
        // the line seems longer by that time.
        let bucket = LeakyBucket::new(Quota::per(1, Duration::from_micros(300)).burst(1));
        let layer = RateLimitLayer::new(|_: &usize| 7_u8, Local::new(bucket).capacity(4))
            .queue(1_000_000)
            .respond(AsError)
            .seats(2);
        let handle = layer.handle();
        let served = Arc::new(AtomicUsize::new(0));
        let service = layer.layer(Counter(Arc::clone(&served)));
        let answered = run_threads(|thread| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap();
            runtime.block_on(async {
                let mut service = service.clone();
                let mut answered = 0;
                for turn in 0..3 {
                    poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
                    let mut call = pin!(service.call(thread));
                    if turn == thread {
                        let polled = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
                        if let Poll::Ready(result) = polled {
                            result.unwrap();
                            answered += 1;
                        }
                    } else {
                        call.await.unwrap();
                        answered += 1;
                    }
                }
                answered
            })
        });
        assert!(answered >= 2 * THREADS);
        assert_eq!(served.load(Ordering::Relaxed), answered);
        assert_eq!(handle.waiting(), 0);
    }
}
