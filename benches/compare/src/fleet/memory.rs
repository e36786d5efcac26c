//! The time of a decision in memory, beside one of a limit in this process alone.

use std::time::Duration;

use tokio::runtime::Runtime;
use tower_throttle::store::Backend;
use tower_throttle::store::cas::MemoryStore;
use tower_throttle::store::fleet::{Leased, Synced};
use tower_throttle::{Decision, StoreError, TokenBucket};

use crate::keys::{Access, Key, run as run_keys};
use crate::peers;
use crate::row::{Effort, Row};

/// As a multiple of one in this process alone.
const GOAL: f64 = 1.35;
/// Longer than all measurements, so that none of them includes an exchange.
const QUIET: Duration = Duration::from_secs(3_600);
/// So much that the store grants more than all requests of a key.
const MUCH: u64 = 1 << 24;

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
                let limit = Synced::new(MemoryStore::new(), "api", bucket).expect("a limit");
                let limit = limit.interval(QUIET);
                compare(effort, &runtime, work, (keys, admits), &limit);
            }
            let work = format!("in memory, Leased, {keys} keys, {path}");
            if effort.wants(&work) {
                let limit = Leased::new(MemoryStore::new(), "api", bucket).expect("a limit");
                let limit = limit.interval(QUIET);
                compare(effort, &runtime, work, (keys, admits), &limit);
            }
        }
    }
}

fn compare<B: Backend<u64>>(
    effort: &Effort,
    runtime: &Runtime,
    work: String,
    (keys, admits): (u64, bool),
    fleet: &B,
) {
    let local = peers::local(admits, keys.max(1_000));
    let mut key = u64::blank();
    for number in 0..keys {
        key.set(number);
        is_admitted(&local, &key);
        // One of them waits for the store.
        for cost in [if admits { MUCH } else { 1 }, 1] {
            let decided = runtime.block_on(fleet.decide(&key, cost));
            let _ = decided.expect("a decision");
        }
    }
    let ours = |ops, seed| {
        run_keys::<u64>(keys, Access::Uniform, ops, seed, |key| {
            is_admitted(fleet, key)
        })
    };
    let theirs = |ops, seed| {
        run_keys::<u64>(keys, Access::Uniform, ops, seed, |key| {
            is_admitted(&local, key)
        })
    };
    Row::timed(effort, work, "local", 1, (&ours, &theirs), GOAL).print(effort);
}

/// As a layer asks, without figures.
fn is_admitted<B: Backend<u64>>(limit: &B, key: &u64) -> bool {
    let is_admitted =
        |decided: Result<Decision, StoreError>| decided.is_ok_and(|one| one.is_admitted());
    limit.decide_now(key, 1, is_admitted).unwrap_or(false)
}
