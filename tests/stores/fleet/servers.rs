//! Limits of a fleet over real servers.

use std::time::Duration;

use tokio::task::JoinSet;
use tower_throttle::Decision;
use tower_throttle::store::Backend;
use tower_throttle::store::cas::CasStore;
use tower_throttle::store::fleet::{LeasedBuilder, SyncedBuilder};

use crate::fleet::{INTERVAL, window};

/// Longer than a busy machine stops: what it holds then does not lapse.
const LIFE: Duration = Duration::from_secs(60);

/// Takes a unit. On a busy machine an exchange may exceed its deadline: then all that wait for it fail.
async fn take(limit: &impl Backend<str>) -> Decision {
    loop {
        match limit.decide("key", 1).await {
            Ok(decision) => return decision,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Takes until nothing is left, however it is divided among machines. Returns how much was taken.
async fn drain(limit: &impl Backend<str>) -> u64 {
    let mut taken = 0;
    for _ in 0..20 {
        while take(limit).await.is_admitted() {
            taken += 1;
        }
        tokio::time::sleep(Duration::from_millis(120)).await;
    }
    taken
}

/// Machines that use a key at the same time lose no cost, and count none twice.
async fn check_total<S: CasStore + Clone>(store: S) {
    let limit = |store: &S| {
        let builder = SyncedBuilder::new(store.clone()).interval(INTERVAL / 10);
        let builder = builder.deadline(Duration::from_secs(30)).life(LIFE);
        builder.build("total", window()).expect("a limit")
    };
    let mut machines = JoinSet::new();
    for _ in 0..4 {
        let limit = limit(&store);
        machines.spawn(async move {
            for _ in 0..15 {
                // Others may hold what is left for an interval.
                while !take(&limit).await.is_admitted() {}
                while limit.close().await.is_err() {}
            }
            limit.counts().exchanged
        });
    }
    let exchanged: u64 = machines.join_all().await.into_iter().sum();
    assert!(exchanged >= 60, "{exchanged}");
    assert_eq!(drain(&limit(&store)).await, 100 - 60);
}

/// Each machine takes until it is denied: leased units are never more than the limit.
async fn check_leased<S: CasStore + Clone>(store: S) {
    let mut machines = JoinSet::new();
    for _ in 0..4 {
        let builder = LeasedBuilder::new(store.clone()).interval(INTERVAL / 10);
        let builder = builder.deadline(Duration::from_secs(30)).life(LIFE);
        let limit = builder.build("leased", window()).expect("a limit");
        machines.spawn(async move {
            let mut admitted = 0;
            // Denied units of others may be given back.
            for _ in 0..200 {
                admitted += u64::from(take(&limit).await.is_admitted());
                tokio::task::yield_now().await;
            }
            while limit.close().await.is_err() {}
            admitted
        });
    }
    let admitted: u64 = machines.join_all().await.into_iter().sum();
    let builder = LeasedBuilder::new(store).interval(INTERVAL / 10);
    let builder = builder.deadline(Duration::from_secs(30)).life(LIFE);
    let other = builder.build("leased", window()).expect("a limit");
    assert_eq!(admitted + drain(&other).await, 100, "{admitted}");
}

#[cfg(feature = "redis")]
mod redis {
    use tower_throttle::store::cas::{CasStore, Swapped, Value, Version};
    use tower_throttle::store::redis::Redis;

    use super::{Duration, check_leased, check_total};
    use crate::redis_server::RedisServer;
    use crate::wait::connected;

    /// Shows promise 201.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn machines_share_a_limit_in_redis() {
        let server = RedisServer::start();
        let store = || {
            let redis = Redis::open(&server.url()).expect("a URL");
            redis.connections(2).expect("a pool")
        };
        check_total(store()).await;
        check_leased(store()).await;
        // It reports its time, and a time to live is never zero.
        let value = Value::new(Version::from_u64(1), Vec::new());
        let ttl = Duration::from_nanos(1);
        let store = store();
        let done = connected(async || store.swap("key", None, &value, ttl).await).await;
        assert!(matches!(done, Ok(Swapped::Done(Some(_)))), "{done:?}");
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use tower_throttle::store::cas::postgres::PostgreSql;

    use super::{check_leased, check_total};
    use crate::postgres_server::PostgresServer;
    use crate::wait::connected;

    /// Shows promise 201.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn machines_share_a_limit_in_postgresql() {
        let server = PostgresServer::shared();
        let store = PostgreSql::open(&server.url()).expect("a URL");
        let made = connected(async || store.create_table().await).await;
        made.expect("a table");
        check_total(store.clone()).await;
        check_leased(store).await;
    }
}
