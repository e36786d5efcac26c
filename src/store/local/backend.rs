//! `Backend` for tables, and `IntoBackend` for tables and algorithms.

use std::future::{Ready, ready};
use std::time::Duration;

use super::Local;
use crate::acquire::OneKey;
use crate::algorithm::{Algorithm, IntoAlgorithm};
use crate::backend::{Backend, IntoBackend, Op, Stats};
use crate::clock::{Clock, Tick};
use crate::decision::{Decision, LineCosts};
use crate::error::{StoreError, expect_valid};
use crate::key::Key;
use crate::quota::Quota;
use crate::receipt::Receipt;
use crate::store::apply::apply_to;

impl<A: Algorithm, C: Clock, K: Key + ?Sized> Backend<K> for Local<A, C> {
    type Future = Ready<Result<Decision, StoreError>>;

    fn apply(&self, key: &K, op: Op) -> Self::Future {
        let entry = self.entry(key);
        ready(Ok(apply_to(&entry, op, || entry.remove())))
    }

    fn decide(&self, key: &K, cost: u64) -> Self::Future {
        self.decide_now(key, cost, ready)
            .unwrap_or_else(|never| never)
    }

    #[expect(
        clippy::inline_always,
        reason = "as for `decide_then`: an admitted request of a layer takes 731 instructions, not 694"
    )]
    #[inline(always)]
    fn decide_now<T>(
        &self,
        key: &K,
        cost: u64,
        done: impl Fn(Result<Decision, StoreError>) -> T,
    ) -> Result<T, Self::Future> {
        Ok(self.decide_then(key, cost, |now, mut decision| {
            decision.set_receipt(Receipt::at(now.as_nanos()));
            done(Ok(decision))
        }))
    }

    fn take_turn(&self, key: &K, cost: u64, at: Tick, late: Duration) -> Option<Decision> {
        let at = self.shared.clock.at(at);
        let decision = self.entry(key).take_turn((at, late), cost)?;
        let turn = at.plus(decision.wait().unwrap_or_default());
        Some(decision.with_receipt(Receipt::at(turn.as_nanos())))
    }

    fn expected_wait(&self, key: &K, costs: LineCosts, at: Tick) -> Option<[Duration; 2]> {
        let at = self.shared.clock.at(at);
        self.entry(key).expected_wait(at, costs)
    }

    fn current_decision(&self, key: &K, cost: u64) -> Option<Decision> {
        Some(self.entry(key).peek(cost))
    }

    fn quotas(&self) -> Vec<Quota> {
        self.algorithm().quotas()
    }

    fn limits(&self) -> usize {
        self.algorithm().capabilities().limits
    }

    fn stats(&self) -> Stats {
        self.shared.stats()
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
        backend.algorithm().capabilities().books_turns()
    }

    fn decides_at_once(backend: &Self::Backend) -> bool {
        !backend.algorithm().capabilities().counts_denials
    }
}

impl<A: Algorithm, C: Clock> IntoBackend for Local<A, C> {
    type Backend = Self;

    /// Allocates the table, so that no request has to wait for that.
    fn into_backend(self) -> Self {
        self.allocate();
        self
    }

    fn queues(backend: &Self) -> bool {
        backend.algorithm().capabilities().books_turns()
    }

    fn decides_at_once(backend: &Self::Backend) -> bool {
        !backend.algorithm().capabilities().counts_denials
    }
}
