//! Limits that adapt: the transitions, and what the layer measures.

use std::time::Duration;
#[cfg(feature = "tokio")]
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::{
    AsError, ConfigError, Global, RateLimited,
    clock::Tick,
    concurrency::{
        Adaptive, Aimd, ConcurrencyHandle, ConcurrencyLayer, Gradient2, Outcome, Samples, Vegas,
        Window,
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
}

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

#[test]
fn every_algorithm_keeps_its_bounds_and_rises_only_if_it_is_used() {
    keeps_its_bounds(&Gradient2::new().between(3, 50).start_at(3), 3, 50);
    keeps_its_bounds(&Vegas::new().between(3, 50).start_at(3), 3, 50);
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

#[test]
fn drops_lower_a_limit_from_one_in_a_hundred_on() {
    let gradient2 = after_one_and_ten_drops(&Gradient2::new());
    let vegas = after_one_and_ten_drops(&Vegas::new());
    let aimd = after_one_and_ten_drops(&Aimd::new(ms(50)));
    assert_eq!((gradient2, vegas, aimd), ((40, 18), (26, 19), (21, 18)));
}

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

#[test]
fn a_limit_begins_at_20_within_its_bounds() {
    for layer in [
        ConcurrencyLayer::adaptive(Gradient2::new()),
        ConcurrencyLayer::adaptive(Vegas::new()),
        ConcurrencyLayer::adaptive(Aimd::new(ms(50))),
        ConcurrencyLayer::adaptive(Gradient2::new().between(2, 20)),
    ] {
        assert_eq!(layer.handle().limit(), 20);
    }
    let layer = ConcurrencyLayer::adaptive(Vegas::new().between(30, 40));
    assert_eq!(layer.handle().limit(), 30);
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

/// The layer of the tests below.
#[cfg(feature = "tokio")]
fn from_20() -> ConcurrencyLayer<Global> {
    ConcurrencyLayer::adaptive(Aimd::new(ms(60)).start_at(20).between(1, 40))
}

/// The limit after so many seconds of twelve requests each. Their clients wait for 500 ms.
#[cfg(feature = "tokio")]
async fn after<S>(seconds: u32, service: &S, handle: &ConcurrencyHandle<()>) -> u64
where
    S: Service<Request<()>, Response: Send, Error: Send, Future: Send> + Clone + Send + 'static,
{
    for _ in 0..seconds {
        let second = tokio::time::Instant::now() + ms(1_000);
        let calls = (0..12).map(|_| {
            let call = service.clone().oneshot(Request::new(()));
            tokio::time::timeout(ms(500), call)
        });
        let mut calls: tokio::task::JoinSet<_> = calls.collect();
        while calls.join_next().await.is_some() {}
        tokio::time::sleep_until(second).await;
    }
    handle.limit()
}

/// A response after 50 ms. The body is not empty.
#[cfg(feature = "tokio")]
async fn respond(
    status: u16,
    grpc: Option<u8>,
) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    tokio::time::sleep(ms(50)).await;
    let mut response = Response::builder().status(status);
    if let Some(grpc) = grpc {
        response = response.header("grpc-status", grpc.to_string());
    }
    let body = Full::new(bytes::Bytes::from_static(b"body"));
    Ok(response.body(body).unwrap())
}

/// The limits after a minute of such responses, with the body and with the head as the end.
#[cfg(feature = "tokio")]
async fn after_a_minute_of(status: u16, grpc: Option<u8>) -> [u64; 2] {
    let service = service_fn(move |_: Request<()>| respond(status, grpc));
    let until_body = from_20();
    let until_head = from_20().release_at_head();
    [
        after(60, &until_body.layer(service), &until_body.handle()).await,
        after(60, &until_head.layer(service), &until_head.handle()).await,
    ]
}

#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn statuses_are_samples_drops_or_ignored() {
    for sample in [(200, None), (200, Some(0))] {
        let limits = after_a_minute_of(sample.0, sample.1).await;
        assert!(limits.iter().all(|limit| *limit > 20), "{sample:?}");
    }
    // 429 and resource exhausted are about the client.
    for ignored in [
        (400, None),
        (404, None),
        (429, None),
        (500, None),
        (200, Some(8)),
        (200, Some(5)),
    ] {
        let limits = after_a_minute_of(ignored.0, ignored.1).await;
        assert_eq!(limits, [20, 20], "{ignored:?}");
    }
    for dropped in [(503, None), (504, None), (200, Some(4)), (200, Some(14))] {
        let limits = after_a_minute_of(dropped.0, dropped.1).await;
        assert!(
            limits.iter().all(|limit| *limit < 15),
            "{dropped:?} {limits:?}"
        );
    }
}

/// A service that takes 50 ms for each of the first 36 requests, and then until `end` ends.
#[cfg(feature = "tokio")]
async fn after_it_is_stuck<F>(end: impl Fn() -> F + Clone + Send + Sync + 'static) -> (u64, u64)
where
    F: Future<Output = ()> + Send,
{
    let seen = Arc::new(AtomicUsize::new(0));
    let service = service_fn(move |_: Request<()>| {
        let is_stuck = seen.fetch_add(1, Ordering::Relaxed) >= 36;
        let end = end.clone();
        async move {
            if is_stuck {
                end().await;
            }
            respond(200, None).await
        }
    });
    let layer = from_20();
    let (service, handle) = (layer.layer(service), layer.handle());
    let before = after(3, &service, &handle).await;
    (before, after(60, &service, &handle).await)
}

#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn clients_that_time_out_lower_the_limit_and_panics_do_not() {
    let (before, limit) = after_it_is_stuck(std::future::pending).await;
    assert!(before > 20 && limit < 10, "{limit} after {before}");
    let (before, limit) = after_it_is_stuck(async || {
        tokio::time::sleep(ms(300)).await;
        std::panic::resume_unwind(Box::new(()));
    })
    .await;
    assert_eq!(limit, before);
}

#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn clients_that_hang_up_early_do_not_change_the_limit() {
    let service = service_fn(|_: Request<()>| respond(200, None));
    let layer = ConcurrencyLayer::adaptive(Gradient2::new());
    let (service, handle) = (layer.layer(service), layer.handle());
    let before = after(5, &service, &handle).await;
    for _ in 0..10 {
        for _ in 0..100 {
            let call = service.clone().oneshot(Request::new(()));
            assert!(tokio::time::timeout(ms(1), call).await.is_err());
        }
        assert_eq!(after(1, &service, &handle).await, before);
    }
}

#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn a_limit_that_rises_wakes_those_who_wait_and_denials_are_no_samples() {
    let slow = service_fn(|(): ()| async {
        tokio::time::sleep(ms(100)).await;
        Ok::<(), tower::BoxError>(())
    });
    let layer = ConcurrencyLayer::adaptive(Gradient2::new().start_at(1))
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
