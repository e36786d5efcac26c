//! Machines that start, join or die, and one that asks for little.

use super::super::shape::Shape;
use super::scenario::{Fault, Mistake, SECOND, Scenario, Traffic};
use super::tests::{allowed, bucket, fault_of, fixed, log, scenario, shapes};

/// Shows promise 201.
#[test]
fn a_fleet_that_doubles_keeps_its_bound() {
    for (name, shape) in shapes() {
        for ahead in [false, true] {
            let run = Scenario {
                faults: vec![(2 * SECOND, Fault::Join(16))],
                seconds: 10,
                ..scenario(&shape, ahead, 16, 2_000)
            };
            assert_eq!(fault_of(&run), None, "{name}");
        }
    }
}

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
    let shapes = [bucket(640, 640), bucket(1, 640), fixed(640), log(640)];
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
    for shape in [bucket(300, 300), log(300)] {
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

/// What it held is free again after two lives at most, and the limit is used on.
///
/// Shows promise 200.
#[test]
fn a_machine_that_dies_after_its_first_grant_costs_what_it_held() {
    for ahead in [false, true] {
        let run = Scenario {
            together: true,
            faults: vec![(5_000, Fault::Crash(0))],
            seconds: 10,
            ..scenario(&bucket(100, 1_000), ahead, 4, 200)
        };
        let outcome = run.run();
        assert!(outcome.excess <= i64::try_from(allowed(&run)).unwrap());
        // The burst, and what refills, but for what lapsed before it was used.
        assert!(
            (1_400..=2_000).contains(&outcome.admitted),
            "{}",
            outcome.admitted
        );
    }
}
