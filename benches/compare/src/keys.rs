//! Keys of three types, made from a number, and which number comes next.

use std::net::{IpAddr, Ipv4Addr};

/// A key that can be made again and again without allocating.
pub(crate) trait Key: std::hash::Hash + Eq + Clone + Send + Sync + 'static {
    const NAME: &'static str;
    fn blank() -> Self;
    fn set(&mut self, number: u64);
}

/// A number that looks random, another one for each.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 31)
}

impl Key for u64 {
    const NAME: &'static str = "u64";
    fn blank() -> Self {
        0
    }
    #[inline]
    fn set(&mut self, number: u64) {
        *self = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Key for IpAddr {
    const NAME: &'static str = "IpAddr";
    fn blank() -> Self {
        Self::V4(Ipv4Addr::UNSPECIFIED)
    }
    #[inline]
    fn set(&mut self, number: u64) {
        *self = Self::V4(Ipv4Addr::from_bits(
            (number as u32).wrapping_mul(0x9e37_79b1),
        ));
    }
}

impl Key for String {
    const NAME: &'static str = "String";
    fn blank() -> Self {
        Self::from("user:aaaaaaaaaaaaaaaa")
    }
    #[inline]
    #[expect(
        unsafe_code,
        reason = "checking and copying took as long as a decision, on both sides"
    )]
    fn set(&mut self, number: u64) {
        // Half a byte a letter, eight letters at a time.
        let letters =
            |half: u64| ((half & 0x0f0f_0f0f_0f0f_0f0f) + 0x6161_6161_6161_6161).to_le_bytes();
        // SAFETY: letters from a to p take the places of letters.
        let text = unsafe { self.as_bytes_mut() };
        text[5..13].copy_from_slice(&letters(number));
        text[13..21].copy_from_slice(&letters(number >> 4));
        // A hash that is compiled into the loop must not take these words, nor the length, from
        // registers: a key comes from memory. Both sides begin with words that lie across the ends
        // of what was written, and wait for it alike.
        std::hint::black_box(&mut *self);
    }
}

/// Which keys come how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Access {
    Uniform,
    /// The k-th key with a probability of about 1/k: each power of two as often as the next, and
    /// all keys between two of them alike.
    Zipf,
    /// The same, but the next key does not wait for the last answer, as those of other threads do
    /// not: the processor may fetch several at a time.
    ZipfOverlapping,
}

/// Runs `ops` checks; each key depends on the last answer, or not.
#[inline]
pub(crate) fn run<K: Key>(
    keys: u64,
    access: Access,
    ops: u64,
    seed: u64,
    check: impl Fn(&K) -> bool,
) -> u64 {
    let mut key = K::blank();
    let mut state = mix(seed + 77);
    let powers = keys.next_power_of_two().trailing_zeros().max(1);
    let mut admitted = 0;
    for _ in 0..ops {
        let number = match access {
            Access::Uniform => ((u128::from(state) * u128::from(keys)) >> 64) as u64,
            Access::Zipf | Access::ZipfOverlapping => {
                let power = ((state >> 32) * u64::from(powers)) >> 32;
                let place = (1 << power) | (state & ((1 << power) - 1));
                place.min(keys) - 1
            }
        };
        key.set(number);
        // Not a branch, which the processor would guess.
        let answer = std::hint::black_box(u64::from(check(&key)));
        admitted += answer;
        let waited_for = match access {
            Access::Uniform | Access::Zipf => answer,
            Access::ZipfOverlapping => 0,
        };
        state = mix(state.wrapping_add(waited_for + 1));
    }
    admitted
}
