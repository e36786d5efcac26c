//! One limit on a store that several machines share: what holds in every store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::concurrency::{ConcurrencyLimitLayer, fleet::FleetLimit};
use tower_throttle::store::Backend;
use tower_throttle::store::cas::{Cas, CasStore};
use tower_throttle::{AsError, Global, Quota, TokenBucket};

const TASKS: usize = 32;
const CALLS: u64 = 10;

/// A bucket that gains nothing during a test, as one machine of several.
fn machine<S: CasStore>(store: S, limit: u64) -> Cas<S, TokenBucket> {
    let bucket = TokenBucket::new(Quota::per(limit, Duration::from_secs(10_000_000)).burst(limit));
    // All have to get a decision, however slow this machine is.
    let limit = Cas::new(store, "shared", bucket).expect("a limit");
    limit.deadline(Duration::from_secs(60))
}

/// Machines that have a connection each admit exactly the limit.
pub(crate) async fn machines_admit_exactly<S: CasStore>(limit: u64, stores: [S; 4]) {
    assert!(limit < TASKS as u64 * CALLS, "more calls than the limit");
    let machines = stores.map(|store| machine(store, limit));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let machine = machines[task % 4].clone();
        tasks.spawn(async move {
            let mut admitted = 0;
            for _ in 0..CALLS {
                let decision = machine.decide("key", 1).await.expect("a decision");
                admitted += u64::from(decision.is_admitted());
            }
            admitted
        });
    }
    assert_eq!(tasks.join_all().await.into_iter().sum::<u64>(), limit);
}

/// A decision costs one round trip after the first one, and a denial writes nothing.
pub(crate) async fn a_decision_is_one_round_trip<S: CasStore + Clone>(store: S) {
    let limit = machine(store.clone(), 20);
    for left in (0..20).rev() {
        let decision = limit.decide("alone", 1).await.expect("a decision");
        assert_eq!((decision.is_admitted(), decision.remaining()), (true, left));
    }
    let stats = Backend::<str>::stats(&limit);
    assert_eq!((stats.store_calls, stats.conflicts), (21, 0));
    // Each write has a version of its own.
    let key = "{throttle:shared:alone}bucket/10000000s.4";
    let value = async || store.load(key).await.expect("a reply").value;
    let before = value().await.expect("the key's value");
    let denied = limit.decide("alone", 1).await.expect("a decision");
    assert!(denied.is_denied() && denied.retry_after.is_some());
    assert_eq!(value().await, Some(before));
}

/// Machines that share five permits serve all requests, and have no more than five in flight.
pub(crate) async fn machines_share_permits<S: CasStore + Clone>(store: S) {
    const LIMIT: u32 = 5;
    let (now, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut requests = JoinSet::new();
    for _ in 0..3 {
        let limit = FleetLimit::new(store.clone(), "shared", LIMIT);
        let limit = limit
            .life(Duration::from_secs(60))
            .deadline(Duration::from_secs(6));
        let layer = ConcurrencyLimitLayer::new(Global, limit)
            .queue(100)
            .max_wait(Duration::from_secs(60))
            .release_at_response()
            .deny_on_store_error()
            .respond(AsError);
        for _ in 0..20 {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            let service = layer.layer(service_fn(move |length| {
                let (now, most) = (Arc::clone(&now), Arc::clone(&most));
                async move {
                    let in_flight = now.fetch_add(1, Ordering::Relaxed) + 1;
                    most.fetch_max(in_flight, Ordering::Relaxed);
                    tokio::time::sleep(length).await;
                    now.fetch_sub(1, Ordering::Relaxed);
                    Ok::<_, BoxError>(())
                }
            }));
            requests.spawn(service.oneshot(Duration::from_millis(20)));
        }
    }
    for served in requests.join_all().await {
        served.expect("each request is served");
    }
    assert_eq!(most.load(Ordering::Relaxed), u64::from(LIMIT));
}
