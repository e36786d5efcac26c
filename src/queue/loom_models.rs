//! Loom models of lines and seats. A lost wake-up is a deadlock, which loom reports.

pub(super) mod mock_alarm;

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::Condvar;
use loom::thread;

use self::mock_alarm::{fire_due, next_deadline, set_now};
use super::{
    CostOutcome, Lines, Order, QueuePosition, RequestSeat, SeatAcquire, Seats, WaitOutcome, now,
};
use crate::clock::Tick;
use crate::sync::{Mutex, lock};

fn tick(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

/// Whether it was woken, and how the sleeping thread is notified.
struct TestWaker(Mutex<bool>, Condvar);

impl TestWaker {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(false), Condvar::new()))
    }

    fn sleep(&self) {
        let mut woken = lock(&self.0);
        while !*woken {
            woken = self.1.wait(woken).expect("no thread panics");
        }
        *woken = false;
    }
}

impl Wake for TestWaker {
    fn wake(self: Arc<Self>) {
        *lock(&self.0) = true;
        self.1.notify_one();
    }
}

/// Polls, and again whenever it is woken.
fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let sleeper = TestWaker::new();
    let waker = Waker::from(Arc::clone(&sleeper));
    loop {
        if let Poll::Ready(value) = poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        sleeper.sleep();
    }
}

/// As [`block_on`], but each poll has a new waker, as when a future moves between tasks.
fn block_on_with_new_wakers<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let old = Waker::from(TestWaker::new());
    match poll(&mut Context::from_waker(&old)) {
        Poll::Ready(value) => value,
        Poll::Pending => block_on(poll),
    }
}

/// What the timer of a line calls.
struct TimerWaker(Weak<Lines>, u64);

impl Wake for TimerWaker {
    fn wake(self: Arc<Self>) {
        if let Some(lines) = self.0.upgrade() {
            lines.handle_timer(self.1, now());
        }
    }
}

/// The line of key 7 with a waiter for each of `slots`, at time 0.
fn line_with_waiters<const N: usize>(slots: [u64; N]) -> (Arc<Lines>, [QueuePosition; N]) {
    set_now(tick(0));
    let lines = Arc::new(Lines::new());
    let positions = slots.map(|slot| {
        let mut line = lines.lock_key(&7);
        line.join(1, tick(slot), Order::Oldest.into(), true)
    });
    (lines, positions)
}

fn join(lines: &Lines, slot: u64) -> QueuePosition {
    let mut line = lines.lock_key(&7);
    line.join(1, tick(slot), Order::Oldest.into(), true)
}

fn leave(lines: &Lines, position: &QueuePosition) -> CostOutcome {
    let mut line = lines.lock_position(position);
    line.leave(position, 1, || None)
}

/// Polls once, and makes sure that there is an alarm.
fn poll_once(lines: &Arc<Lines>, position: &QueuePosition, waker: &Waker) -> Option<WaitOutcome> {
    match lines.poll_outcome(position, waker) {
        Ok(outcome) => Some(outcome),
        Err(mut line) => {
            let timer = |line_id| Arc::new(TimerWaker(Arc::downgrade(lines), line_id)).into();
            line.ensure_alarm(timer);
            None
        }
    }
}

fn wait_until_released(lines: &Arc<Lines>, position: &QueuePosition) {
    block_on_with_new_wakers(|cx| match poll_once(lines, position, cx.waker()) {
        None => Poll::Pending,
        Some(outcome) => Poll::Ready(assert_eq!(outcome, WaitOutcome::Released)),
    });
}

/// Sets the time and fires the timers that are due. An alarm that is being set knows the time.
fn advance_to(now: u64) {
    set_now(tick(now));
    fire_due();
}

/// Shows promise 59.
#[test]
fn loom_request_joining_during_a_release_is_next() {
    loom::model(|| {
        let (lines, [first]) = line_with_waiters([1]);
        let here = Arc::clone(&lines);
        let joins = thread::spawn(move || {
            let position = join(&here, 2);
            assert_eq!(poll_once(&here, &position, Waker::noop()), None);
            position
        });
        assert_eq!(poll_once(&lines, &first, Waker::noop()), None);
        advance_to(1);
        let second = joins.join().expect("no thread panics");
        wait_until_released(&lines, &first);
        assert_eq!(next_deadline(), Some(tick(2)), "the timer is armed");
        advance_to(2);
        wait_until_released(&lines, &second);
        assert_eq!(lines.waiting(), 0);
    });
}

/// Shows promise 62.
#[test]
fn loom_leaving_waiter_passes_its_slot_on() {
    loom::model(|| {
        let (lines, [first, second]) = line_with_waiters([1, 2]);
        assert_eq!(poll_once(&lines, &first, Waker::noop()), None);
        let here = Arc::clone(&lines);
        let leaves = thread::spawn(move || leave(&here, &first));
        let there = Arc::clone(&lines);
        let waits = thread::spawn(move || wait_until_released(&there, &second));
        advance_to(1);
        let left = leaves.join().expect("no thread panics");
        assert_eq!(left, CostOutcome::Refund);
        waits.join().expect("no thread panics");
        assert_eq!(lines.waiting(), 0);
    });
}

/// Shows promise 62.
#[test]
fn loom_waiter_released_while_leaving_passes_its_slot_on() {
    loom::model(|| {
        let (lines, [first, second]) = line_with_waiters([1, 2]);
        assert_eq!(poll_once(&lines, &first, Waker::noop()), None);
        set_now(tick(1));
        let there = Arc::clone(&lines);
        let fires = thread::spawn(fire_due);
        let leaves = thread::spawn(move || leave(&there, &first));
        wait_until_released(&lines, &second);
        fires.join().expect("no thread panics");
        let left = leaves.join().expect("no thread panics");
        assert_eq!(left, CostOutcome::Refund);
        assert_eq!(lines.waiting(), 0);
    });
}

#[test]
fn loom_two_concurrent_leaves_free_two_slots() {
    loom::model(|| {
        let (lines, [first, second, third]) = line_with_waiters([1, 2, 3]);
        let (here, there) = (Arc::clone(&lines), Arc::clone(&lines));
        let one = thread::spawn(move || leave(&here, &first));
        let other = thread::spawn(move || leave(&there, &second));
        assert_eq!(poll_once(&lines, &third, Waker::noop()), None);
        assert_eq!(one.join().expect("no thread panics"), CostOutcome::Refund);
        assert_eq!(other.join().expect("no thread panics"), CostOutcome::Refund);
        advance_to(1);
        wait_until_released(&lines, &third);
    });
}

#[test]
fn loom_join_during_line_removal_is_not_lost() {
    loom::model(|| {
        let (lines, [last]) = line_with_waiters([1]);
        assert_eq!(poll_once(&lines, &last, Waker::noop()), None);
        let here = Arc::clone(&lines);
        let leaves = thread::spawn(move || leave(&here, &last));
        let position = join(&lines, 2);
        assert_eq!(poll_once(&lines, &position, Waker::noop()), None);
        let left = leaves.join().expect("no thread panics");
        assert_eq!(left, CostOutcome::Refund);
        advance_to(2);
        wait_until_released(&lines, &position);
        assert!(lines.waiting() == 0 && lines.lock_key(&7).is_empty());
    });
}

#[test]
fn loom_timer_fires_for_the_earliest_of_three_joins() {
    loom::model(|| {
        let (lines, [first]) = line_with_waiters([9]);
        assert_eq!(poll_once(&lines, &first, Waker::noop()), None);
        let joins = [5, 7].map(|slot| {
            let lines = Arc::clone(&lines);
            thread::spawn(move || {
                let position = join(&lines, slot);
                assert_eq!(poll_once(&lines, &position, Waker::noop()), None);
            })
        });
        for one in joins {
            one.join().expect("no thread panics");
        }
        // Whichever thread armed it last, and however often it was taken out.
        assert_eq!(next_deadline(), Some(tick(5)));
    });
}

/// Shows promise 66.
#[test]
fn loom_waiter_polled_with_a_new_waker_during_a_release_is_woken() {
    loom::model(|| {
        let (lines, [waiter]) = line_with_waiters([1]);
        let fires = thread::spawn(|| advance_to(1));
        wait_until_released(&lines, &waiter);
        fires.join().expect("no thread panics");
        assert_eq!(lines.waiting(), 0);
    });
}

/// Waits for a seat and takes it.
fn acquire_seat(seats: &Arc<Seats>) -> RequestSeat {
    let mut seat = SeatAcquire::new(Some(Arc::clone(seats)));
    block_on_with_new_wakers(|cx| seat.poll(cx));
    seat.take_seat()
}

fn wait_for_seat(seats: &Arc<Seats>) -> SeatAcquire {
    let mut seat = SeatAcquire::new(Some(Arc::clone(seats)));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(seat.poll(&mut cx).is_pending());
    seat
}

/// Shows promise 68.
#[test]
fn loom_released_seat_is_acquired_by_a_waiter() {
    loom::model(|| {
        let seats = Seats::new(1);
        let taken = acquire_seat(&seats);
        let here = Arc::clone(&seats);
        let waits = thread::spawn(move || drop(acquire_seat(&here)));
        drop(taken);
        waits.join().expect("no thread panics");
        drop(acquire_seat(&seats));
    });
}

/// Shows promise 68.
#[test]
fn loom_cancelled_waiter_passes_the_seat_on() {
    loom::model(|| {
        let seats = Seats::new(1);
        let taken = acquire_seat(&seats);
        let leaves = wait_for_seat(&seats);
        let here = Arc::clone(&seats);
        let waits = thread::spawn(move || drop(acquire_seat(&here)));
        let cancels = thread::spawn(move || drop(leaves));
        drop(taken);
        waits.join().expect("no thread panics");
        cancels.join().expect("no thread panics");
        drop(acquire_seat(&seats));
    });
}

/// Shows promise 68.
#[test]
fn loom_two_released_seats_serve_two_waiters() {
    loom::model(|| {
        let seats = Seats::new(2);
        let taken = [acquire_seat(&seats), acquire_seat(&seats)];
        let here = Arc::clone(&seats);
        let waits = thread::spawn(move || acquire_seat(&here));
        let [first, second] = taken;
        let releases = thread::spawn(move || drop(first));
        drop(second);
        let mine = acquire_seat(&seats);
        let theirs = waits.join().expect("no thread panics");
        releases.join().expect("no thread panics");
        assert!(seats.try_acquire().is_none(), "there are two");
        drop((mine, theirs));
        assert!(seats.try_acquire().is_some());
    });
}
