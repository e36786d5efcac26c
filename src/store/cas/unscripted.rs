//! Without Redis no script decides a limit.

use crate::algorithm::Algorithm;

/// What a script would know of a limit.
#[derive(Debug)]
pub(in crate::store) enum Kernels {}

impl Kernels {
    pub(in crate::store) fn of<A: Algorithm>(_: &A) -> Option<Self> {
        None
    }

    pub(in crate::store) fn is_dated(&self) -> bool {
        match *self {}
    }

    pub(in crate::store) fn layout(&self) -> String {
        match *self {}
    }
}
