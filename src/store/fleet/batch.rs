//! What a machine sends to the store once per interval, and what it gets back.

use std::{iter, sync::Arc, time::Duration};

use super::exchange::{Grant, Limit, Record, Reply, Report};
#[cfg(feature = "redis")]
use super::shape::ShapePart;
use crate::clock::{Tick, unix_now};
use crate::store::cas::{Loaded, Program, Value, Write};
#[cfg(feature = "redis")]
use crate::store::redis::Script;

/// The shortest time for which the last sequence number of a machine is kept: longer than a batch is sent
/// again.
const SEQUENCE_TTL: Duration = Duration::from_secs(3_600);

/// The reports of a machine of a fleet. It is sent again unchanged until there is a reply.
///
/// A store that executes it in one step keeps lists of numbers as text: of a key its record; of a machine, at the
/// `sequence_key`, the sequence number of its last batch, and what that granted of each key. So a batch that was seen
/// changes nothing, and a reply that is lost costs no grant.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(in crate::store) struct Batch {
    pub(super) machine: u64,
    /// Greater than that of any batch of this machine before.
    pub(super) sequence: u64,
    pub(super) limit: Arc<Limit>,
    pub(super) sequence_key: Arc<str>,
    pub(super) keys: Vec<(Arc<str>, Report)>,
}

/// What came of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::store) struct Replies {
    /// The store's time in microseconds.
    pub(in crate::store) now: u64,
    /// As many as reports, in their order. `None` if the value is damaged, so nothing was done.
    pub(in crate::store) keys: Vec<Option<Reply>>,
}

impl Program for Batch {
    type Reply = Replies;

    fn keys(&self) -> Vec<&str> {
        let reports = self.keys.iter().map(|(key, _)| &**key);
        iter::once(&*self.sequence_key).chain(reports).collect()
    }

    fn execute(&self, values: &[Loaded]) -> (Vec<Write>, Replies) {
        let server_time = values.first().and_then(|loaded| loaded.server_time);
        let texts = values
            .iter()
            .map(|loaded| Some(&*loaded.value.as_ref()?.bytes));
        self.execute_at(texts, (micros(server_time), server_time.is_some()))
    }

    #[cfg(feature = "redis")]
    fn script(&self) -> Option<Script<'_, Replies>> {
        Some(Script(self))
    }
}

impl Batch {
    /// Executes it on the values of its [keys](Program::keys), at a time by the store's clock or by this machine's.
    pub(in crate::store) fn execute_at<'a>(
        &self,
        values: impl IntoIterator<Item = Option<&'a [u8]>>,
        (now, by_store): (u64, bool),
    ) -> (Vec<Write>, Replies) {
        let mut values = values.into_iter();
        let seen = values.next().flatten().unwrap_or_default();
        let last = sequence_of(seen);
        // The record of an earlier batch is there for as long as anything is out of what it reported.
        let is_unsure = last.is_none() && self.sequence > 1;
        let is_seen = last.is_some_and(|last| last >= self.sequence);
        let (mut writes, mut keys) = (Vec::new(), Vec::new());
        for (index, value) in values.enumerate() {
            if is_seen {
                keys.push(self.reply_of([index; 2], value, seen, now));
                continue;
            }
            keys.push(self.read(index, value, now).map(|mut record| {
                let (report, time) = (&self.keys[index].1, (now, by_store));
                let reply = record.exchange(&self.limit, report, time, is_unsure);
                writes.push(self.write(index + 1, text_of(&record.lists()), self.ttl()));
                reply
            }));
        }
        if !is_seen {
            let grants = keys
                .iter()
                .map(|reply| reply.unwrap_or_default().grant.list());
            let lists: Vec<_> = iter::once(vec![self.sequence]).chain(grants).collect();
            writes.push(self.write(0, text_of(&lists), self.sequence_ttl()));
        }
        (writes, Replies { now, keys })
    }

    /// The reply for the key at `index`, which was at `place` among those that were sent, by the values that were
    /// written.
    pub(in crate::store) fn reply_of(
        &self,
        [index, place]: [usize; 2],
        value: Option<&[u8]>,
        seen: &[u8],
        now: u64,
    ) -> Option<Reply> {
        let mut record = self.read(index, value, now)?;
        // Nothing was granted by an older one.
        let own = sequence_of(seen).filter(|last| *last == self.sequence);
        let grants = own.and_then(|_| lists_of(seen));
        let grant = grants.and_then(|lists| Grant::of(lists.get(place + 1)?));
        record.advance(&self.limit.shape, now);
        Some(record.reply(&self.limit.shape, grant.unwrap_or_default()))
    }

    /// The record of a value; `None` if it is damaged, unless it is to be reset.
    pub(super) fn read(&self, index: usize, value: Option<&[u8]>, now: u64) -> Option<Record> {
        let new = || Record::new(&self.limit, now);
        let Some(text) = value else {
            return Some(new());
        };
        let record = lists_of(text).and_then(|lists| Record::of_lists(lists, &self.limit.shape));
        record.or_else(|| self.keys[index].1.resets.then(new))
    }

    /// Another version for each value that it writes.
    fn write(&self, index: usize, text: String, ttl: Duration) -> Write {
        let seed = self.machine ^ self.sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ index as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let version = (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
        let value = Value {
            version,
            bytes: text.into_bytes(),
        };
        Write { index, value, ttl }
    }

    /// How long a value is kept: until it is certainly as good as none.
    pub(super) fn ttl(&self) -> Duration {
        let used = self.limit.shape.time_to_fill().saturating_mul(4);
        Duration::from_micros(3 * self.limit.life + used + 1_000_000)
    }

    fn sequence_ttl(&self) -> Duration {
        self.ttl().max(SEQUENCE_TTL)
    }

    /// What a script reads: the sequence number, what the machine has set, and the parts of the limit.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn limit_numbers(&self) -> Vec<u64> {
        let limit = &self.limit;
        let millis = |ttl: Duration| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX) + 1;
        let [ttl, sequence_ttl] = [self.ttl(), self.sequence_ttl()].map(millis);
        let settings = [limit.interval, limit.life, limit.ahead.into()];
        let mut numbers = [&[self.sequence][..], &settings, &[ttl, sequence_ttl]].concat();
        for part in &limit.shape.parts {
            let refill = part.refill(limit.interval);
            numbers.extend(match part {
                ShapePart::Level(level) => {
                    [0, level.capacity, refill, level.rate, level.period, 0, 0]
                }
                ShapePart::Cells(cells) => {
                    let (count, calendar) = (cells.count as u64, u64::from(cells.is_calendar));
                    [
                        1,
                        cells.limit,
                        refill,
                        cells.length,
                        cells.padding,
                        count,
                        calendar + 2 * u64::from(cells.is_weighted),
                    ]
                }
            });
        }
        numbers
    }

    /// What a script reads of the report of a key.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn report_numbers(&self, index: usize) -> [u64; 11] {
        let report = &self.keys[index].1;
        [
            report.epoch,
            report.used,
            report.kept,
            report.returned,
            report.charged,
            report.at,
            report.demand,
            report.waiting,
            report.given_back,
            report.given_back_at,
            report.resets.into(),
        ]
    }
}

/// Lists of numbers, such as `1,2;3`.
pub(super) fn text_of(lists: &[Vec<u64>]) -> String {
    let text = |list: &Vec<u64>| {
        list.iter()
            .map(u64::to_string)
            .collect::<Vec<_>>()
            .join(",")
    };
    lists.iter().map(text).collect::<Vec<_>>().join(";")
}

pub(super) fn lists_of(text: &[u8]) -> Option<Vec<Vec<u64>>> {
    let list = |list: &str| match list {
        "" => Some(Vec::new()),
        _ => list.split(',').map(|number| number.parse().ok()).collect(),
    };
    let text = std::str::from_utf8(text).ok()?;
    text.split(';').map(list).collect()
}

/// The sequence number of the last batch of a machine.
fn sequence_of(seen: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(seen).ok()?;
    text.split(';').next()?.parse().ok()
}

/// The store's time, or this machine's if the store reports none.
pub(super) fn micros(time: Option<Tick>) -> u64 {
    time.unwrap_or_else(unix_now).as_nanos() / 1_000
}
