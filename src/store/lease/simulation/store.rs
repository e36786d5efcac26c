//! The store of a simulated fleet, and its mistakes.

use super::{Mistake, Simulation};
use crate::algorithm::Algorithm;
use crate::clock::Tick;
use crate::store::{
    cas::{
        lease::{LeaseReply, LeaseReport},
        record::{Lease, Record},
        report::Change,
    },
    fleet::simulation::MAX_DELAY,
};

impl<A: Algorithm> Simulation<A> {
    /// Makes the report of an exchange a part of the record of its key.
    pub(super) fn apply_in_store(&mut self, number: usize) -> LeaseReply<A::State> {
        // A machine computes the store's time from an earlier reply: it is late by as long as that took.
        let late = self.time.below(MAX_DELAY);
        let now = Tick::from_nanos(self.time.now - late);
        let exchange = &self.exchanges[number];
        let outgoing = exchange.outgoing.clone();
        let node = &self.machines[exchange.node].node;
        let (id, report) = (node.id, node.report(&outgoing, now));
        let before = self.records.entry(outgoing.name.to_string()).or_default();
        let mut record = before.clone();
        match self.mistake {
            Mistake::ReturnTwice => record.damage(|_, sequence, _| *sequence = 0),
            Mistake::FreeExpired => drop(record.end_leases(now)),
            Mistake::ForgetOthers => record.damage(|other, _, lease| {
                if other != id {
                    *lease = Lease::default();
                }
            }),
            _ => {}
        }
        let replied = self.decider.lease(&record, now, &report);
        let (mut reply, after) = replied.expect("a reply");
        let Some(mut after) = after else {
            return reply;
        };
        if self.mistake == Mistake::GrantOnRefill {
            let cost = reply.lease.units;
            after.damage(|_, _, lease| *lease = Lease::default());
            let changes = [Change::Charge {
                taken_at: now,
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
            let charged = self.decider.lease(&after, now, &charge);
            after = charged.expect("a reply").1.unwrap_or(after);
            reply.lease.units += report.kept;
        }
        *before = Record::from_bytes(&after.to_bytes()).expect("a readable record");
        reply
    }

    /// The state that the store holds, with the units that are out.
    pub(super) fn state_in_store(&self, record: &Record, now: Tick) -> A::State {
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
        };
        let replied = self.decider.lease(record, now, &nothing);
        replied.expect("a reply").0.state
    }
}
