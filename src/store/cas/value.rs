//! What a store reads and writes.

use std::time::Duration;

use crate::clock::Tick;

/// The version of a value. Each swap writes a version that no other swap ever writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(u64);

/// A value in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Value {
    /// Its version.
    pub version: Version,
    /// Its contents, which mean nothing to the store.
    pub bytes: Vec<u8>,
}

/// What a store read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// The value of the key, if it has one.
    pub value: Option<Value>,
    /// The store's time, if it reports it: see [`Loaded::at`].
    pub server_time: Option<Tick>,
}

/// What a [program](super::Program) writes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Write {
    /// The place of its key in [`Program::keys`](super::Program::keys).
    pub index: usize,
    /// The new value.
    pub value: Value,
    /// For how long it is kept at least.
    pub ttl: Duration,
}

/// What a swap did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Swapped {
    /// The new value is stored. With the store's time, if it reports it.
    Done(Option<Tick>),
    /// The value had another version. Nothing was written. If the store returns the value that is
    /// there, that saves a load.
    Conflict(Option<Loaded>),
}

impl Version {
    /// The version with this number.
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// Its number, to be stored and compared.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl Value {
    /// A value as it was read.
    pub const fn new(version: Version, bytes: Vec<u8>) -> Self {
        Self { version, bytes }
    }
}

impl Loaded {
    /// A value, or none.
    pub const fn new(value: Option<Value>) -> Self {
        Self {
            value,
            server_time: None,
        }
    }

    /// The same with the store's time, in nanoseconds since 1970, read while it executed the
    /// operation.
    ///
    /// If a store reports its time, all machines decide by that clock. Otherwise each machine uses its
    /// own, and a machine whose clock is ahead by `e` admits what refills in `e` once more.
    #[must_use]
    pub const fn at(mut self, server_time: Tick) -> Self {
        self.server_time = Some(server_time);
        self
    }
}
