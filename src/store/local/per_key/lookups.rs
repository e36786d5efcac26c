//! Lookups of quotas that are in flight: at most one per key, and a bounded number at a time.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use crate::sync::{Mutex, lock};

/// What a lookup returned: an algorithm with the quota of the key. `None` if the lookup failed.
pub(super) type Found<A> = Option<A>;

/// One lookup, and the requests that wait for it.
pub(super) struct Lookup<A> {
    progress: Mutex<Progress<A>>,
    /// The quota has changed since the lookup began.
    is_outdated: AtomicBool,
}

struct Progress<A> {
    done: Option<Found<Arc<A>>>,
    wakers: Vec<Waker>,
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

    /// The lookup of the key with this hash: the one in flight, or a new one.
    pub(super) fn join(&self, hash: u64) -> Joined<A> {
        let mut in_flight = lock(&self.in_flight);
        if let Some(running) = in_flight.get(&hash) {
            return Joined::Running(Arc::clone(running));
        }
        if in_flight.len() >= self.most {
            drop(in_flight);
            self.record_failure("too many lookups are in flight");
            return Joined::Full;
        }
        let lookup = Arc::new(Lookup {
            progress: Mutex::new(Progress {
                done: None,
                wakers: Vec::new(),
            }),
            is_outdated: AtomicBool::new(false),
        });
        in_flight.insert(hash, Arc::clone(&lookup));
        self.started.fetch_add(1, Ordering::Relaxed);
        Joined::New(lookup)
    }

    /// A lookup in flight may have read the quota before it changed.
    pub(super) fn outdate(&self, hash: u64) {
        if let Some(running) = lock(&self.in_flight).get(&hash) {
            running.is_outdated.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the lookup, after `store` has stored what it found: the argument says whether that is
    /// outdated. Then wakes the requests that wait for it.
    pub(super) fn finish(
        &self,
        hash: u64,
        lookup: &Lookup<A>,
        found: Found<Arc<A>>,
        store: impl FnOnce(bool),
    ) {
        // Under the lock, so that no `outdate` comes in between.
        let mut in_flight = lock(&self.in_flight);
        store(lookup.is_outdated.load(Ordering::Relaxed));
        in_flight.remove(&hash);
        drop(in_flight);
        let mut progress = lock(&lookup.progress);
        progress.done = Some(found);
        let wakers = std::mem::take(&mut progress.wakers);
        drop(progress);
        wakers.into_iter().for_each(Waker::wake);
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

/// Waits until a lookup is done.
pub(super) struct Wait<A> {
    lookup: Arc<Lookup<A>>,
    /// Where its waker is, once it was polled.
    place: Option<usize>,
}

impl<A> Wait<A> {
    pub(super) const fn new(lookup: Arc<Lookup<A>>) -> Self {
        Self {
            lookup,
            place: None,
        }
    }
}

impl<A> Future for Wait<A> {
    type Output = Found<Arc<A>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Found<Arc<A>>> {
        let Self { lookup, place } = self.get_mut();
        let mut progress = lock(&lookup.progress);
        if let Some(found) = &progress.done {
            return Poll::Ready(found.clone());
        }
        if let Some(waker) = place.and_then(|place| progress.wakers.get_mut(place)) {
            waker.clone_from(cx.waker());
        } else {
            *place = Some(progress.wakers.len());
            progress.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
