//! Seeded random numbers, as the test kit draws them.

/// `SplitMix64`: short, seedable and good enough to choose test cases.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// An index below `bound`.
    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("as small as `bound`")
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// A number of up to `bits` bits; all lengths are equally likely.
    pub fn log_uniform(&mut self, bits: u64) -> u64 {
        match self.below(bits + 1) {
            0 => 0,
            width => (1 << (width - 1)) | self.below(1 << (width - 1)),
        }
    }
}

/// The seeds that a property runs over: `usual` of them, or as many as the variable `TRACES` says, from
/// the variable `FIRST_SEED` on.
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(
            text.parse()
                .unwrap_or_else(|_| panic!("{name}={text} is no number")),
        )
    };
    let first: u64 = number("FIRST_SEED").unwrap_or(0);
    first..first + number("TRACES").unwrap_or(usual)
}
