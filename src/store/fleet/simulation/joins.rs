//! Machines that start, join or die, and one that asks for little.

use super::super::shape::Shape;
use super::scenario::{Fault, Mistake, SECOND, Scenario, Traffic};
use super::tests::{allowed, bucket, fixed, log, scenario, weighted};

/// Machines that start together on a new key, each of which asks for far more than the limit, also if the store is 3
/// ms away, if half of them have another interval, if the store stops, and if it loses its values.
///
/// Shows promises 200, 201.
#[test]
fn machines_that_start_together_admit_the_burst_and_what_refills() {
    let calm = |shape: &Shape, ahead| Scenario {
        together: true,
        ..scenario(shape, ahead, 64, 6_000)
    };
    let windows = [fixed(640), weighted(640), log(640)];
    let shapes = [&[bucket(640, 640), bucket(1, 640)][..], &windows].concat();
    for (shape, ahead) in shapes
        .iter()
        .flat_map(|shape| [(shape, false), (shape, true)])
    {
        let far = Scenario {
            delay: 6_000,
            ..calm(shape, ahead)
        };
        let mixed = Scenario {
            other_interval: 5,
            ..calm(shape, ahead)
        };
        let with = |fault| Scenario {
            faults: vec![(3 * SECOND, fault)],
            ..calm(shape, ahead)
        };
        let runs = [
            (calm(shape, ahead), 0),
            (far, 0),
            (mixed, 0),
            (with(Fault::StoreStops(2 * SECOND)), 0),
            (with(Fault::StoreEmptied), 1),
        ];
        for (run, losses) in runs {
            let most = allowed(&run) + losses * run.shape.capacity;
            let excess = run.run().excess;
            assert!(
                excess <= i64::try_from(most).unwrap(),
                "{excess} of {most}: {run:?}"
            );
        }
    }
    let wrong = Scenario {
        mistake: Some(Mistake::AdmitsFirst),
        delay: 60_000,
        ..calm(&shapes[1], true)
    };
    assert!(wrong.run().excess > i64::try_from(allowed(&wrong)).unwrap());
}

/// Beside machines that ask for ten times the limit. A window that is used up serves none.
///
/// Shows promise 204.
#[test]
fn a_machine_with_a_ten_thousandth_of_the_demand_is_served() {
    for shape in [bucket(300, 300), weighted(300), log(300)] {
        for (ahead, machines) in [(false, 2), (true, 2), (false, 64), (true, 64)] {
            let run = Scenario {
                traffic: Traffic::OneQuiet,
                seconds: 100,
                ..scenario(&shape, ahead, machines, 3_000)
            };
            // It asks some 30 times, of which an exact limit admits a tenth.
            let served = run.run().served[0];
            assert!(served >= 5, "{ahead} {machines}: {served}");
        }
    }
}
