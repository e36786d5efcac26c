//! The connections of this crate.

use std::{sync::Arc, time::Duration};

use tokio_postgres::Client;
use tower_throttle::store::cas::{CasStore, Swapped, postgres::PostgreSql};

use super::{postgres_server::PostgresServer, store};
use crate::stored::{MINUTE, insert, load, value};
use crate::wait::until;

/// A store whose connections are those of a role of its own.
async fn store_of(role: &str, size: usize) -> (Arc<PostgresServer>, Client, Arc<PostgreSql>) {
    let (server, store) = store(role).await;
    let client = server.client().await;
    let made = format!("CREATE ROLE {role} LOGIN; GRANT ALL ON TABLE {role} TO {role}");
    client.batch_execute(&made).await.expect("a role");
    drop(store);
    let store = PostgreSql::open(&server.url_of(role)).expect("a URL");
    let store = store.connections(size).expect("a size");
    let store = store.table(role).expect("a name");
    (server, client, Arc::new(store))
}

#[tokio::test]
async fn a_silent_connection_is_replaced() {
    let (_server, client, store) = store_of("silent", 1).await;
    insert(&*store, "key", &value(1, "stored")).await;
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
    // A connection that was replaced may take a moment to end.
    let query = "SELECT pid FROM pg_stat_activity WHERE usename = 'raised' ORDER BY backend_start DESC LIMIT 1";
    for (key, transient, is_replaced, advice) in [
        ("26000 ", false, true, "call `behind_pooler`"),
        ("42P05 ", false, true, "call `behind_pooler`"),
        ("42P01 ", false, false, "with `create_table`"),
        ("42703 ", false, false, "is not one of this version"),
        ("42804 ", false, false, "is not one of this version"),
        ("42P10 ", false, false, "is not one of this version"),
        ("42501 ", false, false, "this role needs SELECT, INSERT"),
        ("3F000 ", false, false, "create the schema"),
        ("3D000 ", false, false, "check the name of the database"),
        ("28P01 ", false, false, "the password and pg_hba.conf"),
        ("28000 ", false, false, "the password and pg_hba.conf"),
        ("08P01 no_such_user", true, false, "(08P01)"),
        ("25006 ", true, true, "this server only reads"),
        ("0A000 ", false, false, "(0A000)"),
        ("57P01 ", true, true, "(57P01)"),
        ("57P02 ", true, true, "(57P02)"),
        ("57P03 ", true, true, "(57P03)"),
        ("57P04 ", false, false, "(57P04)"),
        ("57014 ", true, false, "(57014)"),
        ("55P03 ", true, false, "another transaction holds this row"),
        ("53100 ", true, false, "free some disk space"),
        ("53300 ", true, false, "(53300)"),
        ("58030 ", true, false, "(58030)"),
        ("22012 ", false, false, "(22012)"),
    ] {
        assert_eq!(load(&*store, key).await, None);
        let before: i32 = client.query_one(query, &[]).await.expect("one").get(0);
        let swapped = store.swap(key, None, &value(1, ""), MINUTE).await;
        let error = swapped.expect_err(key);
        assert_eq!(error.is_transient(), transient, "{error}");
        let text = error.to_string();
        assert!(text.contains(advice), "{text}");
        // Nothing comes after a code without advice.
        assert!(!advice.starts_with('(') || text.ends_with(advice), "{text}");
        assert_eq!(load(&*store, key).await, None);
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

fn signal(pid: i32, name: &str) {
    let sent = std::process::Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status();
    assert!(sent.expect("kill is installed").success());
}
