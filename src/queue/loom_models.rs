//! Lines and seats under every interleaving of few threads. A wake-up that is lost is a deadlock.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::Condvar;
use loom::thread;

use super::{Chair, Left, Lines, Order, Seats, Sitting, Ticket, Turn};
use crate::clock::Tick;
use crate::sync::Mutex;
use crate::sync::lock;

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

/// Whether it was woken, and how it is told.
struct Bell(Mutex<bool>, Condvar);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *lock(&self.0) = true;
        self.1.notify_one();
    }
}

/// Polls, and again when woken.
fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let bell = Arc::new(Bell(Mutex::new(false), Condvar::new()));
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

/// A line for the key 7 in which one waits for each of `slots`.
fn line<const N: usize>(slots: [u64; N]) -> (Arc<Lines>, [Ticket; N]) {
    let lines = Arc::new(Lines::new());
    let tickets = slots.map(|slot| lines.hold(&7).join(1, at(slot), Order::Oldest));
    (lines, tickets)
}

fn leave(lines: &Lines, ticket: &Ticket) -> Left {
    lines.hold_for(ticket).leave(ticket, || None)
}

/// Waits until it is called, or knows to ask again at `by`, when it is called.
fn wait(lines: &Lines, ticket: &Ticket, by: u64) {
    let known = block_on(
        |cx| match lines.hold_for(ticket).ask(ticket, at(0), cx.waker()) {
            Turn::Wait(when) if when > at(by) => Poll::Pending,
            turn => Poll::Ready(turn),
        },
    );
    if known != Turn::Come {
        let turn = lines.hold_for(ticket).ask(ticket, at(by), Waker::noop());
        assert_eq!(turn, Turn::Come);
    }
}

#[test]
fn loom_who_enters_while_another_is_called_goes_next() {
    loom::model(|| {
        let (lines, [first]) = line([1]);
        let here = Arc::clone(&lines);
        let newcomer = thread::spawn(move || {
            let ticket = here.hold(&7).join(1, at(2), Order::Oldest);
            wait(&here, &ticket, 2);
        });
        lines.hold(&7).release(at(1));
        newcomer.join().expect("no thread panics");
        wait(&lines, &first, 1);
        assert_eq!(lines.waiting(), 0);
    });
}

#[test]
fn loom_who_leaves_wakes_the_next() {
    loom::model(|| {
        let (lines, [first, second]) = line([1, 2]);
        let here = Arc::clone(&lines);
        let leaves = thread::spawn(move || leave(&here, &first));
        wait(&lines, &second, 1);
        assert_eq!(leaves.join().expect("no thread panics"), Left::Refund);
        assert_eq!(lines.waiting(), 0);
    });
}

#[test]
fn loom_who_is_called_while_it_leaves_passes_its_turn_on() {
    loom::model(|| {
        let (lines, [first, second]) = line([1, 2]);
        let (here, there) = (Arc::clone(&lines), Arc::clone(&lines));
        let calls = thread::spawn(move || here.hold(&7).release(at(1)));
        let leaves = thread::spawn(move || leave(&there, &first));
        wait(&lines, &second, 1);
        calls.join().expect("no thread panics");
        assert_eq!(leaves.join().expect("no thread panics"), Left::Refund);
        assert_eq!(lines.waiting(), 0);
    });
}

#[test]
fn loom_two_who_leave_at_once_make_room_for_two() {
    loom::model(|| {
        let (lines, [first, second, third]) = line([1, 2, 3]);
        let (here, there) = (Arc::clone(&lines), Arc::clone(&lines));
        let one = thread::spawn(move || leave(&here, &first));
        let other = thread::spawn(move || leave(&there, &second));
        wait(&lines, &third, 1);
        assert_eq!(one.join().expect("no thread panics"), Left::Refund);
        assert_eq!(other.join().expect("no thread panics"), Left::Refund);
    });
}

#[test]
fn loom_a_line_that_closes_loses_nobody_who_enters() {
    loom::model(|| {
        let (lines, [last]) = line([1]);
        let here = Arc::clone(&lines);
        let leaves = thread::spawn(move || leave(&here, &last));
        let ticket = lines.hold(&7).join(1, at(2), Order::Oldest);
        wait(&lines, &ticket, 2);
        assert_eq!(leaves.join().expect("no thread panics"), Left::Refund);
        assert!(lines.waiting() == 0 && lines.hold(&7).is_empty());
    });
}

/// Waits for a seat and takes it.
fn sit(seats: &Arc<Seats>) -> Sitting {
    let mut chair = Chair::new(Some(Arc::clone(seats)));
    block_on(|cx| chair.poll(cx));
    chair.hand_over()
}

fn standing(seats: &Arc<Seats>) -> Chair {
    let mut chair = Chair::new(Some(Arc::clone(seats)));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(chair.poll(&mut cx).is_pending());
    chair
}

#[test]
fn loom_a_seat_that_comes_back_is_found() {
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
fn loom_who_walks_away_hands_the_seat_on() {
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
fn loom_two_seats_that_come_back_serve_two() {
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
