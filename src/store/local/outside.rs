//! States that do not fit a slot: logs, figures too large, algorithms that pack nothing.
//!
//! The slot keeps the key and when the state may be forgotten; the state stands in the shard of
//! its set. All the sets that a key may live in belong to one shard, so that one lock is enough
//! for whatever is done to them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::sync::{Mutex, MutexGuard, lock};

/// The home of a key and its fingerprint: all that a table knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) home: usize,
    pub(super) fingerprint: u64,
}

#[derive(Debug)]
pub(super) struct Outside<S> {
    shards: Box<[Mutex<Shard<S>>]>,
}

pub(super) type Shard<S> = HashMap<Id, Kept<S>, BuildHasherDefault<Mix>>;

/// A state, and the regime that made it.
#[derive(Debug)]
pub(super) struct Kept<S> {
    pub(super) state: S,
    pub(super) regime: u64,
}

impl<S> Outside<S> {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            shards: (0..shards).map(|_| Mutex::new(Shard::default())).collect(),
        }
    }

    pub(super) fn shard(&self, group: usize) -> MutexGuard<'_, Shard<S>> {
        lock(&self.shards[group % self.shards.len()])
    }

    /// How many states there are, and the bytes of them and of the maps that hold them; `held`
    /// tells what a state has allocated.
    pub(super) fn size(&self, held: impl Fn(&S) -> usize) -> (usize, usize) {
        self.shards.iter().fold((0, 0), |(states, bytes), shard| {
            let shard = lock(shard);
            // A power of two, of which a map keeps one in eight free, and a byte beside each.
            let buckets = match shard.capacity() {
                0 => 0,
                few @ 1..=7 => (few + 1).next_power_of_two(),
                many => (many * 8 / 7).next_power_of_two(),
            };
            let bucket = size_of::<(Id, Kept<S>)>() + 1;
            let held: usize = shard.values().map(|kept| held(&kept.state)).sum();
            (
                states + shard.len(),
                bytes + buckets * bucket + 16 * buckets.min(1) + held,
            )
        })
    }
}

impl std::hash::Hash for Id {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // The fingerprint comes from a hash already.
        hasher.write_u64(self.fingerprint ^ (self.home as u64) << 44);
    }
}

/// Spreads what is hashed already over all bits.
#[derive(Debug, Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, _: &[u8]) {
        unreachable!("ids hash as one integer");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}
