//! Errors that an operator has to fix say how.

use std::sync::Arc;

use tower_throttle::{
    StoreError,
    store::cas::{CasStore, postgres::PostgreSql},
};

use super::{
    MINUTE, connected, insert, load, postgres_server::PostgresServer, store, value, version,
};

fn open(url: &str, table: &str) -> PostgreSql {
    let store = PostgreSql::open(url).expect("a URL");
    store.table(table).expect("a name")
}

/// The text of an error that no retry can fix.
fn permanent<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    let error = result.expect_err("a mistake");
    assert!(!error.is_transient(), "{error}");
    error.to_string()
}

/// Shows promise 97.
#[tokio::test]
async fn without_a_table_the_error_names_the_call_that_makes_it() {
    let server = PostgresServer::shared();
    let store = open(&server.url(), "nowhere");
    let text = permanent(connected(async || store.load("key").await).await);
    assert!(
        text.contains("make the table \"nowhere\" with `create_table`"),
        "{text}"
    );
    let swapped = store.swap("key", None, &value(1, ""), MINUTE).await;
    assert!(permanent(swapped).contains("`create_table`"));
    assert!(permanent(store.check().await).contains("`create_table`"));
    store
        .create_table()
        .await
        .expect("a right of the superuser");
    assert_eq!(load(&store, "key").await, None);
    let missing = open(&server.url(), "no_schema.limits");
    let text = permanent(connected(async || missing.create_table().await).await);
    assert!(text.contains("create the schema"), "{text}");
}

/// Shows promise 97.
#[tokio::test]
async fn a_role_needs_four_rights_on_the_table_and_none_to_make_it() {
    let (server, owner) = store("rights").await;
    let client = server.client().await;
    client
        .batch_execute("CREATE ROLE limited LOGIN")
        .await
        .expect("a role");
    let store = open(&server.url_of("limited"), "rights");
    let text = permanent(connected(async || store.load("key").await).await);
    let advice = "this role needs SELECT, INSERT, UPDATE and DELETE on the table \"rights\"";
    assert!(text.contains(advice), "{text}");
    let absent = open(&server.url_of("limited"), "not_there");
    let text = permanent(connected(async || absent.create_table().await).await);
    assert!(text.contains("CREATE on its schema"), "{text}");

    let grants = ["SELECT", "INSERT", "UPDATE", "DELETE"];
    for (number, right) in grants.iter().enumerate() {
        let text = permanent(store.create_table().await);
        let may_not = "may not write to the table \"rights\"";
        assert!(text.contains("\"rights\""), "{text}");
        assert_eq!(text.contains(may_not), number > 0, "{text}");
        let grant = format!("GRANT {right} ON rights TO limited");
        client.batch_execute(&grant).await.expect("a right");
        let checked = store.check().await;
        assert_eq!(checked.is_ok(), number == grants.len() - 1, "{checked:?}");
    }
    store.create_table().await.expect("a table that exists");
    insert(&store, "key", &value(1, "stored")).await;
    assert_eq!(load(&owner, "key").await, Some(value(1, "stored")));
}

/// Shows promise 97.
#[tokio::test]
async fn a_wrong_password_is_not_an_outage_and_is_not_shown() {
    let server = PostgresServer::shared();
    let client = server.client().await;
    let role = "CREATE ROLE needs_password LOGIN PASSWORD 'right'";
    client.batch_execute(role).await.expect("a role");
    let store = |password: &str| {
        let url = server.url_of(&format!("needs_password:{password}"));
        open(&url, "passwords")
    };
    let wrong = store("wr0ng");
    let text = permanent(connected(async || wrong.load("key").await).await);
    assert!(
        text.contains("check the user, the password and pg_hba.conf"),
        "{text}"
    );
    assert!(!text.contains("wr0ng") && !format!("{wrong:?}").contains("wr0ng"));
    let right = store("right");
    let text = permanent(connected(async || right.load("key").await).await);
    assert!(text.contains("`create_table`"), "{text}");
    let unknown = open(&server.url_of("nobody_of_this_name"), "a");
    let text = permanent(connected(async || unknown.load("key").await).await);
    assert!(text.contains("nobody_of_this_name"), "{text}");
}

/// Shows promise 97.
#[tokio::test]
async fn a_server_that_is_not_there_is_an_outage() {
    let store = open("postgres://postgres@127.0.0.1:1", "limits");
    for _ in 0..2 {
        let error = store.load("key").await.expect_err("no server");
        assert!(error.is_transient(), "{error}");
        assert!(error.to_string().contains("refused"), "{error}");
    }
}

/// Shows promise 97.
#[tokio::test]
async fn a_server_that_only_reads_is_named_as_one() {
    let (server, store) = store("only_reads").await;
    insert(&store, "key", &value(1, "stored")).await;
    let client = server.client().await;
    let role = "CREATE ROLE reader LOGIN; GRANT ALL ON only_reads TO reader; \
                ALTER ROLE reader SET default_transaction_read_only = on";
    client.batch_execute(role).await.expect("a role");
    let store = Arc::new(open(&server.url_of("reader"), "only_reads"));
    assert_eq!(load(&store, "key").await, Some(value(1, "stored")));
    let new = value(2, "new");
    let swapped = store.swap("key", Some(version(1)), &new, MINUTE).await;
    let error = swapped.expect_err("it only reads");
    assert!(error.is_transient(), "{error}");
    assert!(
        error
            .to_string()
            .contains("target_session_attrs=read-write"),
        "{error}"
    );
    // The connection is not used again, so that the next one may lead to the primary.
    let writable = "ALTER ROLE reader SET default_transaction_read_only = off";
    client.batch_execute(writable).await.expect("a setting");
    let swapped = store.swap("key", Some(version(1)), &new, MINUTE).await;
    assert!(swapped.is_ok(), "{swapped:?}");
}
