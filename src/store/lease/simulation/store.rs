//! The store of a simulated fleet, and its mistakes.

use super::{Clocks, Exchange, Mistake, Reply, Simulation, machine::hash_of};
use crate::algorithm::Portable;
use crate::clock::Tick;
use crate::store::{
    cas::{
        lease::{LeaseReply, LeaseReport},
        record::{Lease, Record},
        report::Change,
    },
    fleet::simulation::{KEYS, MAX_DELAY},
};

impl<A: Portable> Simulation<A> {
    /// A report arrives at the store. That of a machine that has crashed meanwhile does too.
    pub(super) fn arrive(&mut self, number: usize) {
        let key = self.key_of(number);
        let reply = self.apply_in_store(number, key);
        let server_time = self.server_time(key).as_nanos();
        let exchange = &mut self.exchanges[number];
        let (node, life) = (exchange.node, exchange.life);
        exchange.reply = Some(Reply { reply, server_time });
        if self.machines[node].life == life {
            let link = self.machines[node].link;
            self.time.send_reply(link, node, number);
        }
    }

    fn key_of(&self, number: usize) -> u64 {
        let hash = self.exchanges[number].outgoing.hash;
        let key = (0..KEYS).find(|key| hash_of(*key) == hash);
        key.expect("a key")
    }

    /// What the clock of the server of a key shows.
    fn server_time(&self, key: u64) -> Tick {
        let ahead = self.servers[usize::try_from(key).expect("small")];
        Tick::from_nanos(self.time.now.saturating_add_signed(ahead))
    }

    /// The moment as of which the machine changes the record.
    fn moment_of(&mut self, number: usize, key: u64) -> Tick {
        let late = self.time.below(MAX_DELAY);
        let Exchange { node, life, .. } = self.exchanges[number];
        let machine = &self.machines[node];
        let (wall, computed) = (machine.wall, machine.store_time);
        let is_awake = machine.life == life && machine.asleep_until <= self.time.now;
        let server_time = self.server_time(key).as_nanos();
        let now = match computed.filter(|_| machine.life == life) {
            // It knows the record, so it has not asked for the time again.
            Some(ahead) if self.time.below(2) == 0 => self.time.now.saturating_add_signed(ahead),
            _ => {
                // It learns the time before it sends the report, as `Exchanger::exchange` does.
                if is_awake {
                    self.learn_time(node, number, server_time);
                }
                server_time
            }
        };
        if self.conditions.clocks == Clocks::Machines {
            return Tick::from_nanos(self.time.now.saturating_add_signed(wall));
        }
        Tick::from_nanos(now - late)
    }

    /// Makes the report of an exchange a part of the record of its key.
    fn apply_in_store(&mut self, number: usize, key: u64) -> LeaseReply<A::State> {
        let now = self.moment_of(number, key);
        let exchange = &self.exchanges[number];
        let Exchange {
            ref outgoing,
            node,
            id,
            configuration,
            ..
        } = *exchange;
        let report = self.machines[node].node.report(outgoing, now);
        // If the machine has crashed, its clock knows nothing of this.
        let (clocks_differ, settings) = (self.may_differ(), &self.settings);
        let report = LeaseReport {
            node: id,
            life: settings.life + settings.margin(clocks_differ),
            clocks_differ,
            ..report
        };
        let decider = &self.deciders[configuration];
        let stored = self.records.entry(outgoing.name.to_string()).or_default();
        let mut before = stored.clone();
        let is_new = !before.has_report(id, report.sequence);
        match self.mistake {
            Mistake::ReturnTwice if !is_new => forget_report(&mut before, id),
            Mistake::ResetTwice if !is_new && report.changes.contains(&Change::Reset) => {
                forget_report(&mut before, id);
            }
            Mistake::FreeExpired => drop(before.end_leases(now)),
            Mistake::ForgetOthers => forget_leases_beside(&mut before, id),
            _ => {}
        }
        let replied = decider.lease(&before, now, &report);
        let (mut reply, after) = replied.expect("a reply");
        let Some(mut after) = after else {
            return reply;
        };
        let resets = report.changes.contains(&Change::Reset);
        match self.mistake {
            Mistake::ChargeOneConfiguration => decider.keep_others(&mut after, &before),
            Mistake::ResetFreesOthers if resets => forget_leases_beside(&mut after, id),
            Mistake::GrantOnRefill => {
                let cost = reply.lease.units;
                after.damage(|_, _, lease| *lease = Lease::default());
                let changes = [Change::Charge {
                    taken_at: now.into(),
                    cost,
                }];
                let charge = LeaseReport {
                    node: 1,
                    sequence: number as u64 + 1,
                    changes: &changes,
                    leased: 0,
                    kept: 0,
                    wanted: 0,
                    needed: 0,
                    ..report
                };
                let charged = decider.lease(&after, now, &charge);
                after = charged.expect("a reply").1.unwrap_or(after);
                reply.lease.units += report.kept;
            }
            _ => {}
        }
        if resets && is_new {
            self.resets.push((key, self.time.now));
        }
        *stored = Record::from_bytes(&after.to_bytes()).expect("a readable record");
        reply
    }

    /// The state that the store holds, with the units that are out.
    pub(super) fn state_in_store(
        &self,
        record: &Record,
        configuration: usize,
        now: Tick,
    ) -> A::State {
        let nothing = LeaseReport {
            node: 0,
            sequence: 1,
            changes: &[],
            leased: 0,
            kept: 0,
            wanted: 0,
            needed: 0,
            life: self.settings.life,
            present_since: now,
            clocks_differ: false,
        };
        let replied = self.deciders[configuration].lease(record, now, &nothing);
        replied.expect("a reply").0.state
    }
}

/// Makes the mistake that the last report of a machine seems to be new.
fn forget_report(record: &mut Record, id: u64) {
    record.damage(|other, sequence, _| {
        if other == id {
            *sequence = 0;
        }
    });
}

/// Makes the mistake that nothing is out but what one machine holds.
fn forget_leases_beside(record: &mut Record, id: u64) {
    record.damage(|other, _, lease| {
        if other != id {
            *lease = Lease::default();
        }
    });
}
