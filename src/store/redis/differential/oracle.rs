//! What a key decides, by the algorithms in Rust.

use std::{collections::BTreeMap, time::Duration};

use crate::algorithm::{Cost, GiveBack};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::store::redis::{
    call::Call,
    script::{Part, Scripted},
};

/// A call on one key: at a time in microseconds, under one of several variants of a policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) now: u64,
    pub(super) variant: usize,
    pub(super) call: Call,
}

/// One key, decided by the algorithm in Rust.
pub(super) struct Oracle<A: Scripted> {
    /// The state of each configuration, by header, and the variant that it is of.
    states: BTreeMap<String, (usize, A::State)>,
    /// The header of the newest configuration, if it may have a state.
    newest: Option<String>,
}

/// What the server holds before a step.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// The header of the newest configuration, if it has a state.
    pub(super) newest: Option<String>,
    /// Whether the configuration of the step has a value before that of the newest one.
    pub(super) is_displaced: bool,
}

impl<A: Scripted> Oracle<A> {
    pub(super) const fn new() -> Self {
        Self {
            states: BTreeMap::new(),
            newest: None,
        }
    }

    /// What is wrong with what the server holds before a step. It may keep a state for up to two
    /// periods of expiry longer than necessary.
    pub(super) fn fault(&self, variants: &[A], step: Step, stored: &Stored) -> Option<String> {
        let now = Tick::from_nanos(step.now * 1_000);
        let is_live = |header: &String| {
            let state = self.states.get(header);
            state.is_some_and(|(variant, state)| !may_be_gone(&variants[*variant], state, now))
        };
        let newest = &self.newest;
        let expired = || stored.newest.is_none() && !newest.as_ref().is_some_and(is_live);
        if stored.newest != *newest && !expired() {
            let held = &stored.newest;
            return Some(format!("the newest is {held:?}, not {newest:?}"));
        }
        let header = header_of(&variants[step.variant]);
        let is_displaced = Some(&header) != newest.as_ref() && is_live(&header);
        if is_displaced && !stored.is_displaced {
            return Some(format!("no state of {header}, which was displaced"));
        }
        None
    }

    /// The decision of a step. The server says which configurations have states: see
    /// [`fault`](Self::fault).
    pub(super) fn step(&mut self, variants: &[A], step: Step, stored: &Stored) -> Decision {
        let now = Tick::from_nanos(step.now * 1_000);
        let algorithm = &variants[step.variant];
        let header = header_of(algorithm);
        let other = stored.newest.as_ref().filter(|newest| **newest != header);
        let source = match other {
            Some(other) if !stored.is_displaced => other,
            _ => &header,
        };
        if *source != header {
            // What the server has forgotten has to be forgettable.
            if let Some((variant, state)) = self.states.get(&header) {
                let algorithm = &variants[*variant];
                let expires = algorithm.forgettable_at(state);
                let is_gone = may_be_gone(algorithm, state, now);
                assert!(is_gone, "expired {:?} early", expires.since(now));
            }
        }
        let state = self.states.get(source).cloned();
        let state = state.and_then(|(variant, mut state)| {
            let from = &variants[variant];
            if variant == step.variant {
                return Some(state);
            }
            // The server may still hold it. A key that begins with less than all then keeps what it
            // has.
            let begins_unused = algorithm.forgettable_at(&algorithm.fresh(now)) <= now;
            if from.forgettable_at(&state) <= now && begins_unused {
                return None;
            }
            // Two variants may be one policy to a script.
            if !is_same(from, algorithm) {
                algorithm.rescale(&mut state, from, now);
            }
            Some(state)
        });
        match &state {
            Some(state) => {
                let state = (step.variant, state.clone());
                self.states.insert(header.clone(), state);
            }
            None => drop(self.states.remove(&header)),
        }
        // Usage is taken over when it is first seen.
        if *source != header || !stored.is_displaced && state.is_some() {
            self.newest = Some(header.clone());
        }
        if step.call.opcode() == Call::Reset.opcode() {
            self.newest = Some(header.clone());
        }
        let mut state = state.unwrap_or_else(|| algorithm.fresh(now));
        let decision = match step.call {
            Call::Take(cost) => algorithm.decide(&mut state, now, cost),
            Call::Reserve(cost, most) => {
                algorithm.reserve(&mut state, now, cost, Duration::from_nanos(most))
            }
            Call::Peek(cost) => return algorithm.peek(&state, now, cost),
            Call::PeekOf(cost, part) => return A::peek_part(algorithm, &state, now, cost, part),
            Call::Refund(cost, taken_at) => {
                let taken_at = Tick::from_nanos(taken_at.saturating_mul(1_000));
                algorithm.refund(&mut state, now, Cost::new(cost, taken_at), GiveBack::Refund);
                algorithm.peek(&state, now, 0)
            }
            Call::Cancel(cost, taken_at) => {
                let taken_at = Tick::from_nanos(taken_at.saturating_mul(1_000));
                algorithm.refund(&mut state, now, Cost::new(cost, taken_at), GiveBack::Cancel);
                algorithm.peek(&state, now, 0)
            }
            Call::Forgive(cost, taken_at) => {
                let taken_at = Tick::from_nanos(taken_at.saturating_mul(1_000));
                algorithm.refund(
                    &mut state,
                    now,
                    Cost::new(cost, taken_at),
                    GiveBack::Forgive,
                );
                algorithm.peek(&state, now, 0)
            }
            Call::Ban(micros) => {
                let length = Duration::from_micros(micros);
                A::ban(algorithm, &mut state, now, length);
                algorithm.peek(&state, now, 0)
            }
            Call::Charge(cost) => {
                algorithm.charge(&mut state, now, cost);
                algorithm.peek(&state, now, 0)
            }
            Call::Reset => {
                state = algorithm.fresh(now);
                algorithm.peek(&state, now, 0)
            }
        };
        if !decision.is_denied() && step.call.opcode() != 2 {
            if !stored.is_displaced {
                self.newest = Some(header.clone());
            }
            self.states.insert(header, (step.variant, state));
        }
        decision
    }
}

/// Whether the server may have removed a state. A log whose costs are all refunded keeps its newest
/// moment in process, for requests with an older one. The server's time does not step back.
fn may_be_gone<A: Scripted>(algorithm: &A, state: &A::State, now: Tick) -> bool {
    let begins_unused = algorithm.forgettable_at(&algorithm.fresh(now)) <= now;
    let is_unused = || algorithm.peek(state, now, 0).reset_after.is_zero();
    algorithm.forgettable_at(state) <= now || begins_unused && is_unused()
}

/// The header of the first limit, which identifies a configuration of one limit. The variants of
/// several limits are the same in a trace.
pub(super) fn header_of<A: Scripted>(algorithm: &A) -> String {
    let mut parts = Vec::new();
    algorithm.parts(&mut parts);
    parts.swap_remove(0).header
}

fn is_same<A: Scripted>(one: &A, other: &A) -> bool {
    let [one, other] = [one, other].map(|algorithm| {
        let mut parts = Vec::new();
        algorithm.parts(&mut parts);
        parts
    });
    let identity = |parts: Vec<Part>| parts.into_iter().map(|part| (part.header, part.params));
    identity(one).eq(identity(other))
}
