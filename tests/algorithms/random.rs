//! Seeded random numbers, as the test kit draws them.

#[allow(
    clippy::duplicate_mod,
    reason = "the unit tests have it by this file too"
)]
#[path = "../../src/testkit/random.rs"]
mod generator;

pub(crate) use self::generator::Random;

/// The seeds that a property runs over: `usual` of them, or as many as the variable `TRACES` says, from
/// the variable `FIRST_SEED` on.
pub(crate) fn seeds(usual: u64) -> std::ops::Range<u64> {
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
