//! Waiting in a tokio runtime with paused time.

use tokio::time::Instant;
use tokio_test::{assert_pending, assert_ready, task};
use tower_throttle::store::local::Overflow;

use super::*;

/// Shows promise 15.
#[tokio::test(start_paused = true)]
async fn a_wait_longer_than_the_timeout_is_denied_at_once_and_takes_nothing() {
    let limiter = Limiter::new(TokenBucket::new(Quota::per_second(10)));
    assert!(limiter.acquire(10, Duration::ZERO).await.is_admitted());
    let start = Instant::now();
    let denied = limiter.acquire(5, Duration::from_millis(499)).await;
    assert_eq!(denied.retry_after, Some(Duration::from_millis(1)));
    assert_eq!(start.elapsed(), Duration::ZERO);
    let granted = limiter.acquire(5, Duration::from_millis(500)).await;
    assert!(
        granted.is_admitted(),
        "a wait as long as the timeout is granted"
    );
    assert_eq!(start.elapsed(), Duration::from_millis(500));
}

/// Shows promise 15.
#[test]
fn a_call_whose_unit_is_taken_between_its_attempts_waits_no_longer_than_its_timeout() {
    let (limiter, clock) = manual(SlidingLog::new(Quota::per_second(1)));
    let second = Duration::from_secs(1);
    assert!(limiter.check(1).is_admitted());
    let mut waits = task::spawn(limiter.acquire(1, second * 5 / 2));
    for attempt in 0..2 {
        assert_pending!(waits.poll(), "attempt {attempt}");
        clock.advance(second);
        assert!(limiter.check(1).is_admitted(), "another caller is first");
    }
    // The next unit comes in a second, and half of one is left.
    let denied = assert_ready!(waits.poll());
    assert_eq!(
        (denied.is_denied(), denied.retry_after),
        (true, Some(second))
    );
    clock.advance(second);
    assert!(limiter.check(1).is_admitted(), "it has taken nothing");
}

#[test]
fn a_call_that_waits_for_its_next_attempt_is_no_denial() {
    let log = SlidingLog::new(Quota::per_second(1));
    let one = Lockout::new(Quota::per_minute(1));
    let (limiter, clock) = manual(one.after_denials_of(log));
    assert!(limiter.check(1).is_admitted());
    let mut waits = task::spawn(limiter.acquire(1, Duration::from_secs(1)));
    assert_pending!(waits.poll());
    clock.advance(Duration::from_secs(1));
    assert!(assert_ready!(waits.poll()).is_admitted());
}

/// Shows promise 15.
#[test]
fn a_dropped_acquire_takes_nothing() {
    let (line, clock) = manual(LeakyBucket::new(Quota::per_second(1)));
    dropped_acquire_takes_nothing(&line, &clock);
    // It waits for its next attempt, and has no place yet.
    let (log, clock) = manual(SlidingLog::new(Quota::per_second(1)));
    dropped_acquire_takes_nothing(&log, &clock);
}

fn dropped_acquire_takes_nothing<A: Algorithm>(
    limiter: &Limiter<A, ManualClock>,
    clock: &ManualClock,
) {
    let second = Duration::from_secs(1);
    assert!(limiter.check(1).is_admitted());
    for dropped_after in [Duration::ZERO, second / 100, second / 2] {
        let mut waits = task::spawn(limiter.acquire(1, second * 10));
        assert_pending!(waits.poll());
        clock.advance(dropped_after);
        assert_pending!(waits.poll());
    }
    let mut next = task::spawn(limiter.acquire(1, second));
    assert_pending!(next.poll());
    clock.advance(second * 49 / 100);
    let granted = assert_ready!(next.poll());
    assert!(granted.is_admitted(), "not one interval later");
}

#[tokio::test(start_paused = true)]
async fn acquire_waits_for_a_slot_of_a_full_table() {
    let local = Local::new(FixedWindow::new(Quota::per_second(1)).anchored())
        .capacity(1)
        .overflow(Overflow::Deny);
    let mut key = 0;
    while local.check(&key, 1).is_admitted() {
        key += 1;
    }
    let start = Instant::now();
    let late = local.acquire(&key, 1, Duration::from_millis(999)).await;
    assert_eq!(late.retry_after, Some(Duration::from_secs(1)));
    assert_eq!(start.elapsed(), Duration::ZERO);
    local.until_ready(&key).await;
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}
