//! Errors that an operator has to fix say how.

use tower_throttle::store::cas::{CasStore, cassandra::Cassandra};

use super::{CassandraServer, store};
use crate::stored::{MINUTE, insert, load, names_what_makes_its_table, permanent, value};

/// Shows promise 97.
#[tokio::test]
#[ignore = "it needs Java"]
async fn without_a_table_the_error_names_the_call_that_makes_it() {
    let (server, existing) = store("exists").await;
    let store = existing.clone().table("test.nowhere").expect("a name");
    names_what_makes_its_table(&store, "test.nowhere", Cassandra::create_table).await;
    store.check().await.expect("a table");
    assert_eq!(load(&existing, "key").await, None);

    let store = existing.table("no_keyspace.limits").expect("a name");
    let text = permanent(store.create_table().await);
    let is_named = text.contains("create the keyspace of \"no_keyspace.limits\"");
    assert!(is_named, "{text}");

    let other = "CREATE TABLE test.other_kind (key text PRIMARY KEY, tokens int)";
    let session = server.session().await;
    session.query_unpaged(other, ()).await.expect("a table");
    let store = store.table("test.other_kind").expect("a name");
    let text = permanent(store.create_table().await);
    assert!(text.contains("another table of this name"), "{text}");
}

/// Shows promise 97.
#[tokio::test]
#[ignore = "it needs Java"]
async fn a_role_needs_two_rights_on_the_table_and_none_to_make_it() {
    let (server, owner) = store("rights").await;
    let session = server.session().await;
    let role = "CREATE ROLE limited WITH PASSWORD = 'secret' AND LOGIN = true";
    session.query_unpaged(role, ()).await.expect("a role");
    let store = Cassandra::with_builder(server.builder().user("limited", "secret"));
    let store = store.table("test.rights").expect("a name");
    let text = permanent(store.create_table().await);
    let advice = "this role needs SELECT and MODIFY on the table \"test.rights\"";
    assert!(text.contains(advice), "{text}");
    for right in ["SELECT", "MODIFY"] {
        let swapped = store.swap("key", None, &value(1, "stored"), MINUTE).await;
        assert!(permanent(swapped).contains(advice));
        let grant = format!("GRANT {right} ON test.rights TO limited");
        session.query_unpaged(grant, ()).await.expect("a right");
    }
    store.create_table().await.expect("a table that exists");
    insert(&store, "key", &value(1, "stored")).await;
    assert_eq!(load(&owner, "key").await, Some(value(1, "stored")));
}

/// Shows promise 97.
#[tokio::test]
#[ignore = "it needs Java"]
async fn a_wrong_password_is_not_an_outage_and_is_not_shown() {
    let server = CassandraServer::shared();
    let wrong = server.builder().user("cassandra", "wr0ng");
    for store in [
        Cassandra::with_builder(wrong),
        Cassandra::open(&server.node()),
    ] {
        let text = permanent(store.load("key").await);
        assert!(text.contains("check the user and the password"), "{text}");
        assert!(!text.contains("wr0ng") && !format!("{store:?}").contains("wr0ng"));
    }
}

/// Shows promise 97.
#[tokio::test]
#[ignore = "it needs Java"]
async fn a_data_center_that_does_not_exist_is_named() {
    let (_server, store) = store("datacenters").await;
    let text = permanent(store.clone().datacenter("dc9").load("key").await);
    let is_named = text.contains("\"dc9\" is not one of {\"datacenter1\"}");
    assert!(is_named, "{text}");
    let store = store.datacenter("datacenter1");
    insert(&store, "key", &value(1, "stored")).await;
    assert_eq!(load(&store, "key").await, Some(value(1, "stored")));
    let store = store
        .table("test.datacenters")
        .expect("a name")
        .across_datacenters();
    assert_eq!(load(&store, "key").await, Some(value(1, "stored")));
}

/// Shows promise 97.
#[tokio::test]
#[ignore = "it needs Java"]
async fn a_server_that_is_not_there_is_an_outage() {
    let store = Cassandra::open("127.0.0.1:1");
    for _ in 0..2 {
        let error = store.load("key").await.expect_err("no server");
        assert!(error.is_transient(), "{error}");
        assert!(error.to_string().contains("refused"), "{error}");
    }
    assert!(permanent(Cassandra::open(" , ").load("key").await).contains("Empty known nodes"));
}
