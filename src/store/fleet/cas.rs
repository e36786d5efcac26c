//! Exchanges over any store with a compare-and-swap.
//!
//! A store that runs programs executes a [batch](Batch) in one step. Else each key is one swap, and its value is the
//! record of an exact limit with that of the key as its state. So it names its last writes, and a swap without a reply is
//! found. If others may have displaced its name, what was used counts again, and what was given back lapses.

use std::sync::Arc;

use tokio::{sync::Mutex, task::JoinSet};

use super::batch::{Batch, Replies, micros, text_of};
use super::exchange::Reply;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::cas::{
    CasStore, Runs,
    record::Record,
    shared::Shared,
    swap::{Held, OnKey, Sent, swap},
};
use crate::store::events::RemoteMetrics;

/// A batch without a reply, and how far the exchange of each key is if each is swapped: that outlives the tasks.
pub(super) struct Flight {
    pub(super) batch: Batch,
    pub(super) hashes: Vec<u64>,
    /// When it was sent first.
    pub(super) begun: Tick,
    progress: Vec<Mutex<Progress>>,
}

#[derive(Default)]
struct Progress {
    /// What came of it, and when; no reply if the value is damaged.
    done: Option<(Option<Reply>, u64)>,
    sent: Vec<Sent<(Option<Reply>, u64)>>,
}

impl Flight {
    pub(super) fn new(batch: Batch, hashes: Vec<u64>, begun: Tick) -> Arc<Self> {
        Arc::new(Self {
            progress: batch.keys.iter().map(|_| Mutex::default()).collect(),
            batch,
            hashes,
            begun,
        })
    }
}

/// Executes a batch, or what is not yet executed of it.
///
/// # Errors
/// If the store cannot be reached. Some keys may be exchanged already: the batch is sent again.
pub(super) async fn exchange<S: CasStore>(
    shared: &Arc<Shared<S>>,
    flight: &Arc<Flight>,
) -> Result<Replies, StoreError> {
    let batch = &flight.batch;
    if S::RUNS != Runs::None {
        RemoteMetrics(S::NAME).batch_sent(batch.keys.len());
        return shared.call(shared.store.run(batch)).await;
    }
    let mut running = JoinSet::new();
    for index in 0..batch.keys.len() {
        let (shared, flight) = (Arc::clone(shared), Arc::clone(flight));
        running.spawn(async move { (index, exchange_key(&shared, &flight, index).await) });
    }
    let mut keys = vec![None; batch.keys.len()];
    let mut latest = None;
    while let Some(joined) = running.join_next().await {
        let failed = |error| StoreError::new(format!("{}: {error}", S::NAME), true);
        let (index, done) = joined.map_err(failed)?;
        let (reply, now) = done?;
        keys[index] = reply;
        latest = latest.max(now);
    }
    let now = latest.unwrap_or_else(|| micros(shared.time.now()));
    Ok(Replies { now, keys })
}

/// Returns the reply for a key, and the store's time of an exchange that was done now.
async fn exchange_key<S: CasStore>(
    shared: &Shared<S>,
    flight: &Flight,
    index: usize,
) -> Result<(Option<Reply>, Option<u64>), StoreError> {
    let mut progress = flight.progress[index].lock().await;
    if let Some((reply, _)) = progress.done {
        return Ok((reply, None));
    }
    let (batch, begun) = (&flight.batch, MonotonicClock.now());
    let key = &batch.keys[index].0;
    shared.back_off(key, begun).await;
    let mut exchange = Exchange {
        batch,
        index,
        shared,
        begun,
        ends_at: MonotonicClock.now().plus(shared.deadline),
        is_unsure: false,
    };
    let done = swap(shared, key, &mut exchange, &mut None, &mut progress.sent).await;
    let (reply, now) = done.unwrap_or_else(|| Err(shared.deadline_exceeded()))?;
    progress.done = Some((reply, now));
    Ok((reply, Some(now)))
}

/// The exchange of one key.
struct Exchange<'a, S> {
    batch: &'a Batch,
    index: usize,
    shared: &'a Shared<S>,
    begun: Tick,
    ends_at: Tick,
    /// Whether it may have been executed before.
    is_unsure: bool,
}

impl<S: CasStore> OnKey for Exchange<'_, S> {
    type Reply = (Option<Reply>, u64);
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
        let Some(mut record) = batch.read(self.index, bytes, now) else {
            return Ok((None, (None, now)));
        };
        let time = (now, !self.shared.time.is_of_this_machine());
        let report = &batch.keys[self.index].1;
        let reply = record.exchange(&batch.limit, report, time, self.is_unsure);
        let state = text_of(&record.lists()).into_bytes();
        let written = held.record.with_state(state, held.now.plus(batch.ttl()));
        Ok((Some(written), (Some(reply), now)))
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
#[allow(clippy::unwrap_used, reason = "helpers of tests")]
mod tests;
