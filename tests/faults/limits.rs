//! The limits of the server, what they promise, and what they admitted.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use axum::{body::Body, extract::Request, response::Response};
use tokio::time::Instant;
use tower::{Layer, Service, service_fn};
use tower_throttle::{
    LeakyBucket, Local, Quota, RateLimitLayer, TokenBucket, layer::Handle, store::Stats,
};

pub(crate) type Client = fn(&Request) -> String;

/// How many requests of a layer with a queue may wait.
pub(crate) const SEATS: usize = 64;
/// Requests per second, of a client and on each path but `/slow`.
pub(crate) const RATE: u64 = 200;
const BURST: u64 = 50;
/// The clients that cause faults.
pub(crate) const CLIENTS: usize = 8;

pub(crate) fn name(client: usize) -> String {
    format!("client{}", client % CLIENTS)
}

fn client(request: &Request) -> String {
    let header = request.headers().get("x-client");
    header
        .and_then(|name| name.to_str().ok())
        .unwrap_or("none")
        .to_owned()
}

/// The limits, one per path.
pub(crate) struct Limits {
    /// `/queued`: requests are queued and released at [`RATE`].
    pub(crate) queued: RateLimitLayer<Client, Local<LeakyBucket>>,
    /// `/slow`: the first request of a client is admitted, and the others wait for hours.
    pub(crate) slow: RateLimitLayer<Client, Local<LeakyBucket>>,
    /// `/limited`: requests above the limit are denied.
    pub(crate) limited: RateLimitLayer<Client, Local<TokenBucket>>,
}

impl Limits {
    pub(crate) fn new() -> Self {
        let queue = |quota, units| {
            let local = Local::new(LeakyBucket::new(quota)).capacity(10_000);
            RateLimitLayer::new(client as Client, local)
                .queue(units)
                .seats(u32::try_from(SEATS).unwrap())
        };
        let bucket = TokenBucket::new(Quota::per_second(RATE).burst(BURST));
        Self {
            queued: queue(Quota::per_second(RATE).burst(1), 40),
            slow: queue(Quota::per_hour(1).burst(1), 1_000),
            limited: RateLimitLayer::new(client as Client, Local::new(bucket).capacity(10_000)),
        }
    }

    fn queues(&self) -> [&RateLimitLayer<Client, Local<LeakyBucket>>; 2] {
        [&self.queued, &self.slow]
    }

    /// The requests that wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.queues()
            .map(|layer| handle(layer).waiting())
            .iter()
            .sum()
    }

    /// The free seats of both layers with a queue.
    pub(crate) fn free_seats(&self) -> usize {
        self.queues().map(|layer| ready(layer).len()).iter().sum()
    }

    /// The time until `client` has used nothing. On `/slow`, its first request stays used.
    pub(crate) fn used(&self, client: usize) -> Duration {
        let name = name(client);
        let queued = handle(&self.queued).peek_now(&name, 0).reset_after;
        let limited = self.limited.handle().peek_now(&name, 0);
        queued.max(limited.reset_after)
    }

    /// The requests of `client` on `/slow` that count.
    pub(crate) fn used_slowly(&self, client: usize) -> u64 {
        let left = handle(&self.slow).peek_now(&name(client), 0).reset_after;
        left.as_secs().div_ceil(3_600)
    }

    /// The figures of the three tables.
    pub(crate) fn tables(&self) -> [Stats; 3] {
        let limited = self.limited.handle().backend().stats();
        [
            handle(&self.queued).backend().stats(),
            handle(&self.slow).backend().stats(),
            limited,
        ]
    }

    /// The slots in use in the three tables.
    pub(crate) fn slots(&self) -> [usize; 3] {
        self.tables().map(|stats| stats.live)
    }
}

type Queue = Handle<String, Local<LeakyBucket>>;

fn handle(layer: &RateLimitLayer<Client, Local<LeakyBucket>>) -> Queue {
    layer.handle()
}

/// As many services as can have a seat at the same time.
fn ready(layer: &RateLimitLayer<Client, Local<LeakyBucket>>) -> Vec<impl Service<Request> + use<>> {
    let idle = service_fn(async |_: Request| {
        Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
    });
    let mut services = Vec::new();
    loop {
        let mut service = layer.layer(idle);
        if service
            .poll_ready(&mut Context::from_waker(Waker::noop()))
            .is_pending()
        {
            return services;
        }
        services.push(service);
    }
}

type Moments = HashMap<(&'static str, String), Vec<Duration>>;

/// When requests reached their handlers, per path and client.
#[derive(Clone)]
pub(crate) struct Admitted {
    start: Instant,
    count: Arc<AtomicUsize>,
    moments: Arc<Mutex<Moments>>,
}

impl Default for Admitted {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            count: Arc::default(),
            moments: Arc::default(),
        }
    }
}

impl Admitted {
    pub(crate) fn record(&self, path: &'static str, request: &Request) {
        let at = self.start.elapsed();
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut moments = self.moments.lock().unwrap();
        moments.entry((path, client(request))).or_default().push(at);
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The first client that was admitted too often. A request reaches its handler after it was
    /// admitted, so up to each moment at most the promise was admitted since the start.
    pub(crate) fn excess(&self) -> Option<String> {
        let moments = self.moments.lock().unwrap();
        moments.iter().find_map(|((path, client), moments)| {
            let mut moments = moments.clone();
            moments.sort_unstable();
            (1..).zip(moments).find_map(|(admitted, at)| {
                let allowed = allowed(path, at);
                (admitted > allowed).then(|| {
                    format!("{client} on {path}: {admitted} admitted in {at:?}, {allowed} allowed")
                })
            })
        })
    }
}

/// What a limit allows one client in the time since the start.
fn allowed(path: &str, time: Duration) -> u64 {
    let refilled =
        |rate| u64::try_from(time.as_nanos() * u128::from(rate) / 1_000_000_000).unwrap();
    match path {
        "/queued" => 1 + refilled(RATE),
        "/limited" => BURST + refilled(RATE),
        _ => 1,
    }
}
