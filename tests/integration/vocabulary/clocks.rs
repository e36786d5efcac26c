//! Tests of clocks.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tower_throttle::FixedWindow;

use super::*;

#[test]
fn advancing_a_manual_clock_wakes_the_due_sleepers() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    let clock = ManualClock::new();
    let mut sleep = pin!(clock.sleep_until(Tick::from_nanos(10)));
    assert_eq!(sleep.as_mut().poll(&mut context), Poll::Pending);
    clock.advance(Duration::from_nanos(9));
    assert_eq!(count.0.load(Ordering::Relaxed), 0);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert_eq!(sleep.poll(&mut context), Poll::Ready(()));

    // One that is dropped is not woken, and its waker is not kept.
    let wakers = Arc::strong_count(&count);
    let mut dropped = Box::pin(clock.sleep_until(Tick::from_nanos(20)));
    assert_eq!(dropped.as_mut().poll(&mut context), Poll::Pending);
    assert_eq!(Arc::strong_count(&count), wakers + 1);
    drop(dropped);
    assert_eq!(Arc::strong_count(&count), wakers);
    clock.advance(Duration::from_nanos(10));
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
}

/// Shows promise 33.
#[test]
fn an_offset_of_four_days_makes_weeks_begin_on_monday() {
    const DAY: u64 = 86_400;
    // Tick 0 is a Thursday at midnight, UTC.
    let clock = ManualClock::new();
    let at =
        |day: u64, second: u64| clock.set(Tick::ZERO.plus(Duration::from_secs(day * DAY + second)));
    let quota: Quota = "1/week".parse().expect("a quota");
    let thursday = Limiter::new(FixedWindow::new(quota)).with_clock(clock.clone());
    let monday = FixedWindow::new(quota).offset(Duration::from_secs(4 * DAY));
    let monday = Limiter::new(monday).with_clock(clock.clone());
    at(8, 0);
    assert!(thursday.check(1).is_admitted() && monday.check(1).is_admitted());
    at(11, 0);
    assert!(thursday.check(1).is_denied(), "still the same week");
    assert!(monday.check(1).is_admitted(), "Monday at midnight");
    at(13, DAY - 1);
    assert!(thursday.check(1).is_denied() && monday.check(1).is_denied());
    at(14, 0);
    assert!(thursday.check(1).is_admitted(), "Thursday at midnight");
    assert!(monday.check(1).is_denied());
}
