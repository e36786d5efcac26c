//! The hash of keys: foldhash, with secret seeds from the operating system.
//!
//! The variant for quality is used, because the table uses all 64 bits of a hash: the high bits
//! choose the lines that may hold a key, and the low bits are its fingerprint.
//!
//! foldhash's own `RandomState` is seeded with addresses and the time, which an attacker may guess.
//! The seeds here come from [`RandomState`] of the standard library, which gets them from the
//! operating system: 64 bits per process and 64 bits per table.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, OnceLock, PoisonError};

use foldhash::{SharedSeed, quality};

/// A hash with a secret seed: without it, an attacker cannot choose keys that collide. Unlike `SipHash` it is not a
/// cryptographic function.
#[derive(Clone)]
pub(crate) struct Seeded {
    state: quality::SeedableRandomState,
    /// That of the process and that of the table. Both are secret.
    pub(super) seeds: [u64; 2],
}

impl Default for Seeded {
    fn default() -> Self {
        static PROCESS_SEED: OnceLock<u64> = OnceLock::new();
        let random = || RandomState::new().hash_one(0_u64);
        Self::from_seeds([*PROCESS_SEED.get_or_init(random), random()])
    }
}

impl Seeded {
    /// A hash with seeds of this or of another process. The process keeps what it has made of the first one, a few
    /// words, for ever.
    pub(super) fn from_seeds(seeds: [u64; 2]) -> Self {
        static SHARED: Mutex<Vec<(u64, &SharedSeed)>> = Mutex::new(Vec::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = shared.iter().find(|(seed, _)| *seed == seeds[0]);
        let made = known.map_or_else(
            || &*Box::leak(Box::new(SharedSeed::from_u64(seeds[0]))),
            |(_, known)| *known,
        );
        if known.is_none() {
            shared.push((seeds[0], made));
        }
        let state = quality::SeedableRandomState::with_seed(seeds[1], made);
        Self { state, seeds }
    }
}

impl BuildHasher for Seeded {
    type Hasher = quality::FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> Self::Hasher {
        self.state.build_hasher()
    }
}

/// Manual impl: the seed is secret and must not be logged.
impl std::fmt::Debug for Seeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seeded").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
