//! Values in any server, and errors that an operator has to fix.

use std::fmt::Debug;
use std::time::Duration;

use tower_throttle::StoreError;
use tower_throttle::store::cas::{CasStore, Swapped, Value};

use crate::wait::connected;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

pub(crate) fn value(number: u64, bytes: &str) -> Value {
    Value {
        version: number,
        bytes: bytes.into(),
    }
}

/// Stores a value of a new key.
pub(crate) async fn insert(store: &impl CasStore, key: &str, new: &Value) {
    let swapped = store.swap(key, None, new, MINUTE).await;
    let swapped = swapped.expect("a server that responds");
    assert!(matches!(swapped, Swapped::Done(_)), "{swapped:?}");
}

/// The value of a key.
pub(crate) async fn load(store: &impl CasStore, key: &str) -> Option<Value> {
    store.load(key).await.expect("a reply").value
}

/// The text of an error that no retry can fix.
pub(crate) fn permanent<T: Debug>(result: Result<T, StoreError>) -> String {
    let error = result.expect_err("a mistake");
    assert!(!error.is_transient(), "{error}");
    error.to_string()
}

/// Without its table a store names the call that makes it, which makes it.
pub(crate) async fn names_what_makes_its_table<S: CasStore>(
    store: &S,
    table: &str,
    makes: impl AsyncFn(&S) -> Result<(), StoreError>,
) {
    let text = permanent(connected(async || store.load("key").await).await);
    let advice = format!("make the table \"{table}\" with `create_table`");
    assert!(text.contains(&advice), "{text}");
    let swapped = store.swap("key", None, &value(1, ""), MINUTE).await;
    assert!(permanent(swapped).contains("`create_table`"));
    makes(store).await.expect("a right of the superuser");
    assert_eq!(load(store, "key").await, None);
}
