//! The default clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{ScopedJoinHandle, available_parallelism, scope, yield_now};
use std::time::{Duration, Instant};

use tower_throttle::clock::{Clock, MonotonicClock, Tick};

const MAX_APART: Duration = Duration::from_micros(100);

/// A tick and the `Instant` that it is compared with.
fn start() -> (Tick, Instant) {
    loop {
        let before = Instant::now();
        let tick = MonotonicClock.now();
        if before.elapsed() < Duration::from_micros(2) {
            return (tick, before);
        }
    }
}

/// Compares the clock with `Instant`. Returns the new reading.
fn compare(start: (Tick, Instant)) -> Tick {
    let before = start.1.elapsed();
    let now = MonotonicClock.now();
    let after = start.1.elapsed();
    let passed = now.since(start.0);
    assert!(
        passed + MAX_APART >= before,
        "{passed:?}, but it was {before:?}"
    );
    assert!(
        passed <= after + MAX_APART,
        "{passed:?}, but it was {after:?}"
    );
    now
}

/// Lets time pass without a reading of the clock.
fn idle(span: Duration) {
    let start = Instant::now();
    while start.elapsed() < span {
        yield_now();
    }
}

/// Shows promise 30.
#[test]
fn the_clock_stays_close_to_instant_when_it_is_busy_and_after_idle_time() {
    let start = start();
    let mut last = start.0;
    for idle_ms in [0, 1, 20, 300, 0, 1_000, 5, 0] {
        idle(Duration::from_millis(idle_ms));
        // Long enough for the rate of the counter to be measured.
        let round = Instant::now();
        while round.elapsed() < Duration::from_millis(60) {
            for _ in 0..100 {
                let now = compare(start);
                assert!(now >= last, "{now:?} after {last:?}");
                last = now;
            }
        }
    }
}

/// By how much a reading may be before one that another thread has passed on: promise 30.
const MAX_EARLY_NS: u64 = 10_000;

/// Shows promise 30.
#[test]
fn a_thread_sees_no_step_back_and_is_not_far_behind_another_one() {
    static LATEST: AtomicU64 = AtomicU64::new(0);
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    let readers = available_parallelism().map_or(2, usize::from).clamp(2, 8);
    let start = start();
    scope(|scope| {
        scope.spawn(|| {
            while !IS_DONE.load(Ordering::Relaxed) {
                LATEST.store(MonotonicClock.now().as_nanos(), Ordering::Release);
            }
        });
        let readers: Vec<_> = (0..readers)
            .map(|_| {
                scope.spawn(|| {
                    let mut last = 0;
                    for step in 0..3_000_000 {
                        let latest = LATEST.load(Ordering::Acquire);
                        let now = MonotonicClock.now().as_nanos();
                        assert!(now >= last, "{now} after {last}");
                        assert!(now + MAX_EARLY_NS >= latest, "{now} after {latest}");
                        last = now;
                        if step % 64 == 0 {
                            compare(start);
                        }
                    }
                })
            })
            .collect();
        let results: Vec<_> = readers.into_iter().map(ScopedJoinHandle::join).collect();
        IS_DONE.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok));
    });
}

/// Shows promise 33.
#[test]
fn clocks_of_one_process_share_their_zero() {
    let start = start();
    let others: Vec<_> = (0..4)
        .map(|_| std::thread::spawn(move || compare(start)))
        .collect();
    for other in others {
        assert!(other.join().unwrap() >= start.0);
    }
}
