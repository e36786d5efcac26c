//! How much space the table takes.

use std::time::Duration;

use tower_throttle::store::cas::{CasStore, Swapped, postgres::PostgreSql};

use super::{MINUTE, connected, insert, postgres_server::PostgresServer, value, version};
use crate::wait::until;

#[tokio::test]
async fn most_swaps_change_no_index_and_their_space_is_used_again() {
    // A server of its own: an open transaction of another test would keep the old versions.
    let server = PostgresServer::start();
    let store = PostgreSql::open(&server.url()).expect("a URL");
    let store = store.table("reused").expect("a name");
    let made = connected(async || store.create_table().await).await;
    made.expect("a table");
    let bytes = "s".repeat(200);
    for key in 0..10 {
        insert(&store, &key.to_string(), &value(0, &bytes)).await;
    }
    for number in 1..=500 {
        for key in 0..10 {
            let key = key.to_string();
            let new = value(number, &bytes);
            let expected = Some(version(number - 1));
            let ttl = MINUTE + Duration::from_millis(number);
            let swapped = store.swap(&key, expected, &new, ttl).await;
            assert!(matches!(swapped, Ok(Swapped::Done(_))), "{swapped:?}");
        }
    }
    let client = server.client().await;
    let query = "SELECT n_tup_upd, n_tup_hot_upd, pg_relation_size('reused') \
                 FROM pg_stat_user_tables WHERE relname = 'reused'";
    until("the server has counted", async || {
        let row = client.query_one(query, &[]).await.expect("a table");
        row.get::<_, i64>(0) == 5_000
    })
    .await;
    let row = client.query_one(query, &[]).await.expect("a table");
    let (hot, size): (i64, i64) = (row.get(1), row.get(2));
    assert!(hot >= 4_800, "{hot} of 5000 changed no index");
    assert!(size <= 200_000, "{size} bytes for ten rows");
}
