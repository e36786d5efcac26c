//! What a machine sends to the store once per interval, and what it gets back.

use std::{sync::Arc, time::Duration};

use super::exchange::{Moment, exchange, figures};
use super::record::{Record, Reply, Report, Terms, numbers};
use super::shape::Shape;
use crate::clock::{Tick, unix_now};
use crate::error::StoreError;
use crate::store::cas::{Value, Version};

/// The shortest time for which the last sequence number of a machine is kept: longer than a batch is sent
/// again.
const SEQUENCE_TTL: Duration = Duration::from_secs(3_600);

/// The reports of a machine of a fleet. It is sent again unchanged until there is a reply.
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug, Default)]
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
    ///
    /// # Errors
    /// If a value is not one of this limit, or damaged.
    pub fn execute<'a>(
        &self,
        values: impl IntoIterator<Item = Option<&'a [u8]>>,
        server_time: Option<Tick>,
    ) -> Result<(Vec<Write>, Replies), StoreError> {
        let now = micros(server_time);
        let mut values = values.into_iter();
        let last = match values.next().flatten() {
            Some(bytes) => *text(bytes)
                .and_then(numbers)
                .ok_or_else(damaged)?
                .first()
                .ok_or_else(damaged)?,
            None => 0,
        };
        let is_seen = self.sequence <= last;
        let mut replies = Replies {
            now,
            keys: Vec::with_capacity(self.keys.len()),
        };
        let mut writes = Vec::new();
        for (index, value) in (0..self.keys.len()).zip(values.chain(std::iter::repeat(None))) {
            let mut record = self.read(value, now)?;
            if is_seen {
                replies
                    .keys
                    .push(figures((&self.terms, &self.shape), &mut record));
                continue;
            }
            replies.keys.push(self.exchange(index, &mut record, now));
            writes.push(self.write(index + 1, record.to_text(&self.shape), self.ttl()));
        }
        if !is_seen {
            writes.insert(
                0,
                self.write(0, self.sequence.to_string(), self.ttl().max(SEQUENCE_TTL)),
            );
        }
        Ok((writes, replies))
    }

    /// The exchange of one key.
    pub(super) fn exchange(&self, index: usize, record: &mut Record, now: u64) -> Reply {
        let dice = self.random(index) >> 48;
        let moment = Moment {
            now,
            machines: self.machines,
            dice,
        };
        exchange(
            (&self.terms, &self.shape),
            record,
            &self.keys[index].1,
            moment,
        )
    }

    pub(super) fn read(&self, value: Option<&[u8]>, now: u64) -> Result<Record, StoreError> {
        let Some(bytes) = value else {
            return Ok(Record::new(&self.shape, now));
        };
        let record = text(bytes).and_then(|text| Record::from_text(text, &self.shape));
        record.ok_or_else(damaged)
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

    /// A random number of this batch.
    pub(super) fn random(&self, index: usize) -> u64 {
        let seed = self.machine ^ self.sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ index as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb)
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

pub(super) fn damaged() -> StoreError {
    StoreError::new("a value is not of this limit, or damaged", false)
}

/// The store's time, or this machine's if the store reports none.
pub(super) fn micros(time: Option<Tick>) -> u64 {
    time.unwrap_or_else(unix_now).as_nanos() / 1_000
}
