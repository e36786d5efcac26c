//! Which limits have bans.

use super::fallback::Fallback;
use super::local::Local;
use crate::algorithm::{Algorithm, All, DenialLockout, Lockout};
use crate::backend::Bans;

impl Bans for Lockout {}

impl Bans for All<Vec<Lockout>> {}

impl<A: Algorithm> Bans for DenialLockout<A> {}

impl<A: Bans, B: Algorithm> Bans for All<(A, B)> {}

impl<A: Bans, B: Algorithm, C: Algorithm> Bans for All<(A, B, C)> {}

impl<A: Bans, B: Algorithm, C: Algorithm, D: Algorithm> Bans for All<(A, B, C, D)> {}

impl<A: Algorithm + Bans, C> Bans for Local<A, C> {}

impl<P: Bans, S: Bans> Bans for Fallback<P, S> {}
