//! What the tests of all fleets over a store in memory share.

use std::time::Duration;

use tower_throttle::store::cas::Fault;
use tower_throttle::store::{Backend, Op, Stats};
use tower_throttle::{Decision, FixedWindow, Quota};

/// A limit of 100 units that do not come back during a test.
pub(crate) fn window() -> FixedWindow {
    FixedWindow::new(Quota::per(100, Duration::from_secs(1_000_000)))
}

pub(crate) async fn take(limit: &impl Backend<str>, cost: u64) -> Decision {
    limit.decide("key", cost).await.expect("a decision")
}

/// Makes a request. Whether it is admitted does not matter to the test.
pub(crate) async fn admit(limit: &impl Backend<str>, cost: u64) {
    let _ = take(limit, cost).await;
}

pub(crate) fn stats(limit: &impl Backend<str>) -> Stats {
    limit.stats()
}

/// Takes until a request is denied. Returns how much was taken.
pub(crate) async fn take_all(limit: &impl Backend<str>) -> u64 {
    let mut taken = 0;
    while take(limit, 1).await.is_admitted() {
        taken += 1;
    }
    taken
}

/// Takes until nothing is left, however it is divided among machines. Returns how much was taken.
pub(crate) async fn drain(limit: &impl Backend<str>) -> u64 {
    let mut taken = 0;
    for _ in 0..20 {
        taken += take_all(limit).await;
        tokio::time::sleep(Duration::from_millis(120)).await;
    }
    taken
}

/// How much is left, as far as this machine knows.
pub(crate) async fn remaining(limit: &impl Backend<str>) -> u64 {
    let peeked = limit.apply("key", Op::Peek(0)).await;
    peeked.expect("a decision").remaining()
}

/// More faults than exchanges of a test.
pub(crate) fn outage() -> impl Iterator<Item = Fault> {
    std::iter::repeat_n(Fault::LostRequest, 100_000)
}
