//! What a machine sends to the store once per interval, and what it gets back.

use std::{fmt, sync::Arc, time::Duration};

use super::exchange::{Moment, exchange, repeated};
use super::record::{Record, Reply, Report, Terms, numbers};
use super::shape::Shape;
use crate::clock::{Tick, unix_now};
use crate::store::cas::{Value, Version};

/// The shortest time for which the last sequence number of a machine is kept: longer than a batch is sent
/// again.
const SEQUENCE_TTL: Duration = Duration::from_secs(3_600);

/// The reports of a machine of a fleet. It is sent again unchanged until there is a reply.
#[derive(Clone)]
pub struct Batch {
    pub(super) machine: u64,
    /// Greater than that of any batch of this machine before. A batch that was seen changes nothing.
    pub(super) sequence: u64,
    /// How many machines there are.
    pub(super) machines: u64,
    pub(super) terms: Terms,
    pub(super) shape: Arc<Shape>,
    /// The key at which a store that executes a batch in one step keeps the last sequence number.
    pub(super) sequence_key: Arc<str>,
    pub(super) keys: Vec<(Arc<str>, Report)>,
}

/// What came of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replies {
    /// The store's time in microseconds.
    pub(super) now: u64,
    /// As many as reports, in their order.
    pub(super) keys: Vec<Reply>,
}

/// A value that a batch writes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Write {
    /// The place of its key in [`Batch::keys`].
    pub index: usize,
    /// The new value.
    pub value: Value,
    /// For how long it is kept at least.
    pub ttl: Duration,
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

impl Batch {
    /// The keys of the values that it reads and writes: that of the machine, and those of the reports.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let keys = &self.keys;
        (0..=keys.len()).map(|index| match index.checked_sub(1) {
            Some(report) => &*keys[report].0,
            None => &*self.sequence_key,
        })
    }

    /// Executes it on the values of its [keys](Self::keys), in their order. Returns the values that the store
    /// writes in the same step, and the replies.
    pub fn execute<'a>(
        &self,
        values: impl IntoIterator<Item = Option<&'a [u8]>>,
        server_time: Option<Tick>,
    ) -> (Vec<Write>, Replies) {
        self.execute_at(values, (micros(server_time), server_time.is_some()))
    }

    pub(super) fn execute_at<'a>(
        &self,
        values: impl IntoIterator<Item = Option<&'a [u8]>>,
        (now, by_store): (u64, bool),
    ) -> (Vec<Write>, Replies) {
        let mut values = values.into_iter();
        let seen = values.next().flatten().and_then(text);
        let seen = seen.and_then(Seen::from_text);
        let seen = seen.filter(|seen| seen.sequence >= self.sequence);
        let mut replies = Replies {
            now,
            keys: Vec::with_capacity(self.keys.len()),
        };
        let mut writes = Vec::new();
        for (index, value) in (0..self.keys.len()).zip(values.chain(std::iter::repeat(None))) {
            let mut record = match self.read(value, now) {
                Some(record) => record,
                None if self.keys[index].1.resets => Record::new(&self.shape, now),
                None => {
                    replies.keys.push(Reply::damaged());
                    continue;
                }
            };
            if let Some(seen) = &seen {
                let terms = (&self.terms, &*self.shape);
                let reply = repeated(terms, &mut record, now, seen.granted(self.sequence, index));
                replies.keys.push(reply);
                continue;
            }
            replies
                .keys
                .push(self.exchange(index, &mut record, (now, by_store)));
            writes.push(self.write(index + 1, record.to_text(&self.shape), self.ttl()));
        }
        if seen.is_none() {
            let text = Seen::to_text(self.sequence, now / self.terms.life, &replies.keys);
            writes.push(self.write(0, text, self.sequence_ttl()));
        }
        (writes, replies)
    }

    /// The exchange of one key, at a time by the store's clock or by this machine's.
    pub(super) fn exchange(
        &self,
        index: usize,
        record: &mut Record,
        (now, by_store): (u64, bool),
    ) -> Reply {
        let moment = Moment {
            now,
            by_store,
            machines: self.machines,
            dice: self.dice(index),
        };
        exchange(
            (&self.terms, &self.shape),
            record,
            &self.keys[index].1,
            moment,
        )
    }

    /// The record of a value; `None` if it is damaged.
    pub(super) fn read(&self, value: Option<&[u8]>, now: u64) -> Option<Record> {
        match value {
            // A machine that swaps one key at a time adds the names of its writes.
            Some(bytes) => Record::from_text(text(bytes)?.split('|').next()?, &self.shape),
            None => Some(Record::new(&self.shape, now)),
        }
    }

    fn write(&self, index: usize, text: String, ttl: Duration) -> Write {
        let version = Version::from_u64(self.random(usize::MAX - index));
        Write {
            index,
            value: Value::new(version, text.into_bytes()),
            ttl,
        }
    }

    /// How long a value is kept: until it is certainly as good as none.
    pub(super) fn ttl(&self) -> Duration {
        let used = self.shape.memory().saturating_mul(2);
        Duration::from_micros(3 * self.terms.life + used + 1_000_000)
    }

    pub(super) fn sequence_ttl(&self) -> Duration {
        self.ttl().max(SEQUENCE_TTL)
    }

    /// A random number below 2^16 for a key.
    pub(super) fn dice(&self, index: usize) -> u64 {
        self.random(index) >> 48
    }

    /// A random number of this batch.
    pub(super) fn random(&self, index: usize) -> u64 {
        let seed = self.machine ^ self.sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ index as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb)
    }
}

/// The last batch of a machine, in words: its sequence number and the epoch, and after each semicolon what it
/// granted of a key. So a reply that is lost costs no grant.
pub(super) struct Seen {
    pub(super) sequence: u64,
    epoch: u64,
    grants: Vec<Vec<u64>>,
}

impl Seen {
    fn to_text(sequence: u64, epoch: u64, replies: &[Reply]) -> String {
        let grants = replies.iter().map(Reply::grants);
        let fields = std::iter::once(format!("{sequence} {epoch}")).chain(grants);
        fields.collect::<Vec<_>>().join(";")
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
        let mut fields = text.split(';').map(numbers);
        let &[sequence, epoch] = &fields.next()??[..] else {
            return None;
        };
        let grants = fields.map(Option::unwrap_or_default).collect();
        Some(Self {
            sequence,
            epoch,
            grants,
        })
    }

    /// The epoch, and what was granted of the key at `index` of a batch: nothing of an older one.
    pub(super) fn granted(&self, sequence: u64, index: usize) -> (u64, &[u64]) {
        let grants = self.grants.get(index).filter(|_| sequence == self.sequence);
        (self.epoch, grants.map_or(&[], Vec::as_slice))
    }
}

pub(super) fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// The store's time, or this machine's if the store reports none.
pub(super) fn micros(time: Option<Tick>) -> u64 {
    time.unwrap_or_else(unix_now).as_nanos() / 1_000
}
