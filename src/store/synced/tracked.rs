//! States that also hold what this machine has admitted since its last report.

use super::rules::{MAX_ROOM, Rules};
use crate::algorithm::{Algorithm, Packing};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::store::{
    beside::{Beside, BesideState, OWN_WORDS, Own},
    cas::report::Change,
    local::{Effect, Outcome},
};

/// The most that [`Unsent`] can hold of a cost.
const MAX_COST: u32 = u32::MAX >> 1;

/// An algorithm whose states also hold what this machine has admitted since its last report.
pub(super) type Tracked<A> = Beside<A, Unsent>;

/// The state of a key on one machine: that of the fleet as of the last exchange, with what this machine
/// has admitted since.
pub(super) type TrackedState<S> = BesideState<S, Unsent>;

/// The part of what was admitted since the last report that is kept with the state. It is all of one
/// cell of the algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unsent {
    /// Whether the key is listed among those to be reported.
    pub(super) is_listed: bool,
    /// Costs up to this moment are counted together.
    pub(super) cell_end: Tick,
    /// Below 2^31.
    pub(super) cost: u32,
    /// How much more this machine may admit before something else has to happen; at most
    /// [`MAX_ROOM`].
    pub(super) room: u32,
    /// Whether the share of this machine may admit a request that the fleet denies.
    pub(super) has_share: bool,
}

impl Unsent {
    /// Whether `cost` can be added at `now`.
    #[inline]
    pub(super) fn has_room_for(&self, now: Tick, cost: u64) -> bool {
        self.is_listed && now < self.cell_end && cost <= u64::from(self.room)
    }

    /// Adds a cost, if it fits.
    #[inline]
    pub(super) fn add(&mut self, cost: u64) -> bool {
        let cost = cost.min(1 << 31) as u32;
        let sum = self.cost + cost;
        if sum > MAX_COST {
            return false;
        }
        self.cost = sum;
        self.room = self.room.saturating_sub(cost);
        true
    }

    /// Takes the cost, as a change that is to be reported.
    pub(super) fn take(&mut self, now: Tick) -> Option<Change> {
        let cost = u64::from(std::mem::take(&mut self.cost));
        let taken_at = self.last_moment(now);
        (cost > 0).then_some(Change::Charge { taken_at, cost })
    }

    /// Begins a cell, after the cost of the last one was taken. A key that was not listed gets its
    /// room; `unknown` is what the store may not know of it yet.
    pub(super) fn begin_cell<A: Algorithm>(
        &mut self,
        algorithm: &A,
        fleet: &A::State,
        input: &StepInput,
    ) {
        if !self.is_listed {
            self.is_listed = true;
            let StepInput {
                rules, nodes, now, ..
            } = *input;
            let budget = u64::from(rules.budget(algorithm, fleet, now, nodes));
            let room = budget.saturating_sub(input.unknown);
            self.room = room.try_into().unwrap_or(MAX_ROOM);
            self.has_share = rules.has_share(nodes);
        }
        self.cell_end = A::Packing::cell_end(algorithm, fleet, input.now);
    }

    /// The latest moment at which the cost can have been taken: that of its cell, which may be one of a
    /// state from another machine whose clock is ahead, or `now` if there are no cells.
    fn last_moment(&self, now: Tick) -> Tick {
        match self.cell_end {
            Tick::MAX => now,
            end => Tick::from_nanos(end.as_nanos().saturating_sub(1)),
        }
    }
}

impl Own for Unsent {
    const WORDS: usize = OWN_WORDS;
    /// The cost. Without cells, its cell does not end.
    const WORDS_WITHOUT_CELLS: usize = 1;

    /// A state with costs that are to be reported is not forgotten.
    fn is_kept(&self) -> bool {
        self.is_listed
    }

    #[inline]
    fn after(mut self, now: Tick, cost: u64) -> Option<Self> {
        (self.has_room_for(now, cost) && self.add(cost)).then_some(self)
    }

    #[inline]
    fn may_admit(&self) -> bool {
        true
    }

    #[inline]
    fn may_deny(&self) -> bool {
        !self.has_share
    }

    #[inline]
    fn to_words(self) -> [u64; OWN_WORDS] {
        let flags = u64::from(self.has_share) << 1 | u64::from(self.is_listed);
        let costs = u64::from(self.cost) << 33 | u64::from(self.room) << 2 | flags;
        [costs, self.cell_end.as_nanos()]
    }

    #[expect(clippy::cast_possible_truncation, reason = "31 bits of a word")]
    #[inline]
    fn from_words(words: &[u64]) -> Self {
        let (costs, cell_end) = match *words {
            [costs] => (costs, Tick::MAX),
            [costs, end] => (costs, Tick::from_nanos(end)),
            _ => return Self::default(),
        };
        Self {
            is_listed: costs & 1 == 1,
            cell_end,
            cost: (costs >> 33) as u32,
            room: (costs >> 2) as u32 & MAX_ROOM,
            has_share: costs & 2 == 2,
        }
    }
}

/// A request, and what is known besides the state of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepInput {
    pub(super) rules: Rules,
    pub(super) nodes: u64,
    /// What the store may not know yet of the key, beside the cost in the state.
    pub(super) unknown: u64,
    /// Whether the request is admitted in any case.
    pub(super) is_forced: bool,
    pub(super) now: Tick,
    pub(super) cost: u64,
}

/// What the slow path did to a state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) decision: Decision,
    /// Costs that are not kept with the state any more: that of an earlier cell, and one that is too
    /// large.
    pub(super) moved: [Option<Change>; 2],
    /// Whether the cost was not taken, because an exchange is needed first.
    pub(super) needs_exchange: bool,
    /// Whether the next exchange cannot wait for the end of the interval.
    pub(super) is_urgent: bool,
    pub(super) slot: KeySlot,
}

/// What the table had of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeySlot {
    /// The table is full.
    None,
    /// A state without costs that wait for a report, or none.
    Unlisted,
    Listed,
}

impl Step {
    pub(super) const fn of(decision: Decision) -> Self {
        Self {
            decision,
            moved: [None; 2],
            needs_exchange: false,
            is_urgent: false,
            slot: KeySlot::Listed,
        }
    }
}

impl Outcome for Step {
    fn effect(&self) -> Effect {
        self.decision.effect()
    }
}

/// Decides on a request, and keeps its cost with the state until it is reported.
pub(super) fn step<A: Algorithm>(
    algorithm: &A,
    state: &mut TrackedState<A::State>,
    input: &StepInput,
) -> Step {
    let &StepInput { now, cost, .. } = input;
    let unsent = &mut state.own;
    let is_new = !unsent.is_listed;
    if let (Some(strict), false) = (input.rules.strict_budget, input.is_forced) {
        // A cost above the budget needs all of it.
        let needed = cost.min(u64::from(strict));
        let room = if is_new {
            u64::from(strict).saturating_sub(input.unknown)
        } else {
            u64::from(unsent.room)
        };
        let looked = algorithm.peek(&state.fleet, now, cost);
        if needed > room && !looked.is_denied() {
            return Step {
                needs_exchange: true,
                is_urgent: true,
                ..Step::of(looked)
            };
        }
    }
    let decision = if input.is_forced {
        algorithm.charge(&mut state.fleet, now, cost);
        algorithm.peek(&state.fleet, now, 0)
    } else {
        algorithm.decide(&mut state.fleet, now, cost)
    };
    let mut done = Step::of(decision);
    if is_new {
        done.slot = KeySlot::Unlisted;
    }
    if cost == 0 {
        return done;
    }
    if is_new || now >= unsent.cell_end {
        done.moved[0] = unsent.take(now);
        unsent.begin_cell(algorithm, &state.fleet, input);
    }
    if decision.is_denied() {
        return done;
    }
    if !unsent.add(cost) {
        let taken_at = now;
        done.moved[1] = Some(Change::Charge { taken_at, cost });
        unsent.room = u32::try_from(u64::from(unsent.room).saturating_sub(cost)).unwrap_or(0);
    }
    if unsent.room == 0 && input.rules.strict_budget.is_none() {
        done.is_urgent = true;
        // Until that exchange.
        unsent.room = MAX_ROOM;
    }
    done
}
