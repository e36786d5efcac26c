//! The requests of one key that wait for a permit.

use crate::queue;

/// A line in which a request is granted its permit by who releases one. Of each waiter it keeps how many permits that
/// has to leave free.
pub(super) type PermitLine = queue::Line<u32, End>;

/// A request in a [`PermitLine`].
pub(crate) type QueuedPermit = queue::Queued<End>;

/// How a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The request has a permit.
    Granted,
    /// A request that goes before it has taken its place in the line, or the line is full.
    Displaced,
    /// The store of the permits has failed.
    #[cfg_attr(
        not(feature = "cas"),
        allow(dead_code, reason = "permits of a fleet use it")
    )]
    Failed,
}
