//! A synced limit as a backend like any other.

use std::time::Duration;

use tower_throttle::store::Fallback;
use tower_throttle::store::cas::{Faulty, MemoryStore};
use tower_throttle::store::synced::WhenCutOff;
use tower_throttle::{AnyAlgorithm, FixedWindow, LeakyBucket, Local, Quota, TokenBucket, WarmUp};

use crate::memory_fleet::{a_layer_admits_and_denies, algorithms};
use crate::{admit, builder, machine, outage, pass, remaining, take, take_all, window};

#[tokio::test(start_paused = true)]
async fn a_layer_with_a_synced_limit_admits_and_denies() {
    a_layer_admits_and_denies(machine(&MemoryStore::new())).await;
}

/// Each algorithm decides like one machine, as long as there is one.
#[tokio::test(start_paused = true)]
async fn every_algorithm_admits_its_limit() {
    let quota = Quota::per(10, Duration::from_secs(1_000_000));
    let anchored = AnyAlgorithm::new(FixedWindow::new(quota).anchored());
    for algorithm in algorithms(quota).into_iter().chain([anchored]) {
        let store = MemoryStore::new();
        let one = builder(&store)
            .build("api", algorithm.clone())
            .expect("a limit");
        assert_eq!(take_all(&one).await, 10, "{algorithm:?}");
        pass(2).await;
        let other = builder(&store)
            .build("api", algorithm.clone())
            .expect("a limit");
        admit(&other, 1).await;
        pass(2).await;
        assert_eq!(remaining(&other).await, 0, "{algorithm:?}");
    }
    let pair = (TokenBucket::new(quota), FixedWindow::new(quota));
    let one = builder(&MemoryStore::new())
        .build("api", pair)
        .expect("a limit");
    assert_eq!(take_all(&one).await, 10);
}

/// A queue is of one machine. Its next turn is later if others have taken turns.
/// Requests twice the limit of 1,000 per second, and returns how many of them are admitted per
/// second after the first.
async fn admitted_per_second(burst: u64) -> u64 {
    let bucket = TokenBucket::new(Quota::per_second(1_000).burst(burst));
    let limit = builder(&MemoryStore::new()).interval(Duration::from_millis(100));
    let limit = limit.build("api", bucket).expect("a limit");
    let mut admitted = 0;
    for millisecond in 0..3_000 {
        for _ in 0..2 {
            let is_admitted = take(&limit, 1).await.is_admitted();
            admitted += u64::from(is_admitted && millisecond >= 1_000);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    admitted / 2
}

/// The costs of an interval count as of their exchange.
#[tokio::test(start_paused = true)]
async fn a_bucket_admits_its_limit_if_its_burst_lasts_for_an_interval() {
    let enough = admitted_per_second(200).await;
    assert!((950..=1_010).contains(&enough), "{enough}");
    let too_small = admitted_per_second(1).await;
    assert!((450..=600).contains(&too_small), "{too_small}");
}

#[tokio::test(start_paused = true)]
async fn requests_wait_in_the_queue_of_a_machine() {
    let store = MemoryStore::new();
    let limit = || {
        let bucket = LeakyBucket::new(Quota::per_second(1)).queue(10);
        builder(&store).build("api", bucket).expect("a limit")
    };
    let (a, b) = (limit(), limit());
    for _ in 0..4 {
        admit(&a, 1).await;
    }
    admit(&b, 1).await;
    pass(3).await;
    admit(&b, 1).await;
    pass(3).await;
    let turn = take(&b, 1).await;
    let tower_throttle::Verdict::Wait(wait) = turn.verdict else {
        panic!("{turn:?}");
    };
    assert!(wait > Duration::from_secs(4), "{wait:?}");
    let warm_up = WarmUp::new(Quota::per_second(10), Duration::from_secs(1));
    let limit = builder(&store).build("warm", warm_up).expect("a limit");
    assert!(!take(&limit, 1).await.is_denied());
}

#[tokio::test(start_paused = true)]
async fn a_fallback_decides_while_the_store_is_not_reached() {
    let store = Faulty::new(MemoryStore::new());
    let limit = builder(&store)
        .when_cut_off(WhenCutOff::Fail, 1)
        .build("api", window());
    let fallback = Fallback::new(limit.expect("a limit"), Local::new(window()));
    store.plan(outage());
    let decide = async || tower_throttle::store::Backend::decide(&fallback, "key", 1).await;
    for _ in 0..50 {
        assert!(decide().await.expect("a decision").is_admitted());
    }
    pass(4).await;
    let decision = decide().await.expect("a decision");
    assert_eq!(decision.remaining(), 99, "of a limit that was unused");
}
