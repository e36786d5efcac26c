//! The limiter that stands alone: waiting, cancelling, retuning, and many threads at once.

use std::time::Duration;

use tower_throttle::algorithm::Algorithm;
use tower_throttle::{
    All, FixedWindow, LeakyBucket, Limiter, ManualClock, Quota, SlidingGrid, SlidingLog,
    SlidingWindow, TokenBucket, Verdict,
    algorithm::Inherit,
    clock::{Clock, Tick},
};

const MINUTE: Duration = Duration::from_secs(60);

fn manual<A: Algorithm>(algorithm: A) -> (Limiter<A, ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::with_clock(algorithm, clock.clone()), clock)
}

/// Asks from `threads` threads at once, `each` times; answers how often it was admitted.
fn stampede<A: Algorithm>(limiter: &Limiter<A, ManualClock>, threads: usize, each: usize) -> u64 {
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| (0..each).filter(|_| limiter.try_acquire()).count() as u64))
            .collect();
        asking
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"))
            .sum()
    })
}

#[test]
fn many_threads_share_one_limit_exactly() {
    const LIMIT: u64 = 5_000;
    fn holds<A: Algorithm>(algorithm: A) {
        let (limiter, clock) = manual(algorithm);
        assert_eq!(stampede(&limiter, 8, 1_000), LIMIT, "{limiter:?}");
        clock.advance(3 * MINUTE);
        assert_eq!(
            stampede(&limiter, 8, 1_000),
            LIMIT,
            "after a rollover, {limiter:?}"
        );
    }
    let quota = Quota::per(LIMIT, MINUTE);
    holds(FixedWindow::new(quota));
    holds(FixedWindow::new(quota).anchored());
    holds(SlidingLog::new(quota));
    holds(SlidingWindow::new(quota));
    holds(SlidingGrid::new(quota));
    holds(TokenBucket::new(quota));
    holds(LeakyBucket::new(quota));
    holds(All::new([
        TokenBucket::new(quota),
        TokenBucket::new(quota.burst(2 * LIMIT)),
    ]));
    holds((TokenBucket::new(quota), SlidingLog::new(quota)));
}

#[test]
fn a_rollover_under_fire_admits_each_window_exactly_once() {
    let (limiter, clock) = manual(FixedWindow::new(Quota::per(100, MINUTE)));
    let mut admitted = 0;
    for _ in 0..50 {
        admitted += stampede(&limiter, 4, 100);
        clock.advance(MINUTE);
    }
    assert_eq!(admitted, 50 * 100);
}

#[test]
fn a_limit_of_several_takes_nothing_when_one_denies() {
    let (limiter, _) = manual((
        TokenBucket::new(Quota::per_second(10)),
        FixedWindow::new(Quota::per_minute(3)),
    ));
    assert!(limiter.check_n(3).is_admitted());
    let denied = limiter.check();
    assert!(denied.is_denied());
    assert_eq!((denied.policy, denied.limit), (1, 3), "the window binds");
    limiter.set_algorithm(
        (
            TokenBucket::new(Quota::per_second(10)),
            FixedWindow::new(Quota::per_minute(100)),
        ),
        Inherit::AsIs,
    );
    assert_eq!(
        limiter.peek().remaining(),
        7,
        "the bucket was not charged by the denial"
    );
}

#[test]
fn what_is_set_while_running_is_read_back_and_keeps_what_is_used() {
    let (limiter, clock) = manual(SlidingWindow::new(Quota::per_minute(10)));
    assert!(limiter.check_n(8).is_admitted());
    limiter
        .set_quota(Quota::per_minute(12))
        .expect("a window takes any quota");
    assert_eq!(limiter.quota(), Quota::per_minute(12));
    assert_eq!(limiter.quota().period(), MINUTE);
    assert_eq!(limiter.peek().remaining(), 4);
    limiter
        .set_quota(Quota::per_minute(5))
        .expect("a window takes any quota");
    assert_eq!(
        limiter.peek().remaining(),
        0,
        "a lower limit grants nothing new"
    );
    limiter
        .set_quota(Quota::per_hour(5))
        .expect("a window takes any quota");
    assert!(
        limiter.check().is_denied(),
        "another window size grants nothing new"
    );
    clock.advance(3 * 60 * MINUTE);
    assert!(limiter.check_n(5).is_admitted());
    let pair = manual((
        TokenBucket::new(Quota::per_second(1)),
        TokenBucket::new(Quota::per_second(1)),
    ))
    .0;
    let error = pair
        .set_quota(Quota::per_second(2))
        .expect_err("which of the two?");
    assert!(error.to_string().contains("set_algorithm"), "{error}");
}

#[test]
fn retuning_under_fire_never_grants_more_than_the_larger_quota() {
    for seed in 0..20 {
        let (limiter, _) = manual(TokenBucket::new(Quota::per(100, MINUTE)));
        let admitted = std::thread::scope(|scope| {
            let retune = scope.spawn(|| {
                for step in 0..50 {
                    let burst = if (step + seed) % 2 == 0 { 60 } else { 100 };
                    let quota = Quota::per(100, MINUTE).burst(burst);
                    limiter.set_quota(quota).expect("a bucket takes any quota");
                }
            });
            let admitted = stampede(&limiter, 2, 500);
            retune.join().expect("no thread panics");
            admitted
        });
        assert!(admitted <= 100, "{admitted}");
    }
}

#[test]
fn refund_charge_reset_and_taking_what_is_there() {
    let (limiter, clock) = manual(TokenBucket::new(Quota::per_second(10)));
    assert_eq!(limiter.take_up_to(7), 7);
    assert_eq!(limiter.take_up_to(7), 3);
    assert_eq!(limiter.take_up_to(7), 0);
    limiter.refund(4);
    assert_eq!(limiter.peek().remaining(), 4);
    limiter.refund(400);
    assert_eq!(limiter.peek().remaining(), 10, "never more than was there");
    assert_eq!(limiter.charge(15), Duration::from_millis(500));
    assert!(limiter.check().is_denied());
    clock.advance(Duration::from_millis(600));
    assert!(limiter.check().is_admitted());
    limiter.reset();
    assert_eq!(limiter.peek().remaining(), 10);
}

#[test]
fn try_acquire_never_takes_a_place_in_a_line() {
    let (limiter, clock) = manual(LeakyBucket::new(Quota::per_second(1)).queue(10));
    assert!(limiter.try_acquire());
    assert!(!limiter.try_acquire());
    assert!(!limiter.try_acquire());
    clock.advance(Duration::from_secs(1));
    assert!(limiter.try_acquire(), "the two before took nothing");
    assert_eq!(
        limiter.check().verdict,
        Verdict::Wait(Duration::from_secs(1))
    );
}

#[test]
fn extreme_policies_and_times_neither_panic_nor_admit_for_ever() {
    fn endure<A: Algorithm>(algorithm: A) {
        let (limiter, clock) = manual(algorithm);
        for now in [
            0,
            1,
            1 << 40,
            1 << 61,
            (1 << 62) + 1,
            u64::MAX >> 1,
            u64::MAX,
        ] {
            clock.set(Tick::from_nanos(now));
            for cost in [0, 1, 2, u64::from(u32::MAX), 1 << 62, u64::MAX] {
                let _ = (limiter.check_n(cost), limiter.peek_n(cost));
                let _ = limiter.take_up_to(cost);
                limiter.refund(cost);
                let _ = limiter.charge(cost);
                let _ = limiter.check_n(cost);
            }
            let denied = limiter.check_n(u64::MAX);
            assert!(
                denied.is_denied() && denied.retry_after.is_none(),
                "{limiter:?}"
            );
            let _ = limiter.set_quota(limiter.quota());
            limiter.reset();
            assert!(limiter.check().wait().is_some(), "{limiter:?}");
        }
        // At the end of all time nothing comes back any more.
        limiter.charge(u64::MAX);
        assert!(
            limiter.check().is_denied(),
            "{limiter:?} at {:?}",
            clock.now()
        );
    }
    let nanosecond = Duration::from_nanos(1);
    let ages = Duration::from_nanos(1 << 62);
    let almost = Duration::from_nanos((1 << 62) - 1);
    let most = u64::MAX >> 1;
    for quota in [
        Quota::per(1, nanosecond),
        Quota::per(1, ages),
        Quota::per(most, nanosecond),
        Quota::per(most, ages),
        Quota::per(most, almost),
        Quota::per(999_999_937, Duration::from_secs(1)),
        Quota::per(3, almost).burst(3),
    ] {
        endure(FixedWindow::new(quota));
        endure(FixedWindow::new(quota).anchored().offset(ages));
        endure(SlidingLog::new(quota));
        endure(SlidingWindow::new(quota));
        endure(SlidingGrid::new(quota).cells(60).strict());
        endure(TokenBucket::new(quota));
        endure(TokenBucket::new(quota).initial(1));
        endure(LeakyBucket::new(quota));
    }
}

#[cfg(feature = "tokio")]
mod waiting {
    use std::sync::Arc;

    use tokio::time::{Instant, timeout};
    use tower_throttle::WarmUp;

    use super::*;

    /// The millisecond at which each of `callers` was let through, in the order they asked.
    async fn times<A: Algorithm>(limiter: Limiter<A>, callers: usize) -> Vec<u128> {
        let limiter = Arc::new(limiter);
        let start = Instant::now();
        let tasks: Vec<_> = (0..callers)
            .map(|_| {
                let limiter = Arc::clone(&limiter);
                tokio::spawn(async move {
                    limiter.until_ready().await;
                    start.elapsed().as_millis()
                })
            })
            .collect();
        let mut times = Vec::new();
        for task in tasks {
            times.push(task.await.expect("no task panics"));
        }
        times
    }

    #[tokio::test(start_paused = true)]
    async fn callers_go_first_come_first_served_one_interval_apart() {
        let queue = Limiter::new(LeakyBucket::new(Quota::per_second(10)));
        assert_eq!(times(queue, 5).await, [0, 100, 200, 300, 400]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_lets_its_burst_go_at_once_and_paces_the_rest() {
        let bucket = Limiter::new(TokenBucket::new(Quota::per_second(10).burst(3)));
        assert_eq!(times(bucket, 6).await, [0, 0, 0, 100, 200, 300]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cold_start_speeds_up_as_guava_does() {
        let quota = Quota::per_second(2);
        let cold = Limiter::new(WarmUp::new(quota, Duration::from_secs(4)));
        let ramp = [0, 1_375, 2_500, 3_375, 4_000, 4_500, 5_000, 5_500];
        assert_eq!(times(cold, 8).await, ramp);
    }

    #[tokio::test(start_paused = true)]
    async fn windows_are_waited_for_too() {
        let log = Limiter::new(SlidingLog::new(Quota::per_second(2)));
        assert_eq!(times(log, 5).await, [0, 0, 1_000, 1_000, 2_000]);
        let both = Limiter::new((
            TokenBucket::new(Quota::per_second(10).burst(1)),
            SlidingLog::new(Quota::per_second(3)),
        ));
        assert_eq!(times(both, 4).await, [0, 100, 200, 1_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_comes_too_late_is_refused_at_once_and_takes_nothing() {
        let limiter = Limiter::new(TokenBucket::new(Quota::per_second(10)));
        assert!(limiter.acquire(10, Duration::ZERO).await.is_admitted());
        let start = Instant::now();
        let refused = limiter.acquire(5, Duration::from_millis(499)).await;
        assert_eq!(refused.retry_after, Some(Duration::from_millis(1)));
        assert_eq!(start.elapsed(), Duration::ZERO);
        let granted = limiter.acquire(5, Duration::from_millis(500)).await;
        assert!(
            granted.is_admitted(),
            "a wait exactly as long as the maximum is granted"
        );
        assert_eq!(start.elapsed(), Duration::from_millis(500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cost_that_can_never_pass_is_refused_and_not_waited_for() {
        let limiter = Limiter::new(TokenBucket::new(Quota::per_second(10)));
        let refused = limiter.acquire(11, Duration::MAX).await;
        assert!(refused.is_denied() && refused.retry_after.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_gives_up_gives_its_place_back() {
        let limiter = Limiter::new(LeakyBucket::new(Quota::per_second(1)));
        limiter.until_ready().await;
        let given_up = timeout(Duration::from_millis(10), limiter.until_ready()).await;
        assert!(given_up.is_err());
        let start = Instant::now();
        limiter.until_ready().await;
        assert_eq!(
            start.elapsed(),
            Duration::from_millis(990),
            "not one interval later"
        );
    }

    #[tokio::test]
    async fn a_manual_clock_wakes_who_waits_on_it() {
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
        waiting.await.expect("its time has come");
    }
}
