//! One connection, which calls share.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::OwnedSemaphorePermit;
use tokio_postgres::Client;

use super::prepared::Statements;
use crate::clock::{Clock, MonotonicClock, Tick};

/// A connection with so many calls in a row without a reply, and none for [`SILENCE`], counts as dead.
const MAX_UNANSWERED: usize = 3;
/// Longer than a wait for a lock.
const SILENCE: Duration = Duration::from_secs(1);

/// A connection to the server. Statements are sent one behind the other, without waiting for the
/// replies.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) statements: Statements,
    in_flight: AtomicUsize,
    /// Calls that were dropped since the last reply.
    unanswered: AtomicUsize,
    /// When the last reply came, in nanoseconds.
    replied_at: AtomicU64,
    given_up: AtomicBool,
}

impl Link {
    pub(super) fn new(client: Client) -> Arc<Self> {
        Arc::new(Self {
            client,
            statements: Statements::default(),
            in_flight: AtomicUsize::new(0),
            unanswered: AtomicUsize::new(0),
            replied_at: AtomicU64::new(MonotonicClock.now().as_nanos()),
            given_up: AtomicBool::new(false),
        })
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.given_up.load(Ordering::Relaxed) && !self.client.is_closed()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    fn count_reply(&self, usable: bool) {
        let now = MonotonicClock.now().as_nanos();
        self.replied_at.store(now, Ordering::Relaxed);
        self.unanswered.store(0, Ordering::Relaxed);
        if !usable {
            self.given_up.store(true, Ordering::Relaxed);
        }
    }

    fn count_silence(&self) {
        let unanswered = self.unanswered.fetch_add(1, Ordering::Relaxed) + 1;
        let replied_at = Tick::from_nanos(self.replied_at.load(Ordering::Relaxed));
        let silence = MonotonicClock.now().since(replied_at);
        if unanswered >= MAX_UNANSWERED && silence >= SILENCE {
            self.given_up.store(true, Ordering::Relaxed);
        }
    }
}

/// A connection that is taken for one statement or one transaction.
pub(super) struct TakenLink {
    link: Arc<Link>,
    replied: bool,
    /// Of a transaction.
    permit: Option<OwnedSemaphorePermit>,
}

impl TakenLink {
    pub(super) fn new(link: &Arc<Link>) -> Self {
        link.in_flight.fetch_add(1, Ordering::Relaxed);
        Self {
            link: Arc::clone(link),
            replied: false,
            permit: None,
        }
    }

    pub(super) fn exclusive(mut self, permit: OwnedSemaphorePermit) -> Self {
        self.permit = Some(permit);
        self
    }

    /// Gives it back after the server's reply. If it is not `usable`, no other call gets it: it broke, or the server is
    /// a replica since a failover.
    pub(super) fn release(mut self, usable: bool) {
        self.replied = true;
        self.link.count_reply(usable);
    }
}

impl Drop for TakenLink {
    fn drop(&mut self) {
        self.link.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !self.replied {
            self.link.count_silence();
        }
        drop(self.permit.take());
    }
}

impl Deref for TakenLink {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}
