//! Changes the record of a key, by as many swaps as that takes.

use std::{sync::Arc, time::Duration};

use super::{
    CasStore, Swapped, Value, Version,
    error::Failure,
    recent::{Known, RecentRecords},
    record::Record,
    shared::Shared,
};
use crate::clock::{Clock, MonotonicClock, Tick, Timer};
use crate::error::StoreError;
use crate::sync::{Mutex, Ordering, lock};

/// How many records are kept that were used lately, and as many that were used before.
const RECORDS_PER_GENERATION: usize = 50_000;

/// What a step makes of a record.
#[derive(Debug)]
pub(in crate::store) struct Next<T> {
    pub(in crate::store) reply: T,
    /// What has to be written before the reply holds, and for how long; `None` if nothing changes.
    pub(in crate::store) record: Option<(Record, Duration)>,
}

/// A store, and the records that it was last seen to hold.
#[derive(Debug)]
pub(in crate::store) struct Exchanger<S> {
    pub(in crate::store) shared: Arc<Shared<S>>,
    records: Mutex<RecentRecords>,
}

impl<S: CasStore> Exchanger<S> {
    pub(in crate::store) fn new(shared: Arc<Shared<S>>) -> Self {
        Self {
            shared,
            records: Mutex::default(),
        }
    }

    /// Replaces the record of a key by what `step` makes of it at the present moment, and returns the
    /// reply of that step. If nothing changes, the record was read in this call. `learn` is called with
    /// the moment at which each call was sent and the store's time. A step that `replaces` the state
    /// works on an empty record if the record is damaged.
    pub(in crate::store) async fn exchange<T>(
        &self,
        name: &Arc<str>,
        replaces: bool,
        learn: impl Fn(Tick, Option<Tick>),
        mut step: impl FnMut(&Record, Tick) -> Result<Next<T>, Failure>,
    ) -> Result<T, StoreError> {
        let shared = &self.shared;
        let ends_at = MonotonicClock.now().plus(shared.deadline);
        let mut known = lock(&self.records).take(name);
        let (mut is_fresh, mut conflicts) = (false, 0);
        loop {
            shared.check_breaker()?;
            let sent_at = MonotonicClock.now();
            let (Some(current), Some(now)) = (known.take(), shared.time.now()) else {
                let loaded = shared.call_until(ends_at, shared.store.load(name)).await?;
                shared.time.learn(loaded.server_time);
                learn(sent_at, loaded.server_time);
                known = Some(read::<S>(loaded.value, replaces)?);
                is_fresh = true;
                continue;
            };
            let next = step(&current.record, now);
            let Next { reply, record } = next.map_err(|failure| failure.in_store(S::NAME))?;
            let Some((record, ttl)) = record else {
                if !is_fresh {
                    // Another machine may have changed the record since.
                    continue;
                }
                self.keep(name, current);
                return Ok(reply);
            };
            let version = shared.next_version();
            let record = record.swapped_by(version);
            let value = Value::new(version, record.to_bytes());
            let swap = shared.store.swap(name, current.version, &value, ttl);
            match shared.call_until(ends_at, swap).await? {
                Swapped::Done(server_time) => {
                    shared.swaps.fetch_add(1, Ordering::Relaxed);
                    if server_time.is_some() {
                        shared.time.learn(server_time);
                        learn(sent_at, server_time);
                    }
                    let version = Some(version);
                    self.keep(name, Known { version, record });
                    return Ok(reply);
                }
                Swapped::Conflict(loaded) => {
                    shared.conflicts.fetch_add(1, Ordering::Relaxed);
                    conflicts += 1;
                    if conflicts > 1 {
                        self.pause(conflicts, ends_at).await?;
                    } else if let Some(loaded) = loaded {
                        shared.time.learn(loaded.server_time);
                        learn(sent_at, loaded.server_time);
                        known = Some(read::<S>(loaded.value, replaces)?);
                        is_fresh = true;
                    }
                }
            }
        }
    }

    fn keep(&self, name: &Arc<str>, known: Known) {
        lock(&self.records).keep(name, known, RECORDS_PER_GENERATION);
    }

    /// Lets another machine go first: a random time that grows with each conflict.
    async fn pause(&self, conflicts: u32, ends_at: Tick) -> Result<(), StoreError> {
        let until = self.shared.retry_at(conflicts);
        if until >= ends_at {
            let message = format!("{}: too many conflicts with other machines", S::NAME);
            return Err(StoreError::new(message, true));
        }
        MonotonicClock.sleep_until(until).await;
        Ok(())
    }
}

/// The record of a value.
fn read<S: CasStore>(value: Option<Value>, replaces: bool) -> Result<Known, StoreError> {
    let version: Option<Version> = value.as_ref().map(|value| value.version);
    let record = match value {
        Some(value) => Record::from_bytes(&value.bytes),
        None => Some(Record::default()),
    };
    match record {
        Some(record) => Ok(Known { version, record }),
        None if replaces => Ok(Known {
            version,
            record: Record::default(),
        }),
        None => Err(Failure::Damaged.in_store(S::NAME)),
    }
}
