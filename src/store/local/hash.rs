//! A fast hash with a secret seed.
//!
//! Integers are collected two words at a time and bytes sixteen at a time; each pair is multiplied
//! to 128 bits and the halves folded onto each other (the step of wyhash and foldhash). All bits of
//! the result are used, so a last fold mixes once more. The seed comes from the operating system by
//! way of [`RandomState`], and is another one for every table.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The hash that [`Local`](crate::Local) uses where nothing else is asked for: fast, and seeded
/// with a secret of each table.
///
/// Whoever does not know the seed cannot aim keys at one place of the table. Unlike `SipHash` it is
/// no cryptographic function: against an adversary who can measure single decisions for a long
/// time, take [`RandomState`](std::hash::RandomState) with
/// [`with_hasher`](crate::Local::with_hasher).
#[derive(Clone)]
pub struct Seeded {
    seeds: [u64; 4],
}

impl Default for Seeded {
    fn default() -> Self {
        let secret = RandomState::new();
        Self {
            seeds: [0_u64, 1, 2, 3].map(|which| secret.hash_one(which)),
        }
    }
}

/// By hand: a seed that is printed is no secret.
impl std::fmt::Debug for Seeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seeded").finish_non_exhaustive()
    }
}

impl BuildHasher for Seeded {
    type Hasher = SeededHasher;

    #[inline]
    fn build_hasher(&self) -> SeededHasher {
        SeededHasher {
            hash: self.seeds[0],
            seeds: self.seeds,
            waiting: 0,
            bits: 0,
        }
    }
}

/// The state of one [`Seeded`] hash.
#[derive(Clone)]
pub struct SeededHasher {
    hash: u64,
    seeds: [u64; 4],
    /// Integers not hashed yet, and how many bits they take.
    waiting: u128,
    bits: u32,
}

/// By hand, as for [`Seeded`].
impl std::fmt::Debug for SeededHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeededHasher").finish_non_exhaustive()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "both halves are wanted")]
#[inline]
const fn halves(wide: u128) -> (u64, u64) {
    (wide as u64, (wide >> 64) as u64)
}

#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let (low, high) = halves(a as u128 * b as u128);
    low ^ high
}

#[inline]
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut head = [0; N];
    head.copy_from_slice(&bytes[..N]);
    head
}

#[inline]
fn last<const N: usize>(bytes: &[u8]) -> [u8; N] {
    first(&bytes[bytes.len() - N..])
}

impl SeededHasher {
    #[inline]
    fn integer(&mut self, value: u64, bits: u32) {
        if self.bits + bits > u128::BITS {
            let (low, high) = halves(self.waiting);
            self.hash = fold(low ^ self.hash, high ^ self.seeds[1]);
            self.waiting = u128::from(value);
            self.bits = bits;
        } else {
            self.waiting |= u128::from(value) << self.bits;
            self.bits += bits;
        }
    }

    #[inline]
    fn pair(&mut self, a: u64, b: u64) {
        self.hash = fold(a ^ self.hash, b ^ self.seeds[2]);
    }

    #[cold]
    #[inline(never)]
    fn long(&mut self, bytes: &[u8]) {
        // The last sixteen follow in any case, so that the blocks need not divide the length.
        for block in bytes.chunks_exact(16) {
            self.pair(
                u64::from_le_bytes(first(block)),
                u64::from_le_bytes(last(block)),
            );
        }
    }
}

impl Hasher for SeededHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let len = bytes.len();
        self.hash = self.hash.wrapping_add(len as u64).rotate_left(23);
        if len > 32 {
            self.long(bytes);
        } else if len > 16 {
            self.pair(
                u64::from_le_bytes(first(bytes)),
                u64::from_le_bytes(first(&bytes[8..])),
            );
        }
        let (a, b) = if len >= 16 {
            let end: [u8; 16] = last(bytes);
            (
                u64::from_le_bytes(first(&end)),
                u64::from_le_bytes(last(&end)),
            )
        } else if len >= 8 {
            (
                u64::from_le_bytes(first(bytes)),
                u64::from_le_bytes(last(bytes)),
            )
        } else if len >= 4 {
            (
                u64::from(u32::from_le_bytes(first(bytes))),
                u64::from(u32::from_le_bytes(last(bytes))),
            )
        } else if len > 0 {
            let (start, middle, end) = (bytes[0], bytes[len / 2], bytes[len - 1]);
            (u64::from(start), u64::from(middle) << 8 | u64::from(end))
        } else {
            (0, 0)
        };
        self.pair(a, b);
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.integer(u64::from(value), 8);
    }

    #[inline]
    fn write_u16(&mut self, value: u16) {
        self.integer(u64::from(value), 16);
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.integer(u64::from(value), 32);
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.integer(value, 64);
    }

    #[inline]
    fn write_u128(&mut self, value: u128) {
        let (low, high) = halves(value);
        self.integer(low, 64);
        self.integer(high, 64);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.integer(value as u64, 64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        let (low, high) = halves(self.waiting);
        let hash = fold(low ^ self.hash, high ^ self.seeds[1]);
        fold(hash, self.seeds[3] | 1)
    }
}
