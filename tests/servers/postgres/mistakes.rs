//! Errors that an operator has to fix say how.

use tower_throttle::{
    StoreError,
    store::cas::{CasStore, postgres::PostgreSql},
};

use super::{MINUTE, connected, insert, load, postgres_server::PostgresServer, store, value};

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
