//! Combinations with tower's own layers, inside and outside.

use std::{convert::Infallible, future::Ready, time::Duration};

use http::{Request, Response};
use tower::{
    BoxError, Service, ServiceBuilder, ServiceExt, buffer::BufferLayer,
    limit::ConcurrencyLimitLayer, load_shed::LoadShedLayer, retry::Policy, retry::RetryLayer,
    service_fn, timeout::TimeoutLayer,
};
use tower_throttle::{FixedWindow, Global, Local, Quota, RateLimitLayer};

fn two() -> RateLimitLayer<Global, Local<FixedWindow>> {
    RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(2)))
}

async fn ok(_: Request<()>) -> Result<Response<String>, Infallible> {
    Ok(Response::new("ok".into()))
}

/// Sends four requests in a row. Returns their statuses.
async fn four<S>(mut service: S) -> Vec<u16>
where
    S: Service<Request<()>, Response = Response<String>, Error: std::fmt::Debug>,
{
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let ready = service.ready().await.unwrap();
        let response = ready.call(Request::new(())).await.unwrap();
        statuses.push(response.status().as_u16());
    }
    statuses
}

const EXPECTED: [u16; 4] = [200, 200, 429, 429];

#[tokio::test]
async fn inside_and_outside_of_a_buffer() {
    let builder = ServiceBuilder::new()
        .layer(BufferLayer::new(4))
        .layer(two());
    assert_eq!(four(builder.service(service_fn(ok))).await, EXPECTED);
    let builder = ServiceBuilder::new()
        .layer(two())
        .layer(BufferLayer::new(4));
    assert_eq!(four(builder.service(service_fn(ok))).await, EXPECTED);
}

#[tokio::test]
async fn inside_and_outside_of_load_shedding_and_a_concurrency_limit() {
    let builder = ServiceBuilder::new()
        .layer(LoadShedLayer::new())
        .layer(two())
        .layer(ConcurrencyLimitLayer::new(1));
    assert_eq!(four(builder.service(service_fn(ok))).await, EXPECTED);
    let builder = ServiceBuilder::new()
        .layer(two())
        .layer(LoadShedLayer::new())
        .layer(ConcurrencyLimitLayer::new(1));
    assert_eq!(four(builder.service(service_fn(ok))).await, EXPECTED);
}

#[tokio::test]
async fn inside_and_outside_of_a_timeout() {
    let timeout = TimeoutLayer::new(Duration::from_secs(60));
    let builder = ServiceBuilder::new().layer(timeout.clone()).layer(two());
    assert_eq!(four(builder.service(service_fn(ok))).await, EXPECTED);
    let builder = ServiceBuilder::new().layer(two()).layer(timeout);
    assert_eq!(four(builder.service(service_fn(ok))).await, EXPECTED);
}

/// Retries up to three times after a 429.
#[derive(Clone)]
struct Thrice(u8);

impl<E> Policy<Request<()>, Response<String>, E> for Thrice {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<()>,
        result: &mut Result<Response<String>, E>,
    ) -> Option<Ready<()>> {
        let again = result
            .as_ref()
            .is_ok_and(|response| response.status() == 429);
        self.0 += 1;
        (again && self.0 < 3).then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, _: &Request<()>) -> Option<Request<()>> {
        Some(Request::new(()))
    }
}

#[tokio::test]
async fn retries_outside_are_counted_and_retries_inside_are_not() {
    let limit = two();
    let handle = limit.handle();
    let builder = ServiceBuilder::new()
        .layer(RetryLayer::new(Thrice(0)))
        .layer(limit);
    assert_eq!(four(builder.service(service_fn(ok))).await, EXPECTED);
    assert_eq!(handle.counts().denied, 6);

    let limit = two();
    let handle = limit.handle();
    let builder = ServiceBuilder::new()
        .layer(limit)
        .layer(RetryLayer::new(Thrice(0)));
    assert_eq!(four(builder.service(service_fn(ok))).await, EXPECTED);
    assert_eq!(handle.counts().denied, 2);
}

/// Shows promise 49.
#[tokio::test]
async fn tower_794_the_error_type_is_unchanged() {
    fn same<S: Service<Request<()>, Error = Infallible>>(service: S) -> S {
        service
    }
    let service = same(ServiceBuilder::new().layer(two()).service(service_fn(ok)));
    assert_eq!(four(service).await, EXPECTED);
}

#[tokio::test]
async fn boxed_services_can_be_limited_and_limited_ones_boxed() {
    let inner = tower::util::BoxCloneService::new(service_fn(ok));
    let limited = ServiceBuilder::new().layer(two()).service(inner);
    let boxed = tower::util::BoxCloneService::new(limited.map_err(BoxError::from));
    assert_eq!(four(boxed).await, EXPECTED);
}
