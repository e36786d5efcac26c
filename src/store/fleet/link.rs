//! How a machine reaches the store, and how its exchanges go.

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64 as Counter},
    },
    time::Duration,
};

use tokio::sync::Notify;

use super::exchange_limit::ExchangeLimit;
use crate::algorithm::Portable;
use crate::error::{ConfigError, StoreError};
use crate::store::{
    cas::{
        CasStore,
        decider::Decider,
        exchange::Exchanger,
        policy::{CasPolicy, change_key},
        shared::Shared,
    },
    remote::{KeyName, LivePolicy, RemoteKey},
};
use crate::sync::{AtomicU64, CachePadded, Mutex, Ordering, lock};

/// What happens while the store cannot be reached, after some intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenCutOff {
    /// This machine admits its share of the limit: an equal part for each machine that it has last
    /// seen, or that is configured.
    #[default]
    Share,
    /// Every request is denied.
    Deny,
    /// Every request fails with the last error of the store. A
    /// [`Fallback`](crate::store::Fallback), or the layer's `on_store_error`, says what happens then.
    Fail,
}

/// The task does not run.
const STOPPED: u64 = 0;
/// The task runs, and reaches the store.
const IN_TOUCH: u64 = 1;
/// The task runs, and has not reached the store for some time.
const CUT_OFF: u64 = 2;

/// How a machine reaches the store, and how its exchanges go.
pub(in crate::store) struct StoreLink<S: CasStore, A: Portable> {
    pub(in crate::store) exchanger: Exchanger<S>,
    pub(in crate::store) policy: LivePolicy<CasPolicy<S, A>>,
    pub(in crate::store) name_prefix: String,
    /// Wakes the task before its next tick.
    pub(in crate::store) wake: Notify,
    /// How many exchanges are under way at a time.
    pub(super) exchange_limit: ExchangeLimit,
    /// Every decision reads it, and each exchange writes what is beside it.
    mode: CachePadded<AtomicU64>,
    pub(super) is_closing: AtomicBool,
    /// Exchanges with a reply that was adopted.
    pub(in crate::store) done: Counter,
    pub(in crate::store) failed: Counter,
    /// Those of the failed ones that the store did not execute: it did not reply, or refused.
    pub(super) unanswered: Counter,
    last_error: Mutex<Option<StoreError>>,
}

impl<S: CasStore, A: Portable> StoreLink<S, A> {
    /// `kind` is a part of the names of all keys, after the name of the limit.
    pub(in crate::store) fn new(
        store: S,
        [prefix, name, kind]: [&str; 3],
        algorithm: &A,
        deadline: Duration,
    ) -> Result<Self, ConfigError> {
        let decider = Decider::new(algorithm.clone())?;
        let shared = Arc::new(Shared::new(store, deadline));
        let change_key = change_key(prefix, name);
        let policy = CasPolicy::new(decider, Arc::clone(&shared), change_key);
        Ok(Self {
            exchanger: Exchanger::new(shared),
            policy: LivePolicy::new(policy),
            name_prefix: format!("{{{prefix}:{name}{kind}:"),
            wake: Notify::new(),
            exchange_limit: ExchangeLimit::new(),
            mode: CachePadded(AtomicU64::new(STOPPED)),
            is_closing: AtomicBool::new(false),
            done: Counter::new(0),
            failed: Counter::new(0),
            unanswered: Counter::new(0),
            last_error: Mutex::default(),
        })
    }

    /// What all calls of the store use.
    pub(in crate::store) fn shared(&self) -> &Shared<S> {
        &self.exchanger.shared
    }

    /// The name of a key in the store.
    pub(in crate::store) fn name_of<K: RemoteKey + ?Sized>(&self, key: &K) -> Arc<str> {
        let mut name = KeyName::new(&self.name_prefix);
        key.write(&mut name);
        name.finish().into()
    }

    /// Whether the task runs, and reaches the store.
    #[inline]
    pub(in crate::store) fn is_in_touch(&self) -> bool {
        self.mode.0.load(Ordering::Relaxed) == IN_TOUCH
    }

    /// Whether the task runs, and has not reached the store for some time.
    pub(in crate::store) fn is_cut_off(&self) -> bool {
        self.mode.0.load(Ordering::Relaxed) == CUT_OFF
    }

    /// Notes whether the task reaches the store.
    pub(in crate::store) fn set_cut_off(&self, is_cut_off: bool) {
        let mode = if is_cut_off { CUT_OFF } else { IN_TOUCH };
        self.mode.0.store(mode, Ordering::Relaxed);
    }

    /// Whether the task runs. Without it, nothing is exchanged.
    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.mode.0.load(Ordering::Acquire) != STOPPED
    }

    /// Notes that the task runs. Returns false if it ran already.
    pub(in crate::store) fn start(&self) -> bool {
        self.mode
            .0
            .compare_exchange(STOPPED, IN_TOUCH, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Notes that the task has ended.
    pub(super) fn stop(&self) {
        self.mode.0.store(STOPPED, Ordering::Release);
    }

    /// Lets the task end, after it has exchanged what is left.
    pub(in crate::store) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Counts an exchange that failed.
    pub(in crate::store) fn count_failed(&self, error: &StoreError) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        if !error.is_of_key() {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
            *lock(&self.last_error) = Some(error.clone());
        }
    }

    /// Whether the last error of the store was a permanent one.
    pub(in crate::store) fn is_refused(&self) -> bool {
        let last = lock(&self.last_error);
        last.as_ref().is_some_and(|error| !error.is_transient())
    }

    /// What happens instead of a decision of the fleet while the machine is cut off. A mistake is no
    /// outage: nothing stands in for a store that refuses.
    pub(in crate::store) fn cut_off(&self, configured: WhenCutOff) -> Option<WhenCutOff> {
        let refused = || self.is_refused().then_some(WhenCutOff::Fail);
        self.is_cut_off().then(|| refused().unwrap_or(configured))
    }

    /// The error of a request while the store cannot be reached, for as long as `length` says.
    pub(in crate::store) fn cut_off_error(&self, length: impl Display) -> StoreError {
        let last = lock(&self.last_error).clone();
        if let Some(refusal) = last.as_ref().filter(|error| !error.is_transient()) {
            return refusal.clone();
        }
        let cause = last.map_or_else(String::new, |last| format!(": {last}"));
        let message = format!("{}: no exchange for {length}{cause}", S::NAME);
        StoreError::new(message, true)
    }
}
