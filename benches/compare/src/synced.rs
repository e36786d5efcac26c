//! Synced and leased limits beside one in this process alone.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tower_throttle::store::Backend;
use tower_throttle::store::cas::MemoryStore;
use tower_throttle::store::lease::LeasedBuilder;
use tower_throttle::store::synced::SyncedBuilder;
use tower_throttle::{StoreError, TokenBucket};

use crate::keys::{Access, Key, run as run_keys};
use crate::peers;
use crate::row::{Effort, ends, median};

/// The largest cost of a synced or leased decision, as a multiple of one in this process alone.
const GOAL: f64 = 1.2;
/// Decisions per measurement: so few that other programs seldom interrupt one.
const OPS: u64 = 5_000;
/// Longer than all measurements, so that none of them includes an exchange.
const QUIET: Duration = Duration::from_secs(3_600);
/// The default.
const INTERVAL: Duration = Duration::from_millis(100);
/// Longer than all measurements of a key, so that no unit is returned while the limits take turns.
const LIFE: Duration = Duration::from_secs(600);
/// More than all requests of a key, after a machine has taken a sixteenth of it.
const UNITS: u64 = 1 << 30;

pub(crate) fn run(effort: &Effort) {
    // The exchanges are made on a thread of their own.
    let runtime = Runtime::new().expect("a runtime");
    let _entered = runtime.enter();
    peers::settle_clock();
    for keys in [1, 1_000, 100_000] {
        for admits in [true, false] {
            let path = if admits { "admitted" } else { "denied" };
            let bucket = TokenBucket::new(peers::quota(admits));
            // Alone, and while another thread exchanges keys as fast as it can if there are many.
            for (exchanges, interval) in [("", QUIET), (", exchanging", INTERVAL)] {
                let work = format!("synced, {keys} keys, {path}{exchanges}");
                if effort.wants(&work) {
                    let synced = SyncedBuilder::new(MemoryStore::new())
                        .interval(interval)
                        .build("api", bucket)
                        .expect("a limit");
                    // After the first reply the fleet's time replaces this machine's, so the first
                    // exchange of a key replaces its state. And the store, which is in this process, takes
                    // memory for it.
                    let until_each_was_exchanged_twice = || {
                        let exchanged = || synced.counts().exchanged;
                        let seeds =
                            (0..).take_while(|_| interval == INTERVAL && exchanged() < 2 * keys);
                        seeds.for_each(|seed| {
                            time(keys, seed, |key| is_admitted(&synced, key));
                        });
                    };
                    compare(
                        effort,
                        &runtime,
                        &work,
                        (keys, admits),
                        &synced,
                        until_each_was_exchanged_twice,
                    );
                    // Otherwise the next rows would run while it sends the rest.
                    let _ = runtime.block_on(synced.close());
                }
            }
            let work = format!("leased, {keys} keys, {path}");
            if effort.wants(&work) {
                let leased = LeasedBuilder::new(MemoryStore::new())
                    .units(UNITS)
                    .life(LIFE)
                    .build("api", bucket)
                    .expect("a limit");
                compare(effort, &runtime, &work, (keys, admits), &leased, || {});
                let _ = runtime.block_on(leased.close());
            }
        }
    }
}

/// `settle` waits until the exchanges are as they are in the long run.
fn compare<B: Backend<u64>>(
    effort: &Effort,
    runtime: &Runtime,
    work: &str,
    (keys, admits): (u64, bool),
    fleet: &B,
    settle: impl FnOnce(),
) {
    let local = peers::local(admits, keys.max(1_000));
    let mut key = u64::blank();
    for number in 0..keys {
        key.set(number);
        is_admitted(&local, &key);
        // The first request of a leased limit waits for the store. The second finds what it has left.
        for _ in 0..2 {
            let decided = runtime.block_on(fleet.decide(&key, 1));
            let _ = decided.expect("a decision");
        }
    }
    settle();
    let rounds = if effort.quick { 101 } else { 1_001 };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        theirs.push(time(keys, round, |key| is_admitted(&local, key)));
        ours.push(time(keys, round, |key| is_admitted(fleet, key)));
    }
    let pairs = ours.iter().zip(&theirs);
    let mut ratios: Vec<_> = pairs.map(|(ours, theirs)| ours / theirs).collect();
    ratios.sort_by(f64::total_cmp);
    let at = |percent: usize| ratios[(ratios.len() - 1) * percent / 100];
    let ratio = at(50);
    println!(
        "{work:<44} {:>6.1} ns (least {:.1})  local {:>6.1} ns (least {:.1})  ratio {ratio:.2} (a tenth \
         below {:.2}, a tenth above {:.2})  goal <= {GOAL}x {}",
        median(&ours),
        ends(&ours).0,
        median(&theirs),
        ends(&theirs).0,
        at(10),
        at(90),
        if ratio <= GOAL { "met" } else { "NOT MET" },
    );
}

/// Nanoseconds per decision.
fn time(keys: u64, seed: u64, is_admitted: impl Fn(&u64) -> bool) -> f64 {
    let begun = Instant::now();
    let admitted = run_keys::<u64>(keys, Access::Uniform, OPS, seed, is_admitted);
    std::hint::black_box(admitted);
    begun.elapsed().as_nanos() as f64 / OPS as f64
}

/// As a layer asks: first for an admission without figures.
fn is_admitted<B: Backend<u64>>(limit: &B, key: &u64) -> bool {
    if limit.try_admit(key, 1) {
        return true;
    }
    let mut decision = limit.decide(key, 1);
    let mut cx = Context::from_waker(Waker::noop());
    let polled: Poll<Result<_, StoreError>> = Pin::new(&mut decision).poll(&mut cx);
    matches!(polled, Poll::Ready(Ok(decision)) if decision.is_admitted())
}

/// How long a machine takes to exchange a million keys, beside an interval of a second, and the memory.
pub(crate) fn flush(effort: &Effort) {
    const INTERVAL: Duration = Duration::from_secs(1);
    let keys: u64 = if effort.quick { 100_000 } else { 1_000_000 };
    let runtime = Runtime::new().expect("a runtime");
    let _entered = runtime.enter();
    let before = resident();
    let bucket = TokenBucket::new(peers::quota(true));
    let synced = SyncedBuilder::new(MemoryStore::new())
        .interval(INTERVAL)
        .capacity(keys as usize)
        .build("api", bucket)
        .expect("a limit");
    let mut key = u64::blank();
    let begun = Instant::now();
    let (mut longest, mut most_pending, mut most_memory) = (Duration::ZERO, 0, 0);
    let length = Duration::from_secs(if effort.quick { 5 } else { 20 });
    let (mut rounds, mut next) = (0, begun);
    // Every key is used once per interval.
    while begun.elapsed() < length {
        for number in 0..keys {
            key.set(number);
            is_admitted(&synced, &key);
        }
        rounds += 1;
        longest = longest.max(synced.lag());
        most_pending = most_pending.max(synced.counts().pending);
        most_memory = most_memory.max(resident());
        next += INTERVAL;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let counts = synced.counts();
    let took = begun.elapsed().as_secs_f64();
    println!(
        "{keys} keys, each used {rounds} times in {took:.0} s: {:.0} exchanges per second, lag {:.1} s at \
         most, {most_pending} keys with changes at most, {} lost, {} MB with the store in memory",
        counts.exchanged as f64 / took,
        longest.as_secs_f64(),
        counts.lost,
        most_memory.saturating_sub(before) >> 20,
    );
    let met = longest <= 2 * INTERVAL;
    println!(
        "an interval of 1 s: {}",
        if met {
            "kept up with"
        } else {
            "not kept up with, and the lag says so"
        }
    );
}

/// The memory of this process, in bytes.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.map_or(0, |pages: u64| pages * 4_096)
}
