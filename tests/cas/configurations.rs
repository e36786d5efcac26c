//! Machines with different configurations under one name, as in a rolling deploy.

use std::time::Duration;

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::cas::{Cas, CasBuilder, MemoryStore};
use tower_throttle::store::{Backend, Op};
use tower_throttle::{
    FixedWindow, LeakyBucket, ManualClock, Quota, SlidingGrid, SlidingLog, SlidingWindow,
    TokenBucket, WarmUp,
};

type Limit = Cas<MemoryStore<ManualClock>, AnyAlgorithm>;

fn limit(store: &MemoryStore<ManualClock>, algorithm: &AnyAlgorithm) -> Limit {
    let builder = CasBuilder::new(store.clone())
        .cached_keys(0)
        .without_deny_cache()
        .deadline(Duration::from_secs(30));
    builder.build("api", algorithm.clone()).expect("a limit")
}

fn algorithms(limit: u64) -> Vec<AnyAlgorithm> {
    let quota = Quota::per_hour(limit);
    vec![
        AnyAlgorithm::new(FixedWindow::new(quota)),
        AnyAlgorithm::new(FixedWindow::new(Quota::per_minute(limit))),
        AnyAlgorithm::new(FixedWindow::new(quota).anchored()),
        AnyAlgorithm::new(SlidingLog::new(quota)),
        AnyAlgorithm::new(SlidingWindow::new(quota)),
        AnyAlgorithm::new(SlidingGrid::new(quota)),
        AnyAlgorithm::new(TokenBucket::new(quota)),
        AnyAlgorithm::new(TokenBucket::new(quota).queue(1)),
        AnyAlgorithm::new(TokenBucket::new(quota).debt(5)),
        AnyAlgorithm::new(TokenBucket::new(quota).refill_every(Duration::from_secs(3_600))),
        AnyAlgorithm::new(LeakyBucket::new(quota)),
        AnyAlgorithm::new(LeakyBucket::new(quota).queue(limit)),
        AnyAlgorithm::new(WarmUp::new(quota, Duration::from_secs(60))),
        AnyAlgorithm::new((TokenBucket::new(quota), SlidingLog::new(quota))),
        #[cfg(feature = "governor")]
        AnyAlgorithm::new(tower_throttle::Gcra::new(quota)),
    ]
}

/// How many of 60 requests within a minute pass, in turn by each of `limits`.
async fn admitted(limits: &[&Limit], clock: &ManualClock) -> u64 {
    let mut admitted = 0;
    for request in 0..60 {
        let limit = limits[request % limits.len()];
        let decision = limit.decide("key", 1).await.expect("a decision");
        admitted += u64::from(!decision.is_denied());
        clock.advance(Duration::from_millis(500));
    }
    admitted
}

/// Every pair, alternating per call.
///
/// Shows promise 154.
#[tokio::test(start_paused = true)]
async fn two_configurations_admit_at_most_the_sum_of_both() {
    let (old, new) = (algorithms(10), algorithms(11));
    for (first, one) in old.iter().enumerate() {
        for (second, other) in new.iter().enumerate() {
            let alone = async |algorithm: &AnyAlgorithm| {
                let clock = ManualClock::new();
                let store = MemoryStore::with_clock(clock.clone());
                admitted(&[&limit(&store, algorithm)], &clock).await
            };
            let sum = alone(one).await + alone(other).await;
            let clock = ManualClock::new();
            let store = MemoryStore::with_clock(clock.clone());
            let (one, other) = (limit(&store, one), limit(&store, other));
            let both = admitted(&[&one, &other], &clock).await;
            assert!(both <= sum, "{first} and {second}: {both} of at most {sum}");
        }
    }
}

/// Shows promise 154.
#[tokio::test(start_paused = true)]
async fn usage_is_taken_over_by_a_new_configuration_once() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let bucket = |limit| AnyAlgorithm::new(TokenBucket::new(Quota::per_hour(limit)));
    let (old, new) = (limit(&store, &bucket(10)), limit(&store, &bucket(20)));
    for _ in 0..8 {
        assert!(
            old.decide("key", 1)
                .await
                .expect("a decision")
                .is_admitted()
        );
    }
    // What was used is taken over.
    let left = async |limit: &Limit| {
        let peeked = limit.apply("key", Op::Peek(0)).await;
        peeked.expect("a decision").remaining()
    };
    assert_eq!(left(&new).await, 12);
    assert!(new.decide("key", 13).await.expect("a decision").is_denied());
    // What the old one uses later does not count in the new one.
    assert!(
        old.decide("key", 2)
            .await
            .expect("a decision")
            .is_admitted()
    );
    assert_eq!(left(&new).await, 12);
    clock.advance(Duration::from_secs(360));
    assert_eq!((left(&old).await, left(&new).await), (1, 14));
    // Nor does usage go back after the old one has been unused for long.
    assert!(
        new.decide("key", 4)
            .await
            .expect("a decision")
            .is_admitted()
    );
    clock.advance(Duration::from_secs(3_300));
    assert!(
        new.decide("key", 18)
            .await
            .expect("a decision")
            .is_admitted()
    );
    clock.advance(Duration::from_secs(400));
    assert_eq!(left(&old).await, 10);
}

/// Shows promise 154.
#[tokio::test(start_paused = true)]
async fn a_reset_concerns_its_own_configuration() {
    let store = MemoryStore::with_clock(ManualClock::new());
    let window = |limit| AnyAlgorithm::new(FixedWindow::new(Quota::per_day(limit)));
    let (old, new) = (limit(&store, &window(3)), limit(&store, &window(5)));
    assert!(
        old.decide("key", 3)
            .await
            .expect("a decision")
            .is_admitted()
    );
    assert!(
        new.decide("key", 2)
            .await
            .expect("a decision")
            .is_admitted()
    );
    let reset = new.apply("key", Op::Reset).await.expect("a reset");
    assert_eq!(reset.remaining(), 5);
    assert!(old.decide("key", 1).await.expect("a decision").is_denied());
}

/// Shows promise 154.
#[tokio::test(start_paused = true)]
async fn more_than_sixteen_configurations_in_use_are_an_error() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let window = |limit| AnyAlgorithm::new(FixedWindow::new(Quota::per_day(limit)));
    for count in 0..16 {
        let limit = limit(&store, &window(100 + count));
        assert!(
            limit
                .decide("key", 1)
                .await
                .expect("a decision")
                .is_admitted()
        );
    }
    let one_more = limit(&store, &window(200));
    let error = one_more.decide("key", 1).await.expect_err("too many");
    assert!(!error.is_transient() && error.to_string().starts_with("memory: more than 16"));
    clock.advance(Duration::from_secs(86_400));
    let decision = one_more.decide("key", 1).await.expect("a decision");
    assert_eq!(decision.remaining(), 199);
}
