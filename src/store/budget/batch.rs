//! What a machine sends to the store once per interval, and what it gets back.

use std::{collections::HashMap, sync::Arc};

use super::exchange::{Moment, count_machine, exchange};
use super::record::{Census, Record, Reply, Report, Terms};
use super::shape::Shape;

/// The reports of a machine. It is sent again unchanged until there is a reply.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(super) machine: u64,
    /// Greater than that of any batch of this machine before. A batch that was seen changes nothing.
    pub(super) sequence: u64,
    /// How often it was sent before.
    pub(super) attempt: u64,
    /// The beat in which the machine was counted last.
    pub(super) beat: u64,
    pub(super) keys: Vec<(Arc<str>, Report)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Replies {
    /// The store's time in microseconds.
    pub(super) now: u64,
    /// The attempt that was executed: what it grants lives from then on.
    pub(super) attempt: u64,
    pub(super) beat: u64,
    pub(super) machines: u64,
    /// As many as reports, in their order.
    pub(super) keys: Vec<Reply>,
}

/// The values of a store that executes a batch in one step.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) census: Census,
    /// Per machine the last sequence number, and the reply to it.
    pub(super) sequences: HashMap<u64, (u64, Replies)>,
    pub(super) records: HashMap<Arc<str>, Record>,
}

impl Batch {
    /// A random number below 2^16 for the key at `index`.
    pub(super) fn dice(&self, index: usize) -> u64 {
        let seed = self.machine ^ self.sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ index as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb) >> 48
    }
}

impl Values {
    /// Executes a batch, or repeats the reply to it. `None` if the machine has sent a newer one.
    pub(super) fn exchange(
        &mut self,
        (terms, shape): (&Terms, &Shape),
        batch: &Batch,
        now: u64,
    ) -> Option<Replies> {
        if let Some((last, replies)) = self.sequences.get(&batch.machine) {
            if batch.sequence <= *last {
                return (batch.sequence == *last).then(|| replies.clone());
            }
        }
        let (beat, machines) = count_machine(terms, &mut self.census, batch.beat, now);
        let keys = batch.keys.iter().enumerate().map(|(index, (key, report))| {
            let record = self.records.entry(Arc::clone(key));
            let record = record.or_insert_with(|| Record::new(shape, now));
            let dice = batch.dice(index);
            exchange(
                (terms, shape),
                record,
                report,
                Moment {
                    now,
                    machines,
                    dice,
                },
            )
        });
        let replies = Replies {
            now,
            attempt: batch.attempt,
            beat,
            machines,
            keys: keys.collect(),
        };
        let last = (batch.sequence, replies.clone());
        self.sequences.insert(batch.machine, last);
        Some(replies)
    }
}
