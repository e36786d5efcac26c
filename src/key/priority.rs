//! How important a request is.

use crate::error::ConfigError;

/// How important a request is: a number from 1 to 100. Higher is more important.
///
/// For [`LimitLayer::priority`](crate::layer::LimitLayer::priority), which states what it does. Without one it is [`HIGH`](Self::HIGH).
///
/// ```
/// use tower_throttle::key::Priority;
///
/// const REPORTS: Priority = Priority::new(20);
/// assert!(REPORTS < Priority::LOW && Priority::LOW < Priority::HIGH);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// 100, the highest.
    pub const HIGH: Self = Self(100);

    /// 80.
    pub const MEDIUM: Self = Self(80);

    /// 50.
    pub const LOW: Self = Self(50);

    /// The priority of this number. For a number that is not constant, use `try_from`.
    ///
    /// # Panics
    /// If it is not from 1 to 100.
    #[must_use]
    #[track_caller]
    pub const fn new(number: u8) -> Self {
        assert!(
            number >= 1 && number <= 100,
            "a priority is a number from 1 to 100"
        );
        Self(number)
    }
}

impl TryFrom<u8> for Priority {
    type Error = ConfigError;

    /// # Errors
    /// If it is not from 1 to 100.
    fn try_from(number: u8) -> Result<Self, ConfigError> {
        if (1..=100).contains(&number) {
            return Ok(Self(number));
        }
        let allowed = "a number from 1 to 100";
        Err(ConfigError::out_of_range("priority", number, allowed))
    }
}
