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

    /// What all keys have in common: the sequence number, the terms and the parts of the shape.
    pub(in crate::store) fn common_words(&self) -> [String; 3] {
        let millis = |ttl| nanos(ttl) / 1_000_000 + 1;
        let (terms, capacity) = (&self.terms, self.shape.capacity());
        let interval = terms.interval;
        let fields = words(&[
            ("interval", interval),
            ("life", terms.life),
            ("machines", self.machines),
            // As in the exchange.
            ("ahead", (terms.ahead && self.machines <= capacity).into()),
            ("capacity", capacity),
            ("refill", self.shape.refill(interval)),
            ("record_ttl", millis(self.ttl())),
            ("sequence_ttl", millis(self.sequence_ttl())),
        ]);
        let parts = self.shape.parts.iter().map(|part| {
            let (kind, layout) = part.layout();
            let fields = match part {
                Part::Level(level) => words(&[
                    ("layout", layout),
                    ("capacity", level.capacity),
                    ("rate", level.rate),
                    ("refill", part.ahead(&part.unused(), 0, interval)),
                ]),
                Part::Cells(grid) => words(&[
                    ("layout", layout),
                    ("capacity", grid.limit),
                    ("length", grid.length),
                    ("padding", grid.padding),
                    ("count", grid.count as u64),
                    ("weighted", grid.weighted.into()),
                    ("refill", part.refill(2 * interval)),
                ]),
            };
            format!("{kind} {fields};")
        });
        [self.sequence.to_string(), fields, parts.collect()]
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
            None => return Reply::DAMAGED,
        };
        let terms = (&self.terms, &*self.shape);
        match granted {
            Ok([grant, ahead, next, next_in]) => Reply {
                grant,
                ahead,
                next,
                next_in,
                ..repeated(terms, &mut record, now, (0, &[]))
            },
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

/// The fields that are not zero.
fn words(fields: &[(&str, u64)]) -> String {
    let fields = fields.iter().filter(|(_, value)| *value > 0);
    let words: Vec<_> = fields
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    words.join(" ")
}
