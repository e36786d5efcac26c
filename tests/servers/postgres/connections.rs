//! The connections of this crate.

use std::{sync::Arc, time::Duration};

use tokio_postgres::Client;
use tower_throttle::store::cas::{
    CasStore, Loaded, Program, Swapped, Value,
    postgres::{Connections, Pool, PooledClient, PostgreSql},
};

use super::{MINUTE, connected, insert, load, postgres_server::PostgresServer, store, value};
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

#[tokio::test]
async fn a_connection_has_four_calls_at_once_before_another_is_made() {
    let (_server, client, store) = store_of("four_calls", 2).await;
    assert_eq!(load(&store, "key").await, None);
    let key = "key";
    for _ in 0..20 {
        let (one, two) = (store.load(key), store.load(key));
        let (three, four) = (store.load(key), store.load(key));
        let all = tokio::join!(one, two, three, four);
        assert!(all.0.is_ok() && all.1.is_ok() && all.2.is_ok() && all.3.is_ok());
        assert_eq!(connections_of(&client, "four_calls").await, 1);
    }
}

/// One row or connection in PostgreSQL delays no other: a statement waits for the lock of a row for at
/// most 100 ms.
#[tokio::test]
async fn many_calls_at_once_use_all_connections_and_no_more() {
    let (_server, client, store) = store_of("all_connections", 3).await;
    // One too many would be made when all are busy.
    let mut all_used = 0;
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
        let now = connections_of(&client, "all_connections").await;
        assert!(now <= 3, "{now} connections");
        all_used += usize::from(now == 3);
        if all_used == 5 {
            break;
        }
    }
    assert_eq!(all_used, 5);
}

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

#[tokio::test]
async fn a_connection_that_is_silent_for_less_than_a_second_is_kept() {
    let (_server, client, store) = store_of("busy", 1).await;
    assert_eq!(load(&store, "key").await, None);
    let query = "SELECT pid FROM pg_stat_activity WHERE usename = 'busy'";
    let pid: i32 = client.query_one(query, &[]).await.expect("one").get(0);
    assert_eq!(load(&store, "key").await, None);
    let begun = tokio::time::Instant::now();
    signal(pid, "STOP");
    for _ in 0..8 {
        let mut left = std::pin::pin!(store.load("key"));
        assert!(futures_poll(left.as_mut()).await.is_none());
    }
    let is_kept = store.load("key");
    signal(pid, "CONT");
    assert_eq!(is_kept.await.expect("a reply").value, None);
    let last: i32 = client.query_one(query, &[]).await.expect("one").get(0);
    assert!(last == pid || begun.elapsed() >= Duration::from_secs(1));
}

/// The connection that has inserted the row is replaced if the error is of the connection.
#[tokio::test]
async fn each_error_of_the_server_is_answered_as_its_code_demands() {
    let (_server, client, store) = store_of("raised", 1).await;
    let trigger = "CREATE FUNCTION raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION '%', split_part(NEW.key, ' ', 2)
                USING ERRCODE = split_part(NEW.key, ' ', 1);
        END $$;
        CREATE TRIGGER raises BEFORE INSERT ON raised FOR EACH ROW EXECUTE FUNCTION raise()";
    client.batch_execute(trigger).await.expect("a trigger");
    let query = "SELECT pid FROM pg_stat_activity WHERE usename = 'raised'";
    for (key, transient, is_replaced, advice) in [
        ("26000 ", false, false, "call `without_prepared_statements`"),
        ("42P05 ", false, false, "call `without_prepared_statements`"),
        ("42P01 ", false, false, "with `create_table`"),
        ("42703 ", false, false, "is not one of this version"),
        ("42804 ", false, false, "is not one of this version"),
        ("42P10 ", false, false, "is not one of this version"),
        ("42501 ", false, false, "this role needs SELECT, INSERT"),
        ("3F000 ", false, false, "create the schema"),
        ("3D000 ", false, false, "check the name of the database"),
        (
            "28P01 ",
            false,
            false,
            "check the user, the password and pg_hba.conf",
        ),
        (
            "28000 ",
            false,
            false,
            "check the user, the password and pg_hba.conf",
        ),
        ("08P01 no_such_user", true, false, "(08P01)"),
        ("25006 ", true, true, "this server only reads"),
        ("0A000 ", false, false, "(0A000)"),
        ("57P01 ", true, true, "(57P01)"),
        ("57P02 ", true, true, "(57P02)"),
        ("57P03 ", true, true, "(57P03)"),
        ("57P04 ", false, false, "(57P04)"),
        ("57014 ", true, false, "(57014)"),
        ("55P03 ", true, false, "another transaction holds this row"),
        ("53100 ", false, false, "free some disk space"),
        ("53300 ", true, false, "(53300)"),
        ("58030 ", true, false, "(58030)"),
        ("22012 ", false, false, "(22012)"),
    ] {
        assert_eq!(load(&store, key).await, None);
        let before: i32 = client.query_one(query, &[]).await.expect("one").get(0);
        let swapped = store.swap(key, None, &value(1, ""), MINUTE).await;
        let error = swapped.expect_err(key);
        assert_eq!(error.is_transient(), transient, "{error}");
        let text = error.to_string();
        assert!(text.contains(advice), "{text}");
        // Nothing comes after a code without advice.
        assert!(!advice.starts_with('(') || text.ends_with(advice), "{text}");
        assert_eq!(load(&store, key).await, None);
        let after: i32 = client.query_one(query, &[]).await.expect("one").get(0);
        assert_eq!(before != after, is_replaced, "{error}");
    }
    for key in ["40001 ", "40P01 "] {
        let swapped = store.swap(key, None, &value(1, ""), MINUTE).await;
        assert!(
            matches!(swapped, Ok(Swapped::Conflict(None))),
            "{swapped:?}"
        );
    }
}

/// Writes to a key, whatever it holds.
struct Write(&'static str);

impl Program for Write {
    fn key(&self) -> &str {
        self.0
    }

    fn execute(&self, _: Loaded) -> Option<(Value, Duration)> {
        Some((value(1, "new"), MINUTE))
    }
}

#[tokio::test]
async fn a_transaction_that_fails_is_rolled_back() {
    let (_server, client, store) = store_of("failed", 1).await;
    let check = "ALTER TABLE failed ADD CHECK (key <> 'refused')";
    client.batch_execute(check).await.expect("a condition");
    for _ in 0..2 {
        let error = store
            .run(Arc::new(Write("refused")))
            .await
            .expect_err("refused");
        assert!(error.to_string().contains("(23514)"), "{error}");
        assert_eq!(store.run(Arc::new(Write("key"))).await, Ok(true));
    }
}

/// The connections of a transaction and of a single statement.
#[tokio::test]
async fn a_connection_keeps_its_statements_and_prepares_those_that_are_lost() {
    let (server, _) = store("kept_statements").await;
    let connections = Connections::open(&server.url()).and_then(|all| all.size(1));
    let connections = connections.expect("a URL");
    let store = PostgreSql::new(connections.clone()).without_sweeps();
    let store = store.table("kept_statements").expect("a name");
    let loaded = connected(async || store.load("key").await).await;
    assert_eq!(loaded.expect("a reply").value, None);
    assert_eq!(load(&store, "key").await, None);
    let shared = connections.get().await.expect("a connection");
    assert_eq!(prepared(&shared).await, 1);
    Connections::release(shared, true);
    // The first transaction finds the statement of the load there.
    for kept in [4, 3] {
        assert_eq!(store.run(Arc::new(Write("key"))).await, Ok(true));
        let exclusive = connections.get_exclusive().await.expect("a connection");
        let exclusive = exclusive.expect("one for a transaction");
        assert_eq!(prepared(&exclusive).await, kept);
        let forget = Connections::client(&exclusive).batch_execute("DEALLOCATE ALL");
        forget.await.expect("a session");
        Connections::release(exclusive, true);
    }
}

/// How many statements the session of a connection has prepared.
async fn prepared(connection: &PooledClient) -> i64 {
    let query = "SELECT count(*) FROM pg_prepared_statements";
    let rows = Connections::client(connection).query_typed(query, &[]);
    rows.await.expect("a count")[0].get(0)
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
