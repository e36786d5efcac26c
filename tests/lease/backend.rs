//! A leased limit as a backend like any other.

use std::time::Duration;

use tower_throttle::store::cas::{Faulty, MemoryStore};
use tower_throttle::store::lease::{Leased, LeasedBuilder};
use tower_throttle::store::{Backend, Fallback};
use tower_throttle::{
    AnyAlgorithm, FixedWindow, LeakyBucket, Local, Lockout, Quota, TokenBucket, WarmUp,
};

use crate::memory_fleet::{a_layer_admits_and_denies, algorithms};
use crate::{builder, machine, outage, pass, take, take_all, window};

#[tokio::test(start_paused = true)]
async fn a_layer_with_a_leased_limit_admits_and_denies() {
    a_layer_admits_and_denies(machine(&MemoryStore::new())).await;
}

/// Two machines admit the limit of each algorithm together.
#[tokio::test(start_paused = true)]
async fn every_algorithm_admits_its_limit() {
    let quota = Quota::per(10, Duration::from_secs(1_000_000));
    for algorithm in algorithms(quota) {
        let store = MemoryStore::new();
        let build = || builder(&store).build("api", algorithm.clone());
        let (one, other) = (build().expect("a limit"), build().expect("a limit"));
        let mut admitted = 0;
        for _ in 0..10 {
            admitted += u64::from(take(&one, 1).await.is_admitted());
            admitted += u64::from(take(&other, 1).await.is_admitted());
        }
        assert_eq!(admitted, 10, "{algorithm:?}");
    }
    let pair = (TokenBucket::new(quota), FixedWindow::new(quota));
    let one = builder(&MemoryStore::new())
        .build("api", pair)
        .expect("a limit");
    assert_eq!(take_all(&one).await, 10);
}

#[test]
fn algorithms_whose_units_cannot_be_taken_ahead_are_refused() {
    let quota = Quota::per_second(10);
    let second = Duration::from_secs(1);
    let refused = [
        AnyAlgorithm::new(LeakyBucket::new(quota).queue(5)),
        AnyAlgorithm::new(TokenBucket::new(quota).queue(5)),
        AnyAlgorithm::new(FixedWindow::new(quota).anchored()),
        AnyAlgorithm::new(WarmUp::new(quota, second)),
        AnyAlgorithm::new(Lockout::new(quota)),
        AnyAlgorithm::new((FixedWindow::new(quota), LeakyBucket::new(quota).queue(5))),
    ];
    for algorithm in refused {
        let built = LeasedBuilder::new(MemoryStore::new()).build("api", algorithm);
        let error = built.unwrap_err().to_string();
        assert_eq!(
            error,
            "a lease on a queue, an anchored window, `WarmUp` or `Lockout` is not possible; use `Synced` or an exact limit"
        );
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let build = |builder: LeasedBuilder<MemoryStore>| {
        let error = builder.build("api", window()).unwrap_err();
        error.to_string()
    };
    let builder = || LeasedBuilder::new(MemoryStore::new());
    assert_eq!(
        build(builder().units(0)),
        "units: 0 is not allowed; give a number from 1 to 2147483647"
    );
    assert_eq!(
        build(builder().life(Duration::ZERO)),
        "life: 0ns is not allowed; give 10 ms to 1 hour"
    );
    assert_eq!(
        build(builder().nodes(0)),
        "nodes: 0 is not allowed; give 1 or more"
    );
    let day = Duration::from_secs(86_400);
    assert_eq!(
        build(builder().clock_error(day)),
        "clock_error: 86400s is not allowed; give 0 to 1 hour"
    );
}

#[tokio::test(start_paused = true)]
async fn a_fallback_decides_while_the_store_is_not_reached() {
    let store = Faulty::new(MemoryStore::new());
    let leased = Leased::new(store.clone(), "api", window(), 20);
    let fallback = Fallback::new(leased, Local::new(window()));
    store.plan(outage());
    let decide = async || Backend::decide(&fallback, "key", 1).await;
    for number in 0..50 {
        let decision = decide().await.expect("a decision");
        assert_eq!(decision.remaining(), 99 - number, "of the fallback");
        pass(1).await;
    }
}
