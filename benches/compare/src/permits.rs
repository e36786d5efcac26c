//! Permits that the machines of a fleet share, beside those of one process: requests per second, each of which
//! takes a permit, lets the other requests go on, and releases it.
//!
//! A row says how often a request asked the store. A permit that is released goes to the next request of its key
//! without the store, so with one key that is hardly ever.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_throttle::concurrency::{ConcurrencyLimitLayer, fleet::FleetLimit};
use tower_throttle::store::cas::{
    CasStore, Loaded, MemoryStore, Swapped, Value, postgres::PostgreSql,
};
use tower_throttle::store::redis::Redis;
use tower_throttle::{AsError, StoreError};

use crate::row::{Effort, Row};
use crate::stores::{Call, Side, WORK};
use test_support::postgres_server::PostgresServer;
use test_support::redis_server::RedisServer;

/// More than are ever in flight.
const LIMIT: u32 = 1_000;

pub(crate) fn run(effort: &Effort) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        if effort.wants(&work_in("memory")) {
            rows(effort, "memory", MemoryStore::new()).await;
        }
        if effort.wants(&work_in("Redis")) {
            let server = RedisServer::start();
            rows(effort, "Redis", Redis::open(&server.url()).expect("a URL")).await;
        }
        if effort.wants(&work_in("PostgreSQL")) {
            let server = PostgresServer::start();
            let store = PostgreSql::open(&server.url()).expect("a URL");
            store.create_table().await.expect("a table");
            rows(effort, "PostgreSQL", store).await;
        }
    });
}

/// A store whose calls are counted.
#[derive(Debug)]
struct Counted<S>(S, Arc<AtomicU64>);

impl<S: CasStore> CasStore for Counted<S> {
    const NAME: &'static str = S::NAME;

    fn load(&self, key: &str) -> impl Future<Output = Result<Loaded, StoreError>> + Send {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.load(key)
    }

    fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> impl Future<Output = Result<Swapped, StoreError>> + Send {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.swap(key, expected, new, ttl)
    }

    fn group_of(&self, key: &str) -> Option<usize> {
        self.0.group_of(key)
    }
}

fn work_in(store: &str) -> String {
    format!("permit of a fleet in {store}")
}

async fn rows<S: CasStore>(effort: &Effort, store: &str, cas: S) {
    let calls = Arc::new(AtomicU64::new(0));
    let cas = Counted(cas, Arc::clone(&calls));
    // Long, so that no request gives up.
    let fleet = FleetLimit::new(cas, "compare", LIMIT).deadline(Duration::from_secs(30));
    let by_key = |key: &String| key.clone();
    let inner = service_fn(async |_| {
        // Without it a task whose permits are free never lets another one begin.
        tokio::task::yield_now().await;
        Ok::<_, BoxError>(())
    });
    let layer = ConcurrencyLimitLayer::new(by_key, fleet).deny_on_store_error();
    let ours = call(layer.release_at_response().respond(AsError).layer(inner));
    let layer = ConcurrencyLimitLayer::new(by_key, LIMIT);
    let theirs = call(layer.release_at_response().respond(AsError).layer(inner));
    let length = Duration::from_millis(if effort.quick { 500 } else { 2_000 });
    for work in WORK {
        let (mut fleet, mut alone) = (Side::default(), Side::default());
        for key in 0..work.1 {
            ours(format!("key{key}")).await; // makes the record
        }
        let mut asked = 0;
        for _ in 0..effort.rounds() {
            alone.round(work, length, theirs.clone()).await;
            let before = calls.load(Ordering::Relaxed);
            fleet.round(work, length, ours.clone()).await;
            asked += calls.load(Ordering::Relaxed) - before;
        }
        let requests = fleet.per_second.iter().sum::<f64>() * length.as_secs_f64();
        let asked = asked as f64 / requests;
        let (in_flight, keys) = work;
        let row = Row {
            work: format!(
                "{}: {in_flight} in flight, {keys} keys, {asked:.2} calls each",
                work_in(store)
            ),
            peer: "in one process",
            unit: "per s",
            ours: fleet.per_second,
            theirs: alone.per_second,
            goal: f64::INFINITY,
            absolute: false,
            more: true,
        };
        row.print(effort);
    }
}

fn call<S>(service: S) -> impl Call
where
    S: Service<String, Response = (), Error = BoxError, Future: Send>,
    S: Clone + Send + Sync + 'static,
{
    move |key| {
        let service = service.clone();
        async move { service.oneshot(key).await.expect("a permit is free") }
    }
}
