//! An app with a limit of each kind, and its metrics as text.

use std::hash::{BuildHasher, RandomState};

use axum::{Router, body::Body, extract::Request, http::StatusCode, routing::get};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::{net::TcpListener, task::JoinSet};
use tower::ServiceExt;
#[cfg(feature = "redis")]
use tower_throttle::store::{
    Fallback,
    fleet::{Leased, Synced},
    redis::Redis,
};
use tower_throttle::{
    ConcurrencyLimitLayer, HeaderKey, Local, Quota, RateLimitLayer, SlidingLog, SlidingWindow,
    TokenBucket,
    accept::{ConnectionLimit, LimitedListener},
    key::{Missing, Secret},
    layer::TopKeys,
};

/// Buckets of histograms. Without them the exporter writes quantiles, which cannot be added up over
/// machines. A call to a store has 50 ms by default.
const SECONDS: [f64; 8] = [0.000_5, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1];
/// A request waits for as long as its queue allows.
const WAITS: [f64; 8] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
const CALLS: [f64; 7] = [1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0];

/// Collects the metrics of this program.
pub(crate) fn recorder() -> Result<PrometheusHandle, BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
        .set_buckets_for_metric(
            Matcher::Full("tower_throttle_queue_wait_seconds".into()),
            &WAITS,
        )?
        .set_buckets_for_metric(Matcher::Suffix("_batch_size".into()), &CALLS)?
        .install_recorder()
}

/// The app; its metrics are at `/metrics`, and the keys that are denied most at `/denied`. Both are for
/// operators: in a server of your own, let no client read them.
pub(crate) fn app(metrics: PrometheusHandle) -> Router {
    // Every limit has a name, by which its metrics differ.
    let search = TokenBucket::new(Quota::per_second(5));
    // Keys from headers are secrets: each is shown as a number.
    let hasher = RandomState::new();
    let denied = TopKeys::new(20, move |key: &Secret| {
        format!("{:016x}", hasher.hash_one(key))
    });
    let search = RateLimitLayer::new(HeaderKey::new("x-client"), search)
        .queue(2)
        .name("search")
        .watch(denied.clone())
        .skip(|request: &Request| request.headers().contains_key("x-internal"));

    // In shadow mode a limit denies nothing and counts what it would deny.
    let export = SlidingWindow::new(Quota::per_minute(5));
    let export = RateLimitLayer::new(HeaderKey::new("x-client"), export)
        .name("export")
        .shadow();

    // A table that is too small for its clients.
    let login = Local::new(SlidingLog::new(Quota::per_minute(5))).capacity(100);
    let client = HeaderKey::new("x-client").if_missing(Missing::Reject(StatusCode::BAD_REQUEST));
    let login = RateLimitLayer::new(client, login).name("login");

    // A limit on requests at a time.
    let busy = ConcurrencyLimitLayer::new(HeaderKey::new("x-client"), 4).name("download");

    // Gauges are set when they are read, so they cost no request anything.
    let (searches, exports) = (search.handle(), export.handle());
    let (logins, downloads) = (login.handle(), busy.handle());
    let read_metrics = async move || {
        searches.record_gauges();
        exports.record_gauges();
        logins.record_gauges();
        downloads.record_gauges();
        metrics.render()
    };
    let read_denied = async move || {
        let keys = denied.denied_keys();
        let line = |(name, count): &(String, u64)| format!("{count} {name}\n");
        keys.iter().map(line).collect::<String>()
    };

    Router::new()
        .route("/search", get(async || "found").layer(search))
        .route("/export", get(async || "exported").layer(export))
        .route("/login", get(async || "welcome").layer(login))
        .route("/download", get(async || "downloaded").layer(busy))
        .route("/denied", get(read_denied))
        .route("/metrics", get(read_metrics))
}

/// The connections to the app have a limit too.
pub(crate) fn listen(listener: TcpListener) -> LimitedListener {
    ConnectionLimit::new(100).name("edge").listen(listener)
}

/// The same with limits in Redis.
#[cfg(feature = "redis")]
pub(crate) fn with_redis(app: Router, redis: &Redis) -> Router {
    let quota = Quota::per_minute(30);
    let pay = redis.limiter("pay", SlidingWindow::new(quota));
    // Decides while Redis is down.
    let pay = Fallback::new(pay, Local::new(SlidingWindow::new(quota)));
    let pay = RateLimitLayer::new(HeaderKey::new("x-client"), pay).name("pay");

    // While Redis is down, all requests are admitted.
    let report = redis.limiter("report", TokenBucket::new(quota));
    let report = RateLimitLayer::new(HeaderKey::new("x-client"), report).name("report");

    // Machines that decide in memory.
    let read = Leased::new(redis.clone(), "read", TokenBucket::new(quota)).expect("a limit");
    let read = RateLimitLayer::new(HeaderKey::new("x-client"), read).name("read");
    let list = Synced::new(redis.clone(), "list", TokenBucket::new(quota)).expect("a limit");
    let list = RateLimitLayer::new(HeaderKey::new("x-client"), list).name("list");

    app.route("/pay", get(async || "paid").layer(pay))
        .route("/report", get(async || "reported").layer(report))
        .route("/read", get(async || "read").layer(read))
        .route("/list", get(async || "listed").layer(list))
}

/// Sends some requests to each limit; `round` makes some clients new.
pub(crate) async fn traffic(app: &Router, round: u64) {
    let mut requests = vec![("/login", None), ("/search", Some("internal".to_owned()))];
    for _ in 0..8 {
        for path in ["/search", "/export", "/pay", "/report", "/read", "/list"] {
            requests.push((path, Some("alice".to_owned())));
        }
    }
    for client in 0..40 {
        requests.push(("/login", Some(format!("client {client} of {round}"))));
    }
    let mut responses = JoinSet::new();
    for (path, client) in requests {
        let mut request = Request::builder().uri(path);
        if let Some(client) = client {
            if client == "internal" {
                request = request.header("x-internal", "yes");
            }
            request = request.header("x-client", client);
        }
        let request = request.body(Body::empty()).expect("a valid request");
        responses.spawn(app.clone().oneshot(request));
    }
    responses.join_all().await;
}
