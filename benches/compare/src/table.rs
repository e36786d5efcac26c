//! `Local` with many keys, and `Limiter`.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tower_throttle::algorithm::{Algorithm, IntoAlgorithm};
use tower_throttle::store::SaveState;
use tower_throttle::{
    FixedWindow, LeakyBucket, Limiter, Local, Quota, SlidingGrid, SlidingLog, SlidingWindow,
    TokenBucket, WarmUp, clock::MonotonicClock,
};

use crate::count::{count_live, live};
use crate::keys::{Access, Key, run as run_keys};
use crate::peers;
use crate::row::{Effort, Row};

const GOVERNOR: &str = "governor";

pub(crate) fn run(effort: &Effort) {
    // Waits until the clock has calibrated itself, so that no row measures that.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(80) {
        std::hint::black_box(tower_throttle::clock::Clock::now(&MonotonicClock));
    }
    let many = if effort.quick { 2_000_000 } else { 10_000_000 };
    lone(effort);
    for keys in [1, 1_000] {
        kinds(effort, keys, Access::Uniform, 0.9);
    }
    for access in [Access::Uniform, Access::Zipf] {
        kinds(effort, 1_000_000, access, 0.9);
    }
    for access in [Access::ZipfOverlapping, Access::Zipf] {
        for threads in [1, 2] {
            speed::<u64>(effort, many, access, threads, true, 0.9);
            speed::<u64>(effort, many, access, threads, false, 0.9);
        }
    }
    speed::<u64>(effort, 1, Access::Uniform, 2, false, 1.1);
    speed::<u64>(effort, 1, Access::Uniform, 2, true, 1.1);
    filling::<u64>(effort, 1_000_000);
    filling::<u64>(effort, many);
    filling::<IpAddr>(effort, many);
    wide(effort, many);
    for keys in [1_000, 100_000, many] {
        changing(effort, keys);
    }
    saving(effort, 1_000_000);
    algorithms(effort);
}

fn kinds(effort: &Effort, keys: u64, access: Access, goal: f64) {
    for admits in [true, false] {
        speed::<u64>(effort, keys, access, 1, admits, goal);
        speed::<IpAddr>(effort, keys, access, 1, admits, goal);
        speed::<String>(effort, keys, access, 1, admits, goal);
    }
}

fn speed<K: Key>(
    effort: &Effort,
    keys: u64,
    access: Access,
    threads: usize,
    admits: bool,
    goal: f64,
) {
    let path = if admits { "admitted" } else { "denied" };
    let work = format!(
        "{keys} keys {}, {access:?}, {path}, {threads} threads",
        K::NAME
    );
    if !effort.wants(&work) {
        return;
    }
    let (ours, theirs) = (peers::local(admits, keys), peers::keyed::<K>(admits));
    let mut key = K::blank();
    for number in 0..keys {
        key.set(number);
        let _ = ours.check(&key, 1);
        let _ = theirs.check_key(&key);
    }
    let row = Row::timed(
        effort,
        work,
        GOVERNOR,
        threads,
        (
            &|ops, seed| {
                run_keys::<K>(keys, access, ops, seed, |key| {
                    ours.check(key, 1).is_admitted()
                })
            },
            &|ops, seed| {
                run_keys::<K>(keys, access, ops, seed, |key| theirs.check_key(key).is_ok())
            },
        ),
        goal,
    );
    row.print(effort);
}

fn lone(effort: &Effort) {
    for admits in [true, false] {
        let path = if admits { "admitted" } else { "denied" };
        let ours = Limiter::new(TokenBucket::new(peers::quota(admits)));
        let theirs = peers::direct(admits);
        let work = format!("one limit without keys, {path}");
        if effort.wants(&work) {
            let ours =
                |ops: u64, _: u64| (0..ops).filter(|_| ours.check(1).is_admitted()).count() as u64;
            let theirs =
                |ops: u64, _: u64| (0..ops).filter(|_| theirs.check().is_ok()).count() as u64;
            Row::timed(effort, work, GOVERNOR, 1, (&ours, &theirs), 1.1).print(effort);
        }
    }
}

/// The slowest insertion while a table fills, and the memory of the full table.
fn filling<K: Key>(effort: &Effort, keys: u64) {
    let work = format!("worst insertion while filling to {keys} keys {}", K::NAME);
    if !effort.wants(&work) {
        return;
    }
    let mut row = Row {
        work,
        peer: GOVERNOR,
        unit: "ms",
        ours: Vec::new(),
        theirs: Vec::new(),
        goal: 0.95,
        absolute: false,
        more: false,
    };
    let rounds = if effort.quick { 1 } else { 3 };
    let mut bytes = (0.0, 0.0);
    for _ in 0..rounds {
        count_live();
        let theirs = peers::keyed::<K>(true);
        row.theirs
            .push(worst(keys, |key: &K| theirs.check_key(key).is_ok()));
        bytes.1 = live() as f64 / keys as f64;
        drop(theirs);
        count_live();
        let ours = peers::local(false, keys);
        // As a layer does when it is built.
        let _ = ours.peek(&0, 0);
        row.ours
            .push(worst(keys, |key: &K| ours.check(key, 1).is_admitted()));
        bytes.0 = live() as f64 / keys as f64;
        assert!(
            ours.stats().evicted <= keys / 100_000 + 1,
            "{:?}",
            ours.stats()
        );
    }
    row.print(effort);
    let row = Row {
        work: format!("allocated bytes per key, full, {keys} keys {}", K::NAME),
        unit: "bytes",
        ours: vec![bytes.0],
        theirs: vec![bytes.1],
        goal: 32.0,
        absolute: true,
        ..row
    };
    row.print(effort);
}

/// Memory of full tables whose states are larger, compared with those of a token bucket.
fn wide(effort: &Effort, keys: u64) {
    let quota = Quota::per_hour(1_000);
    let pair = (TokenBucket::new(quota), FixedWindow::new(quota));
    bytes(
        effort,
        keys,
        "sliding window",
        SlidingWindow::new(quota),
        40.0,
    );
    bytes(
        effort,
        keys,
        "bucket and window",
        pair.into_algorithm(),
        64.0,
    );
}

/// A change of the quota of all keys, compared with a decision on each of them. Both take the time per key.
fn changing(effort: &Effort, keys: u64) {
    let work = format!("change of quota of {keys} keys u64, per key");
    if !effort.wants(&work) {
        return;
    }
    let mut row = Row {
        work,
        peer: "a decision on each",
        unit: "ns",
        ours: Vec::new(),
        theirs: Vec::new(),
        goal: f64::INFINITY,
        absolute: false,
        more: false,
    };
    let limiter = Local::new(TokenBucket::new(Quota::per_hour(1_000))).capacity(keys as usize);
    let decide_on_each = || {
        let begin = Instant::now();
        for key in 0..keys {
            let _ = std::hint::black_box(limiter.check(&key, 1));
        }
        begin.elapsed().as_nanos() as f64 / keys as f64
    };
    let _ = decide_on_each();
    for round in 0..effort.rounds() as u64 {
        row.theirs.push(decide_on_each());
        let quota = Quota::per_hour(1_001 + round);
        let begin = Instant::now();
        limiter.set_quota(quota).expect("a bucket takes any quota");
        row.ours
            .push(begin.elapsed().as_nanos() as f64 / keys as f64);
    }
    row.print(effort);
}

/// How long a full table takes to be saved, and the slowest decision meanwhile, compared with the slowest while
/// another thread copies as much memory for itself.
fn saving(effort: &Effort, keys: u64) {
    let work = format!("save of {keys} keys u64, slowest decision meanwhile");
    if !effort.wants(&work) {
        return;
    }
    let limiter = Local::new(TokenBucket::new(Quota::per_hour(1_000))).capacity(keys as usize);
    for key in 0..keys {
        let _ = limiter.check(&key, 1);
    }
    let (mut saves, mut copies) = (Vec::new(), Vec::new());
    let (mut during_saves, mut during_copies) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds() {
        let other = vec![1_u8; 1 << 19];
        let (took, slowest) = slowest_while(&limiter, keys, || {
            for _ in 0..1_000 {
                std::hint::black_box(other.clone());
            }
        });
        copies.push(took);
        during_copies.push(slowest);
        let (took, slowest) = slowest_while(&limiter, keys, || {
            limiter.save(&mut std::io::sink()).expect("a sink takes it");
        });
        saves.push(took);
        during_saves.push(slowest);
    }
    let row = Row {
        work,
        peer: "beside copies",
        unit: "ms",
        ours: during_saves,
        theirs: during_copies,
        goal: 1.0,
        absolute: true,
        more: false,
    };
    row.print(effort);
    let row = Row {
        work: format!("save of {keys} keys u64"),
        peer: "the copies",
        ours: saves,
        theirs: copies,
        goal: 1_000.0,
        ..row
    };
    row.print(effort);
}

/// How long `work` took, and the slowest decision of another thread meanwhile, in milliseconds.
fn slowest_while(
    limiter: &Local<TokenBucket>,
    keys: u64,
    work: impl FnOnce() + Send,
) -> (f64, f64) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let begin = Instant::now();
            work();
            is_done.store(true, Ordering::Release);
            begin.elapsed().as_secs_f64() * 1e3
        });
        let mut slowest = Duration::ZERO;
        for key in (0..keys).cycle() {
            let begin = Instant::now();
            let _ = std::hint::black_box(limiter.check(&key, 1));
            slowest = slowest.max(begin.elapsed());
            if is_done.load(Ordering::Acquire) {
                break;
            }
        }
        let took = worker.join().expect("no panic");
        (took, slowest.as_secs_f64() * 1e3)
    })
}

fn bytes<A: Algorithm>(effort: &Effort, keys: u64, name: &str, algorithm: A, goal: f64) {
    let work = format!("allocated bytes per key, full, {keys} keys u64 ({name})");
    if !effort.wants(&work) {
        return;
    }
    let row = Row {
        work,
        peer: "token bucket",
        unit: "bytes",
        ours: vec![filled(keys, algorithm)],
        theirs: vec![filled(keys, TokenBucket::new(peers::quota(true)))],
        goal,
        absolute: true,
        more: false,
    };
    row.print(effort);
}

/// Bytes per key of a full table.
fn filled<A: Algorithm>(keys: u64, algorithm: A) -> f64 {
    count_live();
    let limiter = Local::new(algorithm).capacity(keys as usize);
    let _ = worst(keys, |key: &u64| limiter.check(key, 1).is_admitted());
    let bytes = live() as f64;
    let stats = limiter.stats();
    assert!(stats.evicted <= keys / 100_000 + 1, "{stats:?}");
    bytes / keys as f64
}

/// The slowest of `keys` insertions, in milliseconds.
fn worst<K: Key>(keys: u64, check: impl Fn(&K) -> bool) -> f64 {
    let mut key = K::blank();
    let mut worst = Duration::ZERO;
    for number in 0..keys {
        key.set(number);
        let begin = Instant::now();
        std::hint::black_box(check(&key));
        worst = worst.max(begin.elapsed());
    }
    worst.as_secs_f64() * 1e3
}

pub(crate) fn resident_bytes() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or(f64::NAN) * 4096.0
}

/// Compares every algorithm with the token bucket.
fn algorithms(effort: &Effort) {
    let fast = Quota::per_second(1_000_000_000);
    let busy = Quota::per_second(1_000);
    algorithm(effort, "fixed window", FixedWindow::new(fast), 2.0);
    algorithm(effort, "sliding window", SlidingWindow::new(fast), 2.0);
    algorithm(effort, "sliding grid of 10", SlidingGrid::new(busy), 2.0);
    algorithm(effort, "leaky bucket", LeakyBucket::new(fast), 2.0);
    let warm = WarmUp::new(Quota::per_second(1_000), Duration::from_secs(10));
    algorithm(effort, "warm-up", warm, 2.0);
    algorithm(
        effort,
        "sliding log",
        SlidingLog::new(Quota::per_second(100)),
        3.0,
    );
}

fn algorithm<A: Algorithm>(effort: &Effort, name: &str, algorithm: A, goal: f64) {
    for keys in [1_000, 1_000_000] {
        let work = format!("{name}, {keys} keys u64, Uniform, 1 threads");
        if !effort.wants(&work) {
            continue;
        }
        // Fills both tables.
        let (ours, bucket) = (
            Local::new(algorithm.clone()).capacity(keys as usize),
            Local::new(TokenBucket::new(peers::quota(true))).capacity(keys as usize),
        );
        let mut key = u64::blank();
        for number in 0..keys {
            key.set(number);
            let _ = ours.check(&key, 1);
            let _ = bucket.check(&key, 1);
        }
        let row = Row::timed(
            effort,
            work,
            "token bucket",
            1,
            (
                &|ops, seed| {
                    run_keys::<u64>(keys, Access::Uniform, ops, seed, |key| {
                        ours.check(key, 1).is_admitted()
                    })
                },
                &|ops, seed| {
                    run_keys::<u64>(keys, Access::Uniform, ops, seed, |key| {
                        bucket.check(key, 1).is_admitted()
                    })
                },
            ),
            goal,
        );
        row.print(effort);
    }
}
