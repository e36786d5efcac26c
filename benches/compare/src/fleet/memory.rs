//! The time of a decision in memory, beside one of a limit in this process alone.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tower_throttle::store::Backend;
use tower_throttle::store::cas::MemoryStore;
use tower_throttle::store::fleet::{LeasedBuilder, SyncedBuilder};
use tower_throttle::{StoreError, TokenBucket};

use crate::keys::{Access, Key, run as run_keys};
use crate::peers;
use crate::row::{Effort, ends, median};

/// As a multiple of one in this process alone.
const GOAL: f64 = 1.35;
/// Decisions per measurement: so few that other programs seldom interrupt one.
const OPS: u64 = 5_000;
/// Longer than all measurements, so that none of them includes an exchange.
const QUIET: Duration = Duration::from_secs(3_600);

pub(super) fn run(effort: &Effort) {
    // The first exchange of a key is made on a thread of its own.
    let runtime = Runtime::new().expect("a runtime");
    let _entered = runtime.enter();
    peers::settle_clock();
    for keys in [1, 1_000, 100_000] {
        for admits in [true, false] {
            let path = if admits { "admitted" } else { "denied" };
            let bucket = TokenBucket::new(peers::quota(admits));
            let work = format!("in memory, Synced, {keys} keys, {path}");
            if effort.wants(&work) {
                let limit = SyncedBuilder::new(MemoryStore::new()).interval(QUIET);
                let limit = limit.machines(1).build("api", bucket);
                compare(
                    effort,
                    &runtime,
                    &work,
                    (keys, admits),
                    &limit.expect("a limit"),
                );
            }
            let work = format!("in memory, Leased, {keys} keys, {path}");
            if effort.wants(&work) {
                let limit = LeasedBuilder::new(MemoryStore::new()).interval(QUIET);
                let limit = limit.machines(1).build("api", bucket);
                compare(
                    effort,
                    &runtime,
                    &work,
                    (keys, admits),
                    &limit.expect("a limit"),
                );
            }
        }
    }
}

fn compare<B: Backend<u64>>(
    effort: &Effort,
    runtime: &Runtime,
    work: &str,
    (keys, admits): (u64, bool),
    fleet: &B,
) {
    let local = peers::local(admits, keys.max(1_000));
    let mut key = u64::blank();
    for number in 0..keys {
        key.set(number);
        is_admitted(&local, &key);
        // The first or the second request waits for the store.
        for _ in 0..2 {
            let decided = runtime.block_on(fleet.decide(&key, 1));
            let _ = decided.expect("a decision");
        }
    }
    let rounds = if effort.quick { 21 } else { 1_001 };
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
        "{work:<40} {:>6.1} ns (least {:.1})  local {:>6.1} ns (least {:.1})  ratio {ratio:.2} (a tenth \
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
