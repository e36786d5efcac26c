//! The limits of a file as a gate: all that apply to a request admit it, or none counts it.

use std::{
    any::Any,
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
};

use http::Response;
use http_body::Body;

use super::active::MatchedLimits;
use super::active::{Generation, SlotOf};
use super::build::{OpenStores, build};
use super::environment::Environment;
use super::report::Reloaded;
use crate::concurrency::{InFlight, PermitBody, UntilBodyEnds};
use crate::decision::Decision;
use crate::layer::{AllOf, AskParts, Exit, Part, Parts, Renamed};
use crate::policy::file::{PolicyFile, Problems};
use crate::respond::{OwnRules, Policies};
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
    pub(super) denied: AtomicU64,
}

impl PolicyLimits {
    pub(super) fn new(environment: Environment) -> Self {
        Self {
            shared: Arc::new(LiveLimits {
                current: Swap::default(),
                environment,
                open_stores: Mutex::default(),
                denied: AtomicU64::new(0),
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
    type Slots = Vec<Box<dyn Any + Send>>;
}

impl AskParts<MatchedLimits> for PolicyLimits {
    fn with<T>(
        &self,
        key: &MatchedLimits,
        slots: &mut Vec<Box<dyn Any + Send>>,
        run: impl FnOnce(&mut [&mut dyn Part]) -> T,
    ) -> T {
        if slots.is_empty() {
            slots.extend(key.iter().map(|(active, _)| active.slot()));
        }
        let limits = key.iter().zip(slots).enumerate();
        let parts = limits.filter_map(|(at, ((active, own), slot))| {
            active.part(own, (at, key.limits.len()), &mut **slot)
        });
        let mut parts: Vec<_> = parts.collect();
        let mut parts: Vec<_> = parts
            .iter_mut()
            .map(|part| &mut **part as &mut dyn Part)
            .collect();
        run(&mut parts)
    }

    fn policies<'a>(
        &'a self,
        key: &'a MatchedLimits,
        decision: &mut Decision,
    ) -> (Arc<Policies>, OwnRules<'a>) {
        let at = decision.policy % key.limits.len();
        decision.policy /= key.limits.len();
        let limit = key.iter().nth(at);
        limit.map_or_else(Default::default, |(active, own)| {
            let rules: OwnRules<'_> = Some(&active.limit);
            (active.policies(own, decision), rules)
        })
    }
}

/// The limits have the names of the file.
impl Renamed for PolicyLimits {
    fn renamed(&self, _: Option<&str>, _: &mut usize) -> Self {
        self.clone()
    }
}

impl<B: Body> Exit<MatchedLimits, Response<B>> for AllOf<PolicyLimits> {
    type Response = Response<PermitBody<B>>;

    fn exit<E>(
        slots: Vec<Box<dyn Any + Send>>,
        result: Result<Response<B>, E>,
    ) -> Result<Self::Response, E> {
        let in_flight = slots.into_iter().filter_map(|slot| {
            let slot = slot.downcast::<SlotOf<InFlight>>().ok()?;
            Some(slot.entry)
        });
        InFlight::<UntilBodyEnds>::exit_all(in_flight, result)
    }
}

impl fmt::Debug for PolicyLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = self.current();
        let names = current.limits.iter().map(|active| &active.limit.name);
        f.debug_list().entries(names).finish()
    }
}
