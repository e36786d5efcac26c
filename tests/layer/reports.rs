//! Logs and metrics: names and outcomes, but no keys.

use tower::{BoxError, Layer, ServiceExt, service_fn};
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
    use std::{cell::RefCell, io, sync::Once, time::Duration};

    use axum::{Router, body::Body, extract::Request, routing::get};
    use tower_throttle::key::{BearerToken, KeyExtractor, PeerAddr};
    use tower_throttle::{Local, ManualClock};

    use super::*;

    thread_local! {
        static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    /// Writes to a thread-local log, so each test has its own.
    struct Log;

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            LOG.with_borrow_mut(|log| log.write(bytes))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// One subscriber for the whole process. tracing caches whether an event is enabled, so a
    /// subscriber of one thread would miss events that another thread reached first.
    fn subscribe() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            tracing_subscriber::fmt()
                .with_max_level(tracing::Level::DEBUG)
                .with_ansi(false)
                .with_writer(|| Log)
                .init();
        });
    }

    fn read() -> String {
        String::from_utf8(LOG.take()).unwrap()
    }

    /// Shows promise 77.
    #[tokio::test]
    async fn a_denial_is_logged_with_the_name_of_the_limit_and_without_the_key() {
        subscribe();
        requests().await;
        let text = read();
        assert_eq!(text.matches("a request was denied").count(), 2, "{text}");
        assert!(
            text.contains("limit=\"vault\"") && text.contains("DEBUG"),
            "{text}"
        );
        assert!(!text.contains("hunter2"));
    }

    /// No other test here leaves out a token.
    #[test]
    fn a_key_that_clients_leave_out_is_logged_once() {
        subscribe();
        let tokens = BearerToken::new();
        for _ in 0..3 {
            let _ = tokens.extract(&Request::new(Body::empty()));
        }
        let text = read();
        assert_eq!(text.matches("share one limit").count(), 1, "{text}");
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
        assert_eq!(limiter.switches(), 200);
        let text = read();
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.contains("the fallback decides left_out=0"), "{text}");
        assert!(text.contains("decides again left_out=0"), "{text}");
        // One per ten seconds, with the number that was left out.
        tokio::time::advance(Duration::from_secs(10)).await;
        flap(&limiter, [&first, &second], 100).await;
        let text = read();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("the fallback decides left_out=196"), "{text}");
        // The last switch is logged although nothing switches any more.
        tokio::time::advance(Duration::from_secs(10)).await;
        for _ in 0..3 {
            first.push(Reply::Now(Ok(admit())));
            let _ = Backend::<u32>::decide(&limiter, &1, 1).await;
        }
        let text = read();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            text.contains("the primary store decides again left_out=198"),
            "{text}"
        );
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
                let _ = local.check(&format!("hunter{part}{key}"));
            }
            read()
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
        let text = read();
        assert_eq!(text.matches("ERROR").count(), 2, "{text}");
        assert_eq!(text.matches("with_connect_info").count(), 2, "{text}");
    }

    /// Shows promise 78.
    #[tokio::test]
    async fn a_switch_to_the_fallback_and_back_is_logged() {
        subscribe();
        covered().await;
        let text = read();
        assert_eq!(text.matches("WARN").count(), 1, "{text}");
        assert_eq!(text.matches("INFO").count(), 1, "{text}");
        assert!(text.contains("the primary store decides again"), "{text}");
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
        let layer = RateLimitLayer::new(|(): &()| 1, script).respond(AsError);
        let unit = service_fn(|(): ()| async { Ok::<_, BoxError>(()) });
        for _ in 0..5 {
            layer.layer(unit).oneshot(()).await.unwrap();
        }
        let text = read();
        assert_eq!(text.matches("WARN").count(), 1, "{text}");
        assert_eq!(text.matches("decides again").count(), 1, "{text}");
    }

    /// Shows promise 75.
    #[tokio::test]
    async fn an_ignored_proxy_header_is_logged_once_with_a_hint() {
        subscribe();
        let window = FixedWindow::new(Quota::per_day(100));
        let layer = RateLimitLayer::new(ClientIp::peer(), window).name("clients");
        let app = Router::new().route("/", get(|| async {})).layer(layer);
        for _ in 0..20 {
            let mut request = Request::builder()
                .header("x-forwarded-for", "198.51.100.9")
                .body(Body::empty())
                .unwrap();
            let proxy = PeerAddr(([10, 0, 0, 1], 4711).into());
            request.extensions_mut().insert(proxy);
            assert_eq!(app.clone().oneshot(request).await.unwrap().status(), 200);
        }
        let text = read();
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

#[cfg(feature = "metrics")]
mod metered {
    use std::{
        collections::BTreeMap,
        sync::{
            Arc, Mutex,
            atomic::{AtomicU64, Ordering},
        },
    };

    use metrics::{
        Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    };
    use tower_throttle::{Local, store::local::Overflow};

    use super::*;

    #[derive(Default)]
    struct Names(Mutex<Vec<String>>);

    impl Recorder for Names {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            let labels = key
                .labels()
                .map(|label| format!("{}={}", label.key(), label.value()));
            let labels: Vec<_> = labels.collect();
            let name = format!("{} {}", key.name(), labels.join(" "));
            self.0.lock().unwrap().push(name);
            Counter::noop()
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    /// Shows promise 99.
    #[test]
    fn each_switch_to_the_fallback_and_back_is_counted() {
        let names = Names::default();
        metrics::with_local_recorder(&names, || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            runtime.block_on(covered());
        });
        let counter = "tower_throttle_switches_total of=fallback to=";
        let expected = ["on", "off"].map(|to| format!("{counter}{to}"));
        assert_eq!(*names.0.lock().unwrap(), expected);
    }

    /// Shows promise 77.
    #[test]
    fn outcomes_are_labelled_with_the_name_of_the_limit_only() {
        let names = Names::default();
        metrics::with_local_recorder(&names, || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            runtime.block_on(requests());
        });
        let counter = "tower_throttle_requests_total limit=vault outcome=";
        let expected =
            ["admitted", "denied", "denied"].map(|outcome| format!("{counter}{outcome}"));
        assert_eq!(*names.0.lock().unwrap(), expected);
    }

    /// What `tower_throttle_queue_wait_seconds` records.
    #[cfg(feature = "tokio")]
    #[derive(Debug, Default)]
    struct Waits(Mutex<Vec<f64>>);

    #[cfg(feature = "tokio")]
    impl metrics::HistogramFn for Waits {
        fn record(&self, seconds: f64) {
            self.0.lock().unwrap().push(seconds);
        }
    }

    #[cfg(feature = "tokio")]
    struct WaitRecorder(Arc<Waits>);

    #[cfg(feature = "tokio")]
    impl Recorder for WaitRecorder {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            assert_eq!(key.name(), "tower_throttle_queue_wait_seconds");
            Histogram::from_arc(Arc::clone(&self.0))
        }
    }

    /// Of one admitted, two queued and one denied request, at one per second.
    #[cfg(feature = "tokio")]
    fn are_waits_of_the_queued(waits: &[f64]) -> bool {
        matches!(*waits, [first, second] if 0.0 < first && first <= 1.0 && first < second && second <= 2.0)
    }

    /// Shows promise 342.
    #[cfg(feature = "tokio")]
    #[test]
    fn the_wait_of_each_queued_request_is_measured_and_of_no_other() {
        use tower::Service;
        use tower_throttle::TokenBucket;

        let waits = Arc::new(Waits::default());
        metrics::with_local_recorder(&WaitRecorder(Arc::clone(&waits)), || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap();
            runtime.block_on(async {
                let bucket = TokenBucket::new(Quota::per_second(1).burst(1)).queue(2);
                let layer = RateLimitLayer::new(|(): &()| 1, bucket).respond(AsError);
                let unit = service_fn(|(): ()| async { Ok::<_, BoxError>(()) });
                let mut service = layer.layer(unit);
                let mut responses = Vec::new();
                for _ in 0..4 {
                    responses.push(service.ready().await.unwrap().call(()));
                }
                let counts = layer.handle().counts();
                assert_eq!((counts.admitted, counts.waited, counts.denied), (1, 2, 1));
            });
        });
        let waits = waits.0.lock().unwrap();
        assert!(are_waits_of_the_queued(&waits), "{waits:?}");
        // Planted: the admitted request is measured as well, a wait is missing, milliseconds.
        assert!(!are_waits_of_the_queued(&[0.0, waits[0], waits[1]]));
        assert!(!are_waits_of_the_queued(&waits[1..]));
        let milliseconds: Vec<_> = waits.iter().map(|wait| wait * 1e3).collect();
        assert!(!are_waits_of_the_queued(&milliseconds));
    }

    /// All values of each gauge, by its name and limit.
    #[cfg(feature = "tokio")]
    #[derive(Clone, Default)]
    struct Gauges(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

    #[cfg(feature = "tokio")]
    struct NamedGauge(String, Gauges);

    #[cfg(feature = "tokio")]
    impl metrics::GaugeFn for NamedGauge {
        fn increment(&self, _: f64) {
            panic!("{} is set", self.0);
        }

        fn decrement(&self, _: f64) {
            panic!("{} is set", self.0);
        }

        fn set(&self, value: f64) {
            let Self(name, Gauges(gauges)) = self;
            let mut gauges = gauges.lock().unwrap();
            gauges.entry(name.clone()).or_default().push(value);
        }
    }

    #[cfg(feature = "tokio")]
    impl Recorder for Gauges {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            let limits = key.labels().map(metrics::Label::value);
            let limit: String = limits.collect();
            let name = key.name().trim_start_matches("tower_throttle_");
            Gauge::from_arc(Arc::new(NamedGauge(
                format!("{limit} {name}"),
                self.clone(),
            )))
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    /// Shows promise 390.
    #[cfg(feature = "tokio")]
    #[test]
    fn gauges_are_what_the_limits_hold_when_they_are_read() {
        use tokio_test::{assert_pending, task};
        use tower_throttle::ConcurrencyLimitLayer;

        let gauges = Gauges::default();
        metrics::with_local_recorder(&gauges, || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap();
            runtime.block_on(async {
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
                assert!(gauges.0.lock().unwrap().is_empty());
                rate.handle().record_gauges();
                busy.handle().record_gauges();
                drop(requests);
                rate.handle().reset(&7).await.unwrap();
                rate.handle().record_gauges();
                busy.handle().record_gauges();
            });
        });
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
        let is_right = |gauges: &BTreeMap<String, Vec<f64>>| {
            let gauges = gauges.iter().map(|(name, values)| (&**name, &values[..]));
            gauges.eq(expected.iter().map(|(name, values)| (*name, &values[..])))
        };
        let mut gauges = gauges.0.lock().unwrap();
        assert!(is_right(&gauges), "{gauges:?}");
        // Planted: a gauge that is never lowered.
        let waiting = gauges.get_mut("busy waiting").unwrap();
        waiting[1] = waiting[0];
        assert!(!is_right(&gauges));
    }

    /// A counter's sum.
    struct Sum(Arc<AtomicU64>);

    impl CounterFn for Sum {
        fn increment(&self, by: u64) {
            self.0.fetch_add(by, Ordering::Relaxed);
        }

        fn absolute(&self, _: u64) {}
    }

    /// The sums of `tower_throttle_overflow_total`, by their last label.
    #[derive(Default)]
    struct Overflows(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

    impl Recorder for Overflows {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            if key.name() != "tower_throttle_overflow_total" {
                return Counter::noop();
            }
            let labels: Vec<_> = key.labels().map(metrics::Label::value).collect();
            let mut sums = self.0.lock().unwrap();
            let sum = sums.entry(labels.join(" ")).or_default();
            Counter::from_arc(Arc::new(Sum(Arc::clone(sum))))
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    /// Shows promise 41.
    #[test]
    fn keys_that_do_not_fit_are_counted_in_the_handle_and_in_metrics() {
        for overflow in [Overflow::EvictLeast, Overflow::Deny, Overflow::Shared] {
            let table = Local::new(FixedWindow::new(Quota::per_day(1_000)))
                .capacity(7)
                .overflow(overflow);
            let layer = RateLimitLayer::new(|n: &u64| *n, table)
                .name("full")
                .respond(AsError);
            let renamed = layer.clone().name("other");
            let sums = Overflows::default();
            metrics::with_local_recorder(&sums, || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let unit = service_fn(|_: u64| async { Ok::<_, BoxError>(()) });
                    for n in 0..200 {
                        let layer = if n % 2 == 0 { &layer } else { &renamed };
                        let _ = layer.layer(unit).oneshot(n).await;
                    }
                    // Reported with the next request. Only a table that denies loses it.
                    let _ = layer.handle().charge(&199, 5).await;
                    let _ = layer.layer(unit).oneshot(0).await;
                });
            });
            let stats = layer.handle().stats();
            let lost_charges = u64::from(overflow == Overflow::Deny);
            assert_eq!(stats.lost_charges, lost_charges, "{overflow:?}");
            let (what, lost) = match overflow {
                Overflow::EvictLeast => ("evicted", stats.evicted),
                Overflow::Deny => ("denied", stats.denied),
                _ => ("shared", stats.shared),
            };
            assert!(lost > 100, "{overflow:?}: {stats:?}");
            let sums = sums.0.lock().unwrap();
            // Each loss is reported once, under the name that sees it first.
            let measured = |what| {
                let sums = ["full", "other"].map(|name| sums.get(&format!("{name} {what}")));
                let sums = sums.into_iter().flatten();
                sums.map(|sum| sum.load(Ordering::Relaxed)).sum::<u64>()
            };
            assert_eq!(measured(what), lost, "{overflow:?}");
            assert_eq!(measured("lost_charge"), lost_charges, "{overflow:?}");
        }
    }
}
