//! Calls in a runtime that was shut down, which drops each task at once.

use std::{fmt, future::Future, sync::mpsc::channel, thread, time::Duration};

use tokio::runtime::{Builder, Handle};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::concurrency::{ConcurrencyLimitLayer, fleet::FleetLimit};
use tower_throttle::store::cas::MemoryStore;
use tower_throttle::store::fleet::{Leased, Synced};
use tower_throttle::store::{Backend, Cached, Op, Plan, Quotas};
use tower_throttle::{AsError, Global, RateLimited, StoreError};

use crate::cas::{bucket, machine};

/// What `call` returns in a runtime that was shut down, as text. `None` if it does not end.
fn in_shut_down_runtime<F>(call: impl FnOnce() -> F + Send + 'static) -> Option<String>
where
    F: Future<Output: fmt::Debug>,
{
    let runtime = Builder::new_multi_thread().worker_threads(1).build();
    let handle: Handle = runtime.expect("a runtime").handle().clone();
    let (reply, replied) = channel();
    thread::spawn(move || {
        let _ = reply.send(handle.block_on(async { format!("{:?}", call().await) }));
    });
    replied.recv_timeout(Duration::from_secs(10)).ok()
}

/// Has a quota for no key.
fn no_plans() -> Cached<u64> {
    Cached::new(|_| async { Ok::<_, StoreError>(Plan::Default) })
}

/// Shows promise 86.
#[test]
fn each_call_in_a_runtime_that_was_shut_down_ends() {
    let exact = || machine(&MemoryStore::new(), 5);
    let synced = || Synced::new(MemoryStore::new(), "api", bucket(5)).expect("a limit");
    let leased = || Leased::new(MemoryStore::new(), "api", bucket(5)).expect("a limit");
    let denied_in = |result: Option<String>| result.is_some_and(|text| text.contains("shut down"));
    assert!(denied_in(in_shut_down_runtime(move || async move {
        exact().decide("key", 1).await
    })));
    assert!(denied_in(in_shut_down_runtime(move || async move {
        synced().decide("key", 1).await
    })));
    assert!(denied_in(in_shut_down_runtime(move || async move {
        leased().apply("key", Op::Reset).await
    })));
    assert!(denied_in(in_shut_down_runtime(move || async move {
        leased().close().await
    })));
    assert!(denied_in(in_shut_down_runtime(move || async move {
        let limit = FleetLimit::new(MemoryStore::new(), "exports", 5);
        let layer = ConcurrencyLimitLayer::new(Global, limit).release_at_response();
        let layer = layer.deny_on_store_error().respond(AsError);
        let service = layer.layer(service_fn(async |()| Ok::<_, RateLimited>(())));
        let error = service.oneshot(()).await.expect_err("no store was asked");
        error.store_error().expect("the store's").to_string()
    })));
    // These take the default, and the second asks the store.
    let default = in_shut_down_runtime(|| async {
        let limit = Quotas::new(bucket(5), no_plans());
        let decision = Backend::apply(&limit, &7, Op::Take(1)).await;
        decision.map(|decision| decision.limit)
    });
    assert_eq!(default.as_deref(), Some("Ok(5)"));
    assert!(denied_in(in_shut_down_runtime(move || async move {
        Backend::apply(&Quotas::new(exact(), no_plans()), &7, Op::Take(1)).await
    })));
}
