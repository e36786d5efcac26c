//! What happens while the store is not reached.

use std::future::pending;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use test_support::wait::at_once;
use tokio::time::Instant;
use tower_throttle::StoreError;
use tower_throttle::store::cas::{CasStore, Fault, Faulty, Loaded, MemoryStore};
use tower_throttle::store::{Backend, Op};

use crate::altered_store::{Altered, Change};
use crate::fleet::{admit, drain, leased, outage, pass, stats, synced, take, take_all};
use crate::overwrite::overwrite;

/// Requests until one is not admitted. Returns how many were, and the error if it was one.
async fn held(limit: &impl Backend<str>) -> (u64, Option<StoreError>) {
    let mut admitted = 0;
    loop {
        match limit.decide("key", 1).await {
            Ok(decision) if decision.is_admitted() => admitted += 1,
            Ok(_) => return (admitted, None),
            Err(error) => return (admitted, Some(error)),
        }
    }
}

/// Shows promise 205.
#[tokio::test(start_paused = true)]
async fn a_machine_uses_what_it_holds_and_then_fails() {
    let store = Faulty::new(MemoryStore::new());
    let (a, b) = (leased(&store), synced(&store));
    for _ in 0..5 {
        admit(&a, 1).await;
        pass(1).await;
    }
    admit(&b, 1).await;
    // Within one interval both would ask for more than is refilled: then a denies instead of asking the store.
    pass(3).await;
    admit(&a, 1).await;
    store.plan(outage());
    let (used_by_a, error) = held(&a).await;
    assert!((1..=100).contains(&used_by_a), "{used_by_a}");
    assert!(error.is_some_and(|error| error.is_transient()));
    let (used_by_b, error) = held(&b).await;
    assert!(
        used_by_a + used_by_b <= 100 + 100 / 4,
        "{used_by_a} and {used_by_b}"
    );
    assert!(error.is_some_and(|error| error.is_transient()));
    pass(5).await;
    // It does not wait for the deadline, and admits nothing however long it lasts.
    for _ in 0..20 {
        pass(3).await;
        let begun = Instant::now();
        assert!(a.decide("key", 1).await.is_err());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
    store.plan([]);
    pass(300).await;
    assert!(take(&a, 1).await.is_admitted());
    assert_eq!(a.last_error(), None);
}

/// A store that never replies.
#[derive(Clone, Debug)]
struct Silent;

impl<S: CasStore> Change<S> for Silent {
    async fn load(&self, _: &S, _: &str) -> Result<Loaded, StoreError> {
        pending().await
    }
}

/// Shows promise 205.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_an_exchange_fails_at_its_deadline() {
    for deadline in [30, 50, 150].map(Duration::from_millis) {
        let store = Altered(MemoryStore::new(), Silent);
        let limit = leased(&store).deadline(deadline);
        let begun = Instant::now();
        let error = limit.decide("key", 1).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        let waited = begun.elapsed();
        let late = Duration::from_millis(1);
        assert!((deadline..=deadline + late).contains(&waited), "{waited:?}");
    }
}

/// Shows promise 205.
#[tokio::test(start_paused = true)]
async fn while_the_store_is_down_the_lag_grows_and_batches_are_sent_again_at_a_pace() {
    let store = Faulty::new(MemoryStore::new());
    let limit = synced(&store);
    for key in 0..1_500_u32 {
        let _ = limit.decide(&key, 1).await.expect("a decision");
    }
    store.plan(outage());
    let planned = store.planned();
    pass(100).await;
    // Each of 1,500 keys has a batch of its own.
    let failed = planned - store.planned();
    assert!((1..=60_000).contains(&failed), "{failed}");
    let lag = limit.lag();
    assert!(lag >= Duration::from_secs(9) && limit.last_error().is_some());
    store.plan([]);
    pass(100).await;
    assert_eq!((limit.lag(), limit.last_error()), (Duration::ZERO, None));
}

/// Shows promise 205.
#[tokio::test(start_paused = true)]
async fn one_damaged_value_concerns_its_key_alone_and_a_reset_repairs_it() {
    let store = MemoryStore::new();
    let limit = leased(&store);
    admit(&limit, 1).await;
    pass(5).await;
    let mut names = store.keys().into_iter();
    let name = names.find(|name| name.ends_with("}key")).expect("a key");
    overwrite(&store, &name, 1, b"damaged").await;
    let other = leased(&store);
    let error = other.decide("key", 1).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(other.decide("other", 1).await.is_ok());
    let _ = other.apply("key", Op::Reset).await.expect("a reset");
    pass(5).await;
    assert_eq!(drain(&other).await, 100);
}

/// A store that does not reply for some of its keys.
#[derive(Clone, Debug, Default)]
struct Partial(Arc<AtomicBool>);

impl<S: CasStore> Change<S> for Partial {
    async fn load(&self, store: &S, key: &str) -> Result<Loaded, StoreError> {
        if self.0.load(Ordering::Relaxed) && key.ends_with("bad") {
            return pending().await;
        }
        store.load(key).await
    }
}

/// Shows promise 205.
#[tokio::test(start_paused = true)]
async fn a_key_whose_exchange_fails_cuts_off_no_other_one() {
    let change = Partial::default();
    let store = Altered(MemoryStore::new(), change.clone());
    let limit = leased(&store);
    for failing in [false, true, false] {
        change.0.store(failing, Ordering::Relaxed);
        // A deadline and a retry.
        pass(21).await;
        for round in 0..20 {
            for key in ["bad", "good"] {
                let decided = limit.decide(key, 1).await;
                assert_eq!(decided.is_err(), failing && key == "bad", "{key} {round}");
            }
            let new = limit.decide(&format!("new {failing} {round}"), 1).await;
            assert!(new.is_ok_and(|decision| decision.is_admitted()));
            pass(1).await;
        }
    }
}

/// Shows promise 205.
#[tokio::test(start_paused = true)]
async fn a_failed_exchange_is_tried_again_long_before_the_next_interval() {
    let store = Faulty::new(MemoryStore::new());
    let limit = leased(&store).interval(Duration::from_secs(3_600));
    admit(&limit, 1).await;
    store.plan(outage());
    assert!(limit.close().await.is_err());
    pass(300).await;
    store.plan([]);
    pass(20).await;
    assert_eq!((limit.lag(), limit.last_error()), (Duration::ZERO, None));
}

/// A key that was forgotten because the table was full has no second budget: its request waits for an
/// exchange.
///
/// Shows promise 202.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_forgotten_gets_no_budget_twice() {
    let limit = synced(&MemoryStore::new()).capacity(64);
    assert_eq!(take_all(&limit).await, 100);
    pass(3).await;
    for round in 0..20 {
        for key in 0..300_u32 {
            let _ = limit.decide(&key, 1).await.expect("a decision");
        }
        pass(3).await;
        assert!(take(&limit, 1).await.is_denied(), "{round}");
    }
}

/// The keys of requests that have all failed are gone, and not more than the capacity were there meanwhile. The store
/// is asked for none of them when it is back.
///
/// Shows promise 205.
#[tokio::test(start_paused = true)]
async fn an_outage_with_new_keys_leaves_nothing_behind() {
    let store = Faulty::new(MemoryStore::new());
    let limit = synced(&store).capacity(1_000);
    limit.close().await.expect("an exchange");
    store.plan(std::iter::repeat_n(
        Fault::Delay(Duration::from_secs(60)),
        100_000,
    ));
    let mut most = 0;
    for key in 0..20_000_u32 {
        let mut decided = std::pin::pin!(limit.decide(&key, 1));
        let _ = at_once(decided.as_mut());
        if key % 1_000 == 0 {
            pass(1).await;
        }
        most = most.max(stats(&limit).live);
    }
    // As many as there are shards may be beyond it.
    assert!((100..=1_064).contains(&most), "{most}");
    pass(50).await;
    let failed = limit.decide(&1_000_000, 1).await;
    assert!(failed.is_err_and(|error| error.is_transient()));
    // But for those that are sent again, as the breaker was not open yet.
    assert!(stats(&limit).live <= 300, "{}", stats(&limit).live);
    store.plan([]);
    let before = stats(&limit).store_calls;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(take(&limit, 1).await.is_admitted());
    pass(5).await;
    // Those, what they were granted is given back, and the key of the last request.
    assert!(stats(&limit).store_calls - before <= 602);
    assert!(stats(&limit).live <= 301, "{}", stats(&limit).live);
}
