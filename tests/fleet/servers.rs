//! Limits of a fleet over real servers.

use std::time::Duration;

use tokio::task::JoinSet;
use tower_throttle::store::cas::{CasStore, Swapped, Value, Version};
use tower_throttle::store::fleet::{LeasedBuilder, SyncedBuilder};

use crate::{INTERVAL, drain, take, window};

/// Machines that use a key at the same time lose no cost, and count none twice.
async fn check_total<S: CasStore + Clone>(store: S) {
    let limit = |store: &S| {
        let builder = SyncedBuilder::new(store.clone()).interval(INTERVAL / 10);
        builder
            .deadline(Duration::from_secs(30))
            .build("total", window())
            .expect("a limit")
    };
    let mut machines = JoinSet::new();
    for _ in 0..4 {
        let limit = limit(&store);
        machines.spawn(async move {
            for _ in 0..15 {
                // Others may hold what is left for an interval.
                while !take(&limit, 1).await.is_admitted() {}
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
        let builder = builder
            .deadline(Duration::from_secs(30))
            .life(Duration::from_secs(60));
        let limit = builder.build("leased", window()).expect("a limit");
        machines.spawn(async move {
            let mut admitted = 0;
            // Denied units of others may be given back.
            for _ in 0..200 {
                admitted += u64::from(take(&limit, 1).await.is_admitted());
                tokio::task::yield_now().await;
            }
            while limit.close().await.is_err() {}
            admitted
        });
    }
    let admitted: u64 = machines.join_all().await.into_iter().sum();
    let builder = LeasedBuilder::new(store)
        .interval(INTERVAL / 10)
        .life(Duration::from_secs(60));
    let builder = builder.deadline(Duration::from_secs(30));
    let other = builder.build("leased", window()).expect("a limit");
    assert_eq!(admitted + drain(&other).await, 100, "{admitted}");
}

/// What the port promises.
async fn check_store<S: CasStore>(store: S) {
    let ttl = Duration::from_secs(60);
    let value = |version, text: &str| Value::new(Version::from_u64(version), text.into());
    let (first, second) = (value(1 << 63, "first\0\r\n"), value(2, ""));
    let key = "{throttle:port:key}";
    assert_eq!(store.load(key).await.expect("a reply").value, None);
    let swap = async |expected: Option<&Value>, new: &Value| {
        let expected = expected.map(|value| value.version);
        store.swap(key, expected, new, ttl).await.expect("a reply")
    };
    let conflict = async |swapped: Swapped| match swapped {
        Swapped::Conflict(Some(current)) => current.value,
        // A store need not return the value that is there.
        Swapped::Conflict(None) => store.load(key).await.expect("a reply").value,
        swapped => panic!("{swapped:?}"),
    };
    assert_eq!(conflict(swap(Some(&first), &second).await).await, None);
    assert!(matches!(swap(None, &first).await, Swapped::Done(_)));
    assert_eq!(
        conflict(swap(None, &second).await).await,
        Some(first.clone())
    );
    assert_eq!(
        conflict(swap(Some(&second), &second).await).await,
        Some(first.clone())
    );
    assert!(matches!(
        swap(Some(&first), &second).await,
        Swapped::Done(_)
    ));
    let loaded = store.load(key).await.expect("a reply");
    assert_eq!(loaded.value, Some(second));
    assert!(loaded.server_time.is_some());
    let short = Duration::from_nanos(1);
    let expiring = store
        .swap(key, Some(Version::from_u64(2)), &first, short)
        .await;
    assert!(matches!(expiring, Ok(Swapped::Done(_))));
}

#[cfg(feature = "redis")]
mod redis {
    use tower_throttle::store::redis::Redis;

    use super::{check_leased, check_store, check_total};
    use crate::redis_server::RedisServer;

    /// Shows promise 201.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn machines_share_a_limit_in_redis() {
        let server = RedisServer::start();
        let store = || {
            let redis = Redis::open(&server.url()).expect("a URL");
            redis.connections(2).expect("a pool")
        };
        check_store(store()).await;
        check_total(store()).await;
        check_leased(store()).await;
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use tower_throttle::store::cas::postgres::PostgreSql;

    use super::{check_leased, check_store, check_total};
    use crate::postgres_server::PostgresServer;

    /// Shows promise 201.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn machines_share_a_limit_in_postgresql() {
        let server = PostgresServer::shared();
        let store = PostgreSql::open(&server.url()).expect("a URL");
        store.create_table().await.expect("a table");
        check_store(store.clone()).await;
        check_total(store.clone()).await;
        check_leased(store).await;
    }
}
