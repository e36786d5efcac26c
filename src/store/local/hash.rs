//! The default hash of keys: foldhash, with secret seeds from the operating system.
//!
//! The variant for quality is used, because the table uses all 64 bits of a hash: the high bits
//! choose the lines that may hold a key, and the low bits are its fingerprint.
//!
//! foldhash's own `RandomState` is seeded with addresses and the time, which an attacker may guess.
//! The seeds here come from [`RandomState`] of the standard library, which gets them from the
//! operating system: 64 bits per process and 64 bits per table.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Mutex, OnceLock, PoisonError};

use foldhash::{SharedSeed, quality};

/// The default hash of [`Local`](crate::Local): fast, with a secret seed per table.
///
/// Without the seed, an attacker cannot choose keys that collide. Unlike `SipHash` it is not a
/// cryptographic function. Against an attacker who can time single decisions for long, use
/// [`RandomState`](std::hash::RandomState) with [`with_hasher`](crate::Local::with_hasher).
#[derive(Clone)]
pub struct Seeded {
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

/// Manual impl: the seed is secret and must not be logged.
impl std::fmt::Debug for Seeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seeded").finish_non_exhaustive()
    }
}

impl BuildHasher for Seeded {
    type Hasher = SeededHasher;

    #[inline]
    fn build_hasher(&self) -> SeededHasher {
        SeededHasher(self.state.build_hasher())
    }
}

/// The state of one [`Seeded`] hash.
#[derive(Clone)]
pub struct SeededHasher(quality::FoldHasher<'static>);

/// Manual impl, as for [`Seeded`].
impl std::fmt::Debug for SeededHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeededHasher").finish_non_exhaustive()
    }
}

/// Every method is forwarded: the default ones would write each integer as bytes.
impl Hasher for SeededHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.0.write_u8(value);
    }

    #[inline]
    fn write_u16(&mut self, value: u16) {
        self.0.write_u16(value);
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.0.write_u32(value);
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0.write_u64(value);
    }

    #[inline]
    fn write_u128(&mut self, value: u128) {
        self.0.write_u128(value);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.0.write_usize(value);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests;
