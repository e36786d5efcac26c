//! The layer around a service that does nothing, keyed by the address of the peer.
//!
//! What counts is the time that the limit adds: the same calls to the service alone, measured in
//! turn with the others, are taken off. An admitted request comes back from the service and is used
//! again; a denied one is gone, so there all sides make a new one for each call.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, Response};
use tower::{Layer, Service};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_throttle::{ClientIp, FixedWindow, Global, Headers, Quota, RateLimitLayer, TokenBucket};

use crate::count::allocations;
use crate::peers;
use crate::row::{Effort, Row};

thread_local! {
    /// The request that the service got last.
    static BACK: Cell<Option<Request<()>>> = const { Cell::new(None) };
}

/// Answers at once and gives the request back.
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
        BACK.set(Some(request));
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
    for admits in [true, false] {
        by_rate_net(effort, admits);
        without_keys(effort, admits);
    }
}

/// rate-net finds the address of the peer where its users put it.
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

/// tower-resilience keeps one limit a service and refuses with an error.
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
    let sides = (&ours.layer(Still), &theirs.layer(Still));
    rows(
        effort,
        &work,
        &calls,
        ("tower-resilience", [1.0, calls.allowance()]),
        sides,
    );
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
        (true, false) => [0.5, 0.0],
        // Headers are made by both sides; there is less to win.
        (true, true) => [1.0, 3.0],
        (false, false) => [0.1, 4.0],
        (false, true) => [0.1, 6.0],
    };
    let against = ("tower_governor", goals);
    if headers {
        let ours = ours.headers(Headers::standard()).layer(Still);
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

/// Time and allocations. The goals: the most of their time, and the most allocations.
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
    // The first request of each peer is admitted either way.
    calls.run(ours.clone());
    calls.run(theirs.clone());
    for _ in 0..effort.rounds() {
        let mut least = [Figures::WORST; 3];
        let begin = Instant::now();
        let span = Duration::from_millis(if effort.quick { 60 } else { 300 });
        // The least of many short turns is what the work takes where nobody disturbs it.
        while begin.elapsed() < span {
            let turns = [
                calls.run(Still),
                calls.run(theirs.clone()),
                calls.run(ours.clone()),
            ];
            for (least, turn) in least.iter_mut().zip(turns) {
                *least = least.or(turn);
            }
        }
        let [bare, theirs, ours] = least;
        time.ours.push(ours.nanos - bare.nanos);
        time.theirs.push(theirs.nanos - bare.nanos);
        allocated.ours.push(ours.allocations - bare.allocations);
        allocated.theirs.push(theirs.allocations - bare.allocations);
    }
    time.print(effort);
    allocated.print(effort);
}

/// Of one call.
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

    fn or(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.min(other.nanos),
            allocations: self.allocations.min(other.allocations),
        }
    }
}

struct Calls {
    admits: bool,
    peers: u64,
}

impl Calls {
    fn of_one(admits: bool) -> Self {
        Self { admits, peers: 1 }
    }

    /// The allocations that are ours to make.
    fn allowance(&self) -> f64 {
        if self.admits { 0.0 } else { 4.0 }
    }

    fn path(&self) -> &'static str {
        if self.admits { "admitted" } else { "denied" }
    }

    /// Some thousand calls of `service`.
    #[inline(never)]
    fn run<S>(&self, mut service: S) -> Figures
    where
        S: Service<Request<()>, Response = Response<Body>>,
    {
        const CALLS: u64 = 4_096;
        let mut cx = Context::from_waker(Waker::noop());
        let mut request = Some(self.request(0));
        let mut before = allocations();
        let mut begin = Instant::now();
        for call in 0..CALLS + 1_024 {
            if call == 1_024 {
                (before, begin) = (allocations(), Instant::now());
            }
            let mut next = match request.take() {
                Some(request) if self.admits => request,
                _ => self.request(call),
            };
            if self.admits && self.peers > 1 {
                let peer = next.extensions_mut().get_mut();
                *peer.expect("it was put there") = self.peer(call);
            }
            assert!(service.poll_ready(&mut cx).is_ready());
            let answer = pin!(service.call(next)).poll(&mut cx);
            std::hint::black_box(&answer);
            assert!(answer.is_ready());
            request = BACK.take();
        }
        Figures {
            nanos: begin.elapsed().as_nanos() as f64 / CALLS as f64,
            allocations: (allocations() - before) as f64 / CALLS as f64,
        }
    }

    fn request(&self, call: u64) -> Request<()> {
        let mut request = Request::new(());
        let peer = self.peer(call);
        // In the form that axum leaves it in, and in that of rate-net.
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
