//! The errors of a limit itself. Those of a store are its own.

use std::time::Duration;

use crate::error::StoreError;

/// Why a call has no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Failure {
    /// The bytes in the store cannot be read.
    Damaged,
    /// It cannot be found out any more whether a swap was executed.
    LostTrack,
    /// The call was not decided within this time.
    Deadline(Duration),
    /// The runtime on which the call was decided does not run any more.
    RuntimeShutDown,
}

impl Failure {
    /// The error of a call to `store`.
    pub(in crate::store) fn in_store(self, store: &str) -> StoreError {
        let of_key = |text| StoreError::of_key(format!("{store}: {text}"));
        let (text, transient) = match self {
            Self::Damaged => {
                return of_key(
                    "the value of the key is damaged or of a newer release: reset the key, or give \
                     the limit another name",
                );
            }
            Self::LostTrack => (
                "a swap got no reply, and the key was changed too often since to find out whether \
                 the call was counted",
                true,
            ),
            Self::Deadline(limit) => {
                let text = format!("{store}: no decision within {limit:?}");
                return StoreError::new(text, true);
            }
            Self::RuntimeShutDown => ("the runtime that decided was shut down", true),
        };
        StoreError::new(format!("{store}: {text}"), transient)
    }
}
