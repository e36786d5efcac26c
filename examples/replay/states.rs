//! The states of the keys, in this process, in Redis, or in a store with a compare-and-swap.

use std::time::Duration;

use tower_throttle::{
    Decision,
    algorithm::{Algorithm, AnyAlgorithm, AnyState, Cost, GiveBack, reserve},
    clock::Tick,
};

use crate::policy::{Policy, QuotaChange};

/// The states of all keys. A key is an index, in the order of first use. Errors are those of the
/// store.
pub(crate) trait States {
    /// Adds a key, which gets the next index.
    fn begin(&mut self, name: &str, now: Tick) -> Result<(), String>;

    fn decide(&mut self, key: usize, now: Tick, n: u64) -> Result<Decision, String>;

    fn reserve(
        &mut self,
        key: usize,
        now: Tick,
        n: u64,
        max_wait: Duration,
    ) -> Result<Decision, String>;

    fn peek(&mut self, key: usize, now: Tick, n: u64) -> Result<Decision, String>;

    /// The decision that [`reserve`](Self::reserve) would give.
    fn peek_at_line(
        &mut self,
        key: usize,
        now: Tick,
        n: u64,
        max_wait: Duration,
    ) -> Result<Decision, String>;

    fn take_up_to(&mut self, key: usize, now: Tick, most: u64) -> Result<(u64, Decision), String> {
        // No other call comes in between, and the time is fixed.
        let mut taken = self.peek(key, now, 0)?.remaining().min(most);
        loop {
            let looked = self.peek(key, now, taken)?;
            if taken == 0 || looked.is_admitted() {
                return Ok((taken, self.decide(key, now, taken)?));
            }
            // Another limit of a set has less.
            taken = looked.remaining().min(taken - 1);
        }
    }

    fn refund(&mut self, key: usize, now: Tick, n: u64) -> Result<(), String>;

    fn charge(&mut self, key: usize, now: Tick, n: u64) -> Result<Duration, String>;

    fn reset(&mut self, key: usize, now: Tick) -> Result<(), String>;

    /// Changes the quota of all keys to that of `policy`, in which it is set already.
    fn set_quota(&mut self, policy: &Policy, change: &QuotaChange, now: Tick)
    -> Result<(), String>;
}

/// The states in this process.
pub(crate) struct InProcess {
    algorithm: AnyAlgorithm,
    states: Vec<AnyState>,
}

impl InProcess {
    pub(crate) fn new(policy: &Policy) -> Self {
        Self {
            algorithm: policy.algorithm.clone(),
            states: Vec::new(),
        }
    }
}

impl States for InProcess {
    fn begin(&mut self, _name: &str, now: Tick) -> Result<(), String> {
        self.states.push(self.algorithm.fresh(now));
        Ok(())
    }

    fn decide(&mut self, key: usize, now: Tick, n: u64) -> Result<Decision, String> {
        Ok(self.algorithm.decide(&mut self.states[key], now, n))
    }

    fn reserve(
        &mut self,
        key: usize,
        now: Tick,
        n: u64,
        max_wait: Duration,
    ) -> Result<Decision, String> {
        let state = &mut self.states[key];
        Ok(reserve(&self.algorithm, state, now, n, max_wait))
    }

    fn peek(&mut self, key: usize, now: Tick, n: u64) -> Result<Decision, String> {
        Ok(self.algorithm.peek(&self.states[key], now, n))
    }

    fn peek_at_line(
        &mut self,
        key: usize,
        now: Tick,
        n: u64,
        max_wait: Duration,
    ) -> Result<Decision, String> {
        let state = &self.states[key];
        Ok(self.algorithm.peek_within(state, now, n, max_wait))
    }

    fn refund(&mut self, key: usize, now: Tick, n: u64) -> Result<(), String> {
        self.algorithm.refund(
            &mut self.states[key],
            now,
            Cost { units: n, at: now },
            GiveBack::Refund,
        );
        Ok(())
    }

    fn charge(&mut self, key: usize, now: Tick, n: u64) -> Result<Duration, String> {
        Ok(self.algorithm.charge(&mut self.states[key], now, n))
    }

    fn reset(&mut self, key: usize, now: Tick) -> Result<(), String> {
        self.states[key] = self.algorithm.fresh(now);
        Ok(())
    }

    fn set_quota(
        &mut self,
        policy: &Policy,
        _change: &QuotaChange,
        now: Tick,
    ) -> Result<(), String> {
        let before = std::mem::replace(&mut self.algorithm, policy.algorithm.clone());
        for state in &mut self.states {
            // A store may have dropped it: what it had is not kept by chance.
            if before.forgettable_at(state) <= now {
                *state = self.algorithm.fresh(now);
            } else {
                self.algorithm.rescale(state, &before, now);
            }
        }
        Ok(())
    }
}

/// `decision` with the figures of `rest`, the key's current state.
#[cfg(any(feature = "cas", feature = "redis"))]
pub(crate) fn with_figures_of(decision: Decision, rest: &Decision) -> Decision {
    let ns = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    let (retry, reset) = (decision.retry_after.map(ns), ns(rest.reset_after));
    let mut told = Decision::new(
        decision.verdict,
        decision.limit,
        rest.remaining(),
        retry,
        reset,
    );
    told.policy = decision.policy;
    told
}

/// Searches for the time after which a key is not in debt any more: at the latest when it is as good as
/// new, after `reset_after`.
#[cfg(any(feature = "cas", feature = "redis"))]
pub(crate) fn debt_ends(
    reset_after: Duration,
    mut is_in_debt: impl FnMut(Duration) -> Result<bool, String>,
) -> Result<Duration, String> {
    let (mut paid, mut owed) = (reset_after, Duration::ZERO);
    if !is_in_debt(owed)? {
        return Ok(owed);
    }
    while owed + Duration::from_nanos(1) < paid {
        let between = (owed + paid) / 2;
        if is_in_debt(between)? {
            owed = between;
        } else {
            paid = between;
        }
    }
    Ok(paid)
}
