//! The connections of this crate.

use std::{sync::Arc, time::Duration};

use tokio_postgres::Client;
use tower_throttle::store::cas::{
    CasStore,
    postgres::{Connections, PostgreSql},
};

use super::{MINUTE, insert, load, postgres_server::PostgresServer, store, value};
use crate::wait::until;

/// A store whose connections are those of a role of its own.
async fn store_of(role: &str, size: usize) -> (Arc<PostgresServer>, Client, Arc<PostgreSql>) {
    let (server, store) = store(role).await;
    let client = server.client().await;
    let made = format!("CREATE ROLE {role} LOGIN; GRANT ALL ON TABLE {role} TO {role}");
    client.batch_execute(&made).await.expect("a role");
    drop(store);
    let connections = Connections::open(&server.url_of(role)).expect("a URL");
    let store = PostgreSql::new(connections.size(size).expect("a size"));
    let store = store.table(role).expect("a name").without_sweeps();
    (server, client, Arc::new(store))
}

async fn connections_of(client: &Client, role: &str) -> i64 {
    let query = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1";
    let row = client.query_one(query, &[&role]).await.expect("a count");
    row.get(0)
}

#[tokio::test]
async fn calls_one_after_the_other_use_one_connection() {
    let (_server, client, store) = store_of("one_connection", 4).await;
    assert_eq!(connections_of(&client, "one_connection").await, 0);
    for _ in 0..50 {
        assert_eq!(load(&store, "key").await, None);
    }
    assert_eq!(connections_of(&client, "one_connection").await, 1);
}

/// Shows promise 145.
#[tokio::test]
async fn many_calls_at_once_use_all_connections_and_no_more() {
    let (_server, client, store) = store_of("all_connections", 3).await;
    let mut most = 0;
    for round in 0..100 {
        let calls: Vec<_> = (0..100)
            .map(|number| {
                let store = Arc::clone(&store);
                let key = format!("{round}-{number}");
                tokio::spawn(async move { insert(&store, &key, &value(number, "")).await })
            })
            .collect();
        for call in calls {
            call.await.expect("no panic");
        }
        most = connections_of(&client, "all_connections").await;
        assert!(most <= 3, "{most} connections");
        if most == 3 {
            break;
        }
    }
    assert_eq!(most, 3);
}

/// Shows promise 145.
#[tokio::test]
async fn a_connection_that_breaks_is_replaced() {
    let (_server, client, store) = store_of("broken", 4).await;
    insert(&store, "key", &value(1, "stored")).await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'broken'";
    client
        .batch_execute(kill)
        .await
        .expect("a right of the superuser");
    until("the store has another connection", async || {
        match store.load("key").await {
            Ok(loaded) => loaded.value == Some(value(1, "stored")),
            Err(error) if error.is_transient() => false,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_whose_connection_breaks_fails_for_a_time() {
    let (server, client, store) = store_of("cut", 1).await;
    insert(&store, "key", &value(1, "stored")).await;
    let mut other = server.client().await;
    let holder = other.transaction().await.expect("a transaction");
    let lock = "SELECT 1 FROM cut WHERE key = 'key' FOR UPDATE";
    holder.execute(lock, &[]).await.expect("a lock");
    let swap = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let expected = Some(super::version(1));
            store.swap("key", expected, &value(2, "new"), MINUTE).await
        })
    };
    until("the swap has been cut off", async || {
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                    WHERE usename = 'cut' AND wait_event_type = 'Lock'";
        let row = client.query_one(kill, &[]).await.expect("a right");
        row.get::<_, i64>(0) > 0 || swap.is_finished()
    })
    .await;
    let error = swap.await.expect("no panic").expect_err("it was cut off");
    assert!(error.is_transient(), "{error}");
    drop(holder);
    assert_eq!(load(&store, "key").await, Some(value(1, "stored")));
}

/// Shows promise 145.
#[tokio::test]
async fn a_silent_connection_is_replaced() {
    let (_server, client, store) = store_of("silent", 1).await;
    insert(&store, "key", &value(1, "stored")).await;
    let query = "SELECT pid FROM pg_stat_activity WHERE usename = 'silent'";
    let pid: i32 = client.query_one(query, &[]).await.expect("one").get(0);
    signal(pid, "STOP");
    let store = &store;
    until("calls succeed on a new connection", async || {
        let call = tokio::time::timeout(Duration::from_millis(100), store.load("key"));
        matches!(call.await, Ok(Ok(loaded)) if loaded.value == Some(value(1, "stored")))
    })
    .await;
    signal(pid, "CONT");
}

fn signal(pid: i32, name: &str) {
    let sent = std::process::Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status();
    assert!(sent.expect("kill is installed").success());
}

#[tokio::test]
async fn a_swap_may_be_executed_although_its_caller_has_left() {
    let (_server, _client, store) = store_of("departed", 1).await;
    assert_eq!(load(&store, "key").await, None);
    insert(&store, "other", &value(1, "")).await;
    // Both statements are prepared, so the first poll sends the swap.
    let new = value(2, "new");
    {
        let mut swap = std::pin::pin!(store.swap("key", None, &new, MINUTE));
        assert!(futures_poll(swap.as_mut()).await.is_none());
    }
    assert_eq!(load(&store, "key").await, Some(new));
}

/// The result of a future that is polled once.
async fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = std::future::ready(()) => None,
    }
}
