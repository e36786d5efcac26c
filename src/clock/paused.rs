//! Detects whether tokio can pause time in this build.
//!
//! Time can only be paused with tokio's feature `test-util`, which release builds rarely enable.
//! Without it the clock does not need to ask tokio. A crate cannot see the features of another one,
//! but it can detect whether a name exists: in the block below, tokio's `pause` shadows ours if it
//! exists.

mod absent {
    pub(super) struct Absent;

    #[allow(dead_code, reason = "used only if tokio has no `pause`")]
    pub(super) fn pause() -> Absent {
        Absent
    }
}

trait PauseResult {
    const EXISTS: bool;
}

impl PauseResult for absent::Absent {
    const EXISTS: bool = false;
}

impl PauseResult for () {
    const EXISTS: bool = true;
}

const fn pause_exists<T: PauseResult>(_: fn() -> T) -> bool {
    T::EXISTS
}

/// Whether time can be paused.
pub(crate) const PAUSE_AVAILABLE: bool = {
    #[allow(unused_imports, reason = "only one of the two imports is used")]
    use absent::pause;
    {
        #[allow(
            unused_imports,
            clippy::wildcard_imports,
            reason = "only one of the two imports is used; the name exists only in some builds"
        )]
        use tokio::time::*;
        pause_exists(pause)
    }
};
