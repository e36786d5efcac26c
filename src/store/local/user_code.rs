//! Which thread runs an algorithm of a user.
//!
//! A table runs such an algorithm on a copy of the state, while the shard of the key is locked. If it
//! used its own table, it would wait for that lock for ever; so no table of such an algorithm can be used
//! meanwhile, by this thread.

use std::cell::Cell;

thread_local! {
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// Until it is dropped, this thread may run an algorithm of a user.
#[derive(Debug)]
pub(super) struct Running {
    is_user_code: bool,
}

impl Running {
    /// `None` if this thread runs an algorithm of a user already, and `is_user_code` is another one.
    pub(super) fn enter(is_user_code: bool) -> Option<Self> {
        (!is_user_code || !RUNS.replace(true)).then(|| Self { is_user_code })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_user_code {
            RUNS.set(false);
        }
    }
}
