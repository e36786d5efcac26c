//! What a store reads and writes.

use std::time::Duration;

use crate::clock::Tick;

/// A value in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Its version. Each swap writes one that no other swap ever writes.
    pub version: u64,
    /// Its contents, which mean nothing to the store.
    pub bytes: Vec<u8>,
}

/// What a store read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The value of the key, if it has one.
    pub value: Option<Value>,
    /// The store's time, if it reports it: in nanoseconds since 1970, read while it executed the operation.
    ///
    /// If a store reports its time, all machines decide by that clock. Otherwise each machine uses its
    /// own, and a machine whose clock is ahead by `e` admits what refills in `e` once more.
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
