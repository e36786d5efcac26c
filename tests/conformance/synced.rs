//! A machine of a fleet, over the store in memory: it decides as in process while its exchange is under
//! way, and together with others it admits at most what each of them promises.

use std::time::Duration;

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::cas::MemoryStore;
use tower_throttle::store::synced::{Synced, SyncedBuilder};

use crate::suite::{Fault, Store};

/// Machines that exchange once per so many milliseconds.
struct InFleet<const INTERVAL: u64>(MemoryStore);

/// No exchange ends during a test.
type InFlight = InFleet<3_600_000>;
type Exchanging = InFleet<1>;

impl<const INTERVAL: u64> Store for InFleet<INTERVAL> {
    type Limit = Synced<MemoryStore, AnyAlgorithm>;

    const NANOS_PER_MOMENT: u64 = 1;

    fn start() -> Self {
        Self(MemoryStore::new())
    }

    fn limit(&self, policy: &str, algorithm: AnyAlgorithm, _: Duration) -> Self::Limit {
        let builder = SyncedBuilder::new(self.0.clone()).capacity(100);
        let builder = builder.interval(Duration::from_millis(INTERVAL));
        builder.build(policy, algorithm).expect("a limit")
    }

    /// It has no server. `tests/synced` has the faults.
    fn inflict(&mut self, _: Fault) -> bool {
        false
    }

    fn heal(&mut self, _: Fault) {}
}

type OneTooMany<S> = crate::suite::OneTooMany<S>;

#[test]
fn decides_as_in_process() {
    assert_eq!(crate::suite::decisions::fault::<InFlight>(), None);
    assert!(crate::suite::decisions::fault::<OneTooMany<InFlight>>().is_some());
}

#[test]
fn keeps_the_laws() {
    assert_eq!(crate::suite::laws::fault::<InFlight>(4), None);
    assert!(crate::suite::laws::fault::<OneTooMany<InFlight>>(40).is_some());
}

#[test]
fn configurations_together_admit_at_most_the_sum() {
    assert_eq!(crate::suite::configurations::fault::<InFlight>(), None);
    assert_eq!(crate::suite::configurations::fault::<Exchanging>(), None);
    assert!(crate::suite::configurations::fault::<OneTooMany<InFlight>>().is_some());
}
