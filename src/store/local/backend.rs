//! `Backend` for tables, and `IntoBackend` for tables and algorithms.

use std::future::{Ready, ready};
use std::hash::BuildHasher;
use std::time::Duration;

use super::hash::Seeded;
use super::inner::LocalInner;
use super::table::Table;
use super::{Entry, Local};
use crate::acquire::OneKey;
use crate::algorithm::{Algorithm, IntoAlgorithm};
use crate::backend::{Backend, Fullness, IntoBackend, Losses, Op};
use crate::clock::{Clock, MonotonicClock, Tick};
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
        ready(Ok(self.entry(key).decide_with_receipt(cost)))
    }

    #[inline]
    fn try_admit(&self, key: &K, cost: u64) -> bool {
        if self.shared.rules.is_user_code || Table::<A>::IS_BOXED {
            return false;
        }
        let entry = self.entry(key);
        let now = self.shared.clock.now();
        let request = (entry.hash, now, cost);
        entry.table.is_some_and(|table| table.try_admit(request))
    }

    fn take_turn(&self, key: &K, cost: u64, at: Tick) -> Option<Decision> {
        if self.shared.capabilities().counts_denials {
            return None;
        }
        let at = self.shared.clock.at(at);
        let decision = self.entry(key).take_turn(at, cost);
        Some(decision.with_receipt(Receipt::at(at.as_nanos())))
    }

    fn expected_wait(&self, key: &K, ahead: u64, cost: u64, at: Tick) -> Option<Duration> {
        let at = self.shared.clock.at(at);
        self.entry(key).expected_wait(at, ahead, cost)
    }

    fn current_decision(&self, key: &K, cost: u64) -> Option<Decision> {
        Some(self.entry(key).peek_n(cost))
    }

    fn quotas(&self) -> Vec<Quota> {
        self.shared.read_algorithm(A::quotas)
    }

    fn limits(&self) -> usize {
        self.shared.capabilities().limits
    }

    fn queue_of(&self, _: &K) -> (u64, Duration) {
        let facts = self.shared.capabilities();
        (facts.queue, facts.max_wait)
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
    /// Decides with all figures, and with the moment at which the cost was taken.
    #[inline(never)]
    fn decide_with_receipt(&self, cost: u64) -> Decision {
        let done = |now, mut decision: Decision| {
            let moment = match decision.verdict {
                Verdict::Wait(_) => self.moment_of_turn(now, decision.verdict),
                _ => now,
            };
            decision.set_receipt(Receipt::at(moment.as_nanos()));
            decision
        };
        let rest = |now| done(now, self.decide(now, cost));
        self.decide_quickly(cost, done, rest)
    }

    /// See [`taken_at`].
    #[cold]
    fn moment_of_turn(&self, now: Tick, verdict: Verdict) -> Tick {
        self.inner
            .read_algorithm(|algorithm| taken_at(algorithm, verdict, now))
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
        let inner = LocalInner::new(algorithm, 1, MonotonicClock, Seeded::default());
        let local: Local<_> = inner.into();
        local.into_backend()
    }

    fn queues(backend: &Self::Backend) -> bool {
        backend.shared.capabilities().queue > 0
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
        backend.shared.capabilities().queue > 0
    }

    fn decides_at_once(backend: &Self::Backend) -> bool {
        !backend.shared.capabilities().counts_denials
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::FixedWindow;
    use crate::clock::ManualClock;

    const DAY: Duration = Duration::from_secs(86_400);

    /// A day after the clock's zero.
    fn local<A: Algorithm>(algorithm: A) -> Local<A, ManualClock> {
        let clock = ManualClock::new();
        clock.advance(DAY);
        Local::new(algorithm).with_clock(clock)
    }

    fn decide<A: Algorithm>(local: &Local<A, ManualClock>) -> Decision {
        local.entry("key").apply(Op::Take(1))
    }

    #[test]
    fn what_is_admitted_quickly_is_taken() {
        let local = local(FixedWindow::new(Quota::per_hour(3)));
        assert!(!local.try_admit("key", 1), "a new key takes the slow path");
        assert!(decide(&local).is_admitted());
        assert!(local.try_admit("key", 2));
        assert!(!local.try_admit("key", 1));
    }
}
