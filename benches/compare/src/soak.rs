//! Tables under load for a given time: the memory of the process must not grow.
//!
//! Two threads check keys that are used for a while and never again, in tables of several
//! algorithms, while quotas change. The tables fill up in the first third; after that the process
//! may not use more memory than it did then.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tower_throttle::algorithm::Algorithm;
use tower_throttle::{Local, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket};

use crate::keys::mix;
use crate::table::resident_bytes;

const CAPACITY: usize = 20_000;

/// Returns whether the memory did not grow. With `leaks` it must, which shows that growth is
/// detected.
pub(crate) fn run(seconds: u64, leaks: bool) -> bool {
    let bucket = Local::new(TokenBucket::new(Quota::per_second(5))).capacity(CAPACITY);
    let window = Local::new(SlidingWindow::new(Quota::per_second(5))).capacity(CAPACITY);
    let grid = Local::new(SlidingGrid::new(Quota::per_second(50))).capacity(CAPACITY);
    let log = Local::new(SlidingLog::new(Quota::per_second(20))).capacity(CAPACITY);
    let (over, decisions) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut taken = Vec::new();
    thread::scope(|scope| {
        for seed in [1, 2] {
            let (over, decisions) = (&over, &decisions);
            let tables = (&bucket, &window, &grid, &log);
            scope.spawn(move || {
                let mut leaked = Vec::new();
                let (mut turn, mut random) = (0_u64, seed);
                while !over.load(Ordering::Relaxed) {
                    for _ in 0..1_000 {
                        random = mix(random + 1);
                        turn += 1;
                        // A window of keys, three times as wide as the table, that advances
                        // by one key every eight turns.
                        let key = turn / 8 + random % (3 * CAPACITY as u64);
                        check_all(tables, &key);
                        if leaks && turn % 64 == 0 {
                            leaked.push([key; 64]);
                        }
                    }
                    decisions.fetch_add(4_000, Ordering::Relaxed);
                }
                std::hint::black_box(leaked);
            });
        }
        let begin = Instant::now();
        let mut retuned = 0;
        println!(
            "{:>8} {:>14} {:>14} {:>14}",
            "second", "decisions", "resident", "logs"
        );
        for tenth in 1..=10 * seconds {
            while begin.elapsed() < Duration::from_millis(100 * tenth) {
                thread::park_timeout(
                    Duration::from_millis(100 * tenth).saturating_sub(begin.elapsed()),
                );
            }
            taken.push(resident_bytes());
            retuned += 1;
            retune(&bucket, retuned);
            retune(&log, retuned);
            if tenth % seconds.max(10) == 0 {
                println!(
                    "{:>8} {:>14} {:>14} {:>14}",
                    tenth / 10,
                    decisions.load(Ordering::Relaxed),
                    resident_bytes(),
                    log.stats().live,
                );
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    let most = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
    let third = taken.len() / 3;
    let (first, rest) = (most(&taken[..third]), most(&taken[third..]));
    let flat = rest <= first * 1.02 + 1e6;
    println!(
        "at most {first} bytes in the first third, {rest} after it: {}",
        if flat { "flat" } else { "GROWN" }
    );
    flat
}

type Tables<'a> = (
    &'a Local<TokenBucket>,
    &'a Local<SlidingWindow>,
    &'a Local<SlidingGrid>,
    &'a Local<SlidingLog>,
);

fn check_all((bucket, window, grid, log): Tables<'_>, key: &u64) {
    let _ = bucket.check(key, 1);
    let _ = window.check(key, 1);
    let _ = grid.check(key, 1);
    let _ = log.check(key, 1);
}

fn retune<A: Algorithm>(table: &Local<A>, turn: u64) {
    let quota = Quota::per_second(5 + turn % 2 * 15);
    table.set_quota(quota).expect("a valid quota");
}
