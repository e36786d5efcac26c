//! Variables that make a run longer.

/// A number from the environment, which can make a run longer, or `default`.
pub(crate) fn from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(number) => number.parse().expect("a number"),
        Err(_) => default,
    }
}
