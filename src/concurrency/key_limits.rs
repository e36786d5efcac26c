//! Limits that adapt, one per key: how they are made, and which are kept.
//!
//! # Memory
//! Each shard of the table keeps the limits that were used last. A key that was not used for long, or
//! that was displaced by others, begins anew when it is used again. Keys about which nothing was learned
//! are displaced first, so many new keys do not displace those in use. Keys with requests in flight are
//! displaced last, and are not forgotten.

use std::time::Duration;

use super::adaptive::Window;
use super::controller::{Factory, Load, Run};
use crate::clock::Tick;

/// The fewest limits that a shard keeps, unless there are fewer. It keeps less than twice as many, so
/// that the one used least recently is found soon.
const PER_SHARD: usize = 64;

pub(super) struct KeyLimits {
    settings: KeySettings,
    make: Factory,
    pub(super) load: Load,
}

/// How many limits are kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeySettings {
    pub(super) capacity: usize,
    pub(super) forget: Duration,
}

impl Default for KeySettings {
    fn default() -> Self {
        Self {
            capacity: 1_024,
            forget: Duration::from_secs(600),
        }
    }
}

/// The limit of one key.
pub(super) struct KeyLimit {
    pub(super) limit: u64,
    pub(super) run: Box<dyn Run>,
    pub(super) used_at: Tick,
    /// The number of its last use in the shard.
    pub(super) use_number: u64,
    /// A window has ended.
    pub(super) has_learned: bool,
}

impl KeyLimits {
    pub(super) const fn new(make: Factory, load: Load, settings: KeySettings) -> Self {
        Self {
            settings,
            make,
            load,
        }
    }

    /// The number of shards.
    pub(super) fn shards(&self) -> usize {
        (self.settings.capacity / PER_SHARD).max(1)
    }

    /// How many limits a shard keeps at most.
    pub(super) fn per_shard(&self) -> usize {
        self.settings.capacity / self.shards()
    }

    /// The limit of a key that begins with `limit`.
    pub(super) fn begin(&self, limit: u64, now: Tick) -> KeyLimit {
        KeyLimit {
            limit,
            run: (self.make)(),
            used_at: now,
            use_number: 0,
            has_learned: false,
        }
    }

    /// Whether a key without requests in flight begins anew.
    pub(super) fn is_forgotten(&self, key: &KeyLimit, now: Tick) -> bool {
        now.since(key.used_at) >= self.settings.forget
    }
}

impl KeyLimit {
    /// Changes the limit after a window.
    pub(super) fn next(&mut self, window: &Window) {
        self.has_learned |= window.samples.saturating_add(window.dropped) > 0;
        self.limit = self.run.next(window);
    }
}
