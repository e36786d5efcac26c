//! The operations of several threads on one table are linearizable. Each operation has its own time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use tower_throttle::algorithm::Algorithm;
use tower_throttle::{
    FixedWindow, Limiter, Local, Quota, SlidingLog, TokenBucket,
    clock::{Clock, Tick},
    store::{Backend, Op},
};

use crate::linearizable::{Event, any_op, is_linearizable};
use crate::random::Random;
use test_support::from_env;

/// A clock with a separate time per thread.
#[derive(Clone, Copy, Debug)]
struct ThreadClock;

thread_local! {
    static NOW: AtomicU64 = const { AtomicU64::new(0) };
}

impl Clock for ThreadClock {
    fn now(&self) -> Tick {
        NOW.with(|now| Tick::from_nanos(now.load(Ordering::Relaxed)))
    }
}

/// What four threads do to a few keys, eight times each.
fn record<A: Algorithm>(algorithm: &A, keys: u64, seed: u64) -> Vec<Event> {
    let local = Local::new(algorithm.clone())
        .with_clock(ThreadClock)
        .capacity(1);
    let (steps, start) = (AtomicU64::new(0), Barrier::new(4));
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..4)
            .map(|thread| {
                let (local, steps, start) = (local.clone(), &steps, &start);
                scope.spawn(move || {
                    let mut random = Random::new(seed ^ thread << 32);
                    let mut before = None;
                    start.wait();
                    (0..8)
                        .map(|_| {
                            let now = 1_000_000_000 + random.below(30);
                            NOW.with(|clock| clock.store(now, Ordering::Relaxed));
                            let (key, op) = (random.below(keys), any_op(&mut random, before));
                            let called = steps.fetch_add(1, Ordering::SeqCst);
                            let decision = match op {
                                Op::Take(cost) if random.below(2) == 0 => local.check(&key, cost),
                                op => local.apply(&key, op).into_inner().expect("a decision"),
                            };
                            before = before.filter(|_| random.below(4) > 0).or(Some(decision));
                            let returned = steps.fetch_add(1, Ordering::SeqCst);
                            let now = Tick::from_nanos(now);
                            Event {
                                key,
                                now,
                                op,
                                decision,
                                called,
                                returned,
                            }
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        handles
            .into_iter()
            .flat_map(|handle| handle.join().expect("no panic"))
            .collect()
    })
}

fn quota() -> Quota {
    Quota::per(3, std::time::Duration::from_nanos(10))
}

fn check<A: Algorithm>(algorithm: &A, seed: u64) {
    let events = record(algorithm, 1 + seed % 3, seed);
    let is_right = is_linearizable(algorithm, &events);
    assert!(is_right, "{}", crate::linearizable::shown(&events));
}

/// Shows promise 36.
#[test]
fn concurrent_decisions_are_linearizable() {
    for seed in 0..from_env("HISTORIES", 300) {
        check(&TokenBucket::new(quota()), seed);
        check(&FixedWindow::new(quota()), seed);
        check(&SlidingLog::new(quota()), seed);
    }
}

/// The clock of another thread may be a little behind.
///
/// Shows promise 36.
#[test]
fn a_denial_is_not_repeated_after_an_admission() {
    let limiter = || Limiter::new(TokenBucket::new(quota())).with_clock(ThreadClock);
    let [repeats, decides] = [limiter(), limiter()];
    for now in [9, 9, 9, 10, 10, 19, 10] {
        NOW.with(|clock| clock.store(now, Ordering::Relaxed));
        decides.refund(0); // It hides the last denial.
        assert_eq!(repeats.check(1), decides.check(1), "at {now}");
    }
}
