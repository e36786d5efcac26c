//! Which limits have bans, and which lend.

use super::fallback::Fallback;
use super::local::Local;
use crate::algorithm::{Algorithm, All, DenialLockout, Lending, Lockout};
use crate::backend::{Bans, Lends};

impl Bans for Lockout {}

impl Bans for All<Lockout> {}

impl<A: Algorithm> Bans for DenialLockout<A> {}

impl<A: Bans, B: Algorithm> Bans for (A, B) {}

impl<A: Algorithm + Bans, C, S> Bans for Local<A, C, S> {}

impl<P: Bans, S: Bans> Bans for Fallback<P, S> {}

impl<A: Algorithm> Lends for Lending<A> {}

impl<A: Algorithm, C, S> Lends for Local<Lending<A>, C, S> {}
