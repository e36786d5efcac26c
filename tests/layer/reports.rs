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
    use std::{cell::RefCell, io, sync::Once};

    use axum::{Router, body::Body, extract::Request, routing::get};
    use tower_throttle::key::PeerAddr;

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

    #[tokio::test]
    async fn a_switch_to_the_fallback_and_back_is_logged() {
        subscribe();
        covered().await;
        let text = read();
        assert_eq!(text.matches("WARN").count(), 1, "{text}");
        assert_eq!(text.matches("INFO").count(), 1, "{text}");
        assert!(text.contains("the primary store decides again"), "{text}");
    }

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

    #[test]
    fn keys_that_do_not_fit_are_counted_in_the_handle_and_in_metrics() {
        for overflow in [Overflow::EvictLeast, Overflow::Deny, Overflow::Shared] {
            let table = Local::new(FixedWindow::new(Quota::per_day(1_000)))
                .capacity(7)
                .overflow(overflow);
            let layer = RateLimitLayer::new(|n: &u64| *n, table)
                .name("full")
                .respond(AsError);
            let sums = Overflows::default();
            metrics::with_local_recorder(&sums, || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let unit = service_fn(|_: u64| async { Ok::<_, BoxError>(()) });
                    for n in 0..200 {
                        let _ = layer.layer(unit).oneshot(n).await;
                    }
                });
            });
            let stats = layer.handle().stats();
            let (what, lost) = match overflow {
                Overflow::EvictLeast => ("evicted", stats.evicted),
                Overflow::Deny => ("denied", stats.denied),
                _ => ("shared", stats.shared),
            };
            assert!(lost > 100, "{overflow:?}: {stats:?}");
            let sums = sums.0.lock().unwrap();
            let measured = sums[&format!("full {what}")].load(Ordering::Relaxed);
            assert_eq!(measured, lost, "{overflow:?}");
        }
    }
}
