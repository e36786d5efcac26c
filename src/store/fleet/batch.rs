//! What a machine sends to the store once per interval, and what it gets back.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
    time::Duration,
};

use super::exchange::{exchange, repeated};
use super::record::{Grant, Record, Reply, Report, Terms, numbers};
#[cfg(feature = "redis")]
use super::shape::Part;
use super::shape::Shape;
use crate::clock::{Tick, unix_now};
use crate::store::cas::{Loaded, Program, Value, Version, Write, record::Record as StoredRecord};
#[cfg(feature = "redis")]
use crate::store::redis::Script;

/// The shortest time for which the last sequence number of a machine is kept: longer than a batch is sent
/// again.
const SEQUENCE_TTL: Duration = Duration::from_secs(3_600);

/// The reports of a machine of a fleet. It is sent again unchanged until there is a reply.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Batch {
    pub(super) machine: u64,
    /// Greater than that of any batch of this machine before. A batch that was seen changes nothing.
    pub(super) sequence: u64,
    pub(super) terms: Terms,
    pub(super) shape: Arc<Shape>,
    /// The key at which a store that executes a batch in one step keeps the last sequence number.
    pub(super) sequence_key: Arc<str>,
    pub(super) keys: Vec<(Arc<str>, Report)>,
}

/// What came of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Replies {
    /// The store's time in microseconds.
    pub(super) now: u64,
    /// As many as reports, in their order.
    pub(super) keys: Vec<Reply>,
}

/// Manual impl: keys must not be logged.
impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("machine", &self.machine)
            .field("sequence", &self.sequence)
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

impl Program for Batch {
    type Reply = Replies;

    fn keys(&self) -> Vec<&str> {
        Self::keys(self).collect()
    }

    /// Its values are records, as those that a swap of one key reads and writes.
    fn execute(&self, values: &[Loaded]) -> (Vec<Write>, Replies) {
        let server_time = values.first().and_then(|loaded| loaded.server_time);
        let now = server_time.unwrap_or_else(unix_now);
        let records: Vec<_> = values
            .iter()
            .map(|loaded| {
                let bytes = &loaded.value.as_ref()?.bytes;
                Some(StoredRecord::from_bytes(bytes).unwrap_or_default())
            })
            .collect();
        let states = records.iter().map(|record| Some(record.as_ref()?.state()));
        let time = (now.as_nanos() / 1_000, server_time.is_some());
        let (mut writes, replies) = self.execute_at(states, time);
        for Write { index, value, ttl } in &mut writes {
            let record = records.get(*index).cloned().flatten().unwrap_or_default();
            let state = std::mem::take(&mut value.bytes);
            let record = record.with_state(state, now.plus(*ttl));
            value.bytes = record.swapped_by(value.version).to_bytes();
        }
        (writes, replies)
    }

    #[cfg(feature = "redis")]
    fn script(&self) -> Option<Script<'_, Replies>> {
        Some(Script(self))
    }
}

impl Batch {
    /// The keys of the values that it reads and writes: that of the machine, and those of the reports.
    pub(in crate::store) fn keys(&self) -> impl Iterator<Item = &str> {
        let reports = self.keys.iter().map(|(key, _)| &**key);
        std::iter::once(&*self.sequence_key).chain(reports)
    }

    /// Executes it on the states of its [keys](Self::keys), in their order, at a time by the store's clock or by this
    /// machine's. Returns the states that the store writes in the same step, and the replies.
    pub(in crate::store) fn execute_at<'a>(
        &self,
        values: impl IntoIterator<Item = Option<&'a [u8]>>,
        (now, by_store): (u64, bool),
    ) -> (Vec<Write>, Replies) {
        let mut values = values.into_iter().chain(std::iter::repeat(None));
        let last = values.next().flatten().and_then(Seen::read);
        // The record of an earlier batch is there for as long as anything is out of what it reported.
        let is_unsure = last.is_none() && self.sequence > 1;
        let seen = last.filter(|seen| seen.sequence >= self.sequence);
        let mut writes = Vec::new();
        let replies = (0..self.keys.len()).zip(values).map(|(index, value)| {
            let Some(mut record) = self.read(index, value, now) else {
                return Reply::damaged();
            };
            if let Some(seen) = &seen {
                return self.repeat(&mut record, now, seen.grant(self.sequence, index));
            }
            let reply = self.exchange(index, &mut record, (now, by_store), is_unsure);
            writes.push(self.write(index + 1, record.to_text(), self.ttl()));
            reply
        });
        let keys: Vec<_> = replies.collect();
        if seen.is_none() {
            writes.push(self.write(0, Seen::text(self.sequence, &keys), self.sequence_ttl()));
        }
        (writes, Replies { now, keys })
    }

    /// The exchange of one key, at a time by the store's clock or by this machine's. If it `is_unsure`, it may have been
    /// executed before.
    pub(super) fn exchange(
        &self,
        index: usize,
        record: &mut Record,
        time: (u64, bool),
        is_unsure: bool,
    ) -> Reply {
        let report = &self.keys[index].1;
        let unsure = is_unsure.then(|| report.unsure());
        let report = unsure.as_ref().unwrap_or(report);
        exchange(&self.terms, &self.shape, record, report, time)
    }

    /// The reply for a key whose exchange was executed before.
    pub(super) fn repeat(&self, record: &mut Record, now: u64, grant: Grant) -> Reply {
        repeated(&self.shape, record, now, grant)
    }

    /// The record of a value; `None` if it is damaged, unless it is to be reset.
    pub(super) fn read(&self, index: usize, value: Option<&[u8]>, now: u64) -> Option<Record> {
        let new = || Record::new(&self.shape, &self.terms, now);
        let Some(bytes) = value else {
            return Some(new());
        };
        let text = std::str::from_utf8(bytes).ok();
        let record = text.and_then(|text| Record::from_text(text, &self.shape));
        record.or_else(|| self.keys[index].1.resets.then(new))
    }

    fn write(&self, index: usize, text: String, ttl: Duration) -> Write {
        let value = Value::new(self.version(index), text.into_bytes());
        Write::new(index, value, ttl)
    }

    /// How long a value is kept: until it is certainly as good as none.
    pub(super) fn ttl(&self) -> Duration {
        let used = self.shape.memory().saturating_mul(2);
        Duration::from_micros(3 * self.terms.life + used + 1_000_000)
    }

    pub(super) fn sequence_ttl(&self) -> Duration {
        self.ttl().max(SEQUENCE_TTL)
    }

    /// Another one for each value that it writes.
    fn version(&self, index: usize) -> Version {
        let seed = self.machine ^ self.sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ index as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Version::from_u64((mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb))
    }
}

/// A batch in numbers, for a store that executes it in a script.
#[cfg(feature = "redis")]
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

    pub(in crate::store) fn term_numbers(&self) -> [u64; 5] {
        let millis = |ttl: Duration| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX) + 1;
        [
            self.terms.interval,
            self.terms.life,
            self.terms.ahead.into(),
            millis(self.ttl()),
            millis(self.sequence_ttl()),
        ]
    }

    /// The parts of the shape.
    pub(in crate::store) fn part_numbers(&self) -> impl Iterator<Item = [u64; 7]> {
        self.shape.parts.iter().map(|part| {
            let refill = part.refill(self.terms.interval);
            match part {
                Part::Level(level) => [0, level.capacity, refill, level.rate, level.period, 0, 0],
                Part::Cells(cells) => [
                    1,
                    cells.limit,
                    refill,
                    cells.length,
                    cells.padding,
                    cells.count as u64,
                    cells.is_calendar.into(),
                ],
            }
        })
    }

    /// The report of a key.
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

    /// The reply for the key at `index`, which was at `place` among those that were sent, by its record and what was
    /// granted; or by the record of the last batch if this one was seen.
    pub(in crate::store) fn reply_of(
        &self,
        (index, place): (usize, usize),
        record: Option<&[u8]>,
        granted: Result<[u64; 3], &[u8]>,
        now: u64,
    ) -> Reply {
        let Some(mut record) = self.read(index, record, now) else {
            return Reply::damaged();
        };
        let grant = match granted {
            Ok(grant) => Grant::of(grant),
            Err(seen) => match Seen::read(seen) {
                Some(seen) => seen.grant(self.sequence, place),
                None => Grant::default(),
            },
        };
        self.repeat(&mut record, now, grant)
    }
}

#[cfg(feature = "redis")]
impl Replies {
    pub(in crate::store) const fn new(now: u64, keys: Vec<Reply>) -> Self {
        Self { now, keys }
    }
}

/// The last batch of a machine, in words: its sequence number, and after each semicolon what it granted of a key. So a
/// reply that is lost costs no grant.
struct Seen {
    sequence: u64,
    grants: Vec<Option<[u64; 3]>>,
}

impl Seen {
    fn text(sequence: u64, replies: &[Reply]) -> String {
        let mut text = sequence.to_string();
        for reply in replies {
            let [epoch, units, keeps] = reply.grant.numbers();
            let _ = write!(text, ";{epoch} {units} {keeps}");
        }
        text
    }

    fn read(text: &[u8]) -> Option<Self> {
        let mut fields = std::str::from_utf8(text).ok()?.split(';');
        Some(Self {
            sequence: fields.next()?.parse().ok()?,
            grants: fields
                .map(|field| numbers(field, ' ')?.try_into().ok())
                .collect(),
        })
    }

    /// What was granted of the key at `index` of a batch: nothing of an older one.
    fn grant(&self, sequence: u64, index: usize) -> Grant {
        let grant = self.grants.get(index).filter(|_| sequence == self.sequence);
        grant
            .copied()
            .flatten()
            .map_or_else(Grant::default, Grant::of)
    }
}

/// The store's time, or this machine's if the store reports none.
pub(super) fn micros(time: Option<Tick>) -> u64 {
    time.unwrap_or_else(unix_now).as_nanos() / 1_000
}
