//! What the store holds for one key, as bytes.
//!
//! ```text
//! record  = format versions time settings forgettable_at state checksum
//! versions= count, 8 bytes each, oldest first
//! time    = how far the time of the key is ahead of the store's, moment of the last swap
//! ```
//!
//! The settings are those of the limit that wrote the state. Another limit of the same layout reads by them what was
//! used. A state of budgets or permits has none.
//!
//! Numbers have eight bytes. Moments are nanoseconds since 1970.

use std::time::Duration;

use crate::clock::{Tick, nanos};

/// The format of the bytes. A machine refuses a format that it does not know.
const FORMAT: u8 = 2;
/// How many of the last swaps a record names. A machine that did not learn the outcome of its swap
/// finds it among them, if the key was not swapped more often meanwhile.
const KEPT_VERSIONS: usize = 8;
/// Bytes that most records fit in.
const USUAL_LEN: usize = 192;
/// A store's clock that is behind the last swap of a key by more than this was set back. Machines that
/// compute the store's time differ by less.
const MAX_LEAD: Duration = Duration::from_secs(2);

/// What the store holds for one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::store) struct Record {
    /// The versions of the last swaps, oldest first.
    pub(super) versions: Vec<u64>,
    /// How far the time of the key is ahead of the store's: by all that the store's clock was set back
    /// while the key was in use.
    pub(super) ahead: Duration,
    /// When the last swap was made, by the time of the key.
    pub(super) written_at: Tick,
    /// The settings of the limit that wrote the state.
    pub(super) settings: Vec<u8>,
    /// From when on the state decides like a fresh one.
    pub(super) forgettable_at: Tick,
    pub(super) state: Vec<u8>,
}

/// Whether a swap is among the last ones of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwapOutcome {
    Executed,
    NotExecuted,
    /// The record was swapped too often since.
    Unknown,
}

impl Record {
    /// The record that a swap writes: the same, as the swap of `version`.
    pub(in crate::store) fn swapped_by(mut self, version: u64) -> Self {
        let surplus = (self.versions.len() + 1).saturating_sub(KEPT_VERSIONS);
        self.versions.drain(..surplus);
        self.versions.push(version);
        self
    }

    pub(in crate::store) fn state(&self) -> &[u8] {
        &self.state
    }

    /// The same with another state.
    pub(in crate::store) fn with_state(&self, state: Vec<u8>, forgettable_at: Tick) -> Self {
        Self {
            forgettable_at,
            state,
            ..self.clone()
        }
    }

    /// The moment of a decision, by the time of the key, which goes on where it was when the store's clock
    /// is set back. So no state is of a later moment, and no key is denied for longer than an exhausted
    /// one. A key that is like an unused one has the store's time again.
    pub(super) fn begin_at(&mut self, store_time: Tick) -> Tick {
        let behind = self.written_at.since(store_time.plus(self.ahead));
        if behind > MAX_LEAD {
            self.ahead += behind;
        }
        let now = store_time.plus(self.ahead);
        if !self.ahead.is_zero() && self.forgettable_at <= now {
            *self = Self {
                versions: std::mem::take(&mut self.versions),
                ..Self::default()
            };
            return store_time;
        }
        now
    }

    /// The record that a swap at this moment writes.
    pub(super) fn written_at(mut self, now: Tick) -> Self {
        self.written_at = self.written_at.max(now);
        self
    }

    /// Whether the swap of `version`, which expected `expected`, was executed before this record was
    /// written.
    pub(super) fn outcome_of(&self, version: u64, expected: Option<u64>) -> SwapOutcome {
        if self.versions.contains(&version) {
            return SwapOutcome::Executed;
        }
        // The first swap of a key stands at the start as long as the list is not full.
        let is_complete = match expected {
            Some(expected) => self.versions.contains(&expected),
            None => self.versions.len() < KEPT_VERSIONS,
        };
        if is_complete {
            SwapOutcome::NotExecuted
        } else {
            SwapOutcome::Unknown
        }
    }

    pub(in crate::store) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(USUAL_LEN);
        bytes.push(FORMAT);
        write_number(&mut bytes, self.versions.len() as u64);
        for version in &self.versions {
            bytes.extend(version.to_le_bytes());
        }
        write_number(&mut bytes, nanos(self.ahead));
        write_number(&mut bytes, self.written_at.as_nanos());
        write_slice(&mut bytes, &self.settings);
        write_number(&mut bytes, self.forgettable_at.as_nanos());
        write_slice(&mut bytes, &self.state);
        let sum = checksum(&bytes);
        bytes.extend(sum);
        bytes
    }

    /// The record in `bytes`; `None` if they are damaged, or of another format.
    pub(in crate::store) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (bytes, sum) = bytes.split_last_chunk::<4>()?;
        if *sum != checksum(bytes) {
            return None;
        }
        let (format, mut rest) = bytes.split_first()?;
        if *format != FORMAT {
            return None;
        }
        let mut record = Self::default();
        for _ in 0..read_number(&mut rest)? {
            let (version, after) = rest.split_first_chunk::<8>()?;
            let version = u64::from_le_bytes(*version);
            record.versions.push(version);
            rest = after;
        }
        record.ahead = Duration::from_nanos(read_number(&mut rest)?);
        record.written_at = Tick::from_nanos(read_number(&mut rest)?);
        record.settings = read_slice(&mut rest)?;
        record.forgettable_at = Tick::from_nanos(read_number(&mut rest)?);
        record.state = read_slice(&mut rest)?;
        rest.is_empty().then_some(record)
    }
}

/// FNV-1a. It finds damage by accident, not a value that was forged.
fn checksum(bytes: &[u8]) -> [u8; 4] {
    let step = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step).to_le_bytes()
}

pub(super) fn write_number(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend(number.to_le_bytes());
}

pub(super) fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

fn write_slice(bytes: &mut Vec<u8>, slice: &[u8]) {
    write_number(bytes, slice.len() as u64);
    bytes.extend(slice);
}

fn read_slice(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let len = usize::try_from(read_number(bytes)?).ok()?;
    let (slice, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(slice.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            versions: vec![u64::MAX, 3],
            settings: b"settings".to_vec(),
            forgettable_at: Tick::from_nanos(128),
            state: vec![9; 200],
            ..Record::default()
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for record in [Record::default(), record()] {
            assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record));
        }
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let bytes = record().to_bytes();
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x10;
            assert_eq!(Record::from_bytes(&damaged), None, "byte {place}");
            assert_eq!(Record::from_bytes(&bytes[..place]), None, "cut at {place}");
        }
        // Lengths beyond the end, with a valid checksum.
        let mut long = vec![FORMAT, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
        long.extend(checksum(&long));
        assert_eq!(Record::from_bytes(&long), None);
    }

    #[test]
    fn a_record_says_which_swaps_it_contains() {
        let mut record = Record::default();
        for number in 1..=8 {
            // As long as all swaps are named, another one was not executed.
            let other = record.outcome_of(100, None);
            assert_eq!(other, SwapOutcome::NotExecuted);
            record = record.swapped_by(number);
        }
        assert_eq!(record.outcome_of(1, None), SwapOutcome::Executed);
        let lost = record.outcome_of(100, Some(4));
        assert_eq!(lost, SwapOutcome::NotExecuted);
        assert_eq!(record.outcome_of(100, None), SwapOutcome::Unknown);
        record = record.swapped_by(9);
        let overtaken = record.outcome_of(1, None);
        assert_eq!(overtaken, SwapOutcome::Unknown);
        let expected_gone = record.outcome_of(100, Some(1));
        assert_eq!(expected_gone, SwapOutcome::Unknown);
        assert_eq!(record.versions.len(), KEPT_VERSIONS);
    }

    #[test]
    fn a_key_goes_on_by_its_time_until_it_is_like_an_unused_one() {
        let second = |count: u64| Tick::from_nanos(count * 1_000_000_000);
        let mut record = Record {
            written_at: second(100),
            forgettable_at: second(110),
            ..Record::default()
        };
        // Machines may differ by a second. A clock that is 50 behind was set back.
        for (store_time, now) in [(99, 99), (50, 100), (59, 109)] {
            assert_eq!(record.begin_at(second(store_time)), second(now));
        }
        assert_eq!(record.begin_at(second(60)), second(60));
        assert_eq!(record, Record::default());
    }
}
