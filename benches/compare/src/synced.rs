//! A synced limit beside one in this process alone.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Runtime;
use tower_throttle::store::Backend;
use tower_throttle::store::cas::MemoryStore;
use tower_throttle::store::synced::Synced;
use tower_throttle::{StoreError, TokenBucket};

use crate::keys::{Access, Key, run as run_keys};
use crate::peers;
use crate::row::{Effort, Row};

/// The largest cost of a synced decision, as a multiple of one in this process alone.
const GOAL: f64 = 1.2;

pub(crate) fn run(effort: &Effort) {
    // The exchanges are made on a thread of their own.
    let runtime = Runtime::new().expect("a runtime");
    let _entered = runtime.enter();
    for keys in [1, 1_000, 100_000] {
        for admits in [true, false] {
            decide(effort, keys, admits);
        }
    }
}

fn decide(effort: &Effort, keys: u64, admits: bool) {
    let path = if admits { "admitted" } else { "denied" };
    let work = format!("synced, {keys} keys, {path}");
    if !effort.wants(&work) {
        return;
    }
    let local = peers::local(admits, keys.max(1_000));
    let bucket = TokenBucket::new(peers::quota(admits));
    let synced = Synced::new(MemoryStore::new(), "api", bucket);
    let mut key = u64::blank();
    for number in 0..keys {
        key.set(number);
        is_admitted(&local, &key);
        is_admitted(&synced, &key);
    }
    let row = Row::timed(
        effort,
        work,
        "local",
        1,
        (
            &|ops, seed| {
                let decide = |key: &u64| is_admitted(&synced, key);
                run_keys::<u64>(keys, Access::Uniform, ops, seed, decide)
            },
            &|ops, seed| {
                let decide = |key: &u64| is_admitted(&local, key);
                run_keys::<u64>(keys, Access::Uniform, ops, seed, decide)
            },
        ),
        GOAL,
    );
    row.print(effort);
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
