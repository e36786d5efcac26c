//! Logs and metrics: names and outcomes, but no keys.

use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::key::Extracted;
use tower_throttle::store::Fallback;
use tower_throttle::{
    AsError, ClientIp, FixedWindow, Quota, RateLimitLayer, StoreError, store::Backend,
};

use crate::support::{Reply, Script, admit};

/// Sends requests to a backend that fails twice and has a fallback.
async fn covered() {
    let first = Script::default();
    for _ in 0..2 {
        first.push(Reply::Now(Err(StoreError::new("timed out", true))));
    }
    first.push(Reply::Now(Ok(admit())));
    let second = Script::default();
    for _ in 0..2 {
        second.push(Reply::Now(Ok(admit())));
    }
    let limiter = Fallback::new(first, second);
    for _ in 0..3 {
        let decision = Backend::<u32>::decide(&limiter, &1, 1).await.unwrap();
        assert!(decision.is_admitted());
    }
}

/// Sends one admitted and two denied requests with a key that must not be logged.
async fn requests() {
    let layer = RateLimitLayer::new(
        |(): &()| "hunter2".to_owned(),
        FixedWindow::new(Quota::per_day(1)),
    )
    .name("vault")
    .respond(AsError);
    let unit = service_fn(|(): ()| async { Ok::<_, BoxError>(()) });
    for _ in 0..3 {
        let _ = layer.layer(unit).oneshot(()).await;
    }
}

#[cfg(feature = "tracing")]
mod traced {
    use std::time::Duration;

    use axum::{Router, body::Body, extract::Request, routing::get};
    use tower_throttle::{Global, Local, ManualClock, key::PeerAddr};

    use super::*;
    use crate::log;

    fn subscribe() {
        log::subscribe(tracing::Level::DEBUG);
    }

    /// Shows promise 77.
    #[tokio::test]
    async fn a_denial_is_logged_with_the_name_of_the_limit_and_without_the_key() {
        subscribe();
        requests().await;
        let text = log::log();
        assert_eq!(text.matches("a request was denied").count(), 2, "{text}");
        let is_logged = text.contains("limit=\"vault\"") && text.contains("DEBUG");
        assert!(is_logged, "{text}");
        assert!(!text.contains("hunter2"));
    }

    /// Shows promise 77.
    #[cfg(feature = "tokio")]
    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_is_logged_with_its_wait() {
        subscribe();
        let wait = crate::support::wait(std::time::Duration::from_secs(3));
        let layer = RateLimitLayer::new(|n: &u32| *n, Script::now([wait])).name("vault");
        let echo = service_fn(|n: u32| async move { Ok::<_, BoxError>(n) });
        let service = layer.respond(AsError).layer(echo);
        service.oneshot(4_711).await.unwrap();
        let text = log::log();
        assert!(text.contains("a request waits for its turn"), "{text}");
        let is_logged = text.contains("limit=\"vault\"") && text.contains("wait=Some(3s)");
        assert!(is_logged, "{text}");
        assert!(!text.contains("4711"), "{text}");
    }

    /// Decides `flaps` times by a backend that fails each second time.
    async fn flap(limiter: &Fallback<Script, Script>, replies: [&Script; 2], flaps: usize) {
        for _ in 0..flaps {
            replies[0].push(Reply::Now(Err(StoreError::new("timed out", true))));
            replies[1].push(Reply::Now(Ok(admit())));
            replies[0].push(Reply::Now(Ok(admit())));
            for _ in 0..2 {
                let decision = Backend::<u32>::decide(limiter, &1, 1).await.unwrap();
                assert!(decision.is_admitted());
            }
        }
    }

    /// Shows promise 78.
    #[tokio::test(start_paused = true)]
    async fn a_flapping_fallback_does_not_fill_the_log() {
        subscribe();
        let (first, second) = (Script::default(), Script::default());
        let limiter = Fallback::new(first.clone(), second.clone());
        flap(&limiter, [&first, &second], 100).await;
        assert!(!limiter.is_on_secondary());
        let text = log::log();
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.contains("the fallback decides left_out=0"), "{text}");
        assert!(text.contains("decides again left_out=0"), "{text}");
        // One per ten seconds, with the number that was left out.
        tokio::time::advance(Duration::from_secs(10)).await;
        flap(&limiter, [&first, &second], 100).await;
        let text = log::log();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("the fallback decides left_out=196"), "{text}");
        // The last switch is logged although nothing switches any more.
        tokio::time::advance(Duration::from_secs(10)).await;
        for _ in 0..3 {
            first.push(Reply::Now(Ok(admit())));
            let _ = Backend::<u32>::decide(&limiter, &1, 1).await;
        }
        let text = log::log();
        assert_eq!(text.lines().count(), 1, "{text}");
        let is_logged = text.contains("the primary store decides again left_out=198");
        assert!(is_logged, "{text}");
    }

    /// Shows promise 78.
    #[test]
    fn a_flood_of_keys_is_logged_a_few_times_and_without_a_key() {
        subscribe();
        let clock = ManualClock::new();
        let local = Local::new(FixedWindow::new(Quota::per_day(10)))
            .with_clock(clock.clone())
            .capacity(1);
        let flood = |part: &str| {
            for key in 0..1_000 {
                let _ = local.check(&format!("hunter{part}{key}"), 1);
            }
            log::log()
        };
        let text = flood("a");
        assert_eq!(text.matches("a table of keys is full").count(), 4, "{text}");
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.contains("WARN") && !text.contains("hunter"), "{text}");
        let logged = local.stats();
        clock.advance(Duration::from_secs(10));
        let text = flood("b");
        assert_eq!(text.lines().count(), 1, "{text}");
        // Each loss is in one event: four were in the first four, and one caused this event.
        let number = |field: &str| -> u64 {
            let rest = text.split(field).nth(1).expect("a field");
            let digits = rest.split(' ').next().expect("a number");
            digits.parse().expect("a number")
        };
        let since = number(" evicted=") + number(" denied=");
        assert_eq!(since, logged.evicted + logged.denied - 4 + 1, "{text}");
    }

    /// Shows promise 78.
    #[tokio::test]
    async fn a_rejection_with_a_server_status_is_logged_once_per_layer() {
        subscribe();
        let unit = service_fn(|_: http::Request<()>| async { Ok::<_, BoxError>(()) });
        for _ in 0..2 {
            let layer = RateLimitLayer::new(ClientIp::peer(), FixedWindow::new(Quota::per_day(1)))
                .respond(AsError);
            for _ in 0..3 {
                let _ = layer.layer(unit).oneshot(http::Request::new(())).await;
            }
        }
        let text = log::log();
        assert_eq!(text.matches("ERROR").count(), 2, "{text}");
        assert_eq!(text.matches("with_connect_info").count(), 2, "{text}");
    }

    /// Shows promise 78.
    #[tokio::test]
    async fn an_outage_and_its_end_are_logged_once() {
        subscribe();
        let script = Script::default();
        for _ in 0..3 {
            script.push(Reply::Now(Err(StoreError::new("timed out", true))));
        }
        script.push(Reply::Now(Ok(admit())));
        let key = |has_key: &bool| Extracted::or_skip(has_key.then_some(1));
        let layer = RateLimitLayer::new(key, script);
        let unit = service_fn(|_: bool| async { Ok::<_, BoxError>(()) });
        for has_key in [true, false, true, true, true, true] {
            let service = layer.clone().respond(AsError).layer(unit);
            service.oneshot(has_key).await.unwrap();
        }
        let text = log::log();
        assert_eq!(text.matches("WARN").count(), 1, "{text}");
        assert_eq!(text.matches("decides again").count(), 1, "{text}");
    }

    /// Shows promises 77, 78.
    #[tokio::test]
    async fn an_ignored_proxy_header_is_logged_once_with_a_hint() {
        subscribe();
        let window = FixedWindow::new(Quota::per_day(100));
        let clients = || RateLimitLayer::new(ClientIp::peer(), window);
        let all = || RateLimitLayer::new(Global, window);
        let app = || Router::new().route("/", get(|| async {}));
        for app in [
            app().layer(clients().name("clients")),
            app().layer(clients().and(all()).name("clients")),
            app().layer(all().and(clients()).name("clients")),
        ] {
            for _ in 0..20 {
                let request = Request::builder().header("x-forwarded-for", "198.51.100.9");
                let request = request.extension(PeerAddr(([10, 0, 0, 1], 4711).into()));
                let response = app.clone().oneshot(request.body(Body::empty()).unwrap());
                assert_eq!(response.await.unwrap().status(), 200);
            }
            let text = log::log();
            assert_eq!(text.matches("WARN").count(), 1, "{text}");
            for part in [
                "limit=\"clients\"",
                "ClientIp::x_forwarded_for().trusting([..])",
                "\"Behind a proxy\" in the documentation of `ClientIp`",
            ] {
                assert!(text.contains(part), "{text}");
            }
            assert!(!text.contains("198.51.100.9") && !text.contains("10.0.0.1"));
        }
    }
}

#[cfg(feature = "metrics")]
mod metered {
    use tower_throttle::{Local, store::local::Overflow};

    use super::*;
    use crate::measured::measure;

    /// Shows promise 99.
    #[test]
    fn each_switch_to_the_fallback_and_back_is_counted() {
        let metrics = measure(|_| covered());
        for to in ["on", "off"] {
            let name = format!("tower_throttle_switches_total of=fallback to={to}");
            assert_eq!(metrics.count(&name), 1, "{to}");
        }
    }

    /// Shows promise 77.
    #[test]
    fn outcomes_are_labelled_with_the_name_of_the_limit_only() {
        let metrics = measure(|_| requests());
        let outcome =
            |outcome| format!("tower_throttle_requests_total limit=vault outcome={outcome}");
        assert_eq!(metrics.names(), ["admitted", "denied"].map(outcome));
        assert_eq!(metrics.count(&outcome("denied")), 2);
    }

    /// Shows promise 77.
    #[cfg(feature = "tokio")]
    #[test]
    fn skipped_and_queued_requests_are_counted_as_such() {
        use tower::Service;
        use tower_throttle::TokenBucket;

        let metrics = measure(|_| async {
            let bucket = TokenBucket::new(Quota::per_hour(1).burst(1));
            let layer = RateLimitLayer::new(|n: &u8| *n, bucket).queue(2);
            let layer = layer.skip(|n: &u8| *n == 0).name("vault").respond(AsError);
            let echo = service_fn(|n: u8| async move { Ok::<_, BoxError>(n) });
            let mut service = layer.layer(echo);
            for n in [0, 1, 1] {
                drop(service.ready().await.unwrap().call(n));
            }
        });
        for outcome in ["skipped", "admitted", "waited"] {
            let name = format!("tower_throttle_requests_total limit=vault outcome={outcome}");
            assert_eq!(metrics.count(&name), 1, "{outcome}");
        }
    }

    /// Shows promise 241.
    #[cfg(feature = "tokio")]
    #[test]
    fn the_wait_of_each_queued_request_is_measured_and_of_no_other() {
        use tower::Service;
        use tower_throttle::TokenBucket;

        let metrics = measure(|_| async {
            let bucket = TokenBucket::new(Quota::per_minute(1).burst(1));
            let layer = RateLimitLayer::new(|(): &()| 1, bucket)
                .queue(2)
                .name("slow");
            let layer = layer.respond(AsError);
            let unit = service_fn(|(): ()| async { Ok::<_, BoxError>(()) });
            let mut service = layer.layer(unit);
            let mut responses = Vec::new();
            for _ in 0..4 {
                responses.push(service.ready().await.unwrap().call(()));
            }
            let counts = layer.handle().counts();
            assert_eq!((counts.admitted, counts.waited, counts.denied), (1, 2, 1));
        });
        let waits = metrics.all("tower_throttle_queue_wait_seconds limit=slow");
        // Of one admitted, two queued and one denied request, at one per minute.
        let [first, second] = waits[..] else {
            panic!("{waits:?}")
        };
        assert!(0.0 < first && first <= 60.0 && first < second && second <= 120.0);
    }

    /// Shows promise 241.
    #[cfg(feature = "tokio")]
    #[test]
    fn gauges_are_what_the_limits_hold_when_they_are_read() {
        use tokio_test::{assert_pending, task};
        use tower_throttle::ConcurrencyLimitLayer;

        let metrics = measure(|metrics| async move {
            let unit = service_fn(|_: u64| async { Ok::<_, BoxError>(()) });
            let table = Local::new(FixedWindow::new(Quota::per_day(10))).capacity(1_000);
            let rate = RateLimitLayer::new(|n: &u64| *n, table).name("rate");
            let rate = rate.respond(AsError);
            for n in [7, 7, 7, 7, 7, 7, 7, 7, 8] {
                rate.layer(unit).oneshot(n).await.unwrap();
            }
            let busy = ConcurrencyLimitLayer::new(|n: &u64| *n, 4).queue(2);
            let busy = busy.name("busy").release_at_response().respond(AsError);
            let never = service_fn(|_: u64| std::future::pending::<Result<(), BoxError>>());
            let mut requests = Vec::new();
            for n in [7, 7, 7, 7, 7, 8] {
                let mut request = task::spawn(busy.layer(never).oneshot(n));
                assert_pending!(request.poll());
                requests.push(request);
            }
            assert!(!metrics.names().iter().any(|name| name.contains("waiting")));
            rate.handle().record_gauges();
            busy.handle().record_gauges();
            drop(requests);
            rate.handle().reset(&7).await.unwrap();
            rate.handle().record_gauges();
            busy.handle().record_gauges();
            let far = RateLimitLayer::new(|n: &u64| *n, Script::default()).name("far");
            far.handle().record_gauges();
        });
        let has_table = |name: &String| name.contains("table") && name.contains("limit=far");
        assert!(!metrics.names().iter().any(has_table), "{metrics:?}");
        let expected = [
            ("busy in_flight", [5.0, 0.0]),
            ("busy in_flight_limit", [4.0, 4.0]),
            ("busy largest_use_percent", [100.0, 0.0]),
            ("busy waiting", [1.0, 0.0]),
            ("rate largest_use_percent", [80.0, 10.0]),
            ("rate table_capacity", [1_000.0, 1_000.0]),
            ("rate table_keys", [2.0, 1.0]),
            ("rate waiting", [0.0, 0.0]),
        ];
        let is_right = |(limit_and_name, values): &(&str, [f64; 2])| {
            let (limit, name) = limit_and_name.split_once(' ').unwrap();
            metrics.all(&format!("tower_throttle_{name} limit={limit}")) == values
        };
        let wrong: Vec<_> = expected.iter().filter(|gauge| !is_right(gauge)).collect();
        assert!(wrong.is_empty(), "{wrong:?}: {metrics:?}");
    }

    /// Keys that do not fit are counted, in `Stats`, in the handle of a layer and in metrics.
    #[test]
    fn keys_that_do_not_fit_are_counted_in_the_handle_and_in_metrics() {
        for overflow in [Overflow::EvictLeast, Overflow::Deny] {
            let table = Local::new(FixedWindow::new(Quota::per_day(1_000)))
                .capacity(7)
                .overflow(overflow);
            let layer = RateLimitLayer::new(|n: &u64| *n, table)
                .name("full")
                .respond(AsError);
            let metrics = measure(|_| async {
                let unit = service_fn(|_: u64| async { Ok::<_, BoxError>(()) });
                for n in 0..200 {
                    let _ = layer.layer(unit).oneshot(n).await;
                }
                // Only a table that denies loses it.
                let _ = layer.handle().charge(&199, 5).await;
                layer.handle().record_gauges();
                layer.handle().record_gauges();
            });
            let stats = layer.handle().backend().stats();
            let lost_charges = u64::from(overflow == Overflow::Deny);
            assert_eq!(stats.lost_charges, lost_charges, "{overflow:?}");
            let (what, lost) = match overflow {
                Overflow::EvictLeast => ("evicted", stats.evicted),
                _ => ("denied", stats.denied),
            };
            assert!(lost > 100, "{overflow:?}: {stats:?}");
            let name = |what| format!("tower_throttle_overflow_total limit=full what={what}");
            let measured = |what| metrics.count(&name(what));
            assert_eq!(measured(what), lost, "{overflow:?}");
            assert_eq!(measured("lost_charge"), lost_charges, "{overflow:?}");
        }
    }
}
