//! Which limits can block a key on demand.

#[cfg(feature = "cas")]
use super::cas::{Cas, CasStore};
use super::fallback::Fallback;
use super::local::Local;
#[cfg(feature = "redis")]
use super::redis::{RedisLimiter, Scripted};
use crate::algorithm::{All, DenialLockout, Lockout, Words};
use crate::backend::Bans;

impl Bans for Lockout {}

impl Bans for All<Lockout> {}

impl<A: Words> Bans for DenialLockout<A> {}

impl<A: Bans, B: Words> Bans for (A, B) {}

impl<A: Words + Bans, C, S> Bans for Local<A, C, S> {}

#[cfg(feature = "redis")]
impl<A: Scripted + Bans> Bans for RedisLimiter<A> {}

#[cfg(feature = "cas")]
impl<S: CasStore, A: crate::algorithm::Portable + Bans> Bans for Cas<S, A> {}

impl<P: Bans, S: Bans> Bans for Fallback<P, S> {}
