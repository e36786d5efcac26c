//! Limits that adapt: the transitions.

use std::time::Duration;

use tower_throttle::{
    ConfigError,
    clock::Tick,
    concurrency::{
        Adaptive, Aimd, ConcurrencyLimitLayer, Gradient2, Outcome, Samples, Vegas, Window,
    },
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A window in which the whole limit was used.
fn full<A: Adaptive>(algorithm: &A, state: &A::State, latency: Duration) -> Window {
    Window::new(latency, 100, algorithm.limit(state), 0)
}

/// The limits after windows with these latencies, each of which used the whole limit.
fn limits<A: Adaptive>(algorithm: &A, latencies: &[u64]) -> Vec<u64> {
    let mut state = algorithm.start();
    let next = latencies.iter().map(|latency| {
        state = algorithm.next(&state, &full(algorithm, &state, ms(*latency)));
        algorithm.limit(&state)
    });
    next.collect()
}

/// Shows promise 186.
#[test]
fn gradient2_doubles_until_the_service_queues_and_then_follows_the_gradient() {
    // 1.5 * 10 / 20 = 0.75: from 16 to (16 + 12) / 2; then by √14 and so on.
    assert_eq!(
        limits(
            &Gradient2::new().start_at(1),
            &[10, 10, 10, 10, 20, 10, 15, 60]
        ),
        [2, 4, 8, 16, 14, 17, 21, 16]
    );
    // After drops it rises by the root as well.
    let gradient2 = Gradient2::new();
    let mut state = gradient2.next(&gradient2.start(), &Window::new(ms(10), 99, 20, 1));
    state = gradient2.next(&state, &full(&gradient2, &state, ms(10)));
    assert_eq!(gradient2.limit(&state), 22);
}

/// Shows promise 186.
#[test]
fn vegas_moves_by_the_estimated_queue() {
    // Estimates of 0 and 13 queued requests, then of 4, 2 and 1.
    let vegas = Vegas::new().start_at(20);
    assert_eq!(limits(&vegas, &[100, 200]), [26, 25]);
    let idle = vegas.next(&vegas.start(), &Window::new(ms(100), 100, 10, 0));
    let mut state = vegas.next(&idle, &Window::new(ms(100), 100, 20, 2));
    assert_eq!(vegas.limit(&state), 19, "drops");
    for (latency, limit) in [(125, 19), (109, 20), (105, 26)] {
        state = vegas.next(&state, &full(&vegas, &state, ms(latency)));
        assert_eq!(vegas.limit(&state), limit, "{latency} ms");
    }
    // From 100 on the logarithm is 2: estimates of 0, 8, 5, 2 and 12.
    assert_eq!(
        limits(&vegas.start_at(150), &[100, 105, 103, 101, 107]),
        [162, 162, 164, 176, 176]
    );
}

/// Shows promise 186.
#[test]
fn aimd_rises_by_one_and_falls_by_a_tenth() {
    let aimd = Aimd::new(ms(50));
    assert_eq!(limits(&aimd, &[10, 50, 51, 51, 10]), [21, 22, 19, 17, 18]);
    let state = aimd.next(&aimd.start(), &Window::new(ms(10), 100, 20, 3));
    assert_eq!(aimd.limit(&state), 18);
    let silent = aimd.next(&aimd.start(), &Window::new(ms(51), 0, 20, 0));
    assert_eq!((aimd.limit(&silent), aimd.load()), (20, 0));
}

/// What holds for every algorithm, from states that random windows lead to.
fn keeps_its_bounds<A: Adaptive>(algorithm: &A, min: u64, max: u64) {
    let (mut state, mut random) = (algorithm.start(), 1_u64);
    let mut seen = (u64::MAX, 0);
    for step in 0..20_000_u64 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let limit = algorithm.limit(&state);
        assert!((min..=max).contains(&limit), "{limit}");
        seen = (seen.0.min(limit), seen.1.max(limit));
        // Of half of the limit or less, no window raises it.
        let idle = Window::new(ms(1), 100, limit / 2, 0);
        if limit > 1 {
            assert!(algorithm.limit(&algorithm.next(&state, &idle)) <= limit);
        }
        // Windows with drops lower it: a tenth of a small limit may be less than one request.
        let dropped = Window::new(ms(1), 99, limit, 1);
        let lower = (0..4).fold(state.clone(), |state, _| algorithm.next(&state, &dropped));
        let lower = algorithm.limit(&lower);
        assert!(lower < limit || limit == min, "{lower} of {limit}");
        let quick = step / 1_000 % 2 == 0;
        let latency = match random >> 60 {
            0 => Duration::ZERO,
            1 => Duration::MAX,
            _ if quick => ms(10),
            _ => ms(100),
        };
        state = algorithm.next(&state, &Window::new(latency, 100, limit, 0));
    }
    assert_eq!(seen, (min, max), "the whole range was in use");
}

/// Shows promise 186.
#[test]
fn every_algorithm_keeps_its_bounds_and_rises_only_if_it_is_used() {
    keeps_its_bounds(&Gradient2::new().between(3, 50).start_at(3), 3, 50);
    keeps_its_bounds(&Vegas::new().between(3, 50).start_at(3), 3, 50);
    keeps_its_bounds(&Aimd::new(ms(20)).between(3, 50), 3, 50);
}

/// Shows promise 185.
#[test]
fn a_long_overload_is_not_taken_for_the_speed_of_the_service() {
    let gradient2 = Gradient2::new().between(10, 200);
    let mut state = gradient2.start();
    for latency in [10, 10, 10, 10] {
        state = gradient2.next(&state, &full(&gradient2, &state, ms(latency)));
    }
    // The queue stays at 1.5 times the latency of the idle service, for an hour.
    for _ in 0..3_600 {
        let limit = gradient2.limit(&state);
        let latency = ms(10 * limit.max(20) / 20);
        state = gradient2.next(&state, &full(&gradient2, &state, latency));
    }
    let limit = gradient2.limit(&state);
    assert!((28..=36).contains(&limit), "{limit} for 20 workers");
}

/// Shows promise 185.
#[test]
fn a_service_that_has_become_slower_is_served_again() {
    let gradient2 = Gradient2::new();
    let mut state = gradient2.start();
    for latency in [10, 10, 10, 10, 10] {
        state = gradient2.next(&state, &full(&gradient2, &state, ms(latency)));
    }
    let mut lowest = u64::MAX;
    for _ in 0..60 {
        let limit = gradient2.limit(&state);
        lowest = lowest.min(limit);
        // 20 workers, and each request takes five times as long as before.
        let latency = ms(50 * limit.max(20) / 20);
        state = gradient2.next(&state, &full(&gradient2, &state, latency));
    }
    let limit = gradient2.limit(&state);
    assert!(lowest == 1 && (26..=36).contains(&limit), "{limit}");
}

/// The window in which every request is a drop, as the layer measures it.
fn outage() -> Window {
    let mut samples = Samples::new(ms(1_000), 10);
    let ended = (0..=10).map(|n| {
        let now = Tick::ZERO.plus(ms(100 * n));
        samples.record(now, ms(1), 10, Outcome::Dropped)
    });
    ended.last().flatten().unwrap()
}

/// The limit for 100 workers after an outage of 20 windows, and 60 windows of recovery.
fn after_an_outage<A: Adaptive>(algorithm: &A) -> u64 {
    let mut state = algorithm.start();
    let mut serve = |windows: usize, outage: Option<Window>| {
        for _ in 0..windows {
            let limit = algorithm.limit(&state);
            let served = full(algorithm, &state, ms(limit.max(100)));
            state = algorithm.next(&state, &outage.unwrap_or(served));
        }
        algorithm.limit(&state)
    };
    let before = serve(60, None);
    assert!(before >= 100, "{before} before");
    assert!(serve(20, Some(outage())) < 90);
    serve(60, None)
}

/// Shows promise 185.
#[test]
fn an_outage_does_not_change_what_is_known_of_the_latency() {
    assert_eq!(outage().samples, 0);
    let limit = after_an_outage(&Vegas::new());
    assert!((100..=115).contains(&limit), "Vegas: {limit}");
    let limit = after_an_outage(&Gradient2::new());
    assert!((140..=170).contains(&limit), "Gradient2: {limit}");
    // As the bound is far away, it rises by one per window.
    let aimd = Aimd::new(ms(300)).start_at(120);
    assert!(after_an_outage(&aimd) > 60, "Aimd");
}

/// The limits after a window of 1,000 requests of which one is a drop, and of 10.
fn after_one_and_ten_drops<A: Adaptive>(algorithm: &A) -> (u64, u64) {
    let start = algorithm.start();
    let after = |dropped| {
        let limit = algorithm.limit(&start);
        let window = Window::new(ms(10), 1_000 - dropped, limit, dropped);
        algorithm.limit(&algorithm.next(&start, &window))
    };
    (after(1), after(10))
}

/// Shows promise 186.
#[test]
fn drops_lower_a_limit_from_one_in_a_hundred_on() {
    let gradient2 = after_one_and_ten_drops(&Gradient2::new());
    let vegas = after_one_and_ten_drops(&Vegas::new());
    let aimd = after_one_and_ten_drops(&Aimd::new(ms(50)));
    assert_eq!((gradient2, vegas, aimd), ((40, 18), (26, 19), (21, 18)));
}

/// Shows promise 186.
#[test]
fn gradient2_does_not_change_while_at_most_half_is_used() {
    let gradient2 = Gradient2::new().start_at(100);
    let mut state = gradient2.start();
    for in_flight in [1, 5, 50] {
        for latency in [10, 10, 40] {
            state = gradient2.next(&state, &Window::new(ms(latency), 100, in_flight, 0));
            assert_eq!(gradient2.limit(&state), 100, "{in_flight} in flight");
        }
    }
}

/// Shows promise 185.
#[test]
fn a_limit_begins_at_20_within_its_bounds() {
    for layer in [
        ConcurrencyLimitLayer::adaptive(Gradient2::new()),
        ConcurrencyLimitLayer::adaptive(Vegas::new()),
        ConcurrencyLimitLayer::adaptive(Aimd::new(ms(50))),
        ConcurrencyLimitLayer::adaptive(Gradient2::new().between(2, 20)),
    ] {
        assert_eq!(layer.handle().limit(), 20);
    }
    let layer = ConcurrencyLimitLayer::adaptive(Vegas::new().between(30, 40));
    assert_eq!(layer.handle().limit(), 30);
    let layer = ConcurrencyLimitLayer::adaptive(Vegas::new().between(7, 7));
    assert_eq!(layer.handle().limit(), 7);
}

#[test]
#[should_panic(expected = "between: 9 to 3 is not allowed")]
fn bounds_in_the_wrong_order_are_refused() {
    let _ = Vegas::new().between(9, 3);
}

#[test]
#[should_panic(expected = "start_at: 300 is not allowed; give a number from 1 to 200")]
fn a_start_out_of_bounds_is_refused() {
    let _ = Gradient2::new().start_at(300);
}

#[test]
fn an_adaptive_limit_is_not_set_by_hand() {
    let handle = ConcurrencyLimitLayer::adaptive(Vegas::new().start_at(7)).handle();
    let refused = handle.set_limit(9);
    assert!(matches!(refused, Err(ConfigError::Unsupported { .. })));
    assert_eq!(handle.limit(), 7);
}
