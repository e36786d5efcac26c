//! What machines learn of each other, in both modes.

use std::time::Duration;

use tower_throttle::store::cas::MemoryStore;
use tower_throttle::store::fleet::{FleetLimiter, Leased};
use tower_throttle::store::{Backend, Op};
use tower_throttle::{FixedWindow, Quota, SlidingLog, TokenBucket};

use crate::fleet::{
    INTERVAL, admit, drain, machine, pass, remaining, stats, synced, take, take_all, window,
};

async fn check_totals<const AHEAD: bool>() {
    let store = MemoryStore::new();
    let new = || -> FleetLimiter<_, FixedWindow, AHEAD> { machine(&store, window()) };
    let (a, b) = (new(), new());
    admit(&a, 30).await;
    admit(&b, 5).await;
    pass(3).await;
    a.close().await.expect("an exchange");
    b.close().await.expect("an exchange");
    admit(&a, 1).await;
    pass(3).await;
    assert_eq!(remaining(&a).await, 64);
    a.close().await.expect("an exchange");
    assert_eq!(drain(&new()).await, 64);
}

/// Shows promise 203.
#[tokio::test(start_paused = true)]
async fn machines_know_what_the_others_have_used() {
    check_totals::<true>().await;
    check_totals::<false>().await;
}

/// One to take units, and one to report what was used of them.
///
/// Shows promise 203.
#[tokio::test(start_paused = true)]
async fn a_single_use_costs_two_exchanges_and_an_unused_key_none() {
    let limit = synced(&MemoryStore::new());
    admit(&limit, 1).await;
    pass(5).await;
    assert_eq!(stats(&limit).store_calls, 2);
    pass(100).await;
    assert_eq!(stats(&limit).store_calls, 2);
    assert_eq!(limit.lag(), Duration::ZERO);
}

/// Shows promise 211.
#[tokio::test(start_paused = true)]
async fn a_refund_and_a_charge_reach_the_fleet() {
    let store = MemoryStore::new();
    let (a, b) = (synced(&store), synced(&store));
    let taken = take(&a, 40).await;
    pass(3).await;
    let refund = Op::Refund(15, taken.receipt());
    let _ = a.apply("key", refund).await.expect("a refund");
    let _ = a.apply("key", Op::Charge(7)).await.expect("a charge");
    pass(3).await;
    assert_eq!(drain(&b).await, 100 - 40 + 15 - 7);
}

/// Without an exchange in between, the cost is a part of the budget again.
///
/// Shows promise 211.
#[tokio::test(start_paused = true)]
async fn a_refund_before_the_next_exchange_frees_the_cost_at_once() {
    let limit = synced(&MemoryStore::new()).interval(Duration::from_secs(60));
    admit(&limit, 1).await;
    let taken = take(&limit, 99).await;
    assert!(taken.is_admitted() && take(&limit, 1).await.is_denied());
    let refund = Op::Refund(30, taken.receipt());
    let _ = limit.apply("key", refund).await.expect("a refund");
    assert_eq!(take_all(&limit).await, 30);
}

/// Shows promise 211.
#[tokio::test(start_paused = true)]
async fn what_is_left_is_sent_when_a_limiter_is_closed_or_dropped() {
    let store = MemoryStore::new();
    let (a, b) = (synced(&store), synced(&store));
    admit(&a, 10).await;
    admit(&b, 20).await;
    a.close().await.expect("sent");
    drop(b);
    tokio::time::sleep(INTERVAL / 10).await;
    assert_eq!(drain(&synced(&store)).await, 70);
}

/// Machines with another limit of the same period share it, and those of another period count for themselves: none
/// locks the others out.
///
/// Shows promises 90, 200.
#[tokio::test(start_paused = true)]
async fn a_rollout_breaks_no_machine() {
    let log = |limit, seconds| SlidingLog::new(Quota::per(limit, Duration::from_secs(seconds)));
    let store = MemoryStore::new();
    let build = |log| -> Leased<_, SlidingLog> { machine(&store, log) };
    let machines = [build(log(100, 5)), build(log(50, 5)), build(log(100, 4))];
    let mut admitted = [[0; 3]; 2];
    for step in 0..400 {
        for (machine, limit) in machines.iter().enumerate() {
            let is_admitted = take(limit, 1).await.is_admitted();
            admitted[step / 200][machine] += u32::from(is_admitted);
        }
        tokio::time::sleep(INTERVAL).await;
    }
    for [large, small, other] in admitted {
        // In twenty seconds: the larger limit of one period, and beside it the other one.
        assert!(large + small <= 500 && other <= 600, "{admitted:?}");
        assert!(large > 150 && other > 150, "{admitted:?}");
    }
}

/// What was used under the larger limit comes back as it says.
///
/// Shows promises 17, 90.
#[tokio::test(start_paused = true)]
async fn a_lowered_limit_waits_as_long_as_the_one_before() {
    let (hour, store) = (Duration::from_secs(3_600), MemoryStore::new());
    let [large, small]: [Leased<_, _>; 2] =
        [1_000, 10].map(|limit| machine(&store, TokenBucket::new(Quota::per_hour(limit))));
    assert!(take(&large, 1_000).await.is_admitted());
    large.close().await.expect("an exchange");
    let denied = take(&small, 1).await.retry_after.expect("a denial");
    for _ in 0..59 {
        tokio::time::sleep(hour / 60).await;
        assert!(take(&small, 1).await.is_denied());
    }
    // And two lives of a grant.
    assert!(denied <= hour + 20 * INTERVAL, "{denied:?}");
    tokio::time::sleep(hour / 60 + 20 * INTERVAL).await;
    assert_eq!(drain(&small).await, 10);
}
