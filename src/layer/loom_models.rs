//! Decisions while waiters leave the line.

use std::future::{Ready, ready};
use std::time::Duration;

use loom::thread;

use super::gate::{Ask, Gate, Has, Limiting, MayWait};
use super::held::{Held, Waiting};
use super::rate::Rate;
use crate::backend::{Backend, IntoBackend, Op};
use crate::decision::{Decision, Verdict};
use crate::error::StoreError;
use crate::queue::RequestSeat;
use crate::quota::Quota;
use crate::sync::{Mutex, lock};

const HOUR: Duration = Duration::from_secs(3_600);

/// One per hour.
struct Hourly(Mutex<u32>);

impl Backend<u8> for Hourly {
    type Future = Ready<Result<Decision, StoreError>>;

    fn apply(&self, _: &u8, op: Op) -> Self::Future {
        let mut next = lock(&self.0);
        let verdict = match op {
            Op::Take(1) => {
                *next += 1;
                Verdict::Wait(HOUR * *next)
            }
            Op::Refund(1, _) | Op::Cancel(1, _) => {
                *next -= 1;
                Verdict::Admit
            }
            other => panic!("unexpected {other:?}"),
        };
        ready(Ok(Decision::new(verdict, 1, 0, None, 0)))
    }

    fn quotas(&self) -> Vec<Quota> {
        vec![Quota::per_hour(1)]
    }
}

impl IntoBackend for Hourly {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

/// Enqueues a request as the service does.
fn enqueue(rate: &Rate<Hourly>) -> Held<u8, Rate<Hourly>> {
    let ask = Ask {
        cost: 1,
        ..Ask::NOTHING
    };
    let begun = rate
        .begin(&7, ask)
        .expect_err("the backend has no quick path");
    let mut seat = RequestSeat::NOT_REQUIRED;
    let may_wait = MayWait {
        seat: &mut seat,
        until: &|| None,
    };
    match rate.enter(&7, ask, begun, may_wait) {
        Ok(Has::Wait(wait)) => Held::waiting(rate.clone(), 7, Waiting { wait, seat }),
        _ => panic!("every request waits"),
    }
}

/// Shows promise 62.
#[test]
fn loom_no_slot_is_granted_twice_or_lost() {
    loom::model(|| {
        let rate = Rate::new(Hourly(Mutex::new(0)));
        let first = enqueue(&rate);
        let here = rate.clone();
        let enters = thread::spawn(move || enqueue(&here));
        let leaves = thread::spawn(move || drop(first));
        let places = (enters.join(), leaves.join(), enqueue(&rate));
        let state = rate.state();
        let hours: Vec<_> = state.lines.slots().into_iter().map(whole_hours).collect();
        assert_eq!(
            hours
                .windows(2)
                .map(|pair| pair[1] - pair[0])
                .collect::<Vec<_>>(),
            [1]
        );
        assert_eq!(*lock(&state.backend.0), 2);
        drop(places);
        assert_eq!(*lock(&state.backend.0), 0);
    });
}

/// Rounds to whole hours.
fn whole_hours(slot: crate::clock::Tick) -> u128 {
    (u128::from(slot.as_nanos()) + HOUR.as_nanos() / 2) / HOUR.as_nanos()
}
