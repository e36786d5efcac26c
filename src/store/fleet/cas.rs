//! Exchanges over any store with a compare-and-swap.
//!
//! A store that runs programs executes a [batch](Batch) in one step. Else each key is one swap, and its value is the
//! record of an exact limit with that of the key as its state. So it names its last writes, and a swap without a reply is
//! found. If others may have displaced its name, what was used counts again, and what was given back lapses.

use std::pin::pin;

use tokio::sync::Mutex;

use super::batch::{Batch, Replies, micros, text_of};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::cas::{
    CasStore, Runs,
    record::Record,
    shared::Shared,
    swap::{Held, OnKey, Sent, swap},
};
use crate::store::events::RemoteMetrics;

/// A batch without a reply, of one key if that is swapped.
pub(super) struct Flight {
    pub(super) batch: Batch,
    pub(super) hashes: Vec<u64>,
    /// What its keys have in common. `None`: no other batch is sent before its reply.
    pub(super) group: Option<u64>,
    /// When it was sent first.
    pub(super) begun: Tick,
    /// The swaps that have no outcome: they outlive the task.
    pub(super) sent: Mutex<Vec<Sent<Replies>>>,
}

/// Executes a batch.
///
/// # Errors
/// If the store cannot be reached: the batch is sent again.
pub(super) async fn exchange<S: CasStore>(
    shared: &Shared<S>,
    flight: &Flight,
) -> Result<Replies, StoreError> {
    let (batch, begun) = (&flight.batch, MonotonicClock.now());
    let key = &batch.keys[0].0;
    if S::RUNS != Runs::None {
        RemoteMetrics(S::NAME).batch_sent(batch.keys.len());
        let ends_at = begun.plus(shared.deadline);
        return shared
            .call_until(key, ends_at, pin!(shared.store.run(batch)))
            .await;
    }
    shared.back_off(key, begun).await;
    let mut exchange = Exchange {
        batch,
        shared,
        begun,
        ends_at: MonotonicClock.now().plus(shared.deadline),
        is_unsure: false,
    };
    let mut sent = flight.sent.lock().await;
    let done = swap(shared, key, &mut exchange, &mut None, &mut sent).await;
    done.unwrap_or_else(|| Err(shared.deadline_exceeded()))
}

/// The exchange of one key.
struct Exchange<'a, S> {
    batch: &'a Batch,
    shared: &'a Shared<S>,
    begun: Tick,
    ends_at: Tick,
    /// Whether it may have been executed before.
    is_unsure: bool,
}

impl<S: CasStore> OnKey for Exchange<'_, S> {
    type Reply = Replies;
    const HAS_TIME: bool = false;

    fn ends_at(&mut self, _: bool) -> Option<Tick> {
        (MonotonicClock.now() < self.ends_at).then_some(self.ends_at)
    }

    fn begun_at(&self) -> Tick {
        self.begun
    }

    /// It has its turn, however many machines there are.
    fn join(&mut self) {
        self.ends_at = MonotonicClock.now().plus(self.shared.deadline);
    }

    fn replaces(&self) -> bool {
        true
    }

    fn loses_track(&mut self) -> bool {
        self.is_unsure = true;
        true
    }

    fn execute(
        &mut self,
        held: &Held<'_>,
        _is_current: bool,
    ) -> Result<(Option<Record>, Self::Reply), StoreError> {
        let (batch, now) = (self.batch, micros(Some(held.now)));
        let bytes = held.has_value.then(|| held.record.state());
        let mut replies = Replies {
            now,
            keys: vec![None],
        };
        let Some(mut record) = batch.read(0, bytes, now) else {
            return Ok((None, replies));
        };
        let time = (now, !self.shared.time.is_of_this_machine());
        let report = &batch.keys[0].1;
        replies.keys[0] = Some(record.exchange(&batch.limit, report, time, self.is_unsure));
        let state = text_of(&record.lists()).into_bytes();
        let written = held.record.with_state(state, held.now.plus(batch.ttl()));
        Ok((Some(written), replies))
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
#[allow(clippy::unwrap_used, reason = "helpers of tests")]
mod tests;
