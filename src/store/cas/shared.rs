//! What all calls of a limit use: the store, its time, and what is known of its failures.

use std::{
    future::Future,
    hash::{BuildHasher, RandomState},
    pin::Pin,
    sync::{Arc, atomic::AtomicU64 as Counter},
    time::Duration,
};

use tokio::runtime::Handle;

use super::{CasStore, contention::Contended, error::too_late, time::StoreTime};
use crate::clock::{Clock, MonotonicClock, Tick, Timer, nanos};
use crate::error::StoreError;
use crate::store::{
    deadline::within,
    remote::{Breakers, catch_panic, task_runtime},
};
use crate::sync::Ordering;

#[derive(Debug)]
pub(in crate::store) struct Shared<S> {
    pub(in crate::store) store: S,
    pub(in crate::store) deadline: Duration,
    pub(in crate::store) breakers: Arc<Breakers>,
    has_own_threads: bool,
    pub(in crate::store) time: StoreTime,
    pub(in crate::store) contended: Contended,
    /// When the store last replied, in nanoseconds.
    answered_at: Counter,
    /// Versions are hashes of these numbers, unlike those of other machines.
    numbers: Counter,
    hasher: RandomState,
    /// Loads and swaps.
    pub(in crate::store) calls: Counter,
    pub(in crate::store) conflicts: Counter,
}

impl<S: CasStore> Shared<S> {
    pub(in crate::store) fn new(store: S, deadline: Duration) -> Self {
        let settings = store.settings();
        Self {
            deadline,
            breakers: settings.breakers,
            has_own_threads: settings.has_own_threads,
            store,
            time: StoreTime::default(),
            contended: Contended::default(),
            answered_at: Counter::new(0),
            numbers: Counter::new(0),
            hasher: RandomState::new(),
            calls: Counter::new(0),
            conflicts: Counter::new(0),
        }
    }

    /// Where the tasks run that call the store.
    pub(in crate::store) fn runtime(&self) -> Result<Handle, StoreError> {
        task_runtime(S::NAME, self.has_own_threads)
    }

    /// A pseudo-random number, such as a version that no other swap writes.
    pub(in crate::store) fn next_random(&self) -> u64 {
        self.hasher
            .hash_one(self.numbers.fetch_add(1, Ordering::Relaxed))
    }

    /// A random time from zero to `most`.
    pub(in crate::store) fn random_below(&self, most: Duration) -> Duration {
        Duration::from_nanos(self.next_random() % nanos(most).max(1))
    }

    /// Waits for a random time of at most `most`.
    pub(in crate::store) async fn pause(&self, most: Duration) {
        let ends_at = MonotonicClock.now().plus(self.random_below(most));
        MonotonicClock.sleep_until(ends_at).await;
    }

    /// Whether a moment is of the clock by which the values of a key are dated: that of the store, or of one of its
    /// servers if it was read with the value.
    pub(super) fn has_time_of_key(&self, is_current: bool) -> bool {
        (is_current || self.store.group_of("").is_some()) && !self.time.is_of_this_machine()
    }

    /// Waits until the store's time is that of a decision, which a swap at `swapped_at` wrote: so the
    /// caller gets no decision of a later moment. It is later only if the swap took less time than the
    /// calls from which the store's time was computed.
    pub(super) async fn wait_until(&self, dated: Tick, swapped_at: Tick) {
        let left = dated.since(swapped_at);
        // The store's clock was set back.
        if left.is_zero() || left > self.deadline {
            return;
        }
        MonotonicClock
            .sleep_until(MonotonicClock.now().plus(left))
            .await;
    }

    /// Whether the store has replied since.
    pub(super) fn has_answered_since(&self, moment: Tick) -> bool {
        self.answered_at.load(Ordering::Relaxed) >= moment.as_nanos()
    }

    /// The error of a call that took too long.
    pub(in crate::store) fn deadline_exceeded(&self) -> StoreError {
        too_late(S::NAME, self.deadline)
    }

    /// Lets other machines that use a key go first, for a call that waits since `begun_at`.
    pub(in crate::store) async fn back_off(&self, key: &str, begun_at: Tick) {
        let waited = MonotonicClock.now().since(begun_at);
        let window = self.contended.window(key, waited, self.deadline);
        if !window.is_zero() {
            self.pause(window).await;
        }
    }

    /// Runs one operation of the store, unless the breaker is open, and records its result with it. A panic is a
    /// permanent error. It is pinned by the caller, because an argument of an async function takes twice
    /// its size there.
    pub(in crate::store) async fn call_until<T>(
        &self,
        key: &str,
        ends_at: Tick,
        operation: Pin<&mut impl Future<Output = Result<T, StoreError>>>,
    ) -> Result<T, StoreError> {
        let sent_at = MonotonicClock.now();
        self.breakers.check(key, sent_at)?;
        let result = within(ends_at, catch_panic(S::NAME, operation)).await;
        let result = match result {
            Some(result) => result.and_then(|result| result),
            None => Err(self.deadline_exceeded()),
        };
        if let Err(error) = &result {
            // Another server may reply next.
            self.time.forget();
            self.breakers.record_error(key, sent_at, error);
        } else {
            let now = MonotonicClock.now().as_nanos();
            self.answered_at.store(now, Ordering::Relaxed);
            self.breakers.record_success(key);
        }
        result
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests {
    use super::*;
    use crate::store::cas::{Loaded, Swapped, Value};

    /// A store on several servers, or on one.
    #[derive(Debug)]
    struct Servers {
        are_one: bool,
    }

    impl CasStore for Servers {
        async fn load(&self, _: &str) -> Result<Loaded, StoreError> {
            Ok(Loaded::default())
        }

        async fn swap(
            &self,
            _: &str,
            _: Option<u64>,
            _: &Value,
            _: Duration,
        ) -> Result<Swapped, StoreError> {
            Ok(Swapped::Conflict(None))
        }

        fn group_of(&self, _: &str) -> Option<usize> {
            self.are_one.then_some(0)
        }
    }

    #[test]
    fn the_time_of_a_key_is_that_of_its_server() {
        let time = Some(Tick::from_nanos(1));
        for (are_one, server_time, expected) in [
            (true, time, [true; 2]),
            (true, None, [false; 2]),
            (false, time, [false, true]),
            (false, None, [false; 2]),
        ] {
            let shared = Shared::new(Servers { are_one }, Duration::ZERO);
            shared.time.learn(MonotonicClock.now(), server_time);
            let has_time = [false, true].map(|is_current| shared.has_time_of_key(is_current));
            assert_eq!(has_time, expected, "{are_one}, {server_time:?}");
        }
    }
}
