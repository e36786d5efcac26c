//! Exchanges over any store with a compare-and-swap.
//!
//! A store that can execute a [batch](Batch) in one step does so. Else each key is one swap: its value is the
//! record of the key and the names of its last [`NAMES`] writes. A batch that is sent again finds its name and
//! changes nothing. If others may have displaced it, what was used counts again, and what was given back lapses.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::task::JoinSet;

use super::batch::{Batch, Replies, micros};
use super::record::{Grant, Reply, numbers};
use crate::clock::{Clock, MonotonicClock};
use crate::error::StoreError;
use crate::store::cas::{CasStore, Loaded, Runs, Swapped, Value, shared::Shared};
use crate::sync::Ordering;

/// How many writes a value names.
const NAMES: usize = 8;
/// How many keys of a batch are exchanged at a time.
const CONCURRENT: usize = 64;

/// The budgets of a limit in a store.
#[derive(Debug)]
pub(super) struct Exchanger<S> {
    pub(super) shared: Arc<Shared<S>>,
}

/// The names of the last writes of a value, newest first.
type Names = VecDeque<Name>;

/// A write: a machine, the number of its batch, and what was granted.
struct Name([u64; 5]);

impl Name {
    const fn is_of(&self, batch: &Batch) -> bool {
        self.0[0] == batch.machine && self.0[1] == batch.sequence
    }

    fn text(&self) -> String {
        self.0.map(|number| number.to_string()).join(" ")
    }
}

impl<S: CasStore> Exchanger<S> {
    pub(super) fn new(shared: Arc<Shared<S>>) -> Self {
        Self { shared }
    }

    /// Executes a batch, or what is not yet executed of one that `is_again` sent.
    ///
    /// # Errors
    /// If the store cannot be reached. Some keys may be exchanged already: the batch is sent again.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        is_again: bool,
    ) -> Result<Replies, StoreError> {
        if S::RUNS != Runs::None {
            return self.shared.call(self.shared.store.run(&**batch)).await;
        }
        let mut keys = vec![Reply::default(); batch.keys.len()];
        let mut latest = 0;
        let mut running = JoinSet::new();
        let mut waiting = 0..batch.keys.len();
        loop {
            while running.len() < CONCURRENT {
                let Some(index) = waiting.next() else {
                    break;
                };
                let (exchanger, batch) = (Arc::clone(self), Arc::clone(batch));
                running.spawn(async move {
                    (index, exchanger.exchange_key(&batch, index, is_again).await)
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
        let now = if latest == 0 { micros(None) } else { latest };
        Ok(Replies { now, keys })
    }

    /// Returns the reply for a key, and the store's time.
    async fn exchange_key(
        &self,
        batch: &Batch,
        index: usize,
        is_again: bool,
    ) -> Result<(Reply, u64), StoreError> {
        let key = &batch.keys[index].0;
        let (shared, begun) = (&self.shared, MonotonicClock.now());
        shared.back_off(key, begun).await;
        let mut loaded = self.load(key).await?;
        loop {
            let now = micros(loaded.server_time);
            let bytes = loaded.value.as_ref().map(|value| &value.bytes[..]);
            let Some(mut record) = batch.read(index, bytes, now) else {
                return Ok((Reply::damaged(), now));
            };
            let mut names = bytes.map(names_of).unwrap_or_default();
            if let Some(Name([_, _, grant @ ..])) = names.iter().find(|name| name.is_of(batch)) {
                return Ok((batch.repeat(&mut record, now, Grant::of(*grant)), now));
            }
            let time = (now, loaded.server_time.is_some());
            // An earlier write of this machine that is still named shows that none after it was displaced.
            let is_named = names.iter().any(|name| name.0[0] == batch.machine);
            let is_unsure = is_again && names.len() >= NAMES && !is_named;
            let reply = batch.exchange(index, &mut record, time, is_unsure);
            names.truncate(NAMES - 1);
            let [epoch, units, keeps] = reply.grant.numbers();
            names.push_front(Name([batch.machine, batch.sequence, epoch, units, keeps]));
            let names: Vec<_> = names.iter().map(Name::text).collect();
            let text = format!("{}|{}", record.to_text(), names.join(","));
            match self.swap(key, &loaded, text, batch.ttl()).await? {
                Swapped::Done(_) => {
                    shared.contended.note(key, false, shared.deadline);
                    return Ok((reply, now));
                }
                Swapped::Conflict(_) => {
                    shared.contended.note(key, true, shared.deadline);
                    shared.back_off(key, begun).await;
                    loaded = self.load(key).await?;
                }
            }
        }
    }

    /// Whether the store is reached: it loads a value.
    pub(super) async fn reach(&self, key: &str) -> Result<(), StoreError> {
        self.load(key).await.map(|_| ())
    }

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        let sent_at = MonotonicClock.now();
        let loaded = self.shared.call(self.shared.store.load(key)).await?;
        self.shared.time.learn(sent_at, loaded.server_time);
        Ok(loaded)
    }

    async fn swap(
        &self,
        key: &str,
        loaded: &Loaded,
        text: String,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        let expected = loaded.value.as_ref().map(|value| value.version);
        let value = Value::new(self.shared.next_version(), text.into_bytes());
        let swap = self.shared.store.swap(key, expected, &value, ttl);
        let swapped = self.shared.call(swap).await?;
        if let Swapped::Conflict(_) = swapped {
            self.shared.conflicts.fetch_add(1, Ordering::Relaxed);
        }
        Ok(swapped)
    }
}

/// The names in a value.
fn names_of(value: &[u8]) -> Names {
    let text = std::str::from_utf8(value).unwrap_or_default();
    let (_, names) = text.split_once('|').unwrap_or_default();
    let name = |text: &str| Some(Name(numbers(text, ' ')?.try_into().ok()?));
    names.split(',').filter_map(name).collect()
}

#[cfg(all(test, not(tower_throttle_loom)))]
#[allow(clippy::unwrap_used, reason = "helpers of tests")]
mod tests;
