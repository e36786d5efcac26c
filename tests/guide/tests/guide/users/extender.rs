//! An algorithm and a store of one's own: a meter that leaks, and values in a journal.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, Cost, Fields, GiveBack};
use tower_throttle::clock::{Clock, MonotonicClock, Tick};
use tower_throttle::store::cas::{CasStore, Loaded, Swapped, Value};
use tower_throttle::{Decision, Quota, StoreError, Verdict};

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A meter that a unit raises by the time in which it leaks out again.
#[derive(Clone, Debug)]
struct Meter(Quota);

impl Meter {
    /// How long a unit takes to leak, in nanoseconds.
    fn unit(&self) -> u64 {
        nanos(self.0.period()).div_ceil(self.0.limit())
    }

    /// How high the meter may be.
    fn most(&self) -> u64 {
        self.unit() * self.0.capacity()
    }
}

impl Algorithm for Meter {
    /// When the meter is empty again.
    type State = Tick;

    fn quota(&self) -> Quota {
        self.0
    }

    fn fresh(&self, _: Tick) -> Tick {
        Tick::ZERO
    }

    fn decide(&self, empty: &mut Tick, now: Tick, cost: u64) -> Decision {
        let (unit, most, limit) = (self.unit(), self.most(), self.0.capacity());
        let level = |empty: Tick| nanos(empty.since(now));
        let left = |level: u64| most.saturating_sub(level) / unit;
        let before = level(*empty);
        if cost > limit {
            return Decision::new(Verdict::Deny, limit, left(before), None, before);
        }
        let above = (before + cost * unit).saturating_sub(most);
        if cost > 0 && above > 0 {
            return Decision::new(Verdict::Deny, limit, left(before), Some(above), before);
        }
        if cost > 0 {
            *empty = now.plus(Duration::from_nanos(before + cost * unit));
        }
        let after = level(*empty);
        Decision::new(Verdict::Admit, limit, left(after), None, after)
    }

    fn refund(&self, empty: &mut Tick, now: Tick, cost: Cost, _: GiveBack) {
        // Without what has leaked since.
        let taken = self.unit().saturating_mul(cost.units);
        let left = taken.saturating_sub(nanos(now.since(cost.at)));
        *empty = Tick::from_nanos(empty.as_nanos().saturating_sub(left));
    }

    fn charge(&self, empty: &mut Tick, now: Tick, cost: u64) -> Duration {
        let cost = cost.min(self.0.capacity()) * self.unit();
        *empty = now.max(*empty).plus(Duration::from_nanos(cost));
        let level = nanos(empty.since(now));
        Duration::from_nanos(level.saturating_sub(self.most()))
    }

    fn forgettable_at(&self, empty: &Tick) -> Tick {
        *empty
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(4_711);
        fields.quota(&mut self.0);
    }

    fn state_fields(&self, empty: &mut Tick, fields: &mut Fields<'_>) {
        let mut moment = empty.as_nanos();
        fields.moment(&mut moment);
        *empty = Tick::from_nanos(moment);
    }
}

/// A key, its value, and until when it is kept.
type Entry = (String, Value, Tick);

/// All values that were ever written. The last one of a key counts.
#[derive(Clone, Debug, Default)]
struct Journal(Arc<Mutex<Vec<Entry>>>);

fn last(entries: &[Entry], key: &str, now: Tick) -> Option<Value> {
    let (_, value, end) = entries.iter().rfind(|(name, ..)| name == key)?;
    (*end > now).then(|| value.clone())
}

impl CasStore for Journal {
    const NAME: &'static str = "journal";

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        let (entries, now) = (self.0.lock().expect("no panic"), MonotonicClock.now());
        Ok(Loaded {
            value: last(&entries, key, now),
            server_time: Some(now),
        })
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        let (mut entries, now) = (self.0.lock().expect("no panic"), MonotonicClock.now());
        let found = last(&entries, key, now);
        if found.as_ref().map(|value| value.version) != expected {
            let found = Loaded {
                value: found,
                server_time: Some(now),
            };
            return Ok(Swapped::Conflict(Some(found)));
        }
        entries.push((key.to_owned(), new.clone(), now.plus(ttl)));
        Ok(Swapped::Done(Some(now)))
    }
}

// ---- What its users see.

use tower_throttle::store::{Backend, cas::Cas};
use tower_throttle::testkit::{check_algorithm, check_cas_store};

#[test]
fn the_meter_obeys_all_laws() {
    let meter = Meter(Quota::per_second(10).burst(20));
    let bucket = |from: u64, to: u64| 20 + (to - from) / 100_000_000;
    for seed in 0..1_000 {
        assert_eq!(check_algorithm(&meter, bucket, seed), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_journal_is_a_store_in_which_machines_share_a_meter() {
    assert_eq!(check_cas_store(Journal::default()).await, Ok(()));

    let journal = Journal::default();
    let meter = Meter(Quota::per_minute(6).burst(3));
    let machine = || Cas::new(journal.clone(), "jobs", meter.clone()).expect("a limit");
    let (a, b) = (machine(), machine());
    let admitted = async |machine: &Cas<Journal, Meter>| {
        let decision = machine.decide("acme", 1).await.expect("a decision");
        decision.is_admitted()
    };
    assert!(admitted(&a).await && admitted(&b).await && admitted(&a).await);
    assert!(!admitted(&b).await && !admitted(&a).await);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(admitted(&b).await && !admitted(&a).await);
}
