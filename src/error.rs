//! What can be wrong with a configuration.

use std::{error::Error, fmt};

/// A value that no policy can be built from.
///
/// The message names the field, the value it was given and what is allowed instead.
///
/// ```
/// use tower_throttle::Quota;
///
/// let error = "0/s".parse::<Quota>().unwrap_err();
/// assert_eq!(error.to_string(), "limit: 0 is not allowed; give a number from 1 to 9223372036854775807");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number or a duration outside its range.
    OutOfRange {
        /// The field that was set.
        field: &'static str,
        /// The value it was given.
        value: String,
        /// What it may be.
        allowed: &'static str,
    },
    /// A text that does not read as a quota.
    Syntax {
        /// The text that was given.
        text: String,
        /// What was looked for, and where.
        expected: String,
    },
    /// A change that this limiter cannot make.
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
}

impl ConfigError {
    pub(crate) fn out_of_range(
        field: &'static str,
        value: impl fmt::Display,
        allowed: &'static str,
    ) -> Self {
        Self::OutOfRange {
            field,
            value: format!("{value}"),
            allowed,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange {
                field,
                value,
                allowed,
            } => write!(f, "{field}: {value} is not allowed; give {allowed}"),
            Self::Syntax { text, expected } => {
                write!(f, "quota {text:?} is not understood: expected {expected}")
            }
            Self::Unsupported { what, instead } => write!(f, "{what} is not possible; {instead}"),
        }
    }
}

impl Error for ConfigError {}

/// Why a limiter could not decide.
///
/// A limiter in this process always decides; one that asks a server may fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    message: String,
    transient: bool,
}

impl StoreError {
    /// An error that passes by itself (`transient`: a timeout, a server that restarts), or one that
    /// somebody has to mend (wrong credentials, a key of another type).
    ///
    /// ```
    /// use tower_throttle::StoreError;
    ///
    /// let error = StoreError::new("no answer within 50ms", true);
    /// assert!(error.is_transient());
    /// assert_eq!(error.to_string(), "no answer within 50ms");
    /// ```
    pub fn new(message: impl Into<String>, transient: bool) -> Self {
        Self {
            message: message.into(),
            transient,
        }
    }

    /// Whether trying again later may succeed without anybody mending anything.
    pub const fn is_transient(&self) -> bool {
        self.transient
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for StoreError {}
