//! Damages values that are stored.

use std::time::Duration;

use tower_throttle::store::cas::{CasStore, MemoryStore, Swapped, Value};

/// Replaces the bytes of a value that is stored. The number of the version has to be new.
pub(crate) async fn overwrite(store: &MemoryStore, name: &str, version: u64, bytes: &[u8]) {
    let (stored, _) = store.get(name).expect("a value");
    let new = Value {
        version,
        bytes: bytes.to_vec(),
    };
    let day = Duration::from_secs(86_400);
    let swapped = store.swap(name, Some(stored.version), &new, day).await;
    assert!(matches!(swapped, Ok(Swapped::Done(_))));
}
