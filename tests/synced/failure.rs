//! What happens while the store is not reached.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tower_throttle::store::cas::{
    Cas, CasStore, Fault, Faulty, Loaded, MemoryStore, Swapped, Value, Version,
};
use tower_throttle::store::synced::WhenCutOff;
use tower_throttle::store::{Backend, Op};
use tower_throttle::{Quota, StoreError, TokenBucket};

use crate::memory_fleet::{a_call_outside_of_a_runtime_fails, paused_runtime};
use crate::overwrite::overwrite;
use crate::{admit, builder, machine, outage, pass, remaining, take, take_all, window};

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_cut_off_admits_its_share() {
    let store = Faulty::new(MemoryStore::new());
    let limit = builder(&store).nodes(4).build("api", window());
    let limit = limit.expect("a limit");
    admit(&limit, 10).await;
    pass(2).await;
    store.plan(outage());
    admit(&limit, 1).await;
    pass(10).await;
    assert!(limit.is_cut_off());
    assert_eq!(take_all(&limit).await, 25 - 11);
    assert!(
        limit.lag() >= Duration::from_millis(800),
        "{:?}",
        limit.lag()
    );
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_cut_off_denies_or_fails_as_configured() {
    for behavior in [WhenCutOff::Deny, WhenCutOff::Fail] {
        let store = Faulty::new(MemoryStore::new());
        let limit = builder(&store)
            .when_cut_off(behavior, 5)
            .build("api", window());
        let limit = limit.expect("a limit");
        store.plan(outage());
        admit(&limit, 1).await;
        pass(4).await;
        assert!(take(&limit, 1).await.is_admitted(), "after 4 intervals");
        pass(10).await;
        let decided = limit.decide("key", 1).await;
        if behavior == WhenCutOff::Deny {
            assert!(decided.expect("a decision").is_denied());
            continue;
        }
        let error = decided.unwrap_err();
        assert!(error.is_transient());
        let text = error.to_string();
        let expected = "memory: no exchange for 5 intervals: ";
        assert!(text.starts_with(expected), "{text}");
    }
}

/// What was admitted meanwhile is reported, each cost once.
#[tokio::test(start_paused = true)]
async fn a_machine_that_is_reached_again_reports_what_it_has_admitted() {
    let store = Faulty::new(MemoryStore::new());
    let (cut_off, other) = (machine(&store), Cas::new(store.clone(), "api", window()));
    admit(&cut_off, 10).await;
    pass(2).await;
    store.plan(std::iter::repeat_n(Fault::LostReply, 12));
    for _ in 0..10 {
        admit(&cut_off, 2).await;
        pass(1).await;
    }
    pass(100).await;
    assert!(!cut_off.is_cut_off());
    assert_eq!(remaining(&cut_off).await, 70);
    let left = other.apply("key", Op::Peek(0)).await.expect("a decision");
    assert_eq!(left.remaining(), 70);
}

/// What it admits before its first exchange is of its share, and reported after it.
#[tokio::test(start_paused = true)]
async fn a_machine_that_has_never_reached_the_store_admits_its_share_once() {
    let store = Faulty::new(MemoryStore::new());
    let other = Cas::new(store.clone(), "api", window());
    let limit = builder(&store).nodes(4).build("api", window());
    let limit = limit.expect("a limit");
    store.plan(outage());
    admit(&limit, 11).await;
    pass(10).await;
    assert!(limit.is_cut_off());
    assert_eq!(take_all(&limit).await, 25 - 11);
    for _ in 0..10 {
        pass(1).await;
        assert!(take(&limit, 1).await.is_denied());
    }
    store.clear_plan();
    pass(100).await;
    assert!(!limit.is_cut_off());
    let left = other.apply("key", Op::Peek(0)).await.expect("a decision");
    assert_eq!(left.remaining(), 75);
    // Its share is used up as well.
    assert!(other.decide("key", 75).await.expect("known").is_admitted());
    admit(&limit, 1).await;
    pass(2).await;
    assert!(take(&limit, 1).await.is_denied());
}

#[tokio::test(start_paused = true)]
async fn a_strict_machine_admits_no_more_than_its_budget_without_the_store() {
    let store = Faulty::new(MemoryStore::new());
    let limit = builder(&store).strict_budget(7).build("api", window());
    let limit = limit.expect("a limit");
    // With the store, a request waits for an exchange if the budget is used up.
    assert_eq!(take_all(&limit).await, 100);
    let _ = limit.apply("key", Op::Reset).await.expect("a reset");
    pass(2).await;
    store.plan(outage());
    let mut admitted = 0;
    while limit.decide("key", 1).await.is_ok() {
        admitted += 1;
    }
    assert_eq!(admitted, 7);
    // Also when the store has not been reached for long.
    for _ in 0..10 {
        pass(1).await;
        assert!(limit.decide("key", 1).await.is_err());
    }
}

/// A machine alone has the whole limit as its share.
#[tokio::test(start_paused = true)]
async fn the_share_of_a_machine_that_is_cut_off_refills() {
    let store = Faulty::new(MemoryStore::new());
    let bucket = TokenBucket::new(Quota::per_second(100));
    let limit = builder(&store).nodes(4).build("api", bucket);
    let limit = limit.expect("a limit");
    admit(&limit, 1).await;
    pass(2).await;
    store.plan(outage());
    let mut admitted = 0;
    for _ in 0..2_000 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        admitted += u64::from(take(&limit, 1).await.is_admitted());
    }
    assert!(limit.is_cut_off());
    // 20 seconds with 25 per second, the burst, and what it admits before it is cut off.
    assert!((480..=660).contains(&admitted), "{admitted}");
    store.clear_plan();
    pass(100).await;
    assert!(!limit.is_cut_off());
    assert!(take(&limit, 1).await.is_admitted(), "no debt is left");
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_down_one_key_is_tried_per_interval_however_many_there_are() {
    let store = Faulty::new(MemoryStore::new());
    let limit = machine(&store);
    store.plan(outage());
    for key in 0..1_500_u32 {
        let _ = limit.decide(&key, 1).await.expect("a decision");
    }
    pass(5).await;
    let failed = limit.counts().failed;
    // Those that were under way when the breaker opened.
    assert!((3..=510).contains(&failed), "{failed}");
    pass(100).await;
    let more = limit.counts().failed - failed;
    assert!((1..=110).contains(&more), "{more}");
}

/// A store that works on one call at a time, for a millisecond, also if its caller has given up.
#[derive(Clone, Debug)]
struct BusyStore {
    store: MemoryStore,
    free_at: Arc<Mutex<Instant>>,
}

impl BusyStore {
    async fn work(&self) {
        let done_at = {
            let mut free_at = self.free_at.lock().expect("no panic");
            *free_at = Instant::now().max(*free_at) + Duration::from_millis(1);
            *free_at
        };
        sleep_until(done_at).await;
    }
}

impl CasStore for BusyStore {
    const NAME: &'static str = "busy";

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        self.work().await;
        self.store.load(key).await
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<Version>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        self.work().await;
        self.store.swap(key, expected, new, ttl).await
    }
}

/// If all keys were sent at once, each call would end after its deadline.
#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_keep_up_works_on_calls_that_end_in_time() {
    let store = BusyStore {
        store: MemoryStore::new(),
        free_at: Arc::new(Mutex::new(Instant::now())),
    };
    let limit = machine(&store);
    for _ in 0..100 {
        for key in 0..1_000_u32 {
            let _ = limit.decide(&key, 1).await.expect("a decision");
        }
        pass(1).await;
    }
    let counts = limit.counts();
    assert!(counts.exchanged >= 5_000, "of 10,000 calls: {counts:?}");
    assert!(limit.lag() < Duration::from_secs(3), "{:?}", limit.lag());
}

#[tokio::test(start_paused = true)]
async fn one_damaged_value_cuts_no_machine_off_and_a_reset_repairs_it() {
    let store = MemoryStore::new();
    let limit = machine(&store);
    admit(&limit, 1).await;
    pass(2).await;
    let name = store.keys().pop().expect("a key");
    overwrite(&store, &name, 1, b"damaged").await;
    admit(&limit, 1).await;
    pass(10).await;
    assert!(!limit.is_cut_off());
    assert_eq!(limit.counts().pending, 1);
    let _ = limit.apply("key", Op::Reset).await.expect("a reset");
    pass(10).await;
    assert_eq!(limit.counts().pending, 0);
    assert_eq!(remaining(&limit).await, 100);
}

#[tokio::test(start_paused = true)]
async fn strict_machines_exceed_the_limit_by_at_most_the_budgets_of_the_others() {
    let store = MemoryStore::new();
    let limit = || builder(&store).strict_budget(3).build("api", window());
    let machines = [limit(), limit(), limit(), limit()].map(|limit| limit.expect("a limit"));
    let mut admitted = 0;
    for _ in 0..200 {
        for machine in &machines {
            admitted += u64::from(take(machine, 1).await.is_admitted());
        }
    }
    assert!((100..=109).contains(&admitted), "{admitted}");
}

/// The task of a runtime that is shut down is replaced by one on the runtime of the next call.
#[test]
fn a_runtime_that_is_shut_down_is_replaced() {
    let store = MemoryStore::new();
    let limit = machine(&store);
    paused_runtime().block_on(admit(&limit, 1));
    paused_runtime().block_on(async {
        admit(&limit, 1).await;
        pass(3).await;
        admit(&limit, 1).await;
        pass(3).await;
    });
    assert_eq!(limit.counts().pending, 0);
    assert!(limit.counts().exchanged >= 1);
}

#[test]
fn a_call_outside_of_a_runtime_is_an_error() {
    a_call_outside_of_a_runtime_fails(&machine(&MemoryStore::new()));
}
