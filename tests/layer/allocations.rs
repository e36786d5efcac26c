//! Counts allocations: an admitted request makes none.

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    pin::pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use http_body_util::Full;
use tower::{Layer, Service};
use tower_throttle::{
    ClientIp, FixedWindow, Global, Quota, RateLimitLayer, RateLimited, Settle, TokenBucket,
    concurrency::ConcurrencyLimitLayer,
    key::PeerAddr,
    store::{Plan, Quotas},
};

use crate::counting::{ALLOCATIONS, BYTES};

/// A service that allocates nothing.
#[derive(Clone)]
struct Still;

impl Service<Request<u64>> for Still {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<u64>) -> Self::Future {
        drop(request);
        ready(Ok(Response::new(())))
    }
}

/// Allocations of the second admitted request through `layer`, without those of creating it.
fn allocations<L>(layer: &L) -> usize
where
    L: Layer<Still>,
    L::Service: Service<Request<u64>, Response = Response<()>> + Clone,
{
    let service = layer.layer(Still);
    let mut counted = 0;
    for _ in 0..2 {
        let mut request = Request::new(7);
        // A server inserts extensions too, so the map is allocated and large enough.
        request
            .extensions_mut()
            .insert(PeerAddr(([192, 0, 2, 1], 80).into()));
        request
            .extensions_mut()
            .insert(tower_throttle::Limiter::new(bucket()).check(1));
        let client = HeaderValue::from_static("203.0.113.9");
        request.headers_mut().insert("x-forwarded-for", client);
        let before = ALLOCATIONS.get();
        {
            let mut service = service.clone();
            let mut cx = Context::from_waker(Waker::noop());
            assert!(service.poll_ready(&mut cx).is_ready());
            let mut future = pin!(service.call(request));
            assert!(future.as_mut().poll(&mut cx).is_ready());
        }
        counted = ALLOCATIONS.get() - before;
    }
    counted
}

fn bucket() -> TokenBucket {
    TokenBucket::new(Quota::per_second(1_000_000))
}

/// Shows promise 43.
#[test]
fn the_layer_allocates_nothing_for_an_admitted_request() {
    assert_eq!(allocations(&RateLimitLayer::new(Global, bucket())), 0);
    let found = allocations(&RateLimitLayer::new(ClientIp::peer(), bucket()));
    assert_eq!(found, 0);
    let behind = ClientIp::x_forwarded_for().trusting(["192.0.2.0/24"]);
    assert_eq!(allocations(&RateLimitLayer::new(behind, bucket())), 0);
    let by_number = |req: &Request<u64>| (*req.body(), true);
    let layer = RateLimitLayer::new(by_number, bucket())
        .cost(|_: &Request<u64>| 2)
        .skip(|req: &Request<u64>| *req.body() == 0)
        .settle(|_: &Response<()>| Settle::Refund);
    assert_eq!(allocations(&layer), 0);
    let quotas = Quotas::new(bucket(), |key: &u64| match key % 3 {
        0 => Plan::Tier("large"),
        1 => Plan::Quota(Quota::per_second(7)),
        _ => Plan::Unlimited,
    });
    let quotas = quotas.tier("large", bucket());
    let layer = RateLimitLayer::new(|req: &Request<u64>| *req.body(), quotas);
    assert_eq!(allocations(&layer), 0);
    let layer = RateLimitLayer::new(ClientIp::peer(), bucket())
        .and(RateLimitLayer::new(Global, bucket()))
        .and(RateLimitLayer::new(by_number, bucket()));
    assert_eq!(allocations(&layer), 0);
}

/// A service whose responses have bodies, and that allocates nothing.
#[derive(Clone)]
struct StillBody;

impl Service<Request<u64>> for StillBody {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<u64>) -> Self::Future {
        ready(Ok(Response::new(Full::new(Bytes::from_static(b"done")))))
    }
}

/// Shows promise 43.
#[test]
fn a_permit_and_its_body_allocate_nothing() {
    let by_number = |req: &Request<u64>| *req.body();
    let layer = ConcurrencyLimitLayer::new(by_number, 2);
    assert_eq!(allocations(&layer.clone().release_at_response()), 0);
    let mut service = layer.layer(StillBody);
    let mut cx = Context::from_waker(Waker::noop());
    for turn in 0..3 {
        let before = ALLOCATIONS.get();
        assert!(service.poll_ready(&mut cx).is_ready());
        let Poll::Ready(Ok(response)) = pin!(service.call(Request::new(7))).poll(&mut cx) else {
            panic!("the service is ready");
        };
        assert_eq!(layer.handle().in_flight(&7), 1);
        assert!(pin!(response.into_body()).poll_frame(&mut cx).is_ready());
        assert_eq!(layer.handle().keys(), 0);
        assert!(turn == 0 || ALLOCATIONS.get() == before);
    }
}

/// Allocations of a request that `layer` denies, and of the response with `Retry-After`.
fn denied_allocations<L>(layer: &L) -> usize
where
    L: Layer<Still>,
    L::Service: Service<Request<u64>, Response = Response<()>, Error = Infallible>,
{
    let mut service = layer.layer(Still);
    let mut cx = Context::from_waker(Waker::noop());
    let mut counted = 0;
    for expected in [200, 429, 429] {
        let mut request = Request::new(7);
        request.extensions_mut().insert(7_u8);
        let before = ALLOCATIONS.get();
        assert!(service.poll_ready(&mut cx).is_ready());
        let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut cx) else {
            panic!("a local limit is never pending");
        };
        counted = ALLOCATIONS.get() - before;
        assert_eq!(response.status(), expected);
        let found = response.headers().contains_key("retry-after");
        assert_eq!(found, expected == 429);
        assert!(response.extensions().get::<u8>().is_none());
        let found = response.extensions().get::<RateLimited>().is_some();
        assert_eq!(found, expected == 429);
    }
    counted
}

/// Shows promise 43.
#[test]
fn a_denial_allocates_only_headers_and_reason() {
    let slow = |quota| RateLimitLayer::new(Global, FixedWindow::new(quota));
    // Two allocations for the header map, one for `Retry-After`, one for the reason.
    assert_eq!(denied_allocations(&slow(Quota::per_minute(1))), 4);
}

#[test]
fn a_global_limit_allocates_a_table_for_one_key() {
    let taken = |make: &dyn Fn()| {
        let before = BYTES.get();
        make();
        BYTES.get() - before
    };
    let of_all = taken(&|| drop(RateLimitLayer::new(Global, bucket())));
    // The counters take more memory with more threads.
    let counts = 128 * (2 * std::thread::available_parallelism().map_or(1, usize::from) + 1).max(5);
    assert!(of_all < 8_000 + counts, "{of_all} bytes");
    let of_each = taken(&|| drop(RateLimitLayer::new(ClientIp::peer(), bucket())));
    assert!(of_each > 2_000_000, "{of_each} bytes");

    let layer = RateLimitLayer::new(Global, bucket());
    let table = layer.handle().backend().stats();
    assert!(table.table_bytes < 1_000, "{table:?}");
    assert_eq!(allocations(&layer.clone()), 0);
    assert_eq!(layer.handle().backend().stats().evicted, 0);
    // Both requests are counted.
    assert!(layer.handle().counts().admitted == 2);
}
