//! The bytes of a saved limit: a version, when it was saved, the settings, what the limit adds, and a check.

mod file;

use std::io::{self, Read, Write};
use std::time::Duration;

use crate::algorithm::{
    Algorithm, Moved, read_moved_state, settings_from_bytes, settings_to_bytes, state_to_bytes,
};
use crate::clock::{Clock, Tick, nanos};

pub use self::file::{SaveState, StateFile};
#[cfg(feature = "policies")]
pub(crate) use self::file::{load_named, save_named};

/// Other bytes begin with something else.
const MAGIC: &[u8] = b"tower-throttle saved\n";
const VERSION: u64 = 1;

/// What is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SavedKind {
    Limiter,
    Table,
    /// Several limits by name.
    File,
}

/// Bytes that are refused, and why.
pub(crate) fn refused(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

pub(crate) fn damaged() -> io::Error {
    refused("it is damaged or cut off")
}

/// The bytes so far.
pub(crate) struct Writing(pub(crate) Vec<u8>);

impl Writing {
    pub(crate) fn new(kind: SavedKind) -> Self {
        let mut writing = Self(MAGIC.to_vec());
        writing.number(VERSION);
        writing.number(kind as u64);
        writing
    }

    /// A limit: its settings, and the time on its clock and on the machine's.
    pub(crate) fn limit<A: Algorithm>(
        kind: SavedKind,
        algorithm: &A,
        clock: &impl Clock,
    ) -> io::Result<Self> {
        let mut writing = Self::new(kind);
        let (now, unix) = (clock.now(), clock.unix_time());
        writing.number(now.as_nanos());
        writing.number(nanos(unix));
        writing.block(&settings_to_bytes(algorithm).ok_or_else(not_portable)?);
        Ok(writing)
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    pub(crate) fn block(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    pub(crate) fn state<A: Algorithm>(
        &mut self,
        algorithm: &A,
        state: &A::State,
    ) -> io::Result<()> {
        self.0
            .extend(state_to_bytes(algorithm, state).ok_or_else(not_portable)?);
        Ok(())
    }

    /// Writes all with a check.
    pub(crate) fn finish(mut self, writer: &mut dyn Write) -> io::Result<()> {
        let check = check(&self.0);
        self.0.extend(check.to_le_bytes());
        writer.write_all(&self.0)?;
        writer.flush()
    }
}

fn not_portable() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "an algorithm in it has no form as bytes",
    )
}

/// FNV-1a, 64 bits. Each change of one byte changes it.
fn check(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |check, byte| {
        (check ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Reads all bytes of a kind, and checks them.
pub(crate) fn read_checked(kind: SavedKind, reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    let mut rest = Reading(
        bytes
            .strip_prefix(MAGIC)
            .ok_or_else(|| refused("it is no saved limit of tower-throttle"))?,
    );
    let version = rest.number()?;
    if version != VERSION {
        let reason = format!("it has version {version}, and this program reads {VERSION}");
        return Err(refused(reason));
    }
    let (checked, expected) = bytes.split_last_chunk().ok_or_else(damaged)?;
    if check(checked) != u64::from_le_bytes(*expected) {
        return Err(damaged());
    }
    let is_kind = rest.number()? == kind as u64;
    if !is_kind {
        return Err(refused(match kind {
            SavedKind::Limiter => "it is not a saved Limiter",
            SavedKind::Table => "it is not a saved table of keys",
            SavedKind::File => "it is not a file of several limits",
        }));
    }
    let body = rest.0.len().checked_sub(8).ok_or_else(damaged)?;
    let start = bytes.len() - rest.0.len();
    bytes.truncate(start + body);
    bytes.drain(..start);
    Ok(bytes)
}

/// What is left to read.
pub(crate) struct Reading<'a>(pub(crate) &'a [u8]);

/// A saved limit, and how its states are read.
pub(crate) struct SavedLimit<A> {
    /// It has made the states.
    pub(crate) from: A,
    moved: Moved,
}

impl<'a> Reading<'a> {
    pub(crate) fn number(&mut self) -> io::Result<u64> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(damaged)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    pub(crate) fn bytes(&mut self, len: usize) -> io::Result<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Refuses what is left.
    pub(crate) fn end(&self) -> io::Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(damaged())
        }
    }

    pub(crate) fn block(&mut self) -> io::Result<&'a [u8]> {
        let len = self.number()?;
        self.bytes(usize::try_from(len).map_err(|_| damaged())?)
    }

    /// See [`Writing::limit`]. What has passed since then by the machine's clock has passed for the states; nothing
    /// if that clock went back.
    pub(crate) fn limit<A: Algorithm>(
        &mut self,
        algorithm: &A,
        clock: &impl Clock,
    ) -> io::Result<SavedLimit<A>> {
        let saved_at = Tick::from_nanos(self.number()?);
        let passed = clock
            .unix_time()
            .saturating_sub(Duration::from_nanos(self.number()?));
        let from = settings_from_bytes(algorithm, self.block()?);
        Ok(SavedLimit {
            from: from.ok_or_else(|| refused("it is of another algorithm"))?,
            moved: Moved {
                from: saved_at.plus(passed),
                to: clock.now(),
            },
        })
    }
}

impl<A: Algorithm> SavedLimit<A> {
    /// The present moment of the clock of this process.
    pub(crate) const fn now(&self) -> Tick {
        self.moved.to
    }

    /// The next state, as `algorithm` counts it. `None` if it has expired.
    pub(crate) fn state(
        &self,
        algorithm: &A,
        reading: &mut Reading<'_>,
    ) -> io::Result<Option<A::State>> {
        let state = read_moved_state(&self.from, &mut reading.0, self.moved);
        let mut state = state.ok_or_else(damaged)?;
        if self.from.forgettable_at(&state) <= self.now() {
            return Ok(None);
        }
        algorithm.rescale(&mut state, &self.from, self.now());
        Ok(Some(state))
    }
}
