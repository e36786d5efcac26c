//! Tests of `Limiter`, alone and compared with `Local`: decisions, threads, changes and waiting.

#[cfg(feature = "tokio")]
mod waiting;

use std::{sync::Barrier, time::Duration};

use tower_throttle::algorithm::{Algorithm, IntoAlgorithm};
use tower_throttle::{
    All, FixedWindow, LeakyBucket, Limiter, Local, Lockout, ManualClock, Quota, SlidingGrid,
    SlidingLog, SlidingWindow, TokenBucket, clock::Tick,
};

const MINUTE: Duration = Duration::from_secs(60);

fn manual<I: IntoAlgorithm>(algorithm: I) -> (Limiter<I::Algorithm, ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::new(algorithm).with_clock(clock.clone()), clock)
}

/// Calls `check` from `threads` threads, `each` times per thread. Returns how many calls were admitted.
fn acquire_from_threads<A: Algorithm>(
    limiter: &Limiter<A, ManualClock>,
    threads: usize,
    each: usize,
) -> u64 {
    let is_admitted = |_: &usize| limiter.check(1).is_admitted();
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| (0..each).filter(is_admitted).count() as u64))
            .collect();
        handles
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"))
            .sum()
    })
}

/// Shows promise 36.
#[test]
fn many_threads_share_one_limit_exactly() {
    const LIMIT: u64 = 5_000;
    fn check(algorithm: impl IntoAlgorithm) {
        let (limiter, clock) = manual(algorithm);
        for _ in 0..2 {
            let admitted = acquire_from_threads(&limiter, 8, 1_000);
            assert_eq!(admitted, LIMIT, "{limiter:?}");
            clock.advance(3 * MINUTE);
        }
    }
    let quota = Quota::per(LIMIT, MINUTE);
    check(FixedWindow::new(quota));
    check(FixedWindow::new(quota).anchored());
    check(SlidingLog::new(quota));
    check(SlidingWindow::new(quota));
    check(SlidingGrid::new(quota));
    check(TokenBucket::new(quota));
    check(LeakyBucket::new(quota));
    check(All::new([
        TokenBucket::new(quota),
        TokenBucket::new(quota.burst(2 * LIMIT)),
    ]));
    check((TokenBucket::new(quota), SlidingLog::new(quota)));
}

/// Shows promise 47.
#[test]
fn a_changed_quota_is_read_back_and_keeps_usage() {
    let (limiter, clock) = manual(SlidingWindow::new(Quota::per_minute(10)));
    assert!(limiter.check(8).is_admitted());
    let set = |quota| limiter.set_quota(quota).expect("a window takes any quota");
    set(Quota::per_minute(12));
    let changed = limiter.peek(1);
    assert_eq!((changed.limit, changed.remaining()), (12, 4));
    set(Quota::per_minute(5));
    // Neither a lower limit nor another size of the window grants anything new.
    assert_eq!(limiter.peek(1).remaining(), 0);
    set(Quota::per_hour(5));
    assert!(limiter.check(1).is_denied());
    clock.advance(3 * 60 * MINUTE);
    assert!(limiter.check(5).is_admitted());
    let bucket = TokenBucket::new(Quota::per_second(1));
    let error = manual((bucket, bucket)).0.set_quota(Quota::per_second(2));
    let error = error.expect_err("two quotas").to_string();
    assert!(error.contains("set_algorithm"), "{error}");
}

/// Shows promise 11.
#[test]
fn an_invalid_setting_is_refused_at_first_and_later_and_changes_nothing() {
    let (day, burst) = (Quota::per_day(2), Quota::per_day(2).burst(4));
    assert!(std::panic::catch_unwind(|| Limiter::new(FixedWindow::new(burst))).is_err());
    let (limiter, _) = manual(FixedWindow::new(day));
    assert!(limiter.set_algorithm(FixedWindow::new(burst)).is_err());
    assert!(limiter.set_quota(burst).is_err());
    assert!(limiter.check(2).is_admitted() && limiter.check(1).is_denied());
    limiter.refund(1);
    assert_eq!(limiter.peek(0).remaining(), 1);
}

/// The denial of a cost of 1 is repeated without the lock of the limit.
#[test]
fn a_denial_that_is_repeated_is_as_one_that_is_decided() {
    fn check(algorithm: impl IntoAlgorithm + Copy) {
        let [(repeats, clock), (decides, other)] = [manual(algorithm), manual(algorithm)];
        for cost in [1, 1, 0, 2, 1].repeat(60) {
            decides.refund(0); // It hides the last denial.
            assert_eq!(repeats.check(cost), decides.check(cost), "{repeats:?}");
            clock.advance(MINUTE / 50);
            other.advance(MINUTE / 50);
        }
    }
    let [bucket, day] = [Quota::per_minute(3), Quota::per_day(9)].map(TokenBucket::new);
    check(bucket);
    check((day, bucket));
    check(Lockout::new(Quota::per_hour(9)).after_denials_of(bucket));
}

/// Shows promise 11.
#[test]
fn extreme_quotas_and_times_neither_panic_nor_admit_without_limit() {
    fn stress<A: Algorithm>(algorithm: A) {
        let quota = algorithm.quota();
        let (limiter, clock) = manual(algorithm);
        for now in [0, 1, 1 << 40, (1 << 62) + 1, u64::MAX >> 1, u64::MAX] {
            clock.set(Tick::from_nanos(now));
            for cost in [0, 1, 2, u64::from(u32::MAX), 1 << 62, u64::MAX] {
                let _ = (limiter.check(cost), limiter.peek(cost));
                limiter.refund(cost);
                let _ = limiter.charge(cost);
                let _ = limiter.check(cost);
            }
            let denied = limiter.check(u64::MAX);
            let is_never = denied.is_denied() && denied.retry_after.is_none();
            assert!(is_never, "{limiter:?}");
            let _ = limiter.set_quota(quota);
            limiter.reset();
            assert!(limiter.check(1).wait().is_some(), "{limiter:?}");
        }
        // At the largest time of the clock nothing is refilled any more.
        limiter.charge(u64::MAX);
        assert!(limiter.check(1).is_denied(), "{limiter:?}");
    }
    let nanosecond = Duration::from_nanos(1);
    let decade = 10 * 365 * 86_400 * 1_000_000_000;
    let [longest, almost] = [decade, decade - 1].map(Duration::from_nanos);
    let most = (1 << 53) - 1;
    for quota in [
        Quota::per(1, nanosecond),
        Quota::per(1, longest),
        Quota::per(most, nanosecond),
        Quota::per(most, longest),
        Quota::per(most, almost),
        Quota::per(999_999_937, Duration::from_secs(1)),
        Quota::per(3, almost),
    ] {
        stress(FixedWindow::new(quota));
        stress(FixedWindow::new(quota).anchored());
        stress(SlidingLog::new(quota));
        stress(SlidingWindow::new(quota));
        stress(SlidingGrid::new(quota).cells(60).strict());
        stress(TokenBucket::new(quota.burst(quota.limit().min(3))));
        stress(TokenBucket::new(quota));
        stress(TokenBucket::new(quota).initial(1));
        stress(LeakyBucket::new(quota));
    }
}

/// Shows promise 36.
#[test]
fn of_changes_at_the_same_time_none_is_lost() {
    let window = |offset| FixedWindow::new(Quota::per_hour(9)).offset(Duration::from_secs(offset));
    let limiter = Limiter::new(window(1)).with_clock(ManualClock::new());
    let local = Local::new(window(1))
        .capacity(1)
        .with_clock(ManualClock::new());
    assert!(limiter.check(1).is_admitted() && local.check("key", 1).is_admitted());
    let both = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for limit in 1..3_000 {
                both.wait();
                limiter.set_quota(Quota::per_hour(limit)).unwrap();
                local.set_quota(Quota::per_hour(limit)).unwrap();
                both.wait();
            }
        });
        let mut lost = 0;
        for offset in 1..3_000 {
            both.wait();
            limiter.set_algorithm(window(offset)).unwrap();
            local.set_algorithm(window(offset)).unwrap();
            both.wait();
            let resets = [limiter.peek(0), local.peek("key", 0)].map(|peek| peek.reset_after);
            lost += resets.iter().filter(|at| at.as_secs() != offset).count();
        }
        assert_eq!(lost, 0);
    });
}
