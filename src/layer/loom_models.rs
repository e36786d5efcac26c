//! Decisions, and those who leave the line meanwhile.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use super::reservation::{QueueEpoch, Reservation};
use super::state::State;
use crate::backend::{Backend, Op};
use crate::decision::{Decision, Verdict};
use crate::error::StoreError;
use crate::queue::Order;
use crate::quota::Quota;
use crate::sync::{Mutex, lock};

const HOUR: Duration = Duration::from_secs(3_600);

/// One an hour.
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
            Op::Refund(1) => {
                *next -= 1;
                Verdict::Admit
            }
            other => panic!("nobody asks for {other:?}"),
        };
        ready(Ok(Decision::new(verdict, 1, 0, None, 0)))
    }

    fn quotas(&self) -> Vec<Quota> {
        vec![Quota::per_hour(1)]
    }
}

/// A request, as the service handles it.
fn line_up(state: &Arc<State<Hourly>>) -> Reservation<u8, Hourly> {
    let asked = QueueEpoch::now(&state.lines);
    let decided = state.limiter.decide(&7, 1).into_inner();
    let wait = decided.expect("it decides").wait().expect("it lets wait");
    let mut place = Reservation::new(Arc::clone(state), 7, 1, Some(asked));
    assert!(place.line_up(wait, Order::Oldest).is_ok());
    place
}

#[test]
fn loom_no_slot_is_granted_twice_or_lost() {
    loom::model(|| {
        let state = Arc::new(State::new(Hourly(Mutex::new(0))));
        let first = line_up(&state);
        let here = Arc::clone(&state);
        let enters = thread::spawn(move || line_up(&here));
        let leaves = thread::spawn(move || drop(first));
        let places = (enters.join(), leaves.join(), line_up(&state));
        let hours: Vec<_> = state.lines.slots().into_iter().map(rounded).collect();
        assert_eq!(
            hours
                .windows(2)
                .map(|pair| pair[1] - pair[0])
                .collect::<Vec<_>>(),
            [1]
        );
        assert_eq!(*lock(&state.limiter.0), 2);
        drop(places);
        assert_eq!(*lock(&state.limiter.0), 0);
    });
}

/// In whole hours.
fn rounded(slot: crate::clock::Tick) -> u128 {
    (u128::from(slot.as_nanos()) + HOUR.as_nanos() / 2) / HOUR.as_nanos()
}
