//! States that also hold what this machine has admitted since its last report.

use super::rules::{MAX_ROOM, Rules};
use crate::algorithm::Portable;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::store::{
    beside::{Beside, BesideState, OWN_WORDS, Own},
    cas::report::Change,
    local::{Effect, Outcome},
};

/// An algorithm whose states also hold what this machine has admitted since its last report.
pub(super) type Tracked<A> = Beside<A, Unsent>;

/// The state of a key on one machine: that of the fleet as of the last exchange, with what this machine
/// has admitted since.
pub(super) type TrackedState<S> = BesideState<S, Unsent>;

/// The part of what was admitted since the last report that is kept with the state. It is all of one
/// cell of the algorithm.
///
/// What a decision changes is one word, so that a cost is one subtraction:
///
/// ```text
/// | cost | how much more this machine may admit | unused | asks | listed |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unsent {
    /// The cost and the room together are at most [`MAX_ROOM`], so that a cost that has room can be added.
    costs: u64,
    /// Costs up to this moment are counted together.
    cell_end: Tick,
}

/// Whether the key is listed among those to be reported.
const LISTED: u64 = 1;
/// Whether the slow path decides on what the fleet denies, because this machine has a share.
const ASKS: u64 = 2;
/// Whether no request was denied since the last exchange.
const UNUSED: u64 = 4;
const ROOM_SHIFT: u32 = 3;
const COST_SHIFT: u32 = ROOM_SHIFT + MAX_ROOM.count_ones();
/// What a unit that is admitted adds to the word.
const UNIT: u64 = (1 << COST_SHIFT) - (1 << ROOM_SHIFT);

impl Unsent {
    pub(super) const fn is_listed(self) -> bool {
        self.costs & LISTED != 0
    }

    pub(super) const fn cost(self) -> u64 {
        self.costs >> COST_SHIFT
    }

    /// How much more this machine may admit before something else has to happen.
    #[inline]
    const fn room(self) -> u64 {
        self.costs >> ROOM_SHIFT & MAX_ROOM as u64
    }

    /// As much of the room as there is beside the cost.
    fn set_room(&mut self, room: u64) {
        let room = room.min(u64::from(MAX_ROOM) - self.cost());
        self.costs = self.costs & !(u64::from(MAX_ROOM) << ROOM_SHIFT) | room << ROOM_SHIFT;
    }

    /// The key is not listed any more. What it may admit is decided anew when it is.
    pub(super) const fn unlist(&mut self) {
        self.costs &= !LISTED;
    }

    /// The slow path decides on what the fleet denies.
    const fn ask(&mut self) {
        self.costs |= ASKS;
    }

    /// There was an exchange.
    pub(super) const fn mark_unused(&mut self) {
        self.costs |= UNUSED;
    }

    /// Whether the fast path has decided no request since the last exchange.
    pub(super) const fn is_unused(self) -> bool {
        self.costs & UNUSED != 0 && self.cost() == 0
    }

    /// What the fleet denies is denied, until the next exchange.
    pub(super) const fn stop_asking(&mut self) {
        self.costs &= !ASKS;
    }

    /// Adds a cost, if it fits. It may be above the room.
    fn add(&mut self, cost: u64) -> bool {
        if cost > u64::from(MAX_ROOM) - self.cost() {
            return false;
        }
        let room = self.room().saturating_sub(cost);
        self.costs += cost << COST_SHIFT;
        self.set_room(room);
        true
    }

    /// Takes the cost, as changes that are to be reported. It has led to the state `fleet`, and was
    /// taken from `since` on.
    pub(super) fn take<A: Portable>(
        &mut self,
        algorithm: &A,
        fleet: &A::State,
        since: Tick,
        now: Tick,
    ) -> [Option<Change>; 2] {
        let cost = self.cost();
        if cost == 0 {
            return [None; 2];
        }
        self.costs -= cost << COST_SHIFT;
        let last = match self.cell_end {
            Tick::MAX => now,
            // The latest moment of the cell, which may be one of a state from another machine whose clock
            // is ahead.
            end => Tick::from_nanos(end.as_nanos().saturating_sub(1)),
        };
        let moment = A::summed_moment(algorithm, fleet, since, cost);
        let at_once = [Some((last.into(), cost)), None];
        let parts = moment.map_or(at_once, |moment| moment.parts(cost, last));
        parts.map(|part| part.map(|(taken_at, cost)| Change::Charge { taken_at, cost }))
    }

    /// Begins a cell, after the cost of the last one was taken. A key that was not listed gets its
    /// room; `unknown` is what the store may not know of it yet.
    pub(super) fn begin_cell<A: Portable>(
        &mut self,
        algorithm: &A,
        fleet: &A::State,
        input: &StepInput,
    ) {
        if !self.is_listed() {
            let StepInput {
                rules, nodes, now, ..
            } = *input;
            self.costs = self.costs & !UNUSED | LISTED;
            if rules.has_share(nodes) {
                self.ask();
            } else {
                self.stop_asking();
            }
            let budget = u64::from(rules.budget(algorithm, fleet, now, nodes));
            self.set_room(budget.saturating_sub(input.unknown));
        }
        self.cell_end = A::cell_end(algorithm, fleet, input.now);
    }
}

impl Own for Unsent {
    const WORDS: usize = OWN_WORDS;
    /// The cost. Without cells, its cell does not end.
    const WORDS_WITHOUT_CELLS: usize = 1;

    /// A state with costs that are to be reported is not forgotten.
    fn is_kept(&self) -> bool {
        self.is_listed()
    }

    #[inline]
    fn after(self, now: Tick, cost: u64) -> Option<Self> {
        let has_room = self.is_listed() && now < self.cell_end && cost <= self.room();
        has_room.then(|| Self {
            costs: self.costs.wrapping_add(cost.wrapping_mul(UNIT)),
            ..self
        })
    }

    #[inline]
    fn may_admit(&self) -> bool {
        true
    }

    #[inline]
    fn after_denial(self) -> Option<Self> {
        (self.costs & ASKS == 0).then_some(Self {
            costs: self.costs & !UNUSED,
            ..self
        })
    }

    #[inline]
    fn to_words(self) -> [u64; OWN_WORDS] {
        [self.costs, self.cell_end.as_nanos()]
    }

    #[inline]
    fn from_words(words: &[u64]) -> Self {
        let (costs, cell_end) = match *words {
            [costs] => (costs, Tick::MAX),
            [costs, end] => (costs, Tick::from_nanos(end)),
            _ => return Self::default(),
        };
        Self { costs, cell_end }
    }
}

/// A request, and what is known besides the state of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepInput {
    pub(super) rules: Rules,
    pub(super) nodes: u64,
    /// What the store may not know yet of the key, beside the cost in the state.
    pub(super) unknown: u64,
    /// The cost in the state was taken from then on.
    pub(super) since: Tick,
    /// Whether the request is admitted in any case.
    pub(super) is_forced: bool,
    pub(super) now: Tick,
    pub(super) cost: u64,
}

/// What the slow path did to a state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) decision: Decision,
    /// Costs that are not kept with the state any more: that of an earlier cell, in up to two parts, and
    /// one that is too large.
    pub(super) moved: [Option<Change>; 3],
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
            moved: [None; 3],
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
pub(super) fn step<A: Portable>(
    algorithm: &A,
    state: &mut TrackedState<A::State>,
    input: &StepInput,
) -> Step {
    let &StepInput { now, cost, .. } = input;
    let unsent = &mut state.own;
    let is_new = !unsent.is_listed();
    if let (Some(strict), false) = (input.rules.strict_budget, input.is_forced) {
        // A cost above the budget needs all of it.
        let needed = cost.min(u64::from(strict));
        let room = if is_new {
            u64::from(strict).saturating_sub(input.unknown)
        } else {
            unsent.room()
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
    let begins_cell = is_new || now >= unsent.cell_end;
    // By the state that the costs have led to, which the decision changes.
    let mut emptied = *unsent;
    let taken = if begins_cell {
        emptied.take(algorithm, &state.fleet, input.since, now)
    } else {
        [None; 2]
    };
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
    if begins_cell {
        *unsent = emptied;
        (done.moved[0], done.moved[1]) = (taken[0], taken[1]);
        unsent.begin_cell(algorithm, &state.fleet, input);
    }
    if decision.is_denied() {
        // Not asked again before the next exchange: denials are frequent.
        if !input.rules.has_share(input.nodes) {
            unsent.stop_asking();
        }
        return done;
    }
    if !unsent.add(cost) {
        let taken_at = now.into();
        done.moved[2] = Some(Change::Charge { taken_at, cost });
        unsent.set_room(unsent.room().saturating_sub(cost));
    }
    if unsent.room() == 0 && input.rules.strict_budget.is_none() {
        done.is_urgent = true;
        // Until that exchange.
        unsent.set_room(u64::from(MAX_ROOM));
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Algorithm, SlidingLog};
    use crate::quota::Quota;

    const NOW: Tick = Tick::from_nanos(1 << 60);

    fn listed(room: u64) -> Unsent {
        let mut unsent = Unsent {
            costs: LISTED | ASKS,
            cell_end: Tick::MAX,
        };
        unsent.set_room(room);
        unsent
    }

    #[test]
    fn a_cost_is_added_as_long_as_there_is_room() {
        let mut unsent = listed(5);
        for (cost, left) in [(1, Some(4)), (5, None), (4, Some(0)), (1, None)] {
            let after = unsent.after(NOW, cost);
            assert_eq!(after.map(Unsent::room), left, "cost {cost}");
            unsent = after.unwrap_or(unsent);
        }
        assert_eq!((unsent.cost(), unsent.is_listed()), (5, true));
        assert_eq!(unsent.after_denial(), None);
        let mut unlisted = listed(5);
        unlisted.unlist();
        assert_eq!(unlisted.after(NOW, 1), None);
        let end = Tick::from_nanos(NOW.as_nanos() + 1);
        let in_cell = Unsent {
            cell_end: end,
            ..listed(5)
        };
        assert_eq!(in_cell.after(NOW, 5).map(Unsent::cost), Some(5));
        assert_eq!(in_cell.after(end, 5), None);
    }

    /// Otherwise a cost would change the other parts of the word.
    #[test]
    fn a_cost_that_has_room_fits_the_word() {
        let most = u64::from(MAX_ROOM);
        let mut unsent = listed(u64::MAX);
        assert_eq!(unsent.after(NOW, u64::MAX), None);
        unsent = unsent.after(NOW, most - 1).expect("room");
        unsent.set_room(u64::MAX);
        assert_eq!((unsent.cost(), unsent.room()), (most - 1, 1));
        assert!(!unsent.add(2));
        assert!(unsent.add(1));
        unsent.set_room(u64::MAX);
        assert_eq!((unsent.cost(), unsent.room()), (most, 0));
        assert_eq!(unsent.after(NOW, 1), None);
        let log = SlidingLog::new(Quota::per_second(1));
        let (taken_at, cost) = (NOW.into(), most);
        let taken = unsent.take(&log, &log.fresh(NOW), Tick::ZERO, NOW);
        assert_eq!(taken, [Some(Change::Charge { taken_at, cost }), None]);
        assert_eq!((unsent.cost(), unsent.room()), (0, 0));
        assert!(unsent.is_listed() && unsent.after_denial().is_none());
        unsent.stop_asking();
        assert!(unsent.is_listed() && unsent.after_denial() == Some(unsent));
        unsent.mark_unused();
        assert!(unsent.is_unused());
        assert_eq!(unsent.after_denial().map(Unsent::is_unused), Some(false));
        unsent.set_room(1);
        assert_eq!(unsent.after(NOW, 1).map(Unsent::is_unused), Some(false));
    }
}
