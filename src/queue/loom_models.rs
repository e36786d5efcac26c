//! Lines and seats under every interleaving of few threads. A wake-up that is lost is a deadlock.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::Condvar;
use loom::thread;

use super::timer::set_now;
use super::{
    CostOutcome, Lines, Order, QueuePosition, RequestSeat, SeatAcquire, Seats, WaitOutcome,
};
use crate::clock::Tick;
use crate::sync::{Mutex, lock};

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

/// Whether it was woken, and how it is told.
struct TestWaker(Mutex<bool>, Condvar);

impl Wake for TestWaker {
    fn wake(self: Arc<Self>) {
        *lock(&self.0) = true;
        self.1.notify_one();
    }
}

/// Polls, and again when woken.
fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let bell = Arc::new(TestWaker(Mutex::new(false), Condvar::new()));
    let waker = Waker::from(Arc::clone(&bell));
    loop {
        if let Poll::Ready(value) = poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        let mut woken = lock(&bell.0);
        while !*woken {
            woken = bell.1.wait(woken).expect("no thread panics");
        }
        *woken = false;
    }
}

/// A line for the key 7 in which one waits for each of `slots`. It is the moment 0.
fn line<const N: usize>(slots: [u64; N]) -> (Arc<Lines>, [QueuePosition; N]) {
    set_now(at(0));
    let lines = Arc::new(Lines::new());
    let tickets = slots.map(|slot| lines.hold(&7).join(1, at(slot), Order::Oldest, true));
    (lines, tickets)
}

fn leave(lines: &Lines, ticket: &QueuePosition) -> CostOutcome {
    lines.lock_position(ticket).leave(ticket, 1, || None)
}

/// Asks once, and sees to it that an alarm rings.
fn ask(lines: &Lines, ticket: &QueuePosition, waker: &Waker) -> Option<WaitOutcome> {
    match lines.ask(ticket, waker) {
        Ok(turn) => Some(turn),
        Err(mut held) => {
            assert!(held.watch(|_| Waker::noop().clone()), "there are alarms");
            None
        }
    }
}

/// Waits until it is called.
fn wait(lines: &Lines, ticket: &QueuePosition) {
    block_on(|cx| match ask(lines, ticket, cx.waker()) {
        None => Poll::Pending,
        Some(turn) => Poll::Ready(assert_eq!(turn, WaitOutcome::Released)),
    });
}

/// Time goes on, and what is set rings. An alarm that is being set knows the time.
fn pass(lines: &Lines, now: u64) {
    set_now(at(now));
    lines.fire_all_timers(at(now));
}

#[test]
fn loom_request_joining_during_a_release_is_next() {
    loom::model(|| {
        let (lines, [first]) = line([1]);
        let here = Arc::clone(&lines);
        let newcomer = thread::spawn(move || {
            let ticket = here.hold(&7).join(1, at(2), Order::Oldest, true);
            assert_eq!(ask(&here, &ticket, Waker::noop()), None);
            ticket
        });
        assert_eq!(ask(&lines, &first, Waker::noop()), None);
        pass(&lines, 1);
        let second = newcomer.join().expect("no thread panics");
        // The alarm may have been set just before that, by the newcomer.
        pass(&lines, 1);
        wait(&lines, &first);
        assert_eq!(lines.rings(), Some(at(2)), "an alarm is set");
        pass(&lines, 2);
        wait(&lines, &second);
        assert_eq!(lines.waiting(), 0);
    });
}

#[test]
fn loom_leaving_waiter_passes_its_slot_on() {
    loom::model(|| {
        let (lines, [first, second]) = line([1, 2]);
        assert_eq!(ask(&lines, &first, Waker::noop()), None);
        let here = Arc::clone(&lines);
        let leaves = thread::spawn(move || leave(&here, &first));
        let there = Arc::clone(&lines);
        let waits = thread::spawn(move || wait(&there, &second));
        pass(&lines, 1);
        assert_eq!(
            leaves.join().expect("no thread panics"),
            CostOutcome::Refund
        );
        // It may have left after its turn had come.
        pass(&lines, 1);
        waits.join().expect("no thread panics");
        assert_eq!(lines.waiting(), 0);
    });
}

#[test]
fn loom_waiter_released_while_leaving_passes_its_slot_on() {
    loom::model(|| {
        let (lines, [first, second]) = line([1, 2]);
        assert_eq!(ask(&lines, &first, Waker::noop()), None);
        set_now(at(1));
        let (here, there) = (Arc::clone(&lines), Arc::clone(&lines));
        let calls = thread::spawn(move || here.fire_all_timers(at(1)));
        let leaves = thread::spawn(move || leave(&there, &first));
        wait(&lines, &second);
        calls.join().expect("no thread panics");
        assert_eq!(
            leaves.join().expect("no thread panics"),
            CostOutcome::Refund
        );
        assert_eq!(lines.waiting(), 0);
    });
}

#[test]
fn loom_two_concurrent_leaves_free_two_slots() {
    loom::model(|| {
        let (lines, [first, second, third]) = line([1, 2, 3]);
        let (here, there) = (Arc::clone(&lines), Arc::clone(&lines));
        let one = thread::spawn(move || leave(&here, &first));
        let other = thread::spawn(move || leave(&there, &second));
        assert_eq!(ask(&lines, &third, Waker::noop()), None);
        assert_eq!(one.join().expect("no thread panics"), CostOutcome::Refund);
        assert_eq!(other.join().expect("no thread panics"), CostOutcome::Refund);
        pass(&lines, 1);
        wait(&lines, &third);
    });
}

#[test]
fn loom_join_during_line_removal_is_not_lost() {
    loom::model(|| {
        let (lines, [last]) = line([1]);
        assert_eq!(ask(&lines, &last, Waker::noop()), None);
        let here = Arc::clone(&lines);
        let leaves = thread::spawn(move || leave(&here, &last));
        let ticket = lines.hold(&7).join(1, at(2), Order::Oldest, true);
        assert_eq!(ask(&lines, &ticket, Waker::noop()), None);
        assert_eq!(
            leaves.join().expect("no thread panics"),
            CostOutcome::Refund
        );
        pass(&lines, 2);
        wait(&lines, &ticket);
        assert!(lines.waiting() == 0 && lines.hold(&7).is_empty());
    });
}

#[test]
fn loom_timer_fires_for_the_earliest_of_three_joins() {
    loom::model(|| {
        let (lines, [first]) = line([9]);
        assert_eq!(ask(&lines, &first, Waker::noop()), None);
        let enters = [5, 7].map(|slot| {
            let lines = Arc::clone(&lines);
            thread::spawn(move || {
                let ticket = lines.hold(&7).join(1, at(slot), Order::Oldest, true);
                assert_eq!(ask(&lines, &ticket, Waker::noop()), None);
            })
        });
        for one in enters {
            one.join().expect("no thread panics");
        }
        // Whoever set it last, and however often it was out.
        assert_eq!(lines.rings(), Some(at(5)));
    });
}

/// Waits for a seat and takes it.
fn sit(seats: &Arc<Seats>) -> RequestSeat {
    let mut seat = SeatAcquire::new(Some(Arc::clone(seats)));
    block_on(|cx| seat.poll(cx));
    seat.take_seat()
}

fn standing(seats: &Arc<Seats>) -> SeatAcquire {
    let mut seat = SeatAcquire::new(Some(Arc::clone(seats)));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(seat.poll(&mut cx).is_pending());
    seat
}

#[test]
fn loom_released_seat_is_acquired_by_a_waiter() {
    loom::model(|| {
        let seats = Seats::new(1);
        let taken = sit(&seats);
        let here = Arc::clone(&seats);
        let waits = thread::spawn(move || drop(sit(&here)));
        drop(taken);
        waits.join().expect("no thread panics");
        drop(sit(&seats));
    });
}

#[test]
fn loom_cancelled_waiter_passes_the_seat_on() {
    loom::model(|| {
        let seats = Seats::new(1);
        let taken = sit(&seats);
        let leaves = standing(&seats);
        let here = Arc::clone(&seats);
        let waits = thread::spawn(move || drop(sit(&here)));
        let gone = thread::spawn(move || drop(leaves));
        drop(taken);
        waits.join().expect("no thread panics");
        gone.join().expect("no thread panics");
        drop(sit(&seats));
    });
}

#[test]
fn loom_two_released_seats_serve_two_waiters() {
    loom::model(|| {
        let seats = Seats::new(2);
        let taken = [sit(&seats), sit(&seats)];
        let here = Arc::clone(&seats);
        let waits = thread::spawn(move || sit(&here));
        let [first, second] = taken;
        let back = thread::spawn(move || drop(first));
        drop(second);
        let mine = sit(&seats);
        let theirs = waits.join().expect("no thread panics");
        back.join().expect("no thread panics");
        assert!(seats.sit().is_none(), "there are two");
        drop((mine, theirs));
        assert!(seats.sit().is_some());
    });
}
