//! The metrics of a store that is down.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{advance, pause};
use tower_throttle::store::Backend;
use tower_throttle::store::cas::{Cas, Fault, Faulty, MemoryStore};
use tower_throttle::{FixedWindow, Quota};

use crate::operator::measured::{SECRET, measured};

/// Shows promise 241.
#[test]
fn a_breaker_that_is_open_and_its_probes_are_counted() {
    measured(|metrics| async move {
        pause();
        let store = Faulty::new(MemoryStore::new());
        store.plan([Fault::LostRequest; 1_000]);
        let limit = Cas::new(store, "api", FixedWindow::new(Quota::per_day(10)));
        let limit = limit.expect("a limit");
        let open = || metrics.count("tower_throttle_breakers_open store=memory server=single");
        let probes = || metrics.count("tower_throttle_switches_total of=breaker to=half_open");
        assert!(limit.decide(SECRET, 1).await.is_err());
        assert_eq!((open(), probes()), (1, 0));
        for sent in 1..=5 {
            // A probe is due, and the other call is rejected.
            advance(Duration::from_millis(400)).await;
            for _ in 0..2 {
                assert!(limit.decide(SECRET, 1).await.is_err());
            }
            assert!(probes() >= sent, "{}", probes());
        }
        // A limit that is dropped leaves no open breaker.
        drop(limit);
        for _ in 0..10 {
            yield_now().await;
        }
        assert_eq!(open(), 0);
    });
}
