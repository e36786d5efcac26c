//! Leased limits over real servers.

use tokio::task::JoinSet;
use tower_throttle::store::cas::CasStore;

use crate::{builder, take_all, window};

/// Machines on several threads together admit the limit, and lose no unit.
async fn check_machines<S: CasStore + Clone>(store: S) {
    let mut machines = JoinSet::new();
    for _ in 0..4 {
        let limit = builder(&store).build("shared", window()).expect("a limit");
        machines.spawn(async move {
            let admitted = take_all(&limit).await;
            limit.close().await.expect("a reply");
            admitted
        });
    }
    let admitted: u64 = machines.join_all().await.into_iter().sum();
    assert!((1..=100).contains(&admitted), "{admitted}");
    // Some were denied while others held units.
    let last = builder(&store).build("shared", window()).expect("a limit");
    assert_eq!(admitted + take_all(&last).await, 100);
}

#[cfg(feature = "redis")]
mod redis {
    use tower_throttle::store::redis::Redis;

    use super::check_machines;
    use crate::redis_server::RedisServer;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn machines_lease_a_limit_in_redis() {
        let server = RedisServer::start();
        let redis = Redis::open(&server.url()).expect("a URL");
        check_machines(redis.connections(2).expect("a pool")).await;
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use tower_throttle::store::cas::postgres::PostgreSql;

    use super::check_machines;
    use crate::postgres_server::PostgresServer;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn machines_lease_a_limit_in_postgresql() {
        let server = PostgresServer::shared();
        let store = PostgreSql::open(&server.url()).expect("a URL");
        store.create_table().await.expect("a table");
        check_machines(store).await;
    }
}
