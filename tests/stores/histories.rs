//! The operations of several threads on one table are linearizable.
//!
//! Each operation has its own time. A history is linearizable if the operations have a sequential
//! order that keeps each operation before those that were called after it had returned, and in
//! which the plain algorithm returns the same decisions.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use tower_throttle::algorithm::{Algorithm, Words};
use tower_throttle::{
    FixedWindow, Local, Quota, SlidingLog, TokenBucket,
    clock::{Clock, Tick},
};

use crate::env::from_env;
use crate::linearizable::{Event, is_linearizable};
use crate::random::Random;

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

fn record<A: Words>(algorithm: &A, threads: u64, each: u64, keys: u64, seed: u64) -> Vec<Event> {
    let local = Local::new(algorithm.clone())
        .with_clock(ThreadClock)
        .capacity(1);
    let (steps, start) = (
        AtomicU64::new(0),
        Barrier::new(usize::try_from(threads).expect("few")),
    );
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let (local, steps, start) = (local.clone(), &steps, &start);
                scope.spawn(move || {
                    let mut random = Random::new(seed ^ thread << 32);
                    start.wait();
                    (0..each)
                        .map(|_| {
                            let now = 1_000_000_000 + random.below(30);
                            NOW.with(|clock| clock.store(now, Ordering::Relaxed));
                            let (key, cost) = (random.below(keys), 1 + random.below(2));
                            let called = steps.fetch_add(1, Ordering::SeqCst);
                            let decision = local.check_n(&key, cost);
                            let returned = steps.fetch_add(1, Ordering::SeqCst);
                            let now = Tick::from_nanos(now);
                            Event {
                                key,
                                now,
                                cost,
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

#[test]
fn concurrent_decisions_are_linearizable() {
    for seed in 0..from_env("HISTORIES", 300) {
        let (threads, each, keys) = (4, 8, 1 + seed % 3);
        let bucket = TokenBucket::new(quota());
        let events = record(&bucket, threads, each, keys, seed);
        assert!(is_linearizable(&bucket, &events), "{events:#?}");
        let window = FixedWindow::new(quota());
        let events = record(&window, threads, each, keys, seed);
        assert!(is_linearizable(&window, &events), "{events:#?}");
        let log = SlidingLog::new(quota());
        let events = record(&log, threads, each, keys, seed);
        assert!(is_linearizable(&log, &events), "{events:#?}");
    }
}

#[test]
fn an_extra_admission_is_detected() {
    let bucket = TokenBucket::new(quota());
    let found = (0..100).any(|seed| {
        let mut events = record(&bucket, 2, 8, 1, seed);
        let Some(denied) = events.iter_mut().find(|event| event.decision.is_denied()) else {
            return false;
        };
        denied.decision = bucket.decide(&mut bucket.fresh(Tick::ZERO), denied.now, denied.cost);
        !is_linearizable(&bucket, &events)
    });
    assert!(found);
}
