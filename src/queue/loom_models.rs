//! Loom models of lines and seats. A lost wake-up is a deadlock, which loom reports.

pub(super) mod mock_alarm;

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::sync::Condvar;
use loom::thread;

use self::mock_alarm::{fire_due, set_now};
use super::{Joined, LineLimit, Lines, Order, Place, RequestSeat, SeatAcquire, Seats};
use crate::clock::Tick;
use crate::decision::{Decision, LineCosts, Verdict};
use crate::key::Weight;
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

/// A limit of which `free` can be taken from this moment on. It knows of no time at which more will come back.
#[derive(Clone)]
struct Counted(Arc<(Mutex<u64>, Tick)>);

const ID: u64 = 7;
const HOUR: u64 = 3_600_000_000_000;

impl Counted {
    fn new(free: u64, from: u64) -> Self {
        Self(Arc::new((Mutex::new(free), tick(from))))
    }

    fn give_back(&self, lines: &Arc<Lines>) {
        *lock(&self.0.0) += 1;
        lines.tell(ID);
    }
}

impl LineLimit for Counted {
    fn take(&self, _: u64, _: u8, at: Tick, _: Duration) -> Decision {
        let mut free = lock(&self.0.0);
        if *free > 0 && at >= self.0.1 {
            *free -= 1;
            return Decision::new(Verdict::Admit, 1, 0, None, 0);
        }
        let wait = self.0.1.since(at).as_nanos();
        let wait = u64::try_from(wait).unwrap_or(HOUR);
        Decision::new(
            Verdict::Deny,
            1,
            0,
            Some(if wait > 0 { wait } else { HOUR }),
            0,
        )
    }

    fn wait(&self, costs: LineCosts, _: Tick) -> Option<[Duration; 2]> {
        let wait = Duration::from_nanos(HOUR * costs.ahead);
        Some([wait; 2])
    }
}

fn join(lines: &Arc<Lines>, limit: &Counted) -> Joined {
    let (new, order) = (Weight::default(), Order::Oldest);
    lines.join(ID, || limit.clone(), new, order, 9, Tick::MAX)
}

fn wait_in_line(lines: &Arc<Lines>, limit: &Counted) -> Place {
    match join(lines, limit) {
        Joined::Waits(queued, _) => queued,
        other => panic!("there is room for none: {other:?}"),
    }
}

fn wait_for_turn(lines: &Arc<Lines>, queued: Place) {
    let ended = block_on_with_new_wakers(|cx| lines.poll(ID, queued, cx.waker()));
    assert!(ended.is_ok());
}

/// From the request to its end.
fn serve(lines: &Arc<Lines>, limit: &Counted) {
    if let Joined::Waits(queued, _) = join(lines, limit) {
        wait_for_turn(lines, queued);
    }
}

/// Sets the time and fires the timers that are due. An alarm that is being set knows the time.
fn advance_to(now: u64) {
    set_now(tick(now));
    fire_due();
}

/// Shows promise 62.
#[test]
fn loom_what_is_given_back_while_a_request_joins_is_not_lost() {
    loom::model(|| {
        set_now(tick(0));
        let (lines, limit) = (Arc::<Lines>::default(), Counted::new(0, 0));
        let (there, other) = (Arc::clone(&lines), limit.clone());
        let gives = thread::spawn(move || other.give_back(&there));
        serve(&lines, &limit);
        gives.join().expect("no thread panics");
        assert_eq!((lines.waiting(), *lock(&limit.0.0)), (0, 0));
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_who_gives_back_without_telling_the_line_is_found() {
    loom::model(|| {
        set_now(tick(0));
        let (lines, limit) = (Arc::<Lines>::default(), Counted::new(0, 0));
        let other = limit.clone();
        let gives = thread::spawn(move || *lock(&other.0.0) += 1);
        serve(&lines, &limit);
        gives.join().expect("no thread panics");
    });
}

/// Shows promise 62.
#[test]
fn loom_a_head_that_leaves_passes_its_turn_on() {
    loom::model(|| {
        set_now(tick(0));
        let (lines, limit) = (Arc::<Lines>::default(), Counted::new(0, 0));
        let [first, second] = [(); 2].map(|()| wait_in_line(&lines, &limit));
        let (there, other) = (Arc::clone(&lines), limit.clone());
        let leaves = thread::spawn(move || {
            if there.leave(ID, first).is_some() {
                other.give_back(&there);
            }
        });
        let (there, other) = (Arc::clone(&lines), limit.clone());
        let gives = thread::spawn(move || other.give_back(&there));
        wait_for_turn(&lines, second);
        leaves.join().expect("no thread panics");
        gives.join().expect("no thread panics");
        assert_eq!((lines.waiting(), *lock(&limit.0.0)), (0, 0));
    });
}

/// Shows promise 59.
#[test]
fn loom_a_request_that_joins_during_a_release_is_next() {
    loom::model(|| {
        set_now(tick(0));
        let (lines, limit) = (Arc::<Lines>::default(), Counted::new(2, 1));
        let first = wait_in_line(&lines, &limit);
        assert!(lines.poll(ID, first, Waker::noop()).is_pending());
        let (there, other) = (Arc::clone(&lines), limit.clone());
        let joins = thread::spawn(move || serve(&there, &other));
        advance_to(1);
        wait_for_turn(&lines, first);
        joins.join().expect("no thread panics");
        assert_eq!((lines.waiting(), *lock(&limit.0.0)), (0, 0));
    });
}

/// Each waiter is woken once, by the waker of its last poll.
#[test]
fn loom_a_waiter_polled_with_a_new_waker_during_a_release_is_woken() {
    loom::model(|| {
        set_now(tick(0));
        let (lines, limit) = (Arc::<Lines>::default(), Counted::new(1, 1));
        let place = wait_in_line(&lines, &limit);
        let fires = thread::spawn(|| advance_to(1));
        wait_for_turn(&lines, place);
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
