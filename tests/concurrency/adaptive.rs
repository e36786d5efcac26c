//! Limits that adapt: what they do after each window.

use std::time::Duration;

use tower_throttle::concurrency::{Adaptive, Aimd, ConcurrencyLimitLayer, Gradient2, Window};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A window of 100 requests in which the whole limit was used.
fn full(algorithm: &impl Adaptive, latency: Duration) -> Window {
    Window::new(latency, 100, algorithm.limit().into(), 0)
}

/// One in which half of the requests were drops.
fn failed(algorithm: &impl Adaptive) -> Window {
    Window::new(ms(10), 50, algorithm.limit().into(), 50)
}

/// The limits after windows with these latencies, each of which used the whole limit.
fn limits<A: Adaptive, const N: usize>(mut algorithm: A, latencies: [u64; N]) -> [u32; N] {
    latencies.map(|latency| {
        algorithm.next(&full(&algorithm, ms(latency)));
        algorithm.limit()
    })
}

/// Shows promise 185.
#[test]
fn gradient2_doubles_until_the_service_queues_and_then_follows_the_gradient() {
    // 1.5 * 10 / 20 = 0.75: from 16 to (16 + 12) / 2; then by √14 and so on.
    assert_eq!(
        limits(
            Gradient2::new().start_at(1),
            [10, 10, 10, 10, 20, 10, 15, 60]
        ),
        [2, 4, 8, 16, 14, 17, 21, 16]
    );
    // After an outage it rises by the root as well.
    let mut gradient2 = Gradient2::new();
    gradient2.next(&failed(&gradient2));
    assert_eq!(gradient2.limit(), 18);
    gradient2.next(&full(&gradient2, ms(10)));
    assert_eq!(gradient2.limit(), 22);
}

/// Shows promise 185.
#[test]
fn aimd_rises_by_one_and_falls_by_a_tenth() {
    let mut aimd = Aimd::new(ms(50));
    assert_eq!(limits(aimd, [10, 50, 51, 51, 10]), [21, 22, 19, 17, 18]);
    aimd.next(&failed(&aimd));
    assert_eq!(aimd.limit(), 18);
}

/// What holds for every algorithm, from states that random windows lead to.
fn keeps_its_bounds<A: Adaptive + Clone>(mut algorithm: A, min: u32, max: u32) {
    let (mut random, mut seen) = (1_u64, (u32::MAX, 0));
    for step in 0..20_000_u64 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let limit = algorithm.limit();
        assert!((min..=max).contains(&limit), "{limit}");
        seen = (seen.0.min(limit), seen.1.max(limit));
        // Of half of the limit or less, no window changes it.
        for window in [
            Window::new(ms(1), 100, u64::from(limit / 2), 0),
            Window::new(ms(1_000), 100, u64::from(limit / 2), 0),
            Window::new(ms(1_000), 0, u64::from(limit / 2), 100),
        ] {
            let mut idle = algorithm.clone();
            idle.next(&window);
            assert_eq!(idle.limit(), limit);
        }
        // Drops of half of the requests lower it: a tenth of a small limit may be less than one request.
        let mut lower = algorithm.clone();
        (0..4).for_each(|_| lower.next(&failed(&algorithm)));
        assert!(lower.limit() < limit || limit == min, "{limit}");
        let quick = step / 1_000 % 2 == 0;
        let latency = match random >> 60 {
            0 => Duration::ZERO,
            1 => Duration::MAX,
            _ if quick => ms(10),
            _ => ms(100),
        };
        algorithm.next(&full(&algorithm, latency));
    }
    assert_eq!(seen, (min, max), "the whole range was in use");
}

/// Shows promise 185.
#[test]
fn every_algorithm_keeps_its_bounds_and_changes_only_if_it_is_used() {
    keeps_its_bounds(Gradient2::new().between(3, 50).start_at(3), 3, 50);
    keeps_its_bounds(Aimd::new(ms(20)).between(3, 50), 3, 50);
}

/// Shows promise 185.
#[test]
fn a_long_overload_is_not_taken_for_the_speed_of_the_service() {
    let mut gradient2 = Gradient2::new().between(10, 200);
    for _ in 0..4 {
        gradient2.next(&full(&gradient2, ms(10)));
    }
    // The queue stays at 1.5 times the latency of the idle service, for an hour.
    for _ in 0..3_600 {
        let latency = ms(10 * u64::from(gradient2.limit().max(20)) / 20);
        gradient2.next(&full(&gradient2, latency));
    }
    let limit = gradient2.limit();
    assert!((28..=36).contains(&limit), "{limit} for 20 workers");
}

/// At the least limit nothing queues: it is the service that takes longer.
///
/// Shows promise 185.
#[test]
fn a_service_that_is_slower_for_good_is_used_again() {
    let mut gradient2 = Gradient2::new().between(2, 50);
    let mut limits = [10, 100].map(|latency| {
        let windows = (0..100).map(|_| {
            gradient2.next(&full(&gradient2, ms(latency)));
            gradient2.limit()
        });
        windows.collect::<Vec<_>>()
    });
    assert_eq!(limits[1].iter().min(), Some(&2));
    assert_eq!(limits.each_mut().map(Vec::pop), [Some(50); 2]);
}

/// Shows promise 185.
#[test]
fn a_limit_begins_at_20_within_its_bounds() {
    for (layer, limit) in [
        (ConcurrencyLimitLayer::adaptive(Gradient2::new()), 20),
        (ConcurrencyLimitLayer::adaptive(Aimd::new(ms(50))), 20),
        (
            ConcurrencyLimitLayer::adaptive(Gradient2::new().between(2, 20)),
            20,
        ),
        (
            ConcurrencyLimitLayer::adaptive(Gradient2::new().between(30, 40)),
            30,
        ),
        (
            ConcurrencyLimitLayer::adaptive(Aimd::new(ms(50)).between(7, 7)),
            7,
        ),
    ] {
        assert_eq!(layer.handle().limit(), limit);
    }
}

#[test]
fn an_adaptive_limit_is_not_set_by_hand() {
    let handle = ConcurrencyLimitLayer::adaptive(Gradient2::new().start_at(7)).handle();
    let refused = handle.set_limit(9);
    assert!(refused.is_err());
    assert_eq!(handle.limit(), 7);
}
