//! Which limits have bans, and which lend.

use super::fallback::Fallback;
use super::local::Local;
use crate::algorithm::{All, DenialLockout, Lending, Lockout, Words};
use crate::backend::{Bans, Lends};

impl Bans for Lockout {}

impl Bans for All<Lockout> {}

impl<A: Words> Bans for DenialLockout<A> {}

impl<A: Bans, B: Words> Bans for (A, B) {}

impl<A: Words + Bans, C, S> Bans for Local<A, C, S> {}

impl<P: Bans, S: Bans> Bans for Fallback<P, S> {}

impl<A: Words> Lends for Lending<A> {}

impl<A: Words, C, S> Lends for Local<Lending<A>, C, S> {}
