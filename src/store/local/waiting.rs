//! Waiting until a request of a key is admitted.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use super::Local;
use crate::acquire::{Acquire, Attempt, acquire, attempt, cancel};
use crate::algorithm::Words;
use crate::clock::{Tick, Timer};
use crate::decision::Decision;

impl<A: Words, C: Timer, S: BuildHasher> Local<A, C, S> {
    /// Waits until a cost of 1 is admitted for this key, and takes it.
    ///
    /// This is [`Limiter::until_ready`](crate::Limiter::until_ready) for one key: the callers of a
    /// key are served first come, first served if the algorithm has a queue, and no runtime is
    /// needed. If the table is full and its policy is
    /// [`Overflow::Deny`](crate::store::local::Overflow::Deny), the caller waits for a slot.
    ///
    /// # Cancel safety
    /// Dropping the future gives the queue position back.
    ///
    /// If several limits of a set can make the call wait, what time has returned since the call is not
    /// given back again: the turn in one of them may have come.
    ///
    /// ```
    /// # #[cfg(not(feature = "tokio"))] fn main() {}
    /// # #[cfg(feature = "tokio")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// use tower_throttle::{Local, Quota, TokenBucket};
    ///
    /// let limiter = Local::new(TokenBucket::new(Quota::per_second(10).burst(1)));
    /// let start = tokio::time::Instant::now();
    /// for _ in 0..5 {
    ///     limiter.until_ready("api.example.com").await;
    ///     limiter.until_ready("api.example.org").await;
    /// }
    /// assert_eq!(start.elapsed().as_millis(), 400);
    /// # }
    /// ```
    pub async fn until_ready<K: Hash + ?Sized>(&self, key: &K) {
        // Without a timeout only a cost above the capacity is denied. A cost of 1 never is.
        let _ = self.acquire(key, 1, Duration::MAX).await;
    }

    /// Waits until `cost` is admitted for this key, for at most `timeout`. If that is not long
    /// enough, the cost is denied at once and nothing is taken.
    ///
    /// # Cancel safety
    /// The same as for [`until_ready`](Self::until_ready).
    ///
    /// ```
    /// # #[cfg(not(feature = "tokio"))] fn main() {}
    /// # #[cfg(feature = "tokio")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use tower_throttle::{Local, Quota, TokenBucket};
    ///
    /// let limiter = Local::new(TokenBucket::new(Quota::per_second(10)));
    /// assert!(limiter.acquire("alice", 10, Duration::ZERO).await.is_admitted());
    /// let late = limiter.acquire("alice", 5, Duration::from_millis(400)).await;
    /// assert_eq!(late.retry_after, Some(Duration::from_millis(100)));
    /// # }
    /// ```
    pub async fn acquire<K: Hash + ?Sized>(
        &self,
        key: &K,
        cost: u64,
        timeout: Duration,
    ) -> Decision {
        let entry = Entry {
            local: self,
            hash: self.hash(key),
        };
        acquire(&entry, cost, timeout).await
    }
}

/// One key of a table.
struct Entry<'a, A: Words, C, S> {
    local: &'a Local<A, C, S>,
    hash: u64,
}

impl<A: Words, C: Timer, S: BuildHasher> Acquire for Entry<'_, A, C, S> {
    type Clock = C;

    fn clock(&self) -> &C {
        &self.local.shared.clock
    }

    fn attempt(&self, now: Tick, cost: u64, max_wait: Duration) -> Attempt {
        let step =
            |algorithm: &A, state: &mut A::State| attempt(algorithm, state, now, cost, max_wait);
        self.local
            .at(self.hash, now, cost > 0, step)
            .unwrap_or_else(|free| {
                let decision = self.local.deny_full(free, now);
                Attempt {
                    decision,
                    retry: decision.retry_after.filter(|retry| *retry <= max_wait),
                }
            })
    }

    fn cancel(&self, taken_at: Tick, turn: Tick, cost: u64) {
        let now = self.local.shared.clock.now();
        let step = |algorithm: &A, state: &mut A::State| {
            cancel(algorithm, state, (taken_at, turn), now, cost);
        };
        // A key without a slot has nothing to refund.
        let _ = self.local.at(self.hash, now, false, step);
    }
}
