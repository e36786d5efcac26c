//! The task that decides the calls of a lane.

use std::{collections::HashSet, pin::pin, sync::Arc};

use super::{
    CasStore, Runs,
    calls::Calls,
    decider::{Decisions, decide},
    inner::Inner,
    lanes::{Lane, Place, Waiting},
    record::Record,
    swap::{Held, Known, OnKey, swap},
};
use crate::algorithm::Algorithm;
use crate::backend::Op;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::{events::RemoteMetrics, local::Seeded, remote::catch_panic};
use crate::sync::PoisonError;

/// The most calls that are decided in this process in one step.
const MAX_DECIDED: usize = 1_000;
/// The most calls of a script, apart from those that repeat one on the same key.
const MAX_BATCH: usize = 64;
/// A script takes so many calls even if the other one in flight is shorter. While the store executes a short one, the
/// client could not prepare a long one.
const MIN_LONG_BATCH: usize = 16;
/// Scripts of a group in flight: one that the store executes, and one that is written or read.
pub(super) const IN_FLIGHT: usize = 2;

/// Decides the calls of a lane until there are none.
pub(super) struct Driver<S: CasStore, A: Algorithm> {
    pub(super) inner: Arc<Inner<S, A>>,
    pub(super) place: Place,
}

impl<S: CasStore, A: Algorithm> Driver<S, A> {
    pub(super) async fn run(self) {
        let Self { inner, place } = &self;
        let lane = &place.lane;
        let mut known = inner.lanes.take_known(lane);
        let bounds = if S::RUNS == Runs::Scripts && !matches!(lane, Lane::Key(_)) {
            MIN_LONG_BATCH..=MAX_BATCH
        } else {
            0..=MAX_DECIDED
        };
        // How many calls were decided last.
        let mut decided = 0;
        loop {
            // Callers that have just got their decisions make their next calls before these are sent, on all threads.
            // Calls are never delayed to fill a batch.
            let mut waiting = 0;
            // A caller that is alone starts another task with its next call.
            let is_over = decided == 1 && inner.lanes.waiting(lane) == 0;
            if !is_over {
                let enough = decided.min(*bounds.end());
                // Under overload the turn of this task comes late, so it is not given away.
                while decided == 0 || inner.lanes.waiting(lane) < enough.div_ceil(2) {
                    tokio::task::yield_now().await;
                    let before = std::mem::replace(&mut waiting, inner.lanes.waiting(lane));
                    if waiting <= before || waiting >= enough {
                        break;
                    }
                }
            }
            if let Lane::Key(key) = lane {
                // Before the calls are taken, so that those that come meanwhile go with them. What was known of
                // the key is old then.
                if !is_over && S::RUNS != Runs::All && inner.shared.contended.has(key) {
                    inner.shared.back_off(key, MonotonicClock.now()).await;
                    known = None;
                }
            }
            let ends_by = inner.ends_by(MonotonicClock.now());
            let calls = inner.lanes.take(place, &bounds, ends_by, &mut known);
            let Some(mut calls) = calls else {
                return;
            };
            if S::RUNS == Runs::Scripts && calls.len() == MAX_BATCH {
                // What repeats these calls costs the store hardly more.
                let keys = calls.iter().map(|call| &*call.key).collect();
                let more = inner.take_of(place, &keys);
                calls.extend(more);
            }
            decided = calls.len();
            inner.end_known(&mut calls);
            let Lane::Key(key) = lane else {
                inner.run(calls, place).await;
                continue;
            };
            let mut round = Round {
                inner,
                place,
                calls,
            };
            while !round.calls.is_empty() {
                if !round.swap(key, &mut known).await {
                    // Others swap the key too, so it is the turn of a program.
                    inner.run(std::mem::take(&mut round.calls), place).await;
                }
            }
        }
    }
}

/// Fails the calls that are left, if the runtime is shut down.
impl<S: CasStore, A: Algorithm> Drop for Driver<S, A> {
    fn drop(&mut self) {
        self.inner.lanes.abandon(&self.place);
    }
}

/// The call of a caller that sends it itself.
pub(super) struct Alone<S: CasStore, A: Algorithm> {
    pub(super) inner: Arc<Inner<S, A>>,
    pub(super) lane: Lane,
}

impl<S: CasStore, A: Algorithm> Drop for Alone<S, A> {
    fn drop(&mut self) {
        self.inner.lanes.leave(&self.lane);
    }
}

impl<S: CasStore, A: Algorithm> Inner<S, A> {
    /// Decides calls by a program. One without a reply is not sent again: it may have counted them.
    async fn run(self: &Arc<Self>, mut calls: Vec<Waiting<A>>, place: &Place) {
        // Calls that were dropped, or whose deadline passed, are not sent, and not charged.
        let Some(ends_at) = self.drop_unwanted(&mut calls) else {
            return;
        };
        let joins = (S::RUNS == Runs::All).then(|| place.clone());
        let program = Calls::new(self, calls, joins);
        let ran = self.run_program(&program, ends_at).await;
        let joined = program.joined.into_inner();
        let joined = joined.unwrap_or_else(PoisonError::into_inner);
        let mut calls = program.own;
        calls.extend(joined);
        if ran.as_ref().is_err_and(StoreError::is_of_key) {
            // Of one of the keys. Each waits for itself from now on.
            for call in calls {
                self.shared.contended.forget(&call.key);
                self.push(&Lane::Key(Arc::clone(&call.key)), 1, call);
            }
            return;
        }
        let results = ran.unwrap_or_else(|error| vec![Err(error); calls.len()]);
        self.end_all(calls, program.asked_at, results).await;
    }

    /// Ends calls with their results. Other tasks, of which one may hold the locks of rows, go on in between.
    async fn end_all(
        &self,
        calls: impl IntoIterator<Item = Waiting<A>>,
        asked_at: Tick,
        results: impl IntoIterator<Item = Result<Decision, StoreError>>,
    ) {
        for (number, (mut call, result)) in calls.into_iter().zip(results).enumerate() {
            call.reply(self.learn(&call, asked_at, result));
            if number % 64 == 63 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The results of the calls of a program, in their order.
    pub(super) async fn run_program(
        &self,
        program: &Calls<S, A>,
        ends_at: Tick,
    ) -> Result<Vec<Result<Decision, StoreError>>, StoreError> {
        let shared = &self.shared;
        let key = program.own.first().map_or("", |call| &*call.key);
        RemoteMetrics(S::NAME).batch_sent(program.own.len());
        let run = pin!(shared.store.run(program));
        let decided = shared.call_until(key, ends_at, run).await?;
        for (place, denial) in decided.denials {
            let _ = self.learn(&program.own[place], program.asked_at, Ok(denial));
        }
        for (key, versions) in decided.swaps {
            shared.contended.note_turn(&key, versions, shared.deadline);
        }
        Ok(decided.results)
    }

    /// Further calls on some keys.
    pub(super) fn take_of(&self, place: &Place, keys: &HashSet<&str, Seeded>) -> Vec<Waiting<A>> {
        let ends_by = self.ends_by(MonotonicClock.now());
        self.lanes.take_of(place, keys, ends_by)
    }

    /// Ends calls that are not awaited any more. Returns by when the others have to be done, if there are any.
    pub(super) fn drop_unwanted(&self, calls: &mut Vec<Waiting<A>>) -> Option<Tick> {
        let now = MonotonicClock.now();
        calls.retain_mut(|call| {
            let is_wanted = call.is_wanted(now);
            if !is_wanted {
                call.reply(Err(self.shared.deadline_exceeded()));
            }
            is_wanted
        });
        calls.iter().map(|call| call.deadline).max()
    }
}

/// Calls of one key that are decided together.
struct Round<'a, S: CasStore, A: Algorithm> {
    inner: &'a Arc<Inner<S, A>>,
    place: &'a Place,
    calls: Vec<Waiting<A>>,
}

impl<S: CasStore, A: Algorithm> Round<'_, S, A> {
    /// Decides the calls by a swap. Returns whether it did. Those that have come since wait for the next one.
    async fn swap(&mut self, key: &Arc<str>, known: &mut Option<Known>) -> bool {
        RemoteMetrics(S::NAME).batch_sent(self.calls.len());
        let asked_at = MonotonicClock.now();
        let (inner, mut sent) = (self.inner, Vec::new());
        // An algorithm of a user's own may panic.
        let swapping = swap(&inner.shared, key, self, known, &mut sent);
        let swapped = catch_panic(S::NAME, pin!(swapping)).await;
        match swapped.unwrap_or_else(|error| Some(Err(error))) {
            None => return self.calls.is_empty(),
            Some(Ok((asked_at, decisions))) => {
                let calls = self.calls.drain(..decisions.len());
                let decisions = decisions.into_iter().map(Ok);
                self.inner.end_all(calls, asked_at, decisions).await;
            }
            Some(Err(error)) => {
                let results = std::iter::repeat(Err(error));
                self.inner
                    .end_all(self.calls.drain(..), asked_at, results)
                    .await;
            }
        }
        true
    }
}

impl<S: CasStore, A: Algorithm> OnKey for Round<'_, S, A> {
    type Reply = Decisions;

    /// Ends calls that are not awaited any more, unless a swap may have counted them and others are
    /// awaited.
    fn ends_at(&mut self, is_open: bool) -> Option<Tick> {
        let now = MonotonicClock.now();
        let any_wanted = self.calls.iter().any(|call| call.is_wanted(now));
        if is_open && any_wanted {
            return self.calls.iter().map(|call| call.deadline).max();
        }
        self.inner.drop_unwanted(&mut self.calls)
    }

    fn begun_at(&self) -> Tick {
        let first = self.calls.first();
        first.map_or_else(|| MonotonicClock.now(), |call| call.queued_at)
    }

    fn may_run(&self) -> bool {
        S::RUNS == Runs::All
    }

    fn join(&mut self) {
        let keys = self.calls.iter().map(|call| &*call.key).collect();
        let more = self.inner.take_of(self.place, &keys);
        self.calls.extend(more);
    }

    fn replaces(&self) -> bool {
        self.calls.iter().any(|call| call.call.op == Op::Reset)
    }

    fn execute(
        &mut self,
        held: &Held<'_>,
        _is_current: bool,
    ) -> Result<(Option<Record>, Self::Reply), StoreError> {
        let calls: Vec<_> = self.calls.iter().map(|call| &call.call).collect();
        decide(S::NAME, held, &calls)
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;
