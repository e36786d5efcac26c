//! The program of an exact limit: calls on some keys, decided in one step.

use std::{collections::HashMap, sync::Arc};

#[cfg(feature = "redis")]
use super::Runs;
use super::{
    CasStore, Loaded, Program, Write,
    decider::{KeyCall, decide},
    error::damaged,
    inner::Inner,
    lanes::{Place, Waiting},
    swap::{Known, plan},
};
use crate::algorithm::Algorithm;
use crate::backend::Op;
use crate::clock::{Clock, MonotonicClock, Tick, unix_now};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::local::Seeded;
#[cfg(feature = "redis")]
use crate::store::redis::Script;
use crate::sync::{Mutex, lock};

/// Calls of one limit.
pub(in crate::store) struct Calls<S: CasStore, A: Algorithm> {
    pub(super) inner: Arc<Inner<S, A>>,
    pub(super) own: Vec<Waiting<A>>,
    /// The places of the calls, each with those that repeat it.
    #[cfg(feature = "redis")]
    pub(in crate::store) runs: Vec<Vec<usize>>,
    /// Where more calls wait for the same keys, which join when the program is executed in this process.
    pub(super) place: Option<Place>,
    /// When it was made.
    pub(super) asked_at: Tick,
    pub(super) joined: Mutex<Vec<Waiting<A>>>,
}

/// What comes of some calls.
#[derive(Debug)]
pub(in crate::store) struct Decided {
    /// The results, in the order of the calls, and of those that have joined.
    pub(in crate::store) results: Vec<Result<Decision, StoreError>>,
    /// What calls that repeat these would get, by the places of these.
    pub(in crate::store) denials: Vec<(usize, Decision)>,
    /// The versions before and after, of each key that was decided in this process.
    pub(in crate::store) swaps: Vec<(Arc<str>, [Option<u64>; 2])>,
}

impl<S: CasStore, A: Algorithm> Calls<S, A> {
    pub(super) fn new(
        inner: &Arc<Inner<S, A>>,
        calls: Vec<Waiting<A>>,
        place: Option<Place>,
    ) -> Self {
        Self {
            inner: Arc::clone(inner),
            #[cfg(feature = "redis")]
            runs: if S::RUNS == Runs::Scripts {
                runs(&calls)
            } else {
                Vec::new()
            },
            own: calls,
            place,
            asked_at: MonotonicClock.now(),
            joined: Mutex::default(),
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
        (key, call.op, &call.decider)
    }
}

/// The places of calls, each with those on the same key that come next and repeat it.
#[cfg(feature = "redis")]
fn runs<A>(calls: &[Waiting<A>]) -> Vec<Vec<usize>> {
    if calls.len() == 1 {
        return vec![vec![0]];
    }
    let mut runs: Vec<Vec<usize>> = Vec::with_capacity(calls.len());
    let mut last = HashMap::<&str, usize, Seeded>::default();
    for (place, Waiting { key, call, .. }) in calls.iter().enumerate() {
        let run = last.get(&**key).copied();
        if let Some(run) = run.filter(|run| call.repeats(&calls[runs[*run][0]].call)) {
            runs[run].push(place);
        } else {
            last.insert(key, runs.len());
            runs.push(vec![place]);
        }
    }
    runs
}

impl<A> KeyCall<A> {
    /// Whether it is decided like this call on the same key: a run of them is one step of a script.
    #[cfg(feature = "redis")]
    fn repeats(&self, other: &Self) -> bool {
        let is_same_limit = Arc::ptr_eq(&self.decider, &other.decider);
        matches!(self.op, Op::Take(1..)) && self.op == other.op && is_same_limit
    }
}

/// The keys of some calls, each once, with the places of its calls.
fn by_key<'a, A: 'a>(
    calls: impl Iterator<Item = &'a Waiting<A>>,
) -> Vec<(&'a Arc<str>, Vec<usize>)> {
    let (mut keys, mut indexes) = (Vec::new(), HashMap::<&str, usize, Seeded>::default());
    for (place, Waiting { key, .. }) in calls.enumerate() {
        let index = *indexes.entry(key).or_insert_with(|| {
            keys.push((key, Vec::new()));
            keys.len() - 1
        });
        keys[index].1.push(place);
    }
    keys
}

impl<S: CasStore, A: Algorithm> Program for Calls<S, A> {
    type Reply = Decided;

    fn keys(&self) -> Vec<&str> {
        let keys = by_key(self.own.iter()).into_iter();
        keys.map(|(key, _)| &**key).collect()
    }

    fn execute(&self, values: &[Loaded]) -> (Vec<Write>, Decided) {
        let Inner { shared, .. } = &*self.inner;
        let mut joined = lock(&self.joined);
        if let Some(place) = &self.place {
            let keys = self.own.iter().map(|call| &*call.key).collect();
            joined.extend(self.inner.take_of(place, &keys));
        }
        let calls: Vec<_> = self.own.iter().chain(&*joined).collect();
        let now = MonotonicClock.now();
        let (mut writes, mut swaps) = (Vec::new(), Vec::new());
        let mut results = vec![None; calls.len()];
        let keys = by_key(calls.iter().copied()).into_iter().zip(values);
        for (index, ((key, mut places), loaded)) in keys.enumerate() {
            places.retain(|place| calls[*place].is_wanted(now));
            let of_key: Vec<_> = places.iter().map(|place| &calls[*place].call).collect();
            let resets = of_key.iter().any(|call| call.op == Op::Reset);
            let planned = Known::read(loaded, resets)
                .ok_or_else(|| damaged(S::NAME))
                .and_then(|mut known| {
                    let now = loaded.server_time.unwrap_or_else(unix_now);
                    let time = (now, self.asked_at, shared.has_time_of_key(true));
                    let planned = plan(shared, &mut known, time, |held| {
                        decide(S::NAME, held, &of_key)
                    });
                    planned.map(|(write, decisions)| (write, decisions, known.version))
                });
            let (write, decisions, before) = match planned {
                Ok(planned) => planned,
                Err(error) => {
                    for place in places {
                        results[place] = Some(Err(error.clone()));
                    }
                    continue;
                }
            };
            let mut after = before;
            if let Some((_, value, ttl)) = write {
                after = Some(value.version);
                writes.push(Write { index, value, ttl });
            }
            for (place, decision) in places.into_iter().zip(decisions.1) {
                results[place] = Some(Ok(decision));
            }
            swaps.push((Arc::clone(key), [before, after]));
        }
        let too_late = || Err(shared.deadline_exceeded());
        let results = results
            .into_iter()
            .map(|result| result.unwrap_or_else(too_late));
        let results = results.collect();
        let denials = Vec::new();
        let decided = Decided {
            results,
            denials,
            swaps,
        };
        (writes, decided)
    }

    #[cfg(feature = "redis")]
    fn script(&self) -> Option<Script<'_, Decided>> {
        let has_script = self.own[0].call.decider.kernels.is_some();
        has_script.then_some(Script(self))
    }
}
