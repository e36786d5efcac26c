//! Whether a history of concurrent operations has a sequential order.
//!
//! The order keeps each operation before those that were called after it had returned, and in it the
//! plain algorithm returns the same decisions. The search for it is the algorithm of Wing, Gong and
//! Lowe.

use std::collections::HashSet;

use tower_throttle::algorithm::{Algorithm, Cost, GiveBack};
use tower_throttle::{Decision, clock::Tick, store::Op};

use crate::random::Random;

/// An operation that was applied at `now`.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) key: u64,
    pub(crate) now: Tick,
    pub(crate) op: Op,
    pub(crate) decision: Decision,
    /// When it was called and when it returned, by a counter shared by all threads.
    pub(crate) called: u64,
    pub(crate) returned: u64,
}

/// Any operation, on a small cost. What it gives back is of the decision before it.
pub(crate) fn any_op(random: &mut Random, before: Option<Decision>) -> Op {
    let cost = 1 + random.below(2);
    match (random.below(10), before) {
        (0, Some(before)) => Op::Refund(cost, before.receipt()),
        (1, Some(before)) => Op::Cancel(cost, before.receipt()),
        (2, Some(before)) => Op::Forgive(cost, before.receipt()),
        (3, _) => Op::Charge(cost),
        (4, _) => Op::Peek(cost),
        (5, _) => Op::Reset,
        _ => Op::Take(cost),
    }
}

/// What the plain algorithm does. A key that was reset is new again.
fn apply<A: Algorithm>(algorithm: &A, state: &mut Option<A::State>, now: Tick, op: Op) -> Decision {
    if op == Op::Reset {
        *state = None;
        return algorithm.peek(&algorithm.fresh(now), now, 0);
    }
    let state = state.get_or_insert_with(|| algorithm.fresh(now));
    let (cost, receipt, why) = match op {
        Op::Take(cost) => return algorithm.decide(state, now, cost),
        Op::Peek(cost) => return algorithm.peek(state, now, cost),
        Op::Charge(cost) => {
            algorithm.charge(state, now, cost);
            return algorithm.peek(state, now, 0);
        }
        Op::Refund(cost, receipt) => (cost, receipt, GiveBack::Refund),
        Op::Cancel(cost, receipt) => (cost, receipt, GiveBack::Cancel),
        Op::Forgive(cost, receipt) => (cost, receipt, GiveBack::Forgive),
        _ => return algorithm.peek(state, now, 0),
    };
    let taken_at = Tick::from_nanos(receipt.moment());
    let (units, at) = (cost, taken_at);
    algorithm.refund(state, now, Cost { units, at }, why);
    algorithm.peek(state, now, 0)
}

/// Whether the events of one key are linearizable.
fn is_key_linearizable<A: Algorithm>(algorithm: &A, events: &[&Event]) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![(0_u64, None)];
    let all = (1_u64 << events.len()) - 1;
    while let Some((done, state)) = open.pop() {
        if done == all {
            return true;
        }
        if !seen.insert((done, format!("{state:?}"))) {
            continue;
        }
        let left = || (0..).zip(events).filter(|(at, _)| done & 1 << at == 0);
        let returns = left().map(|(_, event)| event.returned);
        let first_return = returns.min().unwrap_or(u64::MAX);
        for (at, event) in left().filter(|(_, event)| event.called < first_return) {
            let mut next = state.clone();
            let decision = apply(algorithm, &mut next, event.now, event.op);
            // What a reset returns is read after it.
            if decision == event.decision || event.op == Op::Reset {
                open.push((done | 1 << at, next));
            }
        }
    }
    false
}

pub(crate) fn is_linearizable<A: Algorithm>(algorithm: &A, events: &[Event]) -> bool {
    let keys: HashSet<_> = events.iter().map(|event| event.key).collect();
    keys.into_iter().all(|key| {
        let of_key: Vec<_> = events.iter().filter(|event| event.key == key).collect();
        is_key_linearizable(algorithm, &of_key)
    })
}

/// The events in the order of their calls, one per line.
pub(crate) fn shown(events: &[Event]) -> String {
    let mut events: Vec<_> = events.iter().collect();
    events.sort_by_key(|event| (event.key, event.called));
    let line = |event: &&Event| {
        let decision = event.decision;
        let figures = (decision.verdict, decision.remaining(), decision.reset_after);
        let (key, op, from, to) = (event.key, event.op, event.called, event.returned);
        let at = event.now.as_nanos();
        format!("key {key}, {from} to {to}, at {at}: {op:?}, {figures:?}\n")
    };
    events.iter().map(line).collect()
}
