//! The port: load and swap.

use std::{sync::Arc, time::Duration};

use tower_throttle::store::cas::{CasStore, Loaded, Swapped};

use super::{MINUTE, insert, load, store, value, version};
use crate::wait::until;

#[tokio::test]
async fn a_swap_is_seen_by_the_next_load() {
    let (_server, store) = store("seen").await;
    assert_eq!(store.load("key").await, Ok(Loaded::default()));
    insert(&store, "key", &value(7, "first")).await;
    assert_eq!(load(&store, "key").await, Some(value(7, "first")));
    let mut expected = version(7);
    for new in [
        value(u64::MAX, "second"),
        value(1 << 63, ""),
        value(0, "last"),
    ] {
        let swapped = store.swap("key", Some(expected), &new, MINUTE).await;
        assert_eq!(swapped, Ok(Swapped::Done(None)));
        expected = new.version;
        assert_eq!(load(&store, "key").await, Some(new));
    }
    assert_eq!(load(&store, "other").await, None);
}

/// Shows promise 141.
#[tokio::test]
async fn a_swap_with_another_version_writes_nothing_and_returns_the_value() {
    let (_server, store) = store("conflicts").await;
    insert(&store, "key", &value(1, "stored")).await;
    for expected in [None, Some(version(2))] {
        let swapped = store.swap("key", expected, &value(3, "new"), MINUTE).await;
        let Ok(Swapped::Conflict(Some(loaded))) = swapped else {
            panic!("{swapped:?}");
        };
        assert_eq!(loaded.value, Some(value(1, "stored")));
        assert_eq!(load(&store, "key").await, Some(value(1, "stored")));
    }
    let new = value(4, "new");
    let swapped = store.swap("absent", Some(version(1)), &new, MINUTE).await;
    assert_eq!(swapped, Ok(Swapped::Conflict(Some(Loaded::default()))));
    assert_eq!(load(&store, "absent").await, None);
}

/// Shows promise 142.
#[tokio::test]
async fn a_value_expires_after_its_time_to_live_and_its_key_is_free() {
    let (_server, store) = store("expiring").await;
    // A row that outlived its values would be in the way: the first value lives longer.
    insert(&store, "key", &value(1, "long")).await;
    let short = value(2, "short");
    let ttl = Duration::from_millis(1_500);
    let begun = tokio::time::Instant::now();
    let swapped = store.swap("key", Some(version(1)), &short, ttl).await;
    assert_eq!(swapped, Ok(Swapped::Done(None)));
    while let Some(found) = load(&store, "key").await {
        assert_eq!(found, short);
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "it never expires"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(begun.elapsed() >= ttl, "{:?}", begun.elapsed());
    let swapped = store
        .swap("key", Some(version(2)), &value(3, ""), MINUTE)
        .await;
    assert!(matches!(swapped, Ok(Swapped::Conflict(_))), "{swapped:?}");
    insert(&store, "key", &value(4, "new")).await;
}

/// Shows promise 142.
#[tokio::test]
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

/// Shows promise 141.
#[tokio::test]
async fn of_many_swaps_of_one_version_at_once_one_succeeds() {
    let (_server, store) = store("races").await;
    let store = Arc::new(store);
    let mut expected = None;
    for round in 0..10 {
        let swaps: Vec<_> = (1..=8)
            .map(|task| {
                let store = Arc::clone(&store);
                let new = value(round * 100 + task, "");
                tokio::spawn(async move {
                    let swapped = store.swap("key", expected, &new, MINUTE).await;
                    (swapped, new)
                })
            })
            .collect();
        let (mut done, mut unknown) = (Vec::new(), Vec::new());
        for swap in swaps {
            match swap.await.expect("no panic") {
                (Ok(Swapped::Done(_)), new) => done.push(new),
                (Ok(_), _) => {}
                // Its rivals kept it waiting: it may have been executed.
                (Err(error), new) => {
                    assert!(error.is_transient(), "{error}");
                    unknown.push(new);
                }
            }
        }
        let stored = load(&store, "key").await.expect("a value");
        assert!(done.len() <= 1, "{done:?}");
        assert!(done.contains(&stored) || done.is_empty() && unknown.contains(&stored));
        expected = Some(stored.version);
    }
}

#[tokio::test]
async fn a_value_may_be_large_and_a_key_may_be_any_text() {
    let (_server, store) = store("sizes").await;
    for (number, (key, len)) in [("{a:b}", 0), ("ключ'\"?\\", 100_000)]
        .into_iter()
        .enumerate()
    {
        let new = value(number as u64, &"s".repeat(len));
        insert(&store, key, &new).await;
        assert_eq!(load(&store, key).await, Some(new));
    }
}
