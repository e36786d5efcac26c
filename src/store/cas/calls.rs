//! The program of an exact limit: calls on some keys, decided in one step.

use std::sync::Arc;

use super::{
    CasStore, Loaded, Program, Version, Write,
    decider::Told,
    error::Failure,
    inner::Inner,
    lanes::{Place, Waiting},
    swap::{Known, Sent, plan},
};
use crate::algorithm::Algorithm;
use crate::backend::Op;
use crate::clock::{Clock, MonotonicClock, unix_now};
use crate::decision::Decision;
use crate::error::StoreError;
#[cfg(feature = "redis")]
use crate::store::redis::Script;
use crate::sync::{Mutex, lock};

/// Calls of one limit.
pub(in crate::store) struct Calls<S: CasStore, A: Algorithm> {
    pub(super) inner: Arc<Inner<S, A>>,
    pub(super) own: Vec<Waiting<A>>,
    /// Where more calls wait for the same keys, which join when the program is executed in this process.
    pub(super) place: Option<Place>,
    pub(super) executed: Mutex<Executed<A>>,
}

/// What an execution in this process has done.
pub(super) struct Executed<A> {
    /// Calls that have joined.
    pub(super) joined: Vec<Waiting<A>>,
    /// What is written per key.
    pub(super) sent: Vec<(Arc<str>, Sent<Vec<Decision>>)>,
}

/// What comes of some calls.
#[derive(Debug)]
pub(in crate::store) struct Decided {
    /// The results, in the order of the calls, and of those that have joined.
    pub(super) results: Vec<Result<Told, StoreError>>,
    /// The versions before and after, of each key that was decided in this process.
    pub(super) swaps: Vec<(Arc<str>, [Option<Version>; 2])>,
}

impl Decided {
    /// Results of calls that were decided by the store.
    pub(in crate::store) const fn new(results: Vec<Result<Told, StoreError>>) -> Self {
        let swaps = Vec::new();
        Self { results, swaps }
    }
}

impl<S: CasStore, A: Algorithm> Calls<S, A> {
    pub(super) fn new(
        inner: &Arc<Inner<S, A>>,
        calls: Vec<Waiting<A>>,
        place: Option<Place>,
    ) -> Self {
        Self {
            inner: Arc::clone(inner),
            own: calls,
            place,
            executed: Mutex::new(Executed {
                joined: Vec::new(),
                sent: Vec::new(),
            }),
        }
    }

    #[cfg(feature = "redis")]
    pub(in crate::store) fn len(&self) -> usize {
        self.own.len()
    }

    /// The key and the operation of a call, and what decides it.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn get(&self, index: usize) -> (&str, Op, &super::decider::Decider<A>) {
        let Waiting { key, call, .. } = &self.own[index];
        let decider = call.decider.as_ref().unwrap_or(&self.inner.decider);
        (key, call.op, decider)
    }

    /// The keys, each once.
    fn distinct(&self) -> Vec<&Arc<str>> {
        let mut keys: Vec<&Arc<str>> = Vec::new();
        for Waiting { key, .. } in &self.own {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }
}

impl<S: CasStore, A: Algorithm> Program for Calls<S, A> {
    type Reply = Decided;

    fn keys(&self) -> Vec<&str> {
        self.distinct().into_iter().map(|key| &**key).collect()
    }

    fn execute(&self, values: &[Loaded]) -> (Vec<Write>, Decided) {
        let Inner {
            shared,
            decider,
            lanes,
            ..
        } = &*self.inner;
        let keys = self.distinct();
        let mut executed = lock(&self.executed);
        executed.sent.clear();
        if let Some(place) = &self.place {
            executed.joined.extend(lanes.take_of(place, &keys));
        }
        let calls: Vec<_> = self.own.iter().chain(&executed.joined).collect();
        let now = MonotonicClock.now();
        let (mut writes, mut sent) = (Vec::new(), Vec::new());
        let mut decided = Decided::new(vec![Err(shared.deadline_exceeded()); calls.len()]);
        for (index, (key, loaded)) in keys.into_iter().zip(values).enumerate() {
            let is_of = |place: &usize| calls[*place].key == *key && calls[*place].is_wanted(now);
            let places: Vec<_> = (0..calls.len()).filter(is_of).collect();
            let of_key: Vec<_> = places.iter().map(|place| &calls[*place].call).collect();
            let resets = of_key.iter().any(|call| call.op == Op::Reset);
            let planned = Known::read(loaded, resets)
                .ok_or_else(|| Failure::Damaged.in_store(S::NAME))
                .and_then(|mut known| {
                    let now = loaded.server_time.unwrap_or_else(unix_now);
                    let planned = plan(shared, &mut known, (now, true), |held| {
                        decider.decide_in::<S>(held, &of_key)
                    });
                    planned.map(|(write, decisions)| (write, decisions, known.version))
                });
            let (write, decisions, before) = match planned {
                Ok(planned) => planned,
                Err(error) => {
                    for place in places {
                        decided.results[place] = Err(error.clone());
                    }
                    continue;
                }
            };
            let mut after = before;
            if let Some((_, value, ttl)) = write {
                after = Some(value.version);
                let reply = decisions.clone();
                sent.push((Arc::clone(key), Sent::new(value.version, before, reply)));
                writes.push(Write::new(index, value, ttl));
            }
            for (place, decision) in places.into_iter().zip(decisions) {
                decided.results[place] = Ok(decision.into());
            }
            decided.swaps.push((Arc::clone(key), [before, after]));
        }
        executed.sent = sent;
        (writes, decided)
    }

    #[cfg(feature = "redis")]
    fn script(&self) -> Option<Script<'_, Decided>> {
        let has_script = self.inner.decider.kernels.is_some();
        has_script.then_some(Script(self))
    }
}
