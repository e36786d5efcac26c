//! `Limiter` and `Local` have the same methods with the same behaviour.

use super::*;

/// Calls a method of both and compares the results.
macro_rules! assert_same {
    ($limiter:ident, $local:ident, $method:ident($($argument:expr),*)) => {
        assert_eq!(
            $limiter.$method($($argument),*),
            $local.$method("key" $(, $argument)*),
            stringify!($method($($argument),*))
        )
    };
}

fn check<A: Algorithm>(algorithm: A, other: &A, has_one_quota: bool) {
    let clock = ManualClock::new();
    let limiter = Limiter::new(algorithm.clone()).with_clock(clock.clone());
    let local = Local::new(algorithm)
        .capacity(100)
        .with_clock(clock.clone());
    let second = Duration::from_secs(1);
    for step in 0..40 {
        assert_same!(limiter, local, check());
        assert_same!(limiter, local, check_n(2));
        assert_same!(limiter, local, peek());
        assert_same!(limiter, local, peek_n(3));
        assert_same!(limiter, local, try_acquire());
        assert_same!(limiter, local, try_acquire_n(2));
        assert_same!(limiter, local, reserve(1, second));
        if step % 5 == 1 {
            assert_same!(limiter, local, refund(2));
            assert_same!(limiter, local, take_up_to(3));
        }
        if step % 7 == 3 {
            assert_same!(limiter, local, charge(2));
        }
        if step == 20 {
            let quota = Quota::per_second(7);
            let (on_limiter, on_local) = (limiter.set_quota(quota), local.set_quota(quota));
            assert_eq!(on_limiter.is_ok(), has_one_quota, "{on_limiter:?}");
            assert_eq!(on_limiter, on_local);
            assert_eq!(limiter.quota(), local.quota());
        }
        if step == 25 {
            limiter.set_algorithm(other.clone()).unwrap();
            local.set_algorithm(other.clone()).unwrap();
            assert_eq!(limiter.quota(), local.quota());
        }
        if step == 30 {
            assert_same!(limiter, local, reset());
        }
        clock.advance(Duration::from_millis(170));
    }
}

#[test]
fn limiter_and_local_behave_the_same() {
    let (quota, other) = (Quota::per_second(10), Quota::per_second(4));
    check(FixedWindow::new(quota), &FixedWindow::new(other), true);
    check(SlidingLog::new(quota), &SlidingLog::new(other), true);
    check(SlidingWindow::new(quota), &SlidingWindow::new(other), true);
    check(TokenBucket::new(quota), &TokenBucket::new(other), true);
    check(
        LeakyBucket::new(quota).queue(5),
        &LeakyBucket::new(other).queue(5),
        true,
    );
    check(
        (LeakyBucket::new(quota).queue(5), SlidingLog::new(quota)),
        &(LeakyBucket::new(other).queue(9), SlidingLog::new(other)),
        false,
    );
}
