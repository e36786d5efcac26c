//! Waiting in a tokio runtime with paused time.

use std::future::Future;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_test::{assert_pending, assert_ready, task};
use tower_throttle::{WarmUp, store::local::Overflow};

use super::*;

/// The times in milliseconds at which `callers` concurrent calls were admitted, in call order. They
/// must be the same for a `Limiter` and for one key of a `Local`.
async fn admission_times<A: Algorithm>(algorithm: A, callers: usize) -> Vec<u128> {
    let limiter = Arc::new(Limiter::new(algorithm.clone()));
    let local = Local::new(algorithm).capacity(100);
    let single = spawn_calls(callers, || {
        let limiter = Arc::clone(&limiter);
        async move { limiter.until_ready().await }
    });
    let keyed = spawn_calls(callers, || {
        let local = local.clone();
        async move { local.until_ready("key").await }
    });
    let times = join(single, keyed).await;
    assert_eq!(times.0, times.1, "{limiter:?}");
    times.0
}

/// Spawns `callers` calls. Each task returns the time in milliseconds at which its call was ready.
fn spawn_calls<F>(callers: usize, call: impl Fn() -> F) -> Vec<JoinHandle<u128>>
where
    F: Future<Output = ()> + Send + 'static,
{
    let start = Instant::now();
    (0..callers)
        .map(|_| {
            let ready = call();
            tokio::spawn(async move {
                ready.await;
                start.elapsed().as_millis()
            })
        })
        .collect()
}

async fn join(
    first: Vec<JoinHandle<u128>>,
    second: Vec<JoinHandle<u128>>,
) -> (Vec<u128>, Vec<u128>) {
    let mut times = (Vec::new(), Vec::new());
    for task in first {
        times.0.push(task.await.unwrap());
    }
    for task in second {
        times.1.push(task.await.unwrap());
    }
    times
}

#[tokio::test(start_paused = true)]
async fn calls_are_served_in_fifo_order() {
    let queue = LeakyBucket::new(Quota::per_second(10));
    assert_eq!(admission_times(queue, 5).await, [0, 100, 200, 300, 400]);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_admits_its_burst_at_once_and_paces_the_rest() {
    let bucket = TokenBucket::new(Quota::per_second(10).burst(3));
    assert_eq!(admission_times(bucket, 6).await, [0, 0, 0, 100, 200, 300]);
}

/// Shows promise 26.
#[tokio::test(start_paused = true)]
async fn warm_up_paces_as_in_guava() {
    let quota = Quota::per_second(2);
    let cold = WarmUp::new(quota, Duration::from_secs(4));
    let ramp = [0, 1_375, 2_500, 3_375, 4_000, 4_500, 5_000, 5_500];
    assert_eq!(admission_times(cold, 8).await, ramp);
}

#[tokio::test(start_paused = true)]
async fn waiting_works_with_logs_and_tuples() {
    let log = SlidingLog::new(Quota::per_second(2));
    assert_eq!(admission_times(log, 5).await, [0, 0, 1_000, 1_000, 2_000]);
    let both = (
        TokenBucket::new(Quota::per_second(10).burst(1)),
        SlidingLog::new(Quota::per_second(3)),
    );
    assert_eq!(admission_times(both, 4).await, [0, 100, 200, 1_000]);
}

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

/// Shows promise 5.
#[tokio::test(start_paused = true)]
async fn a_cost_above_the_capacity_is_denied_at_once() {
    let limiter = Limiter::new(TokenBucket::new(Quota::per_second(10)));
    let denied = limiter.acquire(11, Duration::MAX).await;
    assert!(denied.is_denied() && denied.retry_after.is_none());
}

/// Shows promise 15.
#[tokio::test(start_paused = true)]
async fn a_dropped_future_gives_its_queue_position_back() {
    let limiter = Limiter::new(LeakyBucket::new(Quota::per_second(1)));
    limiter.until_ready().await;
    let timed_out = timeout(Duration::from_millis(10), limiter.until_ready()).await;
    assert!(timed_out.is_err());
    let start = Instant::now();
    limiter.until_ready().await;
    assert_eq!(
        start.elapsed(),
        Duration::from_millis(990),
        "not one interval later"
    );
}

/// Shows promise 15.
#[test]
fn a_call_whose_unit_is_taken_between_its_attempts_waits_no_longer_than_its_timeout() {
    let (limiter, clock) = manual(SlidingLog::new(Quota::per_second(1)));
    let second = Duration::from_secs(1);
    assert!(limiter.try_acquire());
    let mut waits = task::spawn(limiter.acquire(1, second * 5 / 2));
    for attempt in 0..2 {
        assert_pending!(waits.poll(), "attempt {attempt}");
        clock.advance(second);
        assert!(limiter.try_acquire(), "another caller is first");
    }
    // The next unit comes in a second, and half of one is left.
    let denied = assert_ready!(waits.poll());
    assert_eq!(
        (denied.is_denied(), denied.retry_after),
        (true, Some(second))
    );
    clock.advance(second);
    assert!(limiter.try_acquire(), "it has taken nothing");
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
    assert!(limiter.try_acquire());
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

#[tokio::test]
async fn advancing_a_manual_clock_wakes_its_sleepers() {
    let (limiter, clock) = manual(LeakyBucket::new(Quota::per_second(1)));
    assert!(limiter.try_acquire());
    let limiter = Arc::new(limiter);
    let waiting = tokio::spawn({
        let limiter = Arc::clone(&limiter);
        async move { limiter.until_ready().await }
    });
    tokio::task::yield_now().await;
    clock.advance(Duration::from_millis(999));
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    clock.advance(Duration::from_millis(1));
    waiting.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn keys_wait_independently() {
    let local = Local::new(LeakyBucket::new(Quota::per_second(1)).queue(10)).capacity(100);
    let start = Instant::now();
    local.until_ready("a").await;
    local.until_ready("b").await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    let timed_out = timeout(Duration::from_millis(10), local.until_ready("a")).await;
    assert!(timed_out.is_err());
    local.until_ready("a").await;
    assert_eq!(
        start.elapsed(),
        Duration::from_secs(1),
        "the dropped call gave its queue position back"
    );
    let late = local.acquire("a", 1, Duration::from_millis(999)).await;
    assert_eq!(late.retry_after, Some(Duration::from_millis(1)));
}

#[tokio::test(start_paused = true)]
async fn acquire_waits_for_a_slot_of_a_full_table() {
    let local = Local::new(FixedWindow::new(Quota::per_second(1)).anchored())
        .capacity(1)
        .overflow(Overflow::Deny);
    let mut key = 0;
    while local.check(&key).is_admitted() {
        key += 1;
    }
    let start = Instant::now();
    let late = local.acquire(&key, 1, Duration::from_millis(999)).await;
    assert_eq!(late.retry_after, Some(Duration::from_secs(1)));
    assert_eq!(start.elapsed(), Duration::ZERO);
    local.until_ready(&key).await;
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}

/// Shows promise 15.
#[tokio::test(start_paused = true)]
async fn a_mixed_tuple_that_would_be_ready_too_late_is_denied_at_once() {
    // The bucket has a queue of 5 s, and the log is full for 1 s.
    let second = Quota::per_second(1);
    let limiter = Limiter::new((
        LeakyBucket::new(second).queue(10),
        SlidingLog::new(Quota::per_second(6)),
    ));
    for _ in 0..6 {
        assert!(limiter.check().wait().is_some());
    }
    let start = Instant::now();
    let denied = limiter.acquire(1, Duration::from_secs(5)).await;
    assert!(denied.is_denied());
    assert_eq!(
        start.elapsed(),
        Duration::ZERO,
        "it was denied without a wait"
    );
    let granted = limiter.acquire(1, Duration::from_secs(6)).await;
    assert!(granted.is_admitted());
    assert_eq!(start.elapsed(), Duration::from_secs(6));
}
