//! `Backend` for tables, and `IntoBackend` for tables and algorithms.

use std::future::{Ready, ready};
use std::hash::BuildHasher;
use std::time::Duration;

use super::{Entry, Local};
use crate::acquire::OneKey;
use crate::algorithm::{Algorithm, IntoAlgorithm};
use crate::backend::{Backend, Fullness, IntoBackend, Losses, Op};
use crate::clock::{Clock, Tick};
use crate::decision::{Decision, Verdict};
use crate::error::{StoreError, expect_valid};
use crate::key::Key;
use crate::quota::Quota;
use crate::receipt::Receipt;
use crate::store::apply::taken_at;

impl<A, C, S, K> Backend<K> for Local<A, C, S>
where
    A: Algorithm,
    C: Clock,
    S: BuildHasher + Send + Sync + 'static,
    K: Key + ?Sized,
{
    type Future = Ready<Result<Decision, StoreError>>;

    fn apply(&self, key: &K, op: Op) -> Self::Future {
        ready(Ok(self.entry(key).apply(op)))
    }

    fn decide(&self, key: &K, cost: u64) -> Self::Future {
        self.decide_now(key, cost, ready)
            .unwrap_or_else(|never| never)
    }

    #[expect(
        clippy::inline_always,
        reason = "as for `Shards::decide`: an admitted request takes 872 instructions instead of 891"
    )]
    #[inline(always)]
    fn decide_now<T>(
        &self,
        key: &K,
        cost: u64,
        done: impl Fn(Result<Decision, StoreError>) -> T,
    ) -> Result<T, Self::Future> {
        let entry = self.entry(key);
        let taken = |now, mut decision: Decision| {
            let moment = match decision.verdict {
                Verdict::Wait(_) => entry.moment_of_turn(now, decision.verdict),
                _ => now,
            };
            decision.set_receipt(Receipt::at(moment.as_nanos()));
            done(Ok(decision))
        };
        let rest = |now| taken(now, entry.decide(now, cost));
        Ok(entry.decide_quickly(cost, taken, rest))
    }

    fn take_turn(&self, key: &K, cost: u64, at: Tick) -> Option<Decision> {
        let at = self.shared.clock.at(at);
        let decision = self.entry(key).take_turn(at, cost)?;
        Some(decision.with_receipt(Receipt::at(at.as_nanos())))
    }

    fn expected_wait(&self, key: &K, ahead: u64, cost: u64, at: Tick) -> Option<Duration> {
        let at = self.shared.clock.at(at);
        self.entry(key).expected_wait(at, ahead, cost)
    }

    fn current_decision(&self, key: &K, cost: u64) -> Option<Decision> {
        Some(self.entry(key).peek(cost))
    }

    fn quotas(&self) -> Vec<Quota> {
        self.shared.read_algorithm(A::quotas)
    }

    fn limits(&self) -> usize {
        self.shared.capabilities().limits
    }

    #[inline]
    fn losses(&self) -> Losses {
        self.shared.rules.counters.losses()
    }

    fn fullness(&self) -> Option<Fullness> {
        let stats = self.stats();
        Some(Fullness {
            keys: stats.live,
            capacity: stats.capacity,
            largest_use_percent: self.shared.largest_use_percent(),
        })
    }
}

impl<A: Algorithm, C: Clock, S> Entry<'_, A, C, S> {
    /// See [`taken_at`].
    #[cold]
    fn moment_of_turn(&self, now: Tick, verdict: Verdict) -> Tick {
        self.inner
            .read_algorithm(|algorithm| taken_at(algorithm.capabilities().limits, verdict, now))
    }
}

/// An algorithm or a tuple of algorithms becomes a table in this process.
impl<T: IntoAlgorithm> IntoBackend for T {
    type Backend = Local<T::Algorithm>;

    #[track_caller]
    fn into_backend(self) -> Self::Backend {
        Local::new(self).into_backend()
    }

    #[track_caller]
    fn into_single_key_backend(self) -> Self::Backend {
        let algorithm = self.into_algorithm();
        expect_valid(algorithm.validate());
        Local::of_size(algorithm, 1).into_backend()
    }

    fn queues(backend: &Self::Backend) -> bool {
        backend.shared.capabilities().books_turns
    }

    fn decides_at_once(backend: &Self::Backend) -> bool {
        !backend.shared.capabilities().counts_denials
    }
}

impl<A, C, S> IntoBackend for Local<A, C, S>
where
    A: Algorithm,
    C: Clock,
    S: BuildHasher + Send + Sync + 'static,
{
    type Backend = Self;

    /// Allocates the table, so that no request has to wait for that.
    fn into_backend(self) -> Self {
        self.allocate();
        self
    }

    fn queues(backend: &Self) -> bool {
        backend.shared.capabilities().books_turns
    }

    fn decides_at_once(backend: &Self::Backend) -> bool {
        !backend.shared.capabilities().counts_denials
    }
}
