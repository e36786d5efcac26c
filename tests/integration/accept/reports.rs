//! Metrics and events of connections.

use tower_throttle::{Quota, accept::ConnectionLimit};

use crate::accept::support::ONE;
use test_support::{log::log, measured::measured};

#[test]
fn connections_are_counted_by_outcome_without_addresses() {
    measured(|metrics| async move {
        let limit = ConnectionLimit::new(1).total(2);
        let limit = limit.rate(Quota::per_hour(2)).name("edge");
        let first = limit.admit(ONE, ()).unwrap();
        assert!(limit.admit(ONE, ()).is_err());
        let others: Vec<_> = ["192.0.2.1", "192.0.2.2"]
            .into_iter()
            .map(|address| limit.admit(address.parse().unwrap(), ()))
            .collect();
        assert!(others[0].is_ok() && others[1].is_err());
        let open = "tower_throttle_connections_open limit=edge";
        assert_eq!(metrics.all(open), [1.0, 2.0]);
        drop(first);
        drop(limit.admit(ONE, ()).unwrap());
        assert!(limit.admit(ONE, ()).is_err());
        drop(others);
        assert_eq!(metrics.all(open), [1.0, 2.0, 1.0, 2.0, 1.0, 0.0]);
        assert!(metrics.value(open) < 0.5);
        for (outcome, count) in [
            ("accepted", 3),
            ("refused_open", 1),
            ("refused_total", 1),
            ("refused_rate", 1),
        ] {
            let name = format!("tower_throttle_connections_total limit=edge outcome={outcome}");
            // One entry per increment.
            assert_eq!(metrics.all(&name).len(), count, "{outcome}");
        }
        assert_eq!(limit.counts().accepted, 3);
        assert_eq!(log(), "", "refusals are `DEBUG`");
    });
}
