//! Loom models of the table. A lost wake-up is a deadlock, which loom reports.

use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use loom::sync::Condvar;
use loom::thread;

use super::line::PermitsOfKey;
use super::permit::Permit;
use super::permits::Permits;
use super::request::PermitRequest;
use crate::clock::Tick;
use crate::queue::{Joined, Order, Place};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// The only key.
const ID: u64 = 7;
const REQUEST: PermitRequest = PermitRequest {
    id: ID,
    units: 1,
    priority: u8::MAX,
    reserved: 0,
    order: Order::Oldest,
};
const QUEUE: u64 = 8;

/// Whether it was woken, and how the sleeping thread is notified.
struct TestWaker(Mutex<bool>, Condvar);

impl Wake for TestWaker {
    fn wake(self: Arc<Self>) {
        *lock(&self.0) = true;
        self.1.notify_one();
    }
}

/// Takes a permit or a place in line, as the service does.
fn enter(permits: &Arc<Permits>) -> Result<Permit, Place> {
    let permit = || Permit::new(Arc::clone(permits), REQUEST);
    if permits.lines.waiting() == 0 && permits.table.take(REQUEST).is_ok() {
        return Ok(permit());
    }
    let of_key = || PermitsOfKey {
        permits: Arc::clone(permits),
        id: ID,
        reserve: (u8::MAX, 0),
    };
    match permits.lines.join(
        ID,
        of_key,
        REQUEST.weight(),
        REQUEST.order,
        QUEUE,
        Tick::MAX,
    ) {
        Joined::Taken(_) => Ok(permit()),
        Joined::Waits(queued, _) => Err(queued),
        Joined::Denied(_) => panic!("the line has room"),
    }
}

/// Waits for the permit of a place, and is polled again only when it is woken.
fn wait(permits: &Arc<Permits>, queued: Place) -> Permit {
    let sleeper = Arc::new(TestWaker(Mutex::new(false), Condvar::new()));
    let waker = Waker::from(Arc::clone(&sleeper));
    loop {
        if let Poll::Ready(ended) = permits.lines.poll(ID, queued, &waker) {
            ended.expect("all have the same priority");
            return Permit::new(Arc::clone(permits), REQUEST);
        }
        let mut woken = lock(&sleeper.0);
        while !*woken {
            woken = sleeper.1.wait(woken).expect("no thread panics");
        }
        *woken = false;
    }
}

/// One request from its permit to its end. `in_flight` never exceeds `limit`.
fn serve(permits: &Arc<Permits>, in_flight: &AtomicU64, limit: u64) {
    let permit = enter(permits).unwrap_or_else(|queued| wait(permits, queued));
    assert!(in_flight.fetch_add(1, Ordering::Relaxed) < limit);
    in_flight.fetch_sub(1, Ordering::Relaxed);
    drop(permit);
}

fn assert_at_rest(permits: &Permits) {
    assert_eq!((permits.table.look(ID).0, permits.lines.waiting()), (0, 0));
    assert_eq!(permits.table.keys(), 0);
}

/// Shows promise 180.
#[test]
fn loom_no_permit_is_granted_twice_and_no_wake_up_is_lost() {
    loom::model(|| {
        let (permits, in_flight) = (
            Arc::new(Permits::new(1, false)),
            Arc::new(AtomicU64::new(0)),
        );
        let others: Vec<_> = (0..2)
            .map(|_| {
                let (permits, in_flight) = (Arc::clone(&permits), Arc::clone(&in_flight));
                thread::spawn(move || serve(&permits, &in_flight, 1))
            })
            .collect();
        serve(&permits, &in_flight, 1);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_at_rest(&permits);
    });
}

/// Shows promise 181.
#[test]
fn loom_a_waiter_that_leaves_passes_its_permit_on() {
    loom::model(|| {
        let permits = Arc::new(Permits::new(1, false));
        let Ok(first) = enter(&permits) else {
            panic!("there is room");
        };
        let (Err(second), Err(third)) = (enter(&permits), enter(&permits)) else {
            panic!("there is no room");
        };
        let releases = thread::spawn(move || drop(first));
        let there = Arc::clone(&permits);
        let leaves = thread::spawn(move || there.leave(REQUEST, second));
        drop(wait(&permits, third));
        releases.join().unwrap();
        leaves.join().unwrap();
        assert_at_rest(&permits);
    });
}

/// Shows promise 181.
#[test]
fn loom_a_higher_limit_wakes_the_waiters() {
    loom::model(|| {
        let permits = Arc::new(Permits::new(1, false));
        let Ok(first) = enter(&permits) else {
            panic!("there is room");
        };
        let grows = {
            let permits = Arc::clone(&permits);
            thread::spawn(move || permits.set_limit(2).expect("it is not adaptive"))
        };
        // `first` is still in flight.
        drop(enter(&permits).unwrap_or_else(|queued| wait(&permits, queued)));
        grows.join().unwrap();
        drop(first);
        assert_at_rest(&permits);
    });
}
