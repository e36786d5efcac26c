//! What is particular about a fleet: its clocks, its configurations, and resets.

use super::{Conditions, INTERVAL, Simulation};
use crate::algorithm::Portable;
use crate::store::{
    cas::report::Change,
    fleet::simulation::{Event, KEYS, LENGTH, MS, Quotas, Timeline},
};

impl Conditions {
    pub(super) fn random(time: &mut Timeline) -> Self {
        let is_reliable = time.below(3) == 0;
        let clock_error = match time.below(6) {
            0 => 100 * MS,
            1 => 1_000 * MS,
            _ => 0,
        };
        Self {
            is_reliable,
            clock_error,
            quotas: time.quotas(),
            is_changed: time.below(4) == 0,
        }
    }

    /// How far a clock is ahead.
    pub(super) fn random_clock(self, time: &mut Timeline) -> i64 {
        let ahead = i64::try_from(time.below(self.clock_error + 1)).expect("in range");
        ahead - i64::try_from(self.clock_error / 2).expect("in range")
    }

    /// Whether all costs are of one configuration, and as of moments of one clock.
    pub(super) fn is_simple(self) -> bool {
        self.clock_error == 0 && self.quotas == Quotas::One && !self.is_changed
    }
}

impl<A: Portable> Simulation<A> {
    /// Plans what a machine meets in such a fleet.
    pub(super) fn plan_changes(&mut self, node: usize) {
        let conditions = self.conditions;
        if conditions.quotas == Quotas::Changed {
            let at = LENGTH / 2 + self.time.below(10 * INTERVAL);
            self.time.after(at, Event::Configure { node });
        }
        for (event, happens) in [
            (Event::Change { node }, conditions.is_changed),
            (Event::SetClock { node }, conditions.clock_error > 0),
        ] {
            if happens {
                let at = self.time.below(LENGTH);
                self.time.after(at, event);
            }
        }
    }

    /// A program resets a key.
    pub(super) fn change(&mut self, node: usize) {
        let (key, now) = (self.time.below(KEYS), self.time_of(node));
        let name = || key.to_string().into();
        let machine = &self.machines[node].node;
        let _ = machine.change(key << 32 | key, name, now, Change::Reset);
        let pause = 1 + self.time.below(LENGTH / 2);
        self.time.after(pause, Event::Change { node });
    }

    /// A machine adopts a quota that was changed for the fleet.
    pub(super) fn configure(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        machine.configuration = 1;
        let set = machine.node.set_algorithm(&self.deciders[1].algorithm);
        set.expect("another quota");
    }
}
