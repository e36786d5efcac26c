//! The errors of a limit itself. Those of a store are its own.

use std::time::Duration;

use crate::error::StoreError;

/// The bytes in the store cannot be read.
pub(in crate::store) fn damaged(store: &str) -> StoreError {
    let text = "the value of the key is damaged or of a newer release: reset the key, or give the limit another name";
    StoreError::new(format!("{store}: {text}"), false)
}

/// It cannot be found out any more whether a swap was executed.
pub(in crate::store) fn lost_track(store: &str) -> StoreError {
    let text = format!(
        "{store}: a swap got no reply, and the key was changed too often since to find out whether \
         the call was counted"
    );
    StoreError::new(text, true)
}

/// The call was not decided within this time.
pub(in crate::store) fn too_late(store: &str, limit: Duration) -> StoreError {
    StoreError::new(format!("{store}: no decision within {limit:?}"), true)
}

/// The runtime on which the call was decided does not run any more.
pub(in crate::store) fn shut_down(store: &str) -> StoreError {
    StoreError::new(
        format!("{store}: the runtime that decided was shut down"),
        true,
    )
}
