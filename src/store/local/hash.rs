//! A fast hash with a secret seed.
//!
//! Integers are collected two words at a time and bytes sixteen at a time. Each pair is multiplied
//! to 128 bits and the halves are folded together by xor, as in wyhash and foldhash. A fold depends
//! on the previous one, so the two pairs of 17 to 32 bytes are folded in parallel with
//! different seeds. A last fold mixes once more, because all bits of the result are used. It also
//! takes the few bits that follow bytes, such as the 0xff after a `str`. The seed comes from the
//! operating system through [`RandomState`] and differs per table.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The default hash of [`Local`](crate::Local): fast, with a secret seed per table.
///
/// Without the seed, an attacker cannot choose keys that collide. Unlike `SipHash` it is not a
/// cryptographic function. Against an attacker who can time single decisions for long, use
/// [`RandomState`](std::hash::RandomState) with [`with_hasher`](crate::Local::with_hasher).
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
        SeededHasher {
            hash: self.seeds[0],
            seeds: self.seeds,
            pending: 0,
            bits: 0,
            folded: false,
        }
    }
}

/// The state of one [`Seeded`] hash.
#[derive(Clone)]
pub struct SeededHasher {
    hash: u64,
    seeds: [u64; 4],
    /// The integers that are not hashed yet, and their size in bits.
    pending: u128,
    bits: u32,
    /// Set once bytes were written, because `hash` is mixed then.
    folded: bool,
}

/// Manual impl, as for [`Seeded`].
impl std::fmt::Debug for SeededHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeededHasher").finish_non_exhaustive()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "returns both halves")]
#[inline]
const fn split_u128(wide: u128) -> (u64, u64) {
    (wide as u64, (wide >> 64) as u64)
}

#[inline]
const fn folded_multiply(a: u64, b: u64) -> u64 {
    let (low, high) = split_u128(a as u128 * b as u128);
    low ^ high
}

#[inline]
fn first_bytes<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut head = [0; N];
    head.copy_from_slice(&bytes[..N]);
    head
}

#[inline]
fn last_bytes<const N: usize>(bytes: &[u8]) -> [u8; N] {
    first_bytes(&bytes[bytes.len() - N..])
}

/// Takes no hasher, so that the hasher can stay in registers.
#[cold]
#[inline(never)]
fn hash_long(mut hash: u64, seed: u64, bytes: &[u8]) -> u64 {
    // The caller adds the last sixteen bytes, so the blocks need not divide the length.
    for block in bytes.chunks_exact(16) {
        let (a, b) = (first_bytes(block), last_bytes(block));
        hash = folded_multiply(u64::from_le_bytes(a) ^ hash, u64::from_le_bytes(b) ^ seed);
    }
    hash
}

impl SeededHasher {
    #[inline]
    fn mix_integer(&mut self, value: u64, bits: u32) {
        if self.bits + bits > u128::BITS {
            let (low, high) = split_u128(self.pending);
            self.hash = folded_multiply(low ^ self.hash, high ^ self.seeds[1]);
            self.pending = u128::from(value);
            self.bits = bits;
        } else {
            self.pending |= u128::from(value) << self.bits;
            self.bits += bits;
        }
    }

    #[inline]
    fn mix_pair(&mut self, a: u64, b: u64) {
        self.hash = folded_multiply(a ^ self.hash, b ^ self.seeds[2]);
    }
}

impl Hasher for SeededHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let len = bytes.len();
        // Multiplied by a secret. Otherwise an attacker could choose bytes that cancel the length.
        let length = (len as u64).wrapping_mul(self.seeds[3] | 1);
        self.hash = self.hash.wrapping_add(length);
        let mut parallel = 0;
        if len > 32 {
            self.hash = hash_long(self.hash, self.seeds[2], bytes);
        } else if len > 16 {
            parallel = folded_multiply(
                u64::from_le_bytes(first_bytes(bytes)) ^ self.hash ^ self.seeds[1],
                u64::from_le_bytes(first_bytes(&bytes[8..])) ^ self.seeds[3],
            );
        }
        let (a, b) = if len >= 16 {
            let end: [u8; 16] = last_bytes(bytes);
            (
                u64::from_le_bytes(first_bytes(&end)),
                u64::from_le_bytes(last_bytes(&end)),
            )
        } else if len >= 8 {
            (
                u64::from_le_bytes(first_bytes(bytes)),
                u64::from_le_bytes(last_bytes(bytes)),
            )
        } else if len >= 4 {
            (
                u64::from(u32::from_le_bytes(first_bytes(bytes))),
                u64::from(u32::from_le_bytes(last_bytes(bytes))),
            )
        } else if len > 0 {
            let (start, middle, end) = (bytes[0], bytes[len / 2], bytes[len - 1]);
            (u64::from(start), u64::from(middle) << 8 | u64::from(end))
        } else {
            (0, 0)
        };
        self.mix_pair(a, b);
        self.hash ^= parallel;
        self.folded = true;
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.mix_integer(u64::from(value), 8);
    }

    #[inline]
    fn write_u16(&mut self, value: u16) {
        self.mix_integer(u64::from(value), 16);
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.mix_integer(u64::from(value), 32);
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.mix_integer(value, 64);
    }

    #[inline]
    fn write_u128(&mut self, value: u128) {
        let (low, high) = split_u128(value);
        self.mix_integer(low, 64);
        self.mix_integer(high, 64);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.mix_integer(value as u64, 64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        let (low, high) = split_u128(self.pending);
        let hash = if self.folded && self.bits <= 8 {
            low ^ self.hash
        } else {
            folded_multiply(low ^ self.hash, high ^ self.seeds[1])
        };
        folded_multiply(hash, self.seeds[3] | 1)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hash;

    use super::*;

    /// The same seeds in every run.
    fn seeded(which: u64) -> Seeded {
        let seed = |at: u64| {
            let mixed = (4 * which + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            folded_multiply(mixed, 0xd6e8_feb8_6659_fd93 ^ mixed)
        };
        Seeded {
            seeds: [seed(0), seed(1), seed(2), seed(3)],
        }
    }

    /// Bytes that hash as a `str` does, with 0xff at the end.
    struct Text<'a>(&'a [u8]);

    impl Hash for Text<'_> {
        fn hash<H: Hasher>(&self, hasher: &mut H) {
            hasher.write(self.0);
            hasher.write_u8(0xff);
        }
    }

    fn text(seeds: u64, bytes: &[u8]) -> u64 {
        seeded(seeds).hash_one(Text(bytes))
    }

    const ROUNDS: u64 = 200;

    /// Flips each bit of texts of 1 to 64 bytes. Returns the length and bit of the first flip that
    /// changes the bits of the hash too rarely or too often.
    fn biased_bit(hash: impl Fn(u64, &[u8]) -> u64) -> Option<(usize, usize)> {
        for len in 1..=64 {
            let mut message = [0; 64];
            for (at, byte) in message.iter_mut().enumerate() {
                *byte = b'a' + u8::try_from((7 * len + at) % 26).expect("a letter");
            }
            for bit in 0..8 * len {
                let mut flips = [0_u64; 64];
                for seeds in 0..ROUNDS {
                    let mut other = message;
                    other[bit / 8] ^= 1 << (bit % 8);
                    let flipped = hash(seeds, &message[..len]) ^ hash(seeds, &other[..len]);
                    for (at, flips) in flips.iter_mut().enumerate() {
                        *flips += flipped >> at & 1;
                    }
                }
                // Six standard deviations for the sum, seven for each bit.
                let all = flips.iter().sum::<u64>();
                let even = (32 * ROUNDS).abs_diff(all) < 6 * 57
                    && flips.iter().all(|flips| (ROUNDS / 2).abs_diff(*flips) < 50);
                if !even {
                    return Some((len, bit));
                }
            }
        }
        None
    }

    #[test]
    fn every_bit_of_a_text_flips_half_of_the_hash() {
        assert_eq!(biased_bit(text), None);
    }

    #[test]
    fn a_hash_with_too_little_mixing_is_detected() {
        let unmixed = |seeds: u64, bytes: &[u8]| {
            let mut hasher = seeded(seeds).build_hasher();
            hasher.write(bytes);
            hasher.hash
        };
        let swapped = |seeds: u64, bytes: &[u8]| {
            bytes.iter().fold(seeds, |hash: u64, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
            })
        };
        assert!(biased_bit(swapped).is_some());
        assert!(biased_bit(unmixed).is_some());
    }

    /// The number of pairs with the same 32 bits from bit `from` on.
    fn pairs(hashes: &[u64], from: u32) -> usize {
        let mut bits: Vec<_> = hashes.iter().map(|hash| hash >> from << 32 >> 32).collect();
        bits.sort_unstable();
        bits.windows(2).filter(|pair| pair[0] == pair[1]).count()
    }

    /// The first bit of the first range in which too many or too few of 2^19 keys collide; 32 pairs
    /// are expected. Returns 64 if two hashes are equal.
    fn biased_range(key: impl Fn(u64) -> u64) -> Option<u32> {
        let hashes: Vec<_> = (0..1 << 19).map(key).collect();
        let mut whole = hashes.clone();
        whole.sort_unstable();
        whole.dedup();
        if whole.len() < hashes.len() {
            return Some(64);
        }
        [0, 11, 21, 32].into_iter().find(|from| {
            let pairs = pairs(&hashes, *from);
            !(8..80).contains(&pairs)
        })
    }

    #[test]
    fn similar_keys_collide_no_more_than_random_keys() {
        for seeds in 0..3 {
            check_similar_keys(seeds);
        }
    }

    fn check_similar_keys(seeds: u64) {
        let hash = seeded(seeds);
        assert_eq!(biased_range(|key| hash.hash_one(key)), None, "integers");
        assert_eq!(
            biased_range(|key| hash.hash_one(key << 40)),
            None,
            "high bits"
        );
        let ends = |key: u64| hash.hash_one((key & 0x3ff, key >> 10));
        assert_eq!(biased_range(ends), None, "pairs");
        for (name, before, after) in [
            ("short", "", ""),
            ("users", "user:", ""),
            ("paths", "/api/v1/users/", "/"),
            (
                "long",
                "a tenant with a long name/",
                "/and much behind it as well",
            ),
        ] {
            let text = |key: u64| hash.hash_one(format!("{before}{key}{after}"));
            assert_eq!(biased_range(text), None, "{name}");
        }
        // Only two words of a text differ: one in each of the two pairs that are folded in
        // parallel.
        let parallel = |key: u64| {
            let mut bytes = [0; 32];
            bytes[..2].copy_from_slice(&key.to_le_bytes()[..2]);
            bytes[16] = key.to_le_bytes()[2];
            text(seeds, &bytes)
        };
        assert_eq!(biased_range(parallel), None, "in parallel");
    }

    #[test]
    fn a_hash_of_half_the_key_is_detected() {
        assert!(biased_range(|key| seeded(7).hash_one(key >> 1)).is_some());
        assert!(biased_range(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15)).is_some());
    }

    #[test]
    fn text_boundaries_change_the_hash() {
        let hash = seeded(3);
        let (head, tail) = ("abcdefghijklmnopq", "rstuvwxyzabcdefghijklmnopqrstuvwxyz");
        let whole = format!("{head}{tail}");
        let mut hashes: Vec<_> = (0..=whole.len())
            .map(|at| hash.hash_one(whole.split_at(at)))
            .collect();
        hashes.push(hash.hash_one(&whole));
        // Texts that differ only in their number of zeros.
        hashes.extend((0..200).map(|len| hash.hash_one(Text(&vec![0; len]))));
        hashes.extend((0..200).map(|len| hash.hash_one(vec![0_u8; len])));
        let all = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), all);
    }

    #[test]
    fn borrowed_and_owned_text_have_the_same_hash() {
        let hash = Seeded::default();
        for text in [
            "",
            "a",
            "user:aaaaaaaaaaaaaaaa",
            "of more than thirty-two bytes, and so on",
        ] {
            assert_eq!(hash.hash_one(text), hash.hash_one(String::from(text)));
            assert_eq!(hash.hash_one(text), hash.hash_one(Text(text.as_bytes())));
        }
    }
}
