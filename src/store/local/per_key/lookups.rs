//! Lookups of plans that are in flight: at most one per key, and a bounded number at a time.
//!
//! A lookup is a task of the runtime that served its request. That runtime may not be driven any more, so each
//! request that waits ends the lookup by its deadline, and so does the next one that finds it overdue.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use crate::clock::{Clock, MonotonicClock, Tick};
use crate::quota::Plan;
use crate::store::deadline::within;
use crate::sync::{Mutex, lock};

/// A plan that was found, and the algorithm with its quota if it has one.
pub(super) type Terms<A> = (Plan, Option<Arc<A>>);

/// A lookup that has ended without terms.
#[derive(Clone, Copy)]
pub(super) struct Failed;

/// Why a lookup has failed that took too long.
pub(super) const OVERDUE: &str = "the source has not answered within the deadline";

/// One lookup, and the requests that wait for it.
pub(super) struct Lookup<A> {
    pub(super) deadline: Tick,
    /// `None` until it has ended.
    found: watch::Sender<Option<Result<Terms<A>, Failed>>>,
    /// The plan has changed since the lookup began.
    is_outdated: AtomicBool,
}

/// All lookups in flight, by the hash of their key, and what was counted.
pub(super) struct Lookups<A> {
    in_flight: Mutex<HashMap<u64, Arc<Lookup<A>>>>,
    pub(super) most: usize,
    started: AtomicU64,
    failed: AtomicU64,
    last_error: Mutex<Option<String>>,
}

/// How a request gets at a lookup.
pub(super) enum Joined<A> {
    /// The caller has to run it.
    New(Arc<Lookup<A>>),
    Running(Arc<Lookup<A>>),
    /// Too many are in flight.
    Full,
}

impl<A> Lookup<A> {
    /// Waits until it has ended and returns what it found. `None` if it is overdue.
    pub(super) async fn ended(&self) -> Option<Result<Terms<A>, Failed>> {
        let mut found = self.found.subscribe();
        let ended = within(self.deadline, found.wait_for(Option::is_some)).await;
        ended?.ok()?.clone()
    }
}

impl<A> Lookups<A> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            in_flight: Mutex::default(),
            most,
            started: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            last_error: Mutex::default(),
        }
    }

    /// The lookup of the key with this hash: the one in flight, or a new one that may take so long.
    pub(super) fn join(&self, hash: u64, may_take: Duration) -> Joined<A> {
        let now = MonotonicClock.now();
        let mut in_flight = lock(&self.in_flight);
        match in_flight.get(&hash) {
            Some(running) if running.deadline > now => {
                return Joined::Running(Arc::clone(running));
            }
            None if in_flight.len() < self.most => {}
            _ => in_flight.retain(|_, lookup| {
                let is_overdue = lookup.deadline <= now;
                if is_overdue {
                    self.record_failure(OVERDUE);
                }
                !is_overdue
            }),
        }
        if in_flight.len() >= self.most {
            drop(in_flight);
            self.record_failure("too many lookups are in flight");
            return Joined::Full;
        }
        let lookup = Arc::new(Lookup {
            deadline: now.plus(may_take),
            found: watch::Sender::new(None),
            is_outdated: AtomicBool::new(false),
        });
        in_flight.insert(hash, Arc::clone(&lookup));
        self.started.fetch_add(1, Ordering::Relaxed);
        Joined::New(lookup)
    }

    /// A lookup in flight may have read the plan before it changed.
    pub(super) fn outdate(&self, hash: u64) {
        if let Some(running) = lock(&self.in_flight).get(&hash) {
            running.is_outdated.store(true, Ordering::Relaxed);
        }
    }

    /// Ends a lookup that is in flight, after `store` has stored what it found: the second argument says whether
    /// that is outdated. Then wakes the requests that wait for it.
    pub(super) fn finish(
        &self,
        hash: u64,
        lookup: &Arc<Lookup<A>>,
        found: Result<Terms<A>, String>,
        store: impl FnOnce(Option<&Terms<A>>, bool),
    ) {
        // Under the lock, so that no `outdate` comes in between.
        let mut in_flight = lock(&self.in_flight);
        let running = in_flight.get(&hash);
        if !running.is_some_and(|running| Arc::ptr_eq(running, lookup)) {
            return;
        }
        let found = found.map_err(|error| {
            self.record_failure(error);
            Failed
        });
        store(
            found.as_ref().ok(),
            lookup.is_outdated.load(Ordering::Relaxed),
        );
        in_flight.remove(&hash);
        drop(in_flight);
        lookup.found.send_replace(Some(found));
    }

    pub(super) fn record_failure(&self, error: impl fmt::Display) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        *lock(&self.last_error) = Some(error.to_string());
    }

    /// How many were started, have failed and are in flight, and the last error.
    pub(super) fn counts(&self) -> (u64, u64, usize, Option<String>) {
        (
            self.started.load(Ordering::Relaxed),
            self.failed.load(Ordering::Relaxed),
            lock(&self.in_flight).len(),
            lock(&self.last_error).clone(),
        )
    }
}
