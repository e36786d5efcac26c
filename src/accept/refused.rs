//! Why a connection is refused.

use std::{error::Error, fmt};

/// Why a connection was refused, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub(super) Reason);

/// What has no room for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The client has as many connections open as it may.
    Open,
    /// All clients together have.
    Total,
    /// The client has opened too many connections lately.
    Rate,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Reason::Open => "the client has too many open connections",
            Reason::Total => "there are too many open connections",
            Reason::Rate => "the client opens connections too fast",
        })
    }
}

impl Error for Refused {}
