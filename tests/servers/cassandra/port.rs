//! The port: load and swap.

use std::time::Duration;

use tower_throttle::store::cas::{CasStore, Swapped};

use super::store;
use crate::stored::{load, value};
use crate::wait::until;

/// Shows promise 85.
#[tokio::test]
#[ignore = "it needs Java"]
async fn no_value_lives_for_ever() {
    let (server, store) = store("mortal").await;
    for (key, ttl) in [("zero", Duration::ZERO), ("longest", Duration::MAX)] {
        let swapped = store.swap(key, None, &value(1, ""), ttl).await;
        assert_eq!(swapped, Ok(Swapped::Done(None)));
    }
    let query = "SELECT ttl(value) FROM test.mortal WHERE key = 'longest'";
    let rows = server.session().await.query_unpaged(query, ()).await;
    let rows = rows.expect("a reply").into_rows_result().expect("rows");
    let (ttl,) = rows.first_row::<(Option<i32>,)>().expect("a row");
    assert!(ttl.expect("a time to live") >= 365 * 86_400 - 60);
    until("the shortest is gone", async || {
        load(&store, "zero").await.is_none()
    })
    .await;
}
