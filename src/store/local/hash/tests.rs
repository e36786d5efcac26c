use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};

use super::*;
use crate::store::local::{probe::FINGERPRINT_BITS, sets::Sets};

/// The same seeds in every run.
fn seeded(which: u64) -> Seeded {
    let seed = (which + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let shared = SharedSeed::global_fixed();
    Seeded(quality::SeedableRandomState::with_seed(seed, shared))
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
    let short = |seeds: u64, bytes: &[u8]| text(seeds, bytes) >> 1;
    let swapped = |seeds: u64, bytes: &[u8]| {
        bytes.iter().fold(seeds, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        })
    };
    assert!(biased_bit(swapped).is_some());
    assert!(biased_bit(short).is_some());
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
    let seeds = 1;
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
fn integers_of_every_width_change_the_hash() {
    let hash = seeded(3);
    assert_ne!(hash.hash_one(1_u8), hash.hash_one(2_u8));
    assert_ne!(hash.hash_one(1_u16), hash.hash_one(2_u16));
    assert_ne!(hash.hash_one(1_u32), hash.hash_one(2_u32));
    assert_ne!(hash.hash_one(1_u64), hash.hash_one(2_u64));
    assert_ne!(hash.hash_one(1_u128), hash.hash_one(2_u128));
    assert_ne!(hash.hash_one(1_usize), hash.hash_one(2_usize));
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

/// Counts pairs among 256 similar keys, summed over 1,000 seeds: pairs with the same of 2^16 home
/// sets, and pairs with the same low, middle or high 16 bits of the fingerprint. 498 are expected.
fn table_pairs(hash: impl Fn(&Seeded, u64) -> u64) -> [usize; 4] {
    let sets = Sets::for_keys(1, 180_000);
    assert_eq!(sets.len, 64_320);
    let mut pairs = [0; 4];
    for seeds in 0..1_000 {
        let seeded = seeded(seeds);
        let ids: Vec<_> = (0..256)
            .map(|key| sets.key_id(hash(&seeded, key)))
            .collect();
        let fingerprints = FINGERPRINT_BITS - 16;
        for (pairs, part) in pairs
            .iter_mut()
            .zip([64, 0, fingerprints / 2, fingerprints])
        {
            let mut parts: Vec<_> = ids
                .iter()
                .map(|id| match part {
                    64 => id.home as u64,
                    bit => id.fingerprint >> bit & 0xffff,
                })
                .collect();
            parts.sort_unstable();
            *pairs += parts.windows(2).filter(|pair| pair[0] == pair[1]).count();
        }
    }
    pairs
}

fn is_random(pairs: [usize; 4]) -> bool {
    // Six standard deviations.
    pairs.iter().all(|pairs| (366..640).contains(pairs))
}

#[test]
fn similar_keys_share_sets_and_fingerprints_no_more_than_random_keys() {
    for net in [[10, 0, 0], [192, 168, 7], [203, 0, 113]] {
        let address = |hash: &Seeded, key: u64| {
            let [host, ..] = key.to_le_bytes();
            hash.hash_one(IpAddr::from([net[0], net[1], net[2], host]))
        };
        let pairs = table_pairs(address);
        assert!(is_random(pairs), "{net:?}: {pairs:?}");
    }
    let v6 = |hash: &Seeded, key: u64| {
        hash.hash_one(Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(key)))
    };
    assert!(is_random(table_pairs(v6)), "{:?}", table_pairs(v6));
    for (first, step) in [(0, 1), (1_000_000, 1), (0, 1 << 16), (7, 1 << 48)] {
        let number = |hash: &Seeded, key: u64| hash.hash_one(first + key * step);
        let pairs = table_pairs(number);
        assert!(is_random(pairs), "{first} + {step}n: {pairs:?}");
    }
    for prefix in ["", "user:", "/api/v1/tenants/of/one/region/"] {
        let text = |hash: &Seeded, key: u64| hash.hash_one(format!("{prefix}{key}"));
        let pairs = table_pairs(text);
        assert!(is_random(pairs), "{prefix}: {pairs:?}");
    }
}

#[test]
fn keys_that_share_sets_or_fingerprints_are_detected() {
    let halved = |hash: &Seeded, key: u64| hash.hash_one(key / 2);
    let same_sets = |hash: &Seeded, key: u64| hash.hash_one(key) & ((1 << 50) - 1);
    let same_fingerprints = |hash: &Seeded, key: u64| hash.hash_one(key) & u64::MAX << 16;
    assert!(!is_random(table_pairs(halved)));
    assert!(!is_random(table_pairs(same_sets)));
    assert!(!is_random(table_pairs(same_fingerprints)));
    let multiplied = |_: &Seeded, key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    assert!(!is_random(table_pairs(multiplied)));
}
