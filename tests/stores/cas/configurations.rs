//! Machines with different limits under one name, as in a rolling deploy.

use std::time::Duration;

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::cas::{Cas, CasBuilder, MemoryStore};
use tower_throttle::store::{Backend, Op};
use tower_throttle::{Lockout, ManualClock, Quota, TokenBucket};

type Limit = Cas<MemoryStore<ManualClock>, AnyAlgorithm>;

fn limit(store: &MemoryStore<ManualClock>, algorithm: &AnyAlgorithm) -> Limit {
    let builder = CasBuilder::new(store.clone())
        .cached_keys(0)
        .without_deny_cache()
        .deadline(Duration::from_secs(30));
    builder.build("api", algorithm.clone()).expect("a limit")
}

/// Shows promise 90.
#[tokio::test(start_paused = true)]
async fn limits_of_one_layout_share_what_is_used() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let bucket = |limit| AnyAlgorithm::new(TokenBucket::new(Quota::per_hour(limit)));
    let (small, large) = (limit(&store, &bucket(10)), limit(&store, &bucket(20)));
    let take = async |limit: &Limit, cost| {
        let decision = limit.decide("key", cost).await.expect("a decision");
        decision.is_admitted()
    };
    let left = async |limit: &Limit| {
        let peeked = limit.apply("key", Op::Peek(0)).await;
        peeked.expect("a decision").remaining()
    };
    assert!(take(&small, 8).await);
    assert_eq!([left(&small).await, left(&large).await], [2, 12]);
    assert!(take(&large, 10).await);
    assert_eq!([left(&small).await, left(&large).await], [0, 2]);
    // The faster one refills what both have used.
    clock.advance(Duration::from_secs(1_800));
    assert_eq!([left(&small).await, left(&large).await], [2, 12]);
    let reset = small.apply("key", Op::Reset).await;
    assert_eq!(reset.expect("a reset").remaining(), 10);
    assert_eq!(left(&large).await, 20);
    assert_eq!(store.keys(), ["{throttle:api:key}bucket/3600s.4"]);
}

/// Each compares the same failures with its own limit, and another period begins anew.
///
/// Shows promise 90.
#[tokio::test(start_paused = true)]
async fn lockouts_with_other_limits_count_the_same_failures() {
    let store = MemoryStore::with_clock(ManualClock::new());
    let [few, many] = [3, 5].map(|failures| Lockout::new(Quota::per_day(failures)));
    let other_period = Lockout::new(Quota::per_hour(3));
    let [few, many, other] =
        [few, many, other_period].map(|lockout| limit(&store, &AnyAlgorithm::new(lockout)));
    let is_denied = async |limit: &Limit| {
        let decision = limit.decide("key", 1).await.expect("a decision");
        decision.is_denied()
    };
    for _ in 0..3 {
        assert!(!is_denied(&few).await);
    }
    assert!(is_denied(&few).await);
    for _ in 0..2 {
        assert!(!is_denied(&many).await);
    }
    assert!(is_denied(&few).await && is_denied(&many).await);
    assert!(!is_denied(&other).await);
}
