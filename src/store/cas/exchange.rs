//! Changes the record of a key, by as many swaps as that takes.

use std::{pin::pin, sync::Arc, time::Duration};

use super::{
    CasStore, Swapped, Value, Version,
    contention::Contention,
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
        // Whether the breaker allows a call that is not made yet: it allows a single probe.
        let mut is_allowed = false;
        loop {
            if !std::mem::replace(&mut is_allowed, true) {
                shared.check_breaker()?;
            }
            let sent_at = MonotonicClock.now();
            let (Some(current), Some(now)) = (known.take(), shared.time.now()) else {
                let load = pin!(shared.store.load(name));
                let loaded = shared.call_until(ends_at, load).await?;
                is_allowed = false;
                shared.time.learn(sent_at, loaded.server_time);
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
            let swap = pin!(shared.store.swap(name, current.version, &value, ttl));
            is_allowed = false;
            match shared.call_until(ends_at, swap).await? {
                Swapped::Done(server_time) => {
                    shared.swaps.fetch_add(1, Ordering::Relaxed);
                    if server_time.is_some() {
                        shared.time.learn(sent_at, server_time);
                        learn(sent_at, server_time);
                    }
                    let version = Some(version);
                    let contention = Contention::default();
                    self.keep(
                        name,
                        Known {
                            version,
                            record,
                            contention,
                        },
                    );
                    return Ok(reply);
                }
                Swapped::Conflict(loaded) => {
                    shared.conflicts.fetch_add(1, Ordering::Relaxed);
                    conflicts += 1;
                    if conflicts > 1 {
                        self.pause(conflicts, ends_at).await?;
                    } else if let Some(loaded) = loaded {
                        shared.time.learn(sent_at, loaded.server_time);
                        learn(sent_at, loaded.server_time);
                        known = Some(read::<S>(loaded.value, replaces)?);
                        is_fresh = true;
                    }
                }
            }
        }
    }

    /// Drops the records of keys that were not exchanged since the last call.
    pub(in crate::store) fn drop_unused(&self) {
        lock(&self.records).drop_unused();
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
        Some(record) => Ok(Known {
            version,
            record,
            contention: Contention::default(),
        }),
        None if replaces => Ok(Known {
            version,
            record: Record::default(),
            contention: Contention::default(),
        }),
        None => Err(Failure::Damaged.in_store(S::NAME)),
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use super::*;
    use crate::store::cas::{Fault, Faulty, MemoryStore};

    async fn exchange(
        exchanger: &Exchanger<Faulty<MemoryStore>>,
        name: &str,
        writes: bool,
    ) -> Result<(), StoreError> {
        let step = |record: &Record, _: Tick| {
            let ttl = Duration::from_secs(60);
            let record = writes.then(|| (record.clone(), ttl));
            Ok(Next { reply: (), record })
        };
        exchanger
            .exchange(&name.into(), false, |_, _| (), step)
            .await
    }

    #[tokio::test]
    async fn records_that_are_not_used_are_dropped() {
        let store = Faulty::new(MemoryStore::new());
        let exchanger = Exchanger::new(Arc::new(Shared::new(store, Duration::from_secs(1))));
        let is_known = |name| lock(&exchanger.records).take(name).is_some();
        for name in ["used", "unused"] {
            assert!(exchange(&exchanger, name, true).await.is_ok());
        }
        exchanger.drop_unused();
        assert!(exchange(&exchanger, "used", true).await.is_ok());
        exchanger.drop_unused();
        assert!(is_known("used") && !is_known("unused"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_probe_of_a_breaker_confirms_that_a_known_record_has_not_changed() {
        let store = Faulty::new(MemoryStore::new());
        let shared = Shared::new(store.clone(), Duration::from_secs(1));
        let exchanger = Exchanger::new(Arc::new(shared));
        assert!(exchange(&exchanger, "known", true).await.is_ok());
        store.plan([Fault::LostRequest; 3]);
        for _ in 0..3 {
            assert!(exchange(&exchanger, "other", false).await.is_err());
        }
        assert!(exchange(&exchanger, "other", false).await.is_err());
        assert_eq!(exchanger.shared.breakers.counts().probes, 0);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(exchange(&exchanger, "known", false).await.is_ok());
        assert!(!exchanger.shared.breakers.counts().is_open);
    }
}
