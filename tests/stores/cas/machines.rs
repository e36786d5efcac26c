//! Several machines on one store, and many calls on one machine.

use std::time::Duration;

use tokio::task::JoinSet;
use tower_throttle::store::cas::{Cas, Fault, Faulty, MemoryStore};
use tower_throttle::store::{Backend, Op, Receipt};
use tower_throttle::{FixedWindow, Lockout, Quota};

use crate::cas::{bucket, machine, remaining, take};
use crate::memory_fleet::stats;

/// Shows promise 83.
#[tokio::test(start_paused = true)]
async fn calls_in_flight_for_one_key_share_a_swap() {
    let limit = machine(&MemoryStore::new(), 100);
    let mut calls: JoinSet<_> = (0..100)
        .map(|place| {
            let call = limit.decide("key", 1);
            async move { (place, call.await.expect("a decision").remaining()) }
        })
        .collect();
    while let Some(call) = calls.join_next().await {
        let (place, left) = call.expect("no panic");
        assert_eq!(left, 99 - place, "in their order");
    }
    let stats = stats(&limit);
    assert_eq!((stats.store_calls, stats.conflicts), (2, 0));
}

/// Shows promise 152.
#[tokio::test(start_paused = true)]
async fn records_are_kept_for_a_bounded_number_of_keys() {
    let store = MemoryStore::new();
    let limit = machine(&store, 1_000).cached_keys(64);
    for round in 0..2 {
        for key in 0..1_000_u64 {
            assert!(
                limit
                    .decide(&key, 1)
                    .await
                    .expect("a decision")
                    .is_admitted()
            );
        }
        let all = 1_000 * (round + 1);
        // Each writes.
        let loads = stats(&limit).store_calls - all;
        assert!(
            loads >= all - 64,
            "{loads} of {all} decisions read the store"
        );
    }
}

/// Shows promise 152.
#[tokio::test(start_paused = true)]
async fn a_denial_and_a_peek_write_nothing() {
    let store = MemoryStore::new();
    let limit = machine(&store, 5);
    assert!(take(&limit, 5).await.expect("a decision").is_admitted());
    let before = store.get(&store.keys()[0]);
    let denied = take(&limit, 1).await.expect("a decision");
    assert!(denied.is_denied() && denied.retry_after.is_some());
    assert_eq!(remaining(&limit).await, 0);
    assert_eq!(store.get(&store.keys()[0]), before);
}

/// Shows promises 89, 152.
#[tokio::test(start_paused = true)]
async fn a_denial_is_repeated_without_asking_the_store() {
    let store = MemoryStore::new();
    let limit = Cas::new(store, "api", bucket(1)).expect("a limit");
    for ends in [Op::Refund(1, Receipt::NOW), Op::Reset] {
        assert!(take(&limit, 1).await.expect("a decision").is_admitted());
        assert!(take(&limit, 1).await.expect("a decision").is_denied());
        let before = stats(&limit);
        for _ in 0..10 {
            assert!(take(&limit, 1).await.expect("a decision").is_denied());
        }
        assert_eq!(stats(&limit), before);
        assert!(limit.apply("key", ends).await.is_ok());
    }
    assert!(take(&limit, 1).await.expect("a decision").is_admitted());
}

/// Half of the callers would otherwise wait for the round trip of the other half.
///
/// Shows promise 152.
#[tokio::test(start_paused = true)]
async fn callers_that_call_again_share_the_next_swap() {
    const TASKS: u64 = 64;
    const CALLS: u64 = 50;
    let store = Faulty::new(MemoryStore::new());
    store.plan((0..TASKS * CALLS).map(|_| Fault::Delay(Duration::from_micros(50))));
    let limit = machine(&store, 1_000_000);
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let limit = limit.clone();
        tasks.spawn(async move {
            for _ in 0..CALLS {
                assert!(take(&limit, 1).await.expect("a decision").is_admitted());
            }
        });
    }
    let _ = tasks.join_all().await;
    // A load, the swap of the first call, and one for each call of all tasks.
    let calls = stats(&limit).store_calls;
    assert!(
        calls <= CALLS + 6,
        "{calls} of the store for {CALLS} of each task"
    );
}

/// Shows promise 224.
#[tokio::test(start_paused = true)]
async fn a_denial_that_counts_is_not_repeated_from_a_cache() {
    let window = FixedWindow::new(Quota::per_hour(1));
    let locked = Lockout::new(Quota::per_day(3)).block(Duration::from_secs(86_400));
    let locked = locked.after_denials_of(window);
    let store = MemoryStore::new();
    let machines = [(); 2].map(|()| Cas::new(store.clone(), "api", locked).expect("a limit"));
    assert!(machines[0].decide("alice", 1).await.unwrap().is_admitted());
    let hours = Duration::from_secs(3_600);
    for n in 0..3 {
        let retry = machines[n % 2]
            .decide("alice", 1)
            .await
            .unwrap()
            .retry_after;
        assert_eq!(retry > Some(hours), n == 2, "{n}: {retry:?}");
    }
    let retry = machines[1].decide("alice", 1).await.unwrap().retry_after;
    assert!(retry > Some(hours), "{retry:?}");
}
