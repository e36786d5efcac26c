//! Synced limits over real servers.

use std::time::Duration;

use tokio::task::JoinSet;
use tower_throttle::store::cas::{Cas, CasStore, Swapped, Value, Version};
use tower_throttle::store::synced::SyncedBuilder;
use tower_throttle::store::{Backend, Op};

use crate::{INTERVAL, remaining, take, take_all, window};

/// Machines that admit at the same time lose no cost, and count none twice.
async fn check_total<S: CasStore + Clone>(store: S) {
    let mut machines = JoinSet::new();
    for _ in 0..4 {
        let builder = SyncedBuilder::new(store.clone()).interval(INTERVAL / 10);
        let limit = builder.build("total", window()).expect("a limit");
        machines.spawn(async move {
            for _ in 0..15 {
                assert!(take(&limit, 1).await.is_admitted());
                // On a busy machine, conflicts may last longer than the deadline.
                while limit.close().await.is_err() {}
            }
            limit.counts().exchanged
        });
    }
    let exchanged: u64 = machines.join_all().await.into_iter().sum();
    assert!(exchanged >= 60, "{exchanged}");
    let stored = Cas::new(store, "total", window());
    let left = stored.apply("key", Op::Peek(0)).await.expect("a decision");
    assert_eq!(left.remaining(), 100 - 60);
}

/// Each machine admits until it is denied.
async fn check_strict_budget<S: CasStore + Clone>(store: S) {
    let mut machines = JoinSet::new();
    for _ in 0..4 {
        let builder = SyncedBuilder::new(store.clone()).strict_budget(3);
        let limit = builder.interval(Duration::from_secs(1));
        let limit = limit.build("strict", window()).expect("a limit");
        machines.spawn(async move {
            let admitted = take_all(&limit).await;
            limit.close().await.expect("an exchange");
            (admitted, remaining(&limit).await)
        });
    }
    let admitted = machines.join_all().await;
    let sum: u64 = admitted.iter().map(|machine| machine.0).sum();
    assert!((100..=109).contains(&sum), "{admitted:?}");
    assert!(admitted.iter().all(|machine| machine.1 == 0));
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

    use super::{check_store, check_strict_budget, check_total};
    use crate::redis_server::RedisServer;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn machines_share_a_limit_in_redis() {
        let server = RedisServer::start();
        let store = || {
            let redis = Redis::open(&server.url()).expect("a URL");
            redis.connections(2).expect("a pool")
        };
        check_store(store()).await;
        check_total(store()).await;
        check_strict_budget(store()).await;
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use tower_throttle::store::cas::postgres::PostgreSql;

    use super::{check_store, check_strict_budget, check_total};
    use crate::postgres_server::PostgresServer;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn machines_share_a_limit_in_postgresql() {
        let server = PostgresServer::shared();
        let store = PostgreSql::open(&server.url()).expect("a URL");
        store.create_table().await.expect("a table");
        check_store(store.clone()).await;
        check_total(store.clone()).await;
        check_strict_budget(store).await;
    }
}
