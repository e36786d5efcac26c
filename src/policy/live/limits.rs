//! The limits of a file as a gate: all that apply to a request admit it, or none counts it.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use http::Response;
use http_body::Body;

use super::active::{AnyEntry, Generation, MatchedLimits};
use super::build::{OpenStores, build};
use super::environment::Environment;
use super::report::Reloaded;
use crate::concurrency::{InFlight, PermitBody};
use crate::layer::{AllEntry, AllOf, AtGate, Enter, Exit, Gate, GatePart, Limiting, Parts, State};
use crate::policy::file::{PolicyFile, Problems};
use crate::sync::Swap;

/// The limits of a policy file, as a [`PolicyLayer`](super::PolicyLayer) has them. Clones share them.
#[derive(Clone)]
pub struct PolicyLimits {
    pub(super) shared: Arc<LiveLimits>,
}

/// What the layer, the services and the handles of a file share.
pub(super) struct LiveLimits {
    current: Swap<Generation>,
    pub(super) environment: Environment,
    /// Locked while the limits of a file are built, one file after the other.
    open_stores: Mutex<OpenStores>,
}

impl PolicyLimits {
    pub(super) fn new(environment: Environment) -> Self {
        Self {
            shared: Arc::new(LiveLimits {
                current: Swap::default(),
                environment,
                open_stores: Mutex::default(),
            }),
        }
    }

    pub(super) fn current(&self) -> Arc<Generation> {
        self.shared.current.get()
    }

    /// See [`PolicyHandle::reload`](super::PolicyHandle::reload).
    pub(super) fn reload(&self, file: &PolicyFile) -> Result<Reloaded, Problems> {
        let LiveLimits {
            current,
            environment,
            open_stores,
            ..
        } = &*self.shared;
        let mut open = open_stores.lock().unwrap_or_else(PoisonError::into_inner);
        let before = current.get();
        let after = build(file, environment, &mut open, &before)?;
        let report = Reloaded::between(&before, &after);
        current.set(after);
        Ok(report)
    }
}

impl Parts<MatchedLimits> for PolicyLimits {
    type Entries = Vec<AnyEntry>;

    fn with<T>(
        &self,
        key: &MatchedLimits,
        entries: &mut Vec<AnyEntry>,
        run: impl FnOnce(&mut [GatePart<'_>]) -> T,
    ) -> T {
        entries.resize_with(key.limits.len(), || Box::new(()));
        let limits = key.iter().zip(entries);
        let limits = limits.map(|((active, key), entry)| (active, active.at(key, entry)));
        let mut limits: Vec<_> = limits.collect();
        let parts = limits.iter_mut();
        let mut parts: Vec<_> = parts.map(|(active, at)| active.part(&mut **at)).collect();
        run(&mut parts)
    }
}

impl Gate<MatchedLimits> for AllOf<PolicyLimits> {
    type Entry = AllEntry<Vec<AnyEntry>>;

    fn leave(&self, key: &MatchedLimits, entry: &mut Self::Entry) {
        self.at(key, entry).leave();
    }
}

/// The limits have the names of the file.
impl Limiting for AllOf<PolicyLimits> {
    type Limiter = PolicyLimits;

    #[inline]
    fn state(&self) -> &Arc<State<PolicyLimits>> {
        self.state()
    }

    #[track_caller]
    fn rename(&mut self, name: Option<&str>, number: &mut usize) {
        *number = (*number).max(1);
        self.set_name(name, Arc::clone(&self.state().backend));
    }
}

impl<B: Body> Exit<MatchedLimits, Response<B>> for AllOf<PolicyLimits> {
    type Response = Response<PermitBody<B>>;

    fn exit<E>(
        entry: AllEntry<Vec<AnyEntry>>,
        result: Result<Response<B>, E>,
    ) -> Result<Self::Response, E> {
        let entries = entry.each.into_iter();
        let in_flight = entries.filter_map(|entry| Some(*entry.downcast().ok()?));
        <InFlight>::hold_all(in_flight, result)
    }
}

impl fmt::Debug for PolicyLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = self.current();
        let names = current.limits.iter().map(|active| &active.limit.name);
        f.debug_list().entries(names).finish()
    }
}
