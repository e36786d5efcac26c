//! What programs do beside requests: they reset and penalize keys, close limits, and change quotas.

use super::{LIFE, Mistake, Simulation, machine::hash_of};
use crate::algorithm::Portable;
use crate::store::{
    cas::report::Change,
    fleet::simulation::{Event, KEYS},
    lease::exchange::Due,
};

impl<A: Portable> Simulation<A> {
    /// A program resets or penalizes a key, or closes its limit and goes on.
    pub(super) fn change(&mut self, node: usize) {
        let key = self.time.below(KEYS);
        match self.time.below(3) {
            0 => self.change_key(node, key, Change::Reset),
            1 => {
                let (taken_at, cost) = (self.time_of(node).into(), 1 + self.time.below(3));
                self.penalties.push((key, cost));
                self.change_key(node, key, Change::Charge { taken_at, cost });
            }
            _ => self.close(node),
        }
        self.send_due(node, false);
        let pause = 1 + self.time.below(4 * LIFE);
        self.time.after(pause, Event::Change { node });
    }

    /// Gives back all units.
    fn close(&mut self, node: usize) {
        let now = self.time_of(node);
        let held = self.held(node);
        let returned = self.machines[node]
            .node
            .collect(now, Due::Return, usize::MAX);
        for outgoing in returned {
            if self.mistake == Mistake::UseReturned {
                let node = &self.machines[node].node;
                let mut shard = node.keys.shard(outgoing.hash);
                let key = shard.get_mut(&outgoing.hash).expect("a key");
                let units = held.iter().find(|(hash, _)| *hash == outgoing.hash);
                key.reserve += units.map_or(0, |(_, units)| *units);
                node.release(outgoing.hash, key, now);
            }
            self.send(node, outgoing);
        }
    }

    /// The units that a machine holds of each key.
    fn held(&self, node: usize) -> Vec<(u64, u64)> {
        let now = self.time_of(node);
        let node = &self.machines[node].node;
        let keys = (0..KEYS).map(hash_of).filter_map(|hash| {
            let mut shard = node.keys.shard(hash);
            let key = shard.get_mut(&hash)?;
            node.settle(hash, key, now);
            let left = key.left();
            node.release(hash, key, now);
            Some((hash, left))
        });
        keys.collect()
    }

    /// A machine adopts a quota that was changed for the fleet.
    pub(super) fn configure(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        machine.configuration = 1;
        let algorithm = &self.deciders[1].algorithm;
        let set = machine.node.set_algorithm(algorithm);
        set.expect("another quota");
    }
}
