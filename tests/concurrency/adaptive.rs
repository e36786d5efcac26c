//! Limits that adapt: the transitions, and what the layer measures.

use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    AsError, ConfigError, RateLimited,
    concurrency::{Adaptive, Aimd, ConcurrencyLayer, Gradient2, Vegas, Window},
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

#[test]
fn gradient2_doubles_until_the_service_queues_and_then_follows_the_gradient() {
    // 1.5 * 10 / 20 = 0.75: from 16 to (16 + 12) / 2; then by √14 and so on.
    assert_eq!(
        limits(&Gradient2::new(), &[10, 10, 10, 10, 20, 10, 15, 60]),
        [2, 4, 8, 16, 14, 17, 21, 16]
    );
}

#[test]
fn vegas_moves_by_the_estimated_queue() {
    // Estimates of 0 and 13 queued requests, then of 4, 2 and 1.
    let vegas = Vegas::new().start_at(20);
    assert_eq!(limits(&vegas, &[100, 200]), [26, 25]);
    let mut state = vegas.next(&vegas.start(), &Window::new(ms(100), 100, 20, 1));
    assert_eq!(vegas.limit(&state), 19, "a drop");
    for (latency, limit) in [(125, 19), (109, 20), (105, 26)] {
        state = vegas.next(&state, &full(&vegas, &state, ms(latency)));
        assert_eq!(vegas.limit(&state), limit, "{latency} ms");
    }
}

#[test]
fn aimd_rises_by_one_and_falls_by_a_tenth() {
    let aimd = Aimd::new(ms(50));
    assert_eq!(limits(&aimd, &[10, 50, 51, 51, 10]), [21, 22, 19, 17, 18]);
    let state = aimd.next(&aimd.start(), &Window::new(ms(10), 100, 20, 3));
    assert_eq!(aimd.limit(&state), 18);
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
        let dropped = Window::new(ms(1), 100, limit, 1);
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

#[test]
fn every_algorithm_keeps_its_bounds_and_rises_only_if_it_is_used() {
    keeps_its_bounds(&Gradient2::new().between(3, 50), 3, 50);
    keeps_its_bounds(&Vegas::new().between(3, 50), 3, 50);
    keeps_its_bounds(&Aimd::new(ms(20)).between(3, 50), 3, 50);
}

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
    let handle = ConcurrencyLayer::adaptive(Vegas::new().start_at(7)).handle();
    let refused = handle.set_limit(9);
    assert!(matches!(refused, Err(ConfigError::Unsupported { .. })));
    assert_eq!(handle.limit(), 7);
}

/// The limit after 60 s of ten requests per second, each of which has this status and takes 50 ms.
#[cfg(feature = "tokio")]
async fn after_a_minute_of(status: u16) -> u64 {
    let service = service_fn(move |_: Request<()>| async move {
        tokio::time::sleep(ms(50)).await;
        let body = Full::new(bytes::Bytes::from_static(b"body"));
        let mut response = Response::new(body);
        *response.status_mut() = status.try_into().unwrap();
        Ok::<_, std::convert::Infallible>(response)
    });
    let layer = ConcurrencyLayer::adaptive(Aimd::new(ms(60)).start_at(20).between(1, 40));
    let (service, handle) = (layer.layer(service), layer.handle());
    for _ in 0..60 {
        let calls = (0..12).map(|_| service.clone().oneshot(Request::new(())));
        let mut calls: tokio::task::JoinSet<_> = calls.collect();
        while calls.join_next().await.is_some() {}
        tokio::time::sleep(ms(950)).await;
    }
    handle.limit()
}

#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn statuses_are_samples_drops_or_ignored() {
    assert!(after_a_minute_of(200).await > 20);
    for ignored in [400, 404, 500] {
        assert_eq!(after_a_minute_of(ignored).await, 20, "{ignored}");
    }
    for dropped in [503, 504] {
        assert!(after_a_minute_of(dropped).await < 15, "{dropped}");
    }
}

#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn a_limit_that_rises_wakes_those_who_wait_and_denials_are_no_samples() {
    let slow = service_fn(|(): ()| async {
        tokio::time::sleep(ms(100)).await;
        Ok::<(), tower::BoxError>(())
    });
    let layer = ConcurrencyLayer::adaptive(Gradient2::new())
        .queue(500)
        .max_wait(Duration::from_secs(60))
        .release_at_response()
        .respond(AsError);
    let (service, handle) = (layer.layer(slow), layer.handle());
    let calls = (0..502).map(|_| service.clone().oneshot(()));
    let mut calls: tokio::task::JoinSet<_> = calls.collect();
    let (mut served, mut denied) = (0, 0);
    while let Some(ended) = calls.join_next().await {
        match ended.unwrap() {
            Ok(()) => served += 1,
            Err(error) => {
                assert!(error.is::<RateLimited>());
                denied += 1;
            }
        }
    }
    assert_eq!((served, denied), (501, 1));
    assert!(handle.limit() >= 16, "{}", handle.limit());
    assert_eq!((handle.keys(), handle.waiting()), (0, 0));
}
