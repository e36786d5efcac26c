use std::net::{IpAddr, Ipv6Addr};

use super::*;
use crate::store::local::line::{FINGERPRINT_BITS, tag};

/// The same seeds in every run.
fn seeded(which: u64) -> Seeded {
    Seeded::from_seeds([1, (which + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)])
}

/// Counts pairs among 256 similar keys, summed over 1,000 seeds: pairs with the same of 2^16 home
/// lines, and pairs with the same low, middle or high 16 bits of the fingerprint. 498 are expected.
fn table_pairs(hash: impl Fn(&Seeded, u64) -> u64) -> [usize; 4] {
    let mut pairs = [0; 4];
    for seeds in 0..1_000 {
        let seeded = seeded(seeds);
        let hashes: Vec<_> = (0..256).map(|key| hash(&seeded, key)).collect();
        let fingerprints = FINGERPRINT_BITS - 16;
        let bits = [64, 0, fingerprints / 2, fingerprints];
        for (pairs, bit) in pairs.iter_mut().zip(bits) {
            let part = |hash: &u64| match bit {
                64 => hash >> 48,
                bit => tag(*hash, 0) >> bit & 0xffff,
            };
            let mut parts: Vec<_> = hashes.iter().map(part).collect();
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

/// Shows promise 107.
#[test]
fn similar_keys_share_lines_and_fingerprints_no_more_than_random_keys() {
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

/// The next process has another seed of its own.
#[test]
fn the_seeds_of_another_process_make_the_same_hash() {
    let own = Seeded::default();
    let [process, table] = own.seeds;
    let same = Seeded::from_seeds([process, table]);
    let of_others = [[process ^ 1, table], [process, table ^ 1]].map(Seeded::from_seeds);
    for key in 0..100_u64 {
        assert_eq!(own.hash_one(key), same.hash_one(key));
        let differs = |other: &Seeded| other.hash_one(key) != own.hash_one(key);
        assert!(of_others.iter().all(differs));
    }
}
