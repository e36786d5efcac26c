//! Whether this build has tokio's paused time at all.
//!
//! Only tokio's feature `test-util` can pause time, and a program is seldom shipped with it. Where
//! it is off, there is nothing to obey, and the clock need not ask tokio. A crate cannot see the
//! features of another one, but it can see whether a name is there: inside the block below tokio's
//! `pause`, if there is one, hides ours.

mod absent {
    pub(super) struct Absent;

    #[allow(dead_code, reason = "used only where tokio has none")]
    pub(super) fn pause() -> Absent {
        Absent
    }
}

trait ResponseHooks {
    const EXISTS: bool;
}

impl ResponseHooks for absent::Absent {
    const EXISTS: bool = false;
}

impl ResponseHooks for () {
    const EXISTS: bool = true;
}

const fn pause_exists<T: ResponseHooks>(_: fn() -> T) -> bool {
    T::EXISTS
}

/// Whether time can be paused.
pub(super) const PAUSE_AVAILABLE: bool = {
    #[allow(unused_imports, reason = "one of the two is not used, whichever it is")]
    use absent::pause;
    {
        #[allow(
            unused_imports,
            clippy::wildcard_imports,
            reason = "as above; the name is there only in some builds"
        )]
        use tokio::time::*;
        pause_exists(pause)
    }
};
