//! `Limiter` and `Local` have the same methods, which do the same.

use super::*;

/// One operation on both.
macro_rules! same {
    ($limiter:ident, $local:ident, $method:ident($($argument:expr),*)) => {
        assert_eq!(
            $limiter.$method($($argument),*),
            $local.$method("key" $(, $argument)*),
            stringify!($method($($argument),*))
        )
    };
}

fn run<A: Algorithm>(algorithm: A, other: A, has_one_quota: bool) {
    let clock = ManualClock::new();
    let limiter = Limiter::new(algorithm.clone()).with_clock(clock.clone());
    let local = Local::new(algorithm)
        .capacity(100)
        .with_clock(clock.clone());
    let second = Duration::from_secs(1);
    for step in 0..40 {
        same!(limiter, local, check());
        same!(limiter, local, check_n(2));
        same!(limiter, local, peek());
        same!(limiter, local, peek_n(3));
        same!(limiter, local, try_acquire());
        same!(limiter, local, try_acquire_n(2));
        same!(limiter, local, reserve(1, second));
        if step % 5 == 1 {
            same!(limiter, local, refund(2));
            same!(limiter, local, take_up_to(3));
        }
        if step % 7 == 3 {
            same!(limiter, local, charge(2));
        }
        if step == 20 {
            let quota = Quota::per_second(7);
            let (on_limiter, on_local) = (limiter.set_quota(quota), local.set_quota(quota));
            assert_eq!(on_limiter.is_ok(), has_one_quota, "{on_limiter:?}");
            assert_eq!(on_limiter, on_local);
            assert_eq!(limiter.quota(), local.quota());
        }
        if step == 25 {
            limiter.set_algorithm(other.clone(), Inherit::AsIs).unwrap();
            local.set_algorithm(other.clone(), Inherit::AsIs).unwrap();
            assert_eq!(limiter.quota(), local.quota());
        }
        if step == 30 {
            same!(limiter, local, reset());
        }
        clock.advance(Duration::from_millis(170));
    }
}

#[test]
fn both_limiters_do_the_same() {
    let (quota, other) = (Quota::per_second(10), Quota::per_second(4));
    run(FixedWindow::new(quota), FixedWindow::new(other), true);
    run(SlidingLog::new(quota), SlidingLog::new(other), true);
    run(SlidingWindow::new(quota), SlidingWindow::new(other), true);
    run(TokenBucket::new(quota), TokenBucket::new(other), true);
    run(
        LeakyBucket::new(quota).queue(5),
        LeakyBucket::new(other).queue(5),
        true,
    );
    run(
        (LeakyBucket::new(quota).queue(5), SlidingLog::new(quota)),
        (LeakyBucket::new(other).queue(9), SlidingLog::new(other)),
        false,
    );
}
