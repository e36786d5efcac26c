//! Decisions while waiters leave the line.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use super::queue_epoch::QueueEpoch;
use super::reservation::Reservation;
use super::state::State;
use crate::backend::{Backend, Op};
use crate::decision::{Decision, Verdict};
use crate::error::StoreError;
use crate::queue::{Order, RequestSeat};
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

/// Enqueues a request as the service does.
fn enqueue(state: &Arc<State<Hourly>>) -> Reservation<u8, Hourly> {
    let asked = QueueEpoch::current(&state.lines);
    let decided = state.backend.decide(&7, 1).into_inner();
    let wait = decided.expect("a decision").wait().expect("a wait");
    let mut place = Reservation::new(Arc::clone(state), 7, 1, Some(asked));
    let decision = Decision::new(Verdict::Wait(wait), 1, 0, None, 0);
    let seat = &mut RequestSeat::NotRequired;
    let waits = place.enqueue(wait, Order::Oldest, &|| None, seat, decision);
    assert!(waits.is_ok());
    place
}

#[test]
fn loom_no_slot_is_granted_twice_or_lost() {
    loom::model(|| {
        let state = Arc::new(State::new(Hourly(Mutex::new(0))));
        let first = enqueue(&state);
        let here = Arc::clone(&state);
        let enters = thread::spawn(move || enqueue(&here));
        let leaves = thread::spawn(move || drop(first));
        let places = (enters.join(), leaves.join(), enqueue(&state));
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
