//! Which sets a key may live in.

/// The sets that a home shares its keys with: the home's number, xor each of these.
///
/// So a set and a number of steps name the home. The masks keep within a group of sets, and are
/// spread so that a crowded set does not have the same neighbours as those it crowds.
#[derive(Debug)]
pub(super) struct Probes {
    masks: [u8; 16],
    pub(super) len: usize,
    /// How many sets a group has: a power of two.
    pub(super) group: usize,
}

pub(super) const GROUP: usize = 64;
const MASKS: [u8; 16] = [0, 1, 2, 4, 8, 16, 32, 7, 25, 42, 52, 63, 11, 21, 38, 57];
pub(super) const FINGERPRINT_BITS: u32 = 44;

impl Probes {
    pub(super) fn new(group: usize) -> Self {
        let mut masks = [0; 16];
        let mut len = 0;
        let rest = 0..64;
        for mask in MASKS.into_iter().chain(rest) {
            if len < masks.len() && usize::from(mask) < group && !masks[..len].contains(&mask) {
                masks[len] = mask;
                len += 1;
            }
        }
        Self { masks, len, group }
    }

    /// The set that many steps from a home; and the home, from that set.
    #[inline]
    pub(super) const fn near(&self, home: usize, steps: usize) -> usize {
        home ^ self.masks[steps] as usize
    }
}

/// The tag of a key that lives so many steps from its home.
#[inline]
pub(super) const fn tag(fingerprint: u64, steps: usize) -> u64 {
    fingerprint | (steps as u64) << FINGERPRINT_BITS
}

pub(super) const fn steps_of(tag: u64) -> usize {
    (tag >> FINGERPRINT_BITS & 0xF) as usize
}
