//! Random numbers from a seed.

/// `SplitMix64`: short, seedable and good enough to choose test cases.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number of up to `bits` bits; all lengths are equally likely.
    pub(crate) fn log_uniform(&mut self, bits: u64) -> u64 {
        match self.below(bits + 1) {
            0 => 0,
            width => (1 << (width - 1)) | self.below(1 << (width - 1)),
        }
    }
}
