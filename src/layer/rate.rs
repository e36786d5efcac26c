//! A rate limit of a layer: a backend, its settings, and the lines of the requests that wait.

use std::{fmt, sync::Arc};

use super::gate::{Ask, Limiting, rename};
use super::options::{LineOptions, OnStoreError};
use super::state::State;
use crate::backend::IntoBackend;

/// A rate limit as a layer has it: the backend `L`, a [`Local`](crate::Local) or a limiter of a store.
pub struct Rate<L> {
    pub(super) state: Arc<State<L>>,
    pub(crate) on_store_error: OnStoreError,
    pub(crate) line: LineOptions,
    /// Whether the limit decides in this process.
    pub(super) at_once: bool,
    /// Whether requests can wait for it.
    pub(crate) can_queue: bool,
    /// What a request costs may be said while it is served.
    pub(super) shares_cost: bool,
    /// How many percent longer than it has to a denied client is told to wait at most.
    pub(super) jitter: u32,
}

impl<L> Rate<L> {
    pub(crate) fn new<T: IntoBackend<Backend = L>>(backend: L) -> Self {
        let at_once = T::decides_at_once(&backend);
        Self::of(at_once, at_once || T::queues(&backend), backend)
    }

    pub(crate) fn of(at_once: bool, can_queue: bool, backend: L) -> Self {
        Self {
            at_once,
            can_queue,
            state: Arc::new(State::new(backend)),
            on_store_error: OnStoreError::default(),
            line: LineOptions::default(),
            shares_cost: false,
            jitter: 0,
        }
    }

    /// Whether requests wait in a line of this process.
    pub(super) fn has_line(&self) -> bool {
        self.at_once && self.line.queue > 0
    }

    pub(super) fn may_wait(&self, ask: Ask) -> bool {
        self.line.queue > 0
            && self
                .line
                .least
                .is_none_or(|least| ask.weight.priority >= least)
    }
}

impl<L: Send + Sync + 'static> Limiting for Rate<L> {
    type Limiter = L;

    const LAYER: &'static str = "RateLimitLayer";

    #[inline]
    fn state(&self) -> &Arc<State<L>> {
        &self.state
    }

    fn queues(&self) -> bool {
        self.line.queue > 0
    }

    #[track_caller]
    fn rename(&mut self, name: Option<&str>, number: &mut usize) {
        rename(&mut self.state, name, number);
    }
}

/// Manual impl: derive would require `L: Clone`.
impl<L> Clone for Rate<L> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            ..*self
        }
    }
}

/// Manual impl: derive would require `L: Debug`.
impl<L> fmt::Debug for Rate<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rate")
            .field("backend", &format_args!("{}", std::any::type_name::<L>()))
            .field("on_store_error", &self.on_store_error)
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}
