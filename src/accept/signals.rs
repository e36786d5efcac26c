//! Counts of connections, and reports to logs and metrics, if their features are on. Addresses are not
//! reported.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::refused::{Reason, Refused};
use crate::telemetry::{as_text, log, measure};

/// How many connections had each outcome since the limit was made, and how many are open.
///
/// ```
/// use tower_throttle::accept::ConnectionLimit;
///
/// let limit = ConnectionLimit::new(1);
/// let client = "192.0.2.7".parse().unwrap();
/// let connection = limit.admit(client, "a stream");
/// assert!(limit.admit(client, "a stream").is_err());
/// let counts = limit.counts();
/// assert_eq!((counts.accepted, counts.open, counts.refused), (1, 1, 1));
/// # drop(connection);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionCounts {
    /// Are open now.
    pub open: u64,
    /// Were accepted.
    pub accepted: u64,
    /// Were refused. Metrics say why.
    pub refused: u64,
    /// Attempts to accept a connection that failed, such as for want of file descriptors.
    pub accept_errors: u64,
}

#[derive(Debug)]
pub(super) struct Signals {
    name: Arc<str>,
    /// In the order of the fields of [`ConnectionCounts`].
    counts: [AtomicU64; 4],
}

impl Signals {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            counts: Default::default(),
        }
    }

    pub(super) fn opened(&self) {
        self.counts[0].fetch_add(1, Ordering::Relaxed);
        self.counts[1].fetch_add(1, Ordering::Relaxed);
        self.measure("accepted");
        measure!(gauge "tower_throttle_connections_open", ["limit" = Arc::clone(&self.name)], increment(1.0));
    }

    pub(super) fn closed(&self) {
        self.counts[0].fetch_sub(1, Ordering::Relaxed);
        measure!(gauge "tower_throttle_connections_open", ["limit" = Arc::clone(&self.name)], decrement(1.0));
    }

    pub(super) fn refused(&self, refused: Refused) {
        self.counts[2].fetch_add(1, Ordering::Relaxed);
        self.measure(match refused.0 {
            Reason::Open => "refused_open",
            Reason::Total => "refused_total",
            Reason::Rate => "refused_rate",
        });
        log!(
            debug,
            [limit = &*self.name, reason = as_text(refused)],
            "a connection was refused"
        );
    }

    /// Accept has failed, for the first time since a connection.
    #[cold]
    pub(super) fn failed(&self, error: &io::Error, has_begun: bool) {
        self.counts[3].fetch_add(1, Ordering::Relaxed);
        self.measure("accept_error");
        if has_begun {
            log!(
                error,
                [limit = &*self.name, error = as_text(error)],
                "no connection can be accepted; trying again (logged once until one can)"
            );
        }
    }

    fn measure(&self, outcome: &'static str) {
        let limit = || Arc::clone(&self.name);
        measure!(counter "tower_throttle_connections_total", ["limit" = limit(), "outcome" = outcome], increment(1));
    }

    pub(super) fn counts(&self) -> ConnectionCounts {
        let count = |at: usize| self.counts[at].load(Ordering::Relaxed);
        ConnectionCounts {
            open: count(0),
            accepted: count(1),
            refused: count(2),
            accept_errors: count(3),
        }
    }
}
