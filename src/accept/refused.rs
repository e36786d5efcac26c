//! Why a connection is refused.

use std::{error::Error, fmt};

/// Why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The client has as many connections open as it may.
    Open,
    /// All clients together have.
    Total,
    /// The client has opened too many connections lately.
    Rate,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "the client has too many open connections",
            Self::Total => "there are too many open connections",
            Self::Rate => "the client opens connections too fast",
        })
    }
}

impl Error for Refused {}
