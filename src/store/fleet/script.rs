//! A batch in words and numbers, for a store that executes it in a script.

use super::batch::{Batch, Replies, Seen, text};
use super::exchange::repeated;
use super::record::{Record, Reply, Report};
use super::shape::Part;
use crate::clock::nanos;

impl Batch {
    pub(in crate::store) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(in crate::store) fn sequence_key(&self) -> &str {
        &self.sequence_key
    }

    pub(in crate::store) fn key(&self, index: usize) -> &str {
        &self.keys[index].0
    }

    pub(in crate::store) const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The terms.
    pub(in crate::store) fn term_numbers(&self) -> [u64; 8] {
        let millis = |ttl| nanos(ttl) / 1_000_000 + 1;
        let (terms, capacity) = (&self.terms, self.shape.capacity());
        [
            terms.interval,
            terms.life,
            self.machines,
            // As in the exchange: nothing, what refills, or what is free in the next slot.
            if terms.ahead {
                (self.machines <= capacity).into()
            } else {
                2 * u64::from(self.shape.has_slots(false))
            },
            capacity,
            self.shape.refill(terms.interval),
            millis(self.ttl()),
            millis(self.sequence_ttl()),
        ]
    }

    /// The parts of the shape.
    pub(in crate::store) fn part_numbers(&self) -> impl Iterator<Item = [u64; 8]> {
        let interval = self.terms.interval;
        self.shape.parts.iter().map(move |part| {
            let (_, layout) = part.layout();
            match part {
                Part::Level(level) => {
                    let refill = part.ahead(&part.unused(), 0, interval);
                    [0, layout, level.capacity, level.rate, refill, 0, 0, 0]
                }
                Part::Cells(grid) => [
                    1,
                    layout,
                    grid.limit,
                    grid.length,
                    part.refill(2 * interval),
                    grid.padding,
                    grid.count as u64,
                    grid.division as u64,
                ],
            }
        })
    }

    /// The report of a key.
    pub(in crate::store) fn report_numbers(&self, index: usize) -> [u64; 20] {
        let Report {
            reset,
            spent,
            lots,
            demand,
            elapsed,
            waiting,
            has_next,
            next_returned,
            given_back,
            resets,
        } = self.keys[index].1;
        [
            reset,
            spent[0].units,
            spent[0].at,
            spent[1].units,
            spent[1].at,
            lots[0].epoch,
            lots[0].used,
            lots[0].returned,
            lots[1].epoch,
            lots[1].used,
            lots[1].returned,
            demand,
            elapsed,
            waiting,
            has_next.into(),
            next_returned,
            given_back.units,
            given_back.at,
            resets.into(),
            self.dice(index),
        ]
    }

    /// The reply for the key at `index`, which was at `place` among those that were sent, by its record and by what was granted, at once, ahead, in the next
    /// window, and when that begins; or by the record of the batches seen if this one is among them.
    pub(in crate::store) fn reply_of(
        &self,
        (index, place): (usize, usize),
        record: Option<&[u8]>,
        granted: Result<[u64; 4], &[u8]>,
        now: u64,
    ) -> Reply {
        let mut record = match self.read(record, now) {
            Some(record) => record,
            None if self.keys[index].1.resets => Record::new(&self.shape, now),
            None => return Reply::damaged(),
        };
        let terms = (&self.terms, &*self.shape);
        match granted {
            Ok([grant, ahead, next, next_in]) => Reply {
                grant,
                ahead,
                next,
                next_in,
                ..repeated(terms, &mut record, now, (0, &[]))
            }
            .with_places(&record),
            Err(seen) => {
                let seen = text(seen).and_then(Seen::from_text);
                let grants = seen.as_ref().map(|seen| seen.granted(self.sequence, place));
                repeated(terms, &mut record, now, grants.unwrap_or_default())
            }
        }
    }
}

impl Replies {
    pub(in crate::store) const fn new(now: u64, keys: Vec<Reply>) -> Self {
        Self { now, keys }
    }
}
