//! Behind pgbouncer in transaction mode, which gives each statement any session of the server.

use std::{fs, time::Duration};

use tokio::task::JoinSet;
use tokio_postgres::{NoTls, SimpleQueryMessage};
use tower_throttle::store::{
    Backend,
    cas::{Cas, CasStore, postgres::PostgreSql},
};
use tower_throttle::{Quota, TokenBucket};

use super::{PostgresServer, connected};
use test_support::pooler::Pooler;

/// Shows promise 83.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_is_exact_behind_a_pooler_in_transaction_mode() {
    const LIMIT: u64 = 100;
    let server = PostgresServer::shared();
    let pooler = Pooler::before(&server, "auth_type = any");
    let mut tasks = JoinSet::new();
    for machine in 0..2 {
        let store = PostgreSql::open(&pooler.url()).expect("a URL");
        let store = store.behind_pooler().table("pooled").expect("a name");
        if machine == 0 {
            let made = connected(async || store.create_table().await).await;
            made.expect("a table");
        }
        let bucket = TokenBucket::new(Quota::per(LIMIT, Duration::from_secs(10_000_000)));
        let limit = Cas::new(store, "pooled", bucket).expect("a limit");
        let limit = limit.deadline(Duration::from_secs(60));
        for _ in 0..16 {
            let limit = limit.clone();
            tasks.spawn(async move {
                let mut admitted = 0;
                for _ in 0..10 {
                    let decision = limit.decide("key", 1).await.expect("a decision");
                    admitted += u64::from(decision.is_admitted());
                }
                admitted
            });
        }
    }
    assert_eq!(tasks.join_all().await.into_iter().sum::<u64>(), LIMIT);

    // The sessions belong to all clients of the pooler, and are as they were.
    let (client, connection) = tokio_postgres::connect(&pooler.url(), NoTls)
        .await
        .expect("a pooler that responds");
    tokio::spawn(connection);
    let shown = client.simple_query("SHOW lock_timeout").await;
    let shown = shown.expect("a setting");
    let setting = shown.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    assert_eq!(setting, Some("0"));
}

/// Shows promise 97.
#[tokio::test]
async fn a_pooler_that_refuses_a_user_a_password_or_a_database_is_no_outage() {
    let server = PostgresServer::shared();
    let users = std::env::temp_dir().join(format!("pooler-users-{}.txt", std::process::id()));
    fs::write(&users, "\"known\" \"right\"\n").expect("a file of users");
    for access in ["plain", "md5", "scram-sha-256"] {
        let access = format!("auth_type = {access}\nauth_file = {}", users.display());
        let pooler = Pooler::before(&server, &access);
        let error = async |user, database| {
            let store = PostgreSql::open(&pooler.url_of(user, database)).expect("a URL");
            let store = store.behind_pooler();
            let loaded = connected(async || store.load("key").await).await;
            loaded.expect_err("a mistake")
        };
        for (user, database) in [
            ("known:wr0ng", "postgres"),
            ("unknown:right", "postgres"),
            ("known:right", "nowhere"),
        ] {
            let error = error(user, database).await;
            assert!(
                !error.is_transient(),
                "{access}, {user}, {database}: {error}"
            );
            let text = error.to_string();
            assert!(
                text.contains("; check the ") && !text.contains("wr0ng"),
                "{text}"
            );
        }
        // The user is right, so the server says what is missing.
        let text = error("known:right", "postgres").await.to_string();
        assert!(text.contains("`create_table`"), "{access}: {text}");
    }
    let _ = fs::remove_file(&users);
}
