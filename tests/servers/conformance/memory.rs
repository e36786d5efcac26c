//! Compare-and-swap, in the store in memory.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm};
use tower_throttle::clock::{Clock, Tick};
use tower_throttle::store::cas::{Cas, MemoryStore};
use tower_throttle::{ManualClock, Quota};

use crate::suite::fleet::Port;
use crate::suite::vectors::Replay;
use crate::suite::{Fault, Store, chaos, configurations, decisions};

/// The test moves its clock. It admits so many units too many.
struct InMemory<const MORE: u64 = 0>(MemoryStore<ManualClock>, ManualClock);

impl<const MORE: u64> Store for InMemory<MORE> {
    type Limit = Cas<MemoryStore<ManualClock>, AnyAlgorithm>;

    fn start() -> Self {
        let clock = ManualClock::new();
        Self(MemoryStore::with_clock(clock.clone()), clock)
    }

    fn limit(&self, policy: &str, algorithm: AnyAlgorithm, deadline: Duration) -> Self::Limit {
        let quota = algorithm.quota();
        let more = Quota::per(quota.limit() + MORE, quota.period());
        let algorithm = if MORE > 0 {
            algorithm.with_quota(more).expect("a quota")
        } else {
            algorithm
        };
        let limit = Cas::new(self.0.clone(), policy, algorithm).expect("a limit");
        // Without a kept record each decision is at the store's time.
        let limit = limit.without_deny_cache().cached_keys(0);
        limit.deadline(deadline)
    }

    fn pass(&self, span: Duration) -> Option<Tick> {
        self.1.advance(span);
        Some(self.1.now())
    }

    /// The replay has a store of its own, with the times of the case.
    fn replay(&self) -> Replay {
        Replay::in_store("memory".to_owned())
    }

    /// Without a network only its memory can be lost.
    fn faults() -> Vec<Fault<Self>> {
        let clears = |it: &mut Self| it.0.clear();
        vec![
            Fault::new("cleared", clears, |_| {})
                .losing(true)
                .fails_no_call(),
        ]
    }
}

impl Port for InMemory<0> {
    type Port = MemoryStore<ManualClock>;

    fn port(&self) -> Self::Port {
        self.0.clone()
    }
}

crate::suite::check!(InMemory);
crate::suite::fleet::check_fleet!(super::InMemory);
crate::suite::check_vectors!(InMemory);

#[test]
fn each_part_finds_a_unit_too_many() {
    assert!(decisions::fault::<InMemory<1>>().is_some());
    assert!(configurations::fault::<InMemory<1>>().is_some());
    assert!(chaos::fault::<InMemory<1>>().is_some());
}
