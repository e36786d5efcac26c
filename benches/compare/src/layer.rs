//! The layer around a service that does nothing, keyed by the address of the peer.
//!
//! The result is the time that the limit adds: the time of the same calls to the service alone,
//! measured in turn with the others, is subtracted. Admitted requests are returned by the service
//! and reused. Denied requests are dropped, so all sides make new ones.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::ConnectInfo;
use foldhash::quality::RandomState;
use http::{Request, Response, StatusCode};
use tower::{Layer, Service, ServiceExt};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_throttle::{
    AsError, ClientIp, FixedWindow, Global, Headers, Local, Quota, RateLimitLayer, RateLimited,
    TokenBucket,
    key::{Client, Extracted, KeyExtractor},
    layer::TopKeys,
    respond::{AtEnd, CostHandle},
    store::{Cached, Plan, Quotas},
};

use crate::count::allocations;
use crate::peers;
use crate::row::{Effort, Row};

thread_local! {
    /// The requests that the service received.
    static BACK: RefCell<Vec<Request<()>>> = const { RefCell::new(Vec::new()) };
}

/// Responds at once and keeps the request for reuse.
#[derive(Clone, Copy)]
struct Still;

impl Service<Request<()>> for Still {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    #[inline]
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request<()>) -> Self::Future {
        BACK.with_borrow_mut(|back| back.push(request));
        ready(Ok(Response::new(Body::empty())))
    }
}

pub(crate) fn run(effort: &Effort) {
    peers::settle_clock();
    for peers in [1, 1_000] {
        for admits in [true, false] {
            compare(effort, peers, admits, false);
        }
    }
    compare(effort, 1, true, true);
    compare(effort, 1, false, true);
    for peers in [1, 1_000] {
        minimal(effort, peers);
        floor(effort, peers);
    }
    cost_at_end(effort);
    for peers in [1, 1_000] {
        quota_per_key(effort, peers);
    }
    for admits in [true, false] {
        top_keys(effort, admits);
        by_rate_net(effort, admits);
        without_keys(effort, admits);
    }
}

/// Compares with a minimal middleware: the same key and the same table, and nothing else.
fn minimal(effort: &Effort, peers: u64) {
    let bucket = TokenBucket::new(peers::quota(true));
    let theirs = Minimal {
        inner: Still,
        keys: ClientIp::peer(),
        limit: Local::new(bucket),
    };
    against(effort, peers, "minimal middleware", &theirs);
}

/// Compares with the least that a limit by key has to do, which limits nothing: it finds the key,
/// hashes it and changes a word in one of many cache lines.
fn floor(effort: &Effort, peers: u64) {
    let lines = (0..100_000 / 7).map(|_| Line::default()).collect();
    let theirs = Floor {
        inner: Still,
        keys: ClientIp::peer(),
        hasher: RandomState::default(),
        lines,
    };
    against(effort, peers, "hash and one write", &theirs);
}

/// Compares a layer whose requests say at the end what they have cost with one that takes the cost at once.
fn cost_at_end(effort: &Effort) {
    let work = "layer by peer address, cost said at the end";
    if !effort.wants(work) {
        return;
    }
    let calls = Calls {
        admits: true,
        peers: 1,
    };
    let limit = || RateLimitLayer::new(ClientIp::peer(), TokenBucket::new(peers::quota(true)));
    let says = |mut request: Request<()>| {
        // The request is used again, and must not keep the handle.
        let cost = request.extensions_mut().remove::<CostHandle>();
        cost.unwrap_or_default().set(2);
        request
    };
    let ours = limit().settle(AtEnd).layer(Still.map_request(says));
    let goals = ("the cost taken at once", [f64::INFINITY, f64::INFINITY]);
    rows(effort, work, &calls, goals, (&ours, &limit().layer(Still)));
}

fn against<T>(effort: &Effort, peers: u64, name: &'static str, theirs: &T)
where
    T: Service<Request<()>, Response = Response<Body>> + Clone,
{
    let calls = Calls {
        admits: true,
        peers,
    };
    let work = format!("layer by peer address, {peers} peers, {}", calls.path());
    if !effort.wants(&work) {
        return;
    }
    let bucket = TokenBucket::new(peers::quota(true));
    let ours = RateLimitLayer::new(ClientIp::peer(), bucket).layer(Still);
    let goals = (name, [f64::INFINITY, calls.allowance()]);
    rows(effort, &work, &calls, goals, (&ours, theirs));
}

#[derive(Clone)]
struct Floor {
    inner: Still,
    keys: ClientIp,
    hasher: RandomState,
    lines: Arc<[Line]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

impl Service<Request<()>> for Floor {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = MinimalFuture;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    #[inline(never)]
    fn call(&mut self, request: Request<()>) -> MinimalFuture {
        let Extracted::Key(client) = self.keys.extract(&request) else {
            return MinimalFuture::Denied;
        };
        let hash = u128::from(self.hasher.hash_one(client));
        let at = (hash * self.lines.len() as u128) >> 64;
        let line = &self.lines[usize::try_from(at).expect("below the number of lines")];
        line.0.fetch_add(1, Ordering::AcqRel);
        MinimalFuture::Passed(self.inner.call(request))
    }
}

/// A minimal middleware for one service: no waiting, no headers, no counters.
#[derive(Clone)]
struct Minimal {
    inner: Still,
    keys: ClientIp,
    limit: Local<TokenBucket>,
}

enum MinimalFuture {
    Passed(<Still as Service<Request<()>>>::Future),
    Denied,
}

impl Service<Request<()>> for Minimal {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = MinimalFuture;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    #[inline(never)]
    fn call(&mut self, request: Request<()>) -> MinimalFuture {
        match self.keys.extract(&request) {
            Extracted::Key(client) if self.limit.check(&client, 1).is_admitted() => {
                MinimalFuture::Passed(self.inner.call(request))
            }
            _ => MinimalFuture::Denied,
        }
    }
}

impl Future for MinimalFuture {
    type Output = Result<Response<Body>, Infallible>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Passed(future) => Pin::new(future).poll(cx),
            Self::Denied => {
                let mut denied = Response::new(Body::empty());
                *denied.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                Poll::Ready(Ok(denied))
            }
        }
    }
}

/// Compares with rate-net, which takes the peer address from an extension set by its user.
fn by_rate_net(effort: &Effort, admits: bool) {
    let calls = Calls::of_one(admits);
    let work = format!("layer by peer address, 1 peers, {}", calls.path());
    if !effort.wants(&work) {
        return;
    }
    let ours = RateLimitLayer::new(ClientIp::peer(), TokenBucket::new(peers::quota(admits)));
    let quota = if admits {
        rate_net::Quota::rate(1_000_000_000, Duration::from_secs(1))
            .map(|quota| quota.with_burst(u32::MAX))
    } else {
        rate_net::Quota::rate(1, Duration::from_secs(86_400))
    };
    let theirs = rate_net::tower::RateLimitLayer::new(
        rate_net::RateLimiter::with_quota(quota.expect("a valid quota")),
        rate_net::tower::PeerIp::default(),
    );
    let sides = (&ours.layer(Still), &theirs.layer(Still));
    rows(
        effort,
        &work,
        &calls,
        ("rate-net", [1.0, calls.allowance()]),
        sides,
    );
}

/// Compares with tower-resilience, which has one limit per service and denies with an error.
fn without_keys(effort: &Effort, admits: bool) {
    let calls = Calls::of_one(admits);
    let work = format!("layer without keys, {}", calls.path());
    if !effort.wants(&work) {
        return;
    }
    let limit = if admits { 1_000_000_000_000 } else { 1 };
    let ours = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(limit)));
    let theirs = tower_resilience_ratelimiter::RateLimiterLayer::builder()
        .limit_for_period(usize::try_from(limit).expect("a wide machine"))
        .refresh_period(Duration::from_secs(86_400))
        .timeout_duration(Duration::ZERO)
        .build()
        .expect("a valid limit");
    let theirs = theirs.layer(Still);
    if !admits {
        // Its denials are errors of the service.
        let inner = Still.map_err(|never: Infallible| -> RateLimited { match never {} });
        let errors = ours.clone().respond(AsError).layer(inner);
        let work = format!("{work} with an error");
        rows(
            effort,
            &work,
            &calls,
            ("tower-resilience", [1.0, 2.0]),
            (&errors, &theirs),
        );
    }
    let goal = if admits { 1.0 } else { f64::INFINITY };
    let goals = ("tower-resilience", [goal, calls.allowance()]);
    rows(effort, &work, &calls, goals, (&ours.layer(Still), &theirs));
}

fn compare(effort: &Effort, peers: u64, admits: bool, headers: bool) {
    let path = Calls::of_one(admits).path();
    let with = if headers { ", with headers" } else { "" };
    let work = format!("layer by peer address, {peers} peers, {path}{with}");
    if !effort.wants(&work) {
        return;
    }
    let bucket = TokenBucket::new(peers::quota(admits));
    let ours = RateLimitLayer::new(ClientIp::peer(), bucket);
    let mut builder = GovernorConfigBuilder::default();
    if admits {
        builder.per_nanosecond(1).burst_size(u32::MAX);
    } else {
        builder.per_second(86_400).burst_size(1);
    }
    let calls = Calls { admits, peers };
    let goals = match (admits, headers) {
        (true, false) => [0.95, 0.0],
        // Both sides write headers, which takes most of the time.
        (true, true) => [1.0, 3.0],
        (false, false) => [0.1, 4.0],
        (false, true) => [0.1, 6.0],
    };
    let against = ("tower_governor", goals);
    if headers {
        let ours = ours.headers(Headers::Draft11).layer(Still);
        let config = builder.use_headers().finish().expect("a valid quota");
        let theirs = GovernorLayer::new(config).layer(Still);
        rows(effort, &work, &calls, against, (&ours, &theirs));
    } else {
        let config = builder.finish().expect("a valid quota");
        let theirs = GovernorLayer::new(config).layer(Still);
        rows(
            effort,
            &work,
            &calls,
            against,
            (&ours.layer(Still), &theirs),
        );
    }
}

/// Prints added time and allocations. `goals`: the largest ratio of the times, and the most
/// allocations.
fn rows<A, B>(
    effort: &Effort,
    work: &str,
    calls: &Calls,
    (peer, goals): (&'static str, [f64; 2]),
    (ours, theirs): (&A, &B),
) where
    A: Service<Request<()>, Response = Response<Body>> + Clone,
    B: Service<Request<()>, Response = Response<Body>> + Clone,
{
    let mut time = Row {
        work: format!("{work}: added time"),
        peer,
        unit: "ns",
        ours: Vec::new(),
        theirs: Vec::new(),
        goal: goals[0],
        absolute: false,
        more: false,
    };
    let mut allocated = Row {
        work: format!("{work}: allocations"),
        unit: "allocations",
        goal: goals[1],
        absolute: true,
        ..time.clone()
    };
    // The first request of each peer is admitted on both sides.
    calls.run(ours.clone());
    calls.run(theirs.clone());
    for _ in 0..effort.rounds() {
        // Whether copies of a request are aligned depends on the address of the stack, so each side
        // runs with the stack at two places, and the result is the mean of both.
        let mut least = [[Figures::WORST; 3]; 2];
        let begin = Instant::now();
        let span = Duration::from_millis(if effort.quick { 60 } else { 300 });
        // The minimum over many short turns excludes interference from other processes.
        while begin.elapsed() < span {
            for (least, place) in least.iter_mut().zip([at_stack::<0>, at_stack::<16>]) {
                let turns = [
                    place(&|| calls.run(Still)),
                    place(&|| calls.run(theirs.clone())),
                    place(&|| calls.run(ours.clone())),
                ];
                for (least, turn) in least.iter_mut().zip(turns) {
                    *least = least.min(turn);
                }
            }
        }
        let [bare, theirs, ours] = [0, 1, 2].map(|side| least[0][side].mean(least[1][side]));
        time.ours.push(ours.nanos - bare.nanos);
        time.theirs.push(theirs.nanos - bare.nanos);
        allocated.ours.push(ours.allocations - bare.allocations);
        allocated.theirs.push(theirs.allocations - bare.allocations);
    }
    time.print(effort);
    allocated.print(effort);
}

/// The cost of one call.
#[derive(Clone, Copy)]
struct Figures {
    nanos: f64,
    allocations: f64,
}

impl Figures {
    const WORST: Self = Self {
        nanos: f64::INFINITY,
        allocations: f64::INFINITY,
    };

    fn mean(self, other: Self) -> Self {
        Self {
            nanos: f64::midpoint(self.nanos, other.nanos),
            allocations: f64::midpoint(self.allocations, other.allocations),
        }
    }

    fn min(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.min(other.nanos),
            allocations: self.allocations.min(other.allocations),
        }
    }
}

/// Compares a layer with a quota per key, which is cached, with one that has one quota for all keys.
fn quota_per_key(effort: &Effort, peers: u64) {
    let work = format!("layer by peer address, {peers} peers, quota per key");
    if !effort.wants(&work) {
        return;
    }
    let calls = Calls {
        admits: true,
        peers,
    };
    let bucket = || TokenBucket::new(peers::quota(true));
    let plan = async |_: Client| Ok::<_, Infallible>(Plan::Quota(peers::quota(true)));
    let plans = Cached::new(move |client: Client| plan(client)).life(Duration::from_secs(86_400));
    let ours = RateLimitLayer::new(ClientIp::peer(), Quotas::new(bucket(), plans));
    let ours = ours.layer(Still);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.expect("a runtime").block_on(async {
        for peer in 0..peers {
            let response = ours.clone().oneshot(calls.request(peer)).await;
            assert!(response.is_ok_and(|response| response.status().is_success()));
        }
    });
    let theirs = RateLimitLayer::new(ClientIp::peer(), bucket());
    let goals = ("one quota for all", [f64::INFINITY, 0.0]);
    rows(effort, &work, &calls, goals, (&ours, &theirs.layer(Still)));
}

/// Compares a layer whose most frequent keys are listed with one whose keys are not.
fn top_keys(effort: &Effort, admits: bool) {
    let calls = Calls {
        admits,
        peers: 1_000,
    };
    let work = format!(
        "layer by peer address, 1000 peers, a list of 100 keys, {}",
        calls.path()
    );
    if !effort.wants(&work) {
        return;
    }
    let layer = || RateLimitLayer::new(ClientIp::peer(), TokenBucket::new(peers::quota(admits)));
    let ours = layer()
        .watch(TopKeys::new(100, Client::to_string))
        .layer(Still);
    let goals = ("no list", [f64::INFINITY, calls.allowance()]);
    rows(effort, &work, &calls, goals, (&ours, &layer().layer(Still)));
}

/// Runs `turn` with the stack moved by so many bytes.
#[inline(never)]
fn at_stack<const BYTES: usize>(turn: &dyn Fn() -> Figures) -> Figures {
    let moved = std::hint::black_box([0_u8; BYTES]);
    let figures = turn();
    std::hint::black_box(&moved);
    figures
}

struct Calls {
    admits: bool,
    peers: u64,
}

impl Calls {
    fn of_one(admits: bool) -> Self {
        Self { admits, peers: 1 }
    }

    /// The most allocations that our layer may make.
    fn allowance(&self) -> f64 {
        if self.admits { 0.0 } else { 4.0 }
    }

    fn path(&self) -> &'static str {
        if self.admits { "admitted" } else { "denied" }
    }

    /// Calls `service` some thousand times.
    #[inline(never)]
    fn run<S>(&self, mut service: S) -> Figures
    where
        S: Service<Request<()>, Response = Response<Body>>,
    {
        const CALLS: u64 = 4_096;
        // Enough requests that none is read while its stores are still in flight.
        const AT_ONCE: usize = 32;
        let mut cx = Context::from_waker(Waker::noop());
        let mut requests = Vec::with_capacity(AT_ONCE);
        BACK.set(Vec::with_capacity(AT_ONCE));
        let mut before = allocations();
        let mut begin = Instant::now();
        for call in 0..CALLS + 1_024 {
            if call == 1_024 {
                (before, begin) = (allocations(), Instant::now());
            }
            if requests.is_empty() {
                BACK.with_borrow_mut(|back| std::mem::swap(back, &mut requests));
                if !self.admits {
                    requests.clear();
                }
                requests.extend((requests.len()..AT_ONCE).map(|_| self.request(call)));
            }
            if let (Some(next), true) = (requests.last_mut(), self.peers > 1) {
                let peer = next.extensions_mut().get_mut();
                *peer.expect("an address") = self.peer(call);
            }
            assert!(service.poll_ready(&mut cx).is_ready());
            let next = requests.pop().expect("a request");
            let response = pin!(service.call(next)).poll(&mut cx);
            std::hint::black_box(&response);
            assert!(response.is_ready());
        }
        Figures {
            nanos: begin.elapsed().as_nanos() as f64 / CALLS as f64,
            allocations: (allocations() - before) as f64 / CALLS as f64,
        }
    }

    fn request(&self, call: u64) -> Request<()> {
        let mut request = Request::new(());
        let peer = self.peer(call);
        // The address as axum stores it, and as rate-net expects it.
        request.extensions_mut().insert(peer.0.ip());
        request.extensions_mut().insert(peer);
        request
    }

    #[inline]
    fn peer(&self, call: u64) -> ConnectInfo<SocketAddr> {
        let [.., a, b] = (call % self.peers).to_be_bytes();
        ConnectInfo(SocketAddr::from(([10, 0, a, b], 80)))
    }
}
