//! Errors that an operator has to fix say how.

use tower_throttle::store::cas::{CasStore, postgres::PostgreSql};

use super::{connected, postgres_server::PostgresServer, store};
use crate::stored::{insert, load, names_what_makes_its_table, permanent, value};

fn open(url: &str, table: &str) -> PostgreSql {
    let store = PostgreSql::open(url).expect("a URL");
    store.table(table).expect("a name")
}

/// Shows promise 97.
#[tokio::test]
async fn without_a_table_the_error_names_the_call_that_makes_it() {
    let server = PostgresServer::shared();
    let store = open(&server.url(), "nowhere");
    assert!(permanent(connected(async || store.check().await).await).contains("create_table"));
    names_what_makes_its_table(&store, "nowhere", PostgreSql::create_table).await;
    store.check().await.expect("a table");
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
