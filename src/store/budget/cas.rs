//! Exchanges over any store with a compare-and-swap: one swap per key.
//!
//! A value is the record of its key and the names of its last [`NAMES`] writes, with what they granted. A
//! batch that is sent again finds its name and changes nothing. A name that others have displaced counts
//! twice, which only overcharges.
//!
//! Machines whose swaps conflict wait as stations on a shared wire do: at random in a window that doubles
//! with each conflict and halves with each success, and is remembered per key.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::task::JoinSet;

use super::batch::{Batch, Replies};
use super::exchange::{Moment, count_machine, exchange, figures};
use super::record::{Census, Record, Reply, Terms, numbers};
use super::shape::Shape;
use crate::clock::{Clock, MonotonicClock, Tick, Timer, unix_now};
use crate::error::StoreError;
use crate::store::cas::{CasStore, Loaded, Swapped, Value, shared::Shared};
use crate::sync::{Mutex, lock};

/// How many writes a value names.
const NAMES: usize = 8;
/// The window in which a key with one conflict waits. It doubles up to 2^8 times.
const WINDOW: Duration = Duration::from_micros(200);
const MAX_DOUBLINGS: u32 = 8;
/// How many keys of a batch are exchanged at a time.
const CONCURRENT: usize = 64;

/// The budgets of a limit in a store with a compare-and-swap.
#[derive(Debug)]
pub(super) struct CasBudgets<S> {
    shared: Shared<S>,
    terms: Terms,
    shape: Shape,
    census_key: String,
    /// The last beat in which this machine was counted, the machines, and when to look again.
    counted: Mutex<(u64, u64, Tick)>,
    /// How often the window of a key has doubled.
    doublings: Mutex<HashMap<Arc<str>, u32>>,
}

/// A write: a batch of a machine, the attempt that was executed, when, and what it granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    machine: u64,
    sequence: u64,
    attempt: u64,
    now: u64,
    reply: Reply,
}

/// What came of one key.
struct Exchanged {
    reply: Reply,
    attempt: u64,
    now: u64,
}

impl<S: CasStore> CasBudgets<S> {
    pub(super) fn new(shared: Shared<S>, terms: Terms, shape: Shape, census_key: String) -> Self {
        Self {
            shared,
            terms,
            shape,
            census_key,
            counted: Mutex::default(),
            doublings: Mutex::default(),
        }
    }

    /// Executes a batch, or what is not yet executed of it.
    ///
    /// # Errors
    /// If the store cannot be reached. Some keys may be exchanged already: the batch is sent again.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
    ) -> Result<Replies, StoreError> {
        let (beat, machines) = self.count(batch.beat).await?;
        let mut keys = vec![Reply::default(); batch.keys.len()];
        // The earliest attempt: what it granted lives from then on.
        let (mut now, mut attempt) = (0, batch.attempt);
        let mut running = JoinSet::new();
        let mut waiting = 0..batch.keys.len();
        loop {
            while running.len() < CONCURRENT {
                let Some(index) = waiting.next() else {
                    break;
                };
                let (budgets, batch) = (Arc::clone(self), Arc::clone(batch));
                running.spawn(async move {
                    let done = budgets.exchange_key(&batch, index, machines).await;
                    (index, done)
                });
            }
            let Some(joined) = running.join_next().await else {
                break;
            };
            let failed = |error| StoreError::new(format!("{}: {error}", S::NAME), true);
            let (index, done) = joined.map_err(failed)?;
            let done = done?;
            keys[index] = done.reply;
            now = now.max(done.now);
            attempt = attempt.min(done.attempt);
        }
        let now = if now == 0 { micros(None) } else { now };
        Ok(Replies {
            now,
            attempt,
            beat,
            machines,
            keys,
        })
    }

    async fn exchange_key(
        &self,
        batch: &Batch,
        index: usize,
        machines: u64,
    ) -> Result<Exchanged, StoreError> {
        let (key, report) = &batch.keys[index];
        self.wait(key).await;
        let mut conflicts = 0;
        let mut loaded = self.load(key).await?;
        loop {
            let now = micros(loaded.server_time);
            let (mut record, mut names) = self.read(loaded.value.as_ref(), now)?;
            let own =
                |name: &&Name| name.machine == batch.machine && name.sequence == batch.sequence;
            if let Some(Name {
                attempt,
                now,
                reply,
                ..
            }) = names.iter().find(own)
            {
                let figures = figures((&self.terms, &self.shape), &mut record);
                let reply = Reply {
                    reset: record.reset,
                    ..reply.with_figures_of(&figures)
                };
                return Ok(Exchanged {
                    reply,
                    attempt: *attempt,
                    now: *now,
                });
            }
            let dice = batch.dice(index);
            let moment = Moment {
                now,
                machines,
                dice,
            };
            let reply = exchange((&self.terms, &self.shape), &mut record, report, moment);
            names.truncate(NAMES - 1);
            let &Batch {
                machine,
                sequence,
                attempt,
                ..
            } = batch;
            names.insert(
                0,
                Name {
                    machine,
                    sequence,
                    attempt,
                    now: record.at,
                    reply,
                },
            );
            let text = self.write(&record, &names);
            match self.swap(key, &loaded, text).await? {
                Swapped::Done(_) => {
                    if conflicts == 0 {
                        self.note(key, false);
                    }
                    let now = record.at;
                    return Ok(Exchanged {
                        reply,
                        attempt,
                        now,
                    });
                }
                Swapped::Conflict(current) => {
                    conflicts += 1;
                    self.note(key, true);
                    loaded = match current {
                        // The first time at once.
                        Some(current) if conflicts == 1 => current,
                        _ => {
                            self.wait(key).await;
                            self.load(key).await?
                        }
                    };
                }
            }
        }
    }

    /// Counts this machine once per beat.
    async fn count(&self, beat: u64) -> Result<(u64, u64), StoreError> {
        let (last, machines, until) = *lock(&self.counted);
        let beat = beat.max(last);
        let now = MonotonicClock.now();
        if now < until {
            return Ok((beat, machines));
        }
        // Somewhat more often than once per beat.
        let until = now.plus(Duration::from_micros(9 * self.terms.interval));
        let mut loaded = self.load(&self.census_key).await?;
        for _ in 0..NAMES {
            let now = micros(loaded.server_time);
            let text = loaded
                .value
                .as_ref()
                .map(|value| String::from_utf8_lossy(&value.bytes));
            let fields = text.and_then(|text| numbers(&text)).unwrap_or_default();
            let mut census = match fields[..] {
                [beat, running, last] => Census {
                    beat,
                    running,
                    last,
                },
                _ => Census::default(),
            };
            let counted = count_machine(&self.terms, &mut census, beat, now);
            if counted.0 == beat {
                *lock(&self.counted) = (counted.0, counted.1, until);
                return Ok(counted);
            }
            let text = format!("{} {} {}", census.beat, census.running, census.last);
            match self.swap(&self.census_key, &loaded, text).await? {
                Swapped::Done(_) => {
                    *lock(&self.counted) = (counted.0, counted.1, until);
                    return Ok(counted);
                }
                Swapped::Conflict(_) => {
                    let most = WINDOW * 64;
                    self.sleep(self.shared.random_below(most)).await;
                    loaded = self.load(&self.census_key).await?;
                }
            }
        }
        // A machine that was not counted this time is counted in the next exchange.
        Ok((beat, machines.max(1)))
    }

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        self.shared.call(self.shared.store.load(key)).await
    }

    async fn swap(&self, key: &str, loaded: &Loaded, text: String) -> Result<Swapped, StoreError> {
        let expected = loaded.value.as_ref().map(|value| value.version);
        let value = Value::new(self.shared.next_version(), text.into_bytes());
        let ttl = 3 * self.terms.life + self.shape.memory().saturating_mul(2) + 1_000_000;
        let ttl = Duration::from_micros(ttl);
        let store = &self.shared.store;
        self.shared
            .call(store.swap(key, expected, &value, ttl))
            .await
    }

    /// Waits at random in the window of the key, if it has one.
    async fn wait(&self, key: &str) {
        let doublings = lock(&self.doublings).get(key).copied();
        if let Some(doublings) = doublings {
            let window = WINDOW * 2_u32.pow(doublings.min(MAX_DOUBLINGS));
            self.sleep(self.shared.random_below(window)).await;
        }
    }

    async fn sleep(&self, time: Duration) {
        let until = MonotonicClock.now().plus(time);
        MonotonicClock.sleep_until(until).await;
    }

    fn note(&self, key: &Arc<str>, is_conflict: bool) {
        let mut doublings = lock(&self.doublings);
        match (doublings.get(key).copied(), is_conflict) {
            (Some(0), false) => drop(doublings.remove(key)),
            (Some(times), false) => drop(doublings.insert(Arc::clone(key), times - 1)),
            (times, true) => {
                let times = times.map_or(0, |times| (times + 1).min(MAX_DOUBLINGS));
                doublings.insert(Arc::clone(key), times);
            }
            (None, false) => {}
        }
    }

    fn read(&self, value: Option<&Value>, now: u64) -> Result<(Record, Vec<Name>), StoreError> {
        let Some(value) = value else {
            return Ok((Record::new(&self.shape, now), Vec::new()));
        };
        let text = String::from_utf8_lossy(&value.bytes);
        let (record, names) = text.split_once('|').unwrap_or((&text, ""));
        let names = names
            .split_terminator(',')
            .map(|name| Name::from_text(name, &self.terms));
        let record = Record::from_text(record, &self.shape);
        record.zip(names.collect()).ok_or_else(|| {
            let message = format!("{}: a value is not of this limit, or damaged", S::NAME);
            StoreError::new(message, false)
        })
    }

    fn write(&self, record: &Record, names: &[Name]) -> String {
        let names: Vec<_> = names.iter().copied().map(Name::to_text).collect();
        format!("{}|{}", record.to_text(&self.shape), names.join(","))
    }
}

impl Name {
    fn to_text(self) -> String {
        let Self {
            machine,
            sequence,
            attempt,
            now,
            reply,
        } = self;
        let Reply {
            grant,
            ahead,
            next,
            next_in,
            ..
        } = reply;
        format!("{machine} {sequence} {attempt} {now} {grant} {ahead} {next} {next_in}")
    }

    fn from_text(text: &str, terms: &Terms) -> Option<Self> {
        let fields = numbers(text)?;
        let [machine, sequence, attempt, now, grant, ahead, next, next_in] = fields[..] else {
            return None;
        };
        let reply = Reply {
            grant,
            ahead,
            next,
            next_in,
            ..Reply::of(terms, now)
        };
        Some(Self {
            machine,
            sequence,
            attempt,
            now,
            reply,
        })
    }
}

/// The store's time, or this machine's if the store reports none.
fn micros(time: Option<Tick>) -> u64 {
    time.unwrap_or_else(unix_now).as_nanos() / 1_000
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
#[allow(clippy::unwrap_used, reason = "helpers of tests")]
mod tests {
    use super::super::record::{Report, Spent};
    use super::super::shaped::Shaped;
    use super::*;
    use crate::algorithm::FixedWindow;
    use crate::quota::Quota;
    use crate::store::cas::{Fault, Faulty, MemoryStore};

    const TERMS: Terms = Terms {
        interval: 1_000_000_000,
        life: 10_000_000_000,
        ahead: false,
        machines: 1,
    };

    fn budgets<S: CasStore>(store: S) -> Arc<CasBudgets<S>> {
        let shape = FixedWindow::new(Quota::per_day(1_000)).shape().unwrap();
        let shared = Shared::new(store, Duration::from_secs(1));
        Arc::new(CasBudgets::new(shared, TERMS, shape, "census".into()))
    }

    fn batch(machine: u64, sequence: u64, units: u64) -> Arc<Batch> {
        let report = Report {
            spent: [
                Spent::default(),
                Spent {
                    units,
                    at: u64::MAX,
                },
            ],
            demand: 10,
            elapsed: TERMS.interval,
            ..Report::default()
        };
        Arc::new(Batch {
            machine,
            sequence,
            attempt: 0,
            beat: 0,
            keys: vec![("a".into(), report.clone()), ("b".into(), report)],
        })
    }

    /// The units that are used and out, according to the store.
    async fn taken<S: CasStore>(budgets: &Arc<CasBudgets<S>>, key: &str) -> (i64, u64) {
        let loaded = budgets.load(key).await.unwrap();
        let (record, _) = budgets.read(loaded.value.as_ref(), 0).unwrap();
        let part = &budgets.shape.parts[0];
        (
            1_000 - part.free(&record.used[0], record.at),
            record.out[0] + record.out[1],
        )
    }

    #[tokio::test]
    async fn machines_that_exchange_at_once_lose_nothing() {
        let store = MemoryStore::new();
        let machines: Vec<_> = (0..16).map(|_| budgets(store.clone())).collect();
        let mut running = JoinSet::new();
        for (id, machine) in (1..).zip(machines.clone()) {
            running.spawn(async move {
                for sequence in 1..=5 {
                    machine.exchange(&batch(id, sequence, 3)).await.unwrap();
                }
            });
        }
        while let Some(done) = running.join_next().await {
            done.unwrap();
        }
        for key in ["a", "b"] {
            let (used, out) = taken(&machines[0], key).await;
            assert_eq!(used, 16 * 5 * 3);
            assert!(out > 0 && out <= 1_000, "{out}");
        }
        let machines = budgets(store)
            .exchange(&batch(99, 1, 0))
            .await
            .unwrap()
            .machines;
        assert_eq!(machines, 17);
    }

    /// A reply is lost: what the swap did is found by its name, and its grant is not lost. With another
    /// name it would count twice.
    #[tokio::test]
    async fn a_batch_that_is_sent_again_counts_once() {
        for (again, used) in [(1, 3), (2, 6)] {
            let store = Faulty::new(MemoryStore::new());
            let budgets = budgets(store.clone());
            budgets.count(0).await.unwrap();
            let first = batch(7, 1, 3);
            // The load and the swap of the first key.
            store.plan([Fault::None, Fault::LostReply]);
            budgets.exchange(&first).await.unwrap_err();
            let granted = taken(&budgets, "a").await.1;
            let replies = budgets.exchange(&batch(7, again, 3)).await.unwrap();
            assert_eq!(taken(&budgets, "a").await.0, used);
            if again == 1 {
                assert!(granted > 0);
                assert_eq!(replies.keys[0].grant, granted);
                assert_eq!(taken(&budgets, "a").await.1, granted);
            }
        }
    }

    #[tokio::test]
    async fn a_damaged_value_is_a_permanent_error() {
        let store = MemoryStore::new();
        let budgets = budgets(store.clone());
        let loaded = budgets.load("a").await.unwrap();
        budgets
            .swap("a", &loaded, "1 2 three".into())
            .await
            .unwrap();
        let error = budgets.exchange(&batch(1, 1, 0)).await.unwrap_err();
        assert!(!error.is_transient(), "{error}");
    }
}
