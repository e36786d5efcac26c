//! Exchanges over any store with a compare-and-swap.
//!
//! A store that runs programs executes a [batch](Batch) in one step. Else each key is one swap, and its value is the
//! record of an exact limit with that of the key as its state. So it names its last writes, and a swap without a reply is
//! found. If others may have displaced its name, what was used counts again, and what was given back lapses.

use std::sync::Arc;

use tokio::{sync::Mutex as AsyncMutex, task::JoinSet};

use super::batch::{Batch, Replies, micros};
use super::record::Reply;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::cas::{
    CasStore, Runs,
    record::Record,
    shared::Shared,
    swap::{Held, OnKey, Sent, swap},
};
use crate::store::events::RemoteMetrics;
use crate::sync::{Mutex, lock};

/// How many keys of a batch are exchanged at a time.
const CONCURRENT: usize = 64;

/// The budgets of a limit in a store.
#[derive(Debug)]
pub(super) struct Exchanger<S> {
    pub(super) shared: Arc<Shared<S>>,
    /// What became of the keys of the last batch, if each is swapped.
    last: Mutex<Option<(Arc<Batch>, OfKeys)>>,
}

/// Of each key of a batch.
type OfKeys = Arc<[AsyncMutex<Progress>]>;

/// How far the exchange of a key is. It outlives its task.
#[derive(Debug, Default)]
struct Progress {
    reply: Option<Reply>,
    sent: Vec<Sent<(Reply, u64)>>,
}

impl<S: CasStore> Exchanger<S> {
    pub(super) fn new(shared: Arc<Shared<S>>) -> Self {
        let last = Mutex::default();
        Self { shared, last }
    }

    /// Executes a batch, or what is not yet executed of the last one.
    ///
    /// # Errors
    /// If the store cannot be reached. Some keys may be exchanged already: the batch is sent again.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
    ) -> Result<Replies, StoreError> {
        if S::RUNS != Runs::None {
            RemoteMetrics(S::NAME).batch_sent(batch.keys.len());
            return self.shared.call(self.shared.store.run(&**batch)).await;
        }
        let progress = self.progress_of(batch);
        let mut keys = vec![Reply::default(); batch.keys.len()];
        let mut latest = None;
        let mut running = JoinSet::new();
        let mut waiting = 0..batch.keys.len();
        loop {
            while running.len() < CONCURRENT {
                let Some(index) = waiting.next() else {
                    break;
                };
                let (exchanger, batch, progress) =
                    (Arc::clone(self), Arc::clone(batch), Arc::clone(&progress));
                running.spawn(async move {
                    let mut progress = progress[index].lock().await;
                    (
                        index,
                        exchanger.exchange_key(&batch, index, &mut progress).await,
                    )
                });
            }
            let Some(joined) = running.join_next().await else {
                break;
            };
            let failed = |error| StoreError::new(format!("{}: {error}", S::NAME), true);
            let (index, done) = joined.map_err(failed)?;
            let (reply, now) = done?;
            keys[index] = reply;
            latest = latest.max(now);
        }
        let now = latest.unwrap_or_else(|| micros(self.shared.time.now()));
        Ok(Replies { now, keys })
    }

    fn progress_of(&self, batch: &Arc<Batch>) -> OfKeys {
        let mut last = lock(&self.last);
        let is_new = |last: &(Arc<Batch>, _)| !Arc::ptr_eq(&last.0, batch);
        if last.as_ref().is_none_or(is_new) {
            let progress = batch.keys.iter().map(|_| AsyncMutex::default()).collect();
            *last = Some((Arc::clone(batch), progress));
        }
        last.as_ref()
            .map_or_else(|| [].into(), |(_, progress)| Arc::clone(progress))
    }

    /// Returns the reply for a key, and the store's time of an exchange that was done now.
    async fn exchange_key(
        &self,
        batch: &Batch,
        index: usize,
        progress: &mut Progress,
    ) -> Result<(Reply, Option<u64>), StoreError> {
        if let Some(reply) = progress.reply {
            return Ok((reply, None));
        }
        let (shared, key, begun) = (&self.shared, &batch.keys[index].0, MonotonicClock.now());
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
        progress.reply = Some(reply);
        Ok((reply, Some(now)))
    }

    /// Whether the store is reached: it loads a value.
    pub(super) async fn reach(&self, key: &str) -> Result<(), StoreError> {
        let sent_at = MonotonicClock.now();
        let loaded = self.shared.call(self.shared.store.load(key)).await?;
        self.shared.time.learn(sent_at, loaded.server_time);
        Ok(())
    }
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
    type Reply = (Reply, u64);
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
            return Ok((None, (Reply::damaged(), now)));
        };
        let time = (now, !self.shared.time.is_of_this_machine());
        let reply = batch.exchange(self.index, &mut record, time, self.is_unsure);
        let state = record.to_text().into_bytes();
        let written = held.record.with_state(state, held.now.plus(batch.ttl()));
        Ok((Some(written), (reply, now)))
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
#[allow(clippy::unwrap_used, reason = "helpers of tests")]
mod tests;
