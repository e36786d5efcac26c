//! The contract of `tower::Service`, checked by a mock.

use std::{
    future::{Ready, ready},
    task::{Context, Poll},
};

use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt};
use tower_test::{assert_request_eq, mock};
use tower_throttle::{AsError, Global, Quota, RateLimitLayer, RateLimited, TokenBucket};

use crate::support::{Script, admit, deny};

type Boxed = Box<dyn std::error::Error + Send + Sync>;

fn layer(
    script: &Script,
) -> RateLimitLayer<Global, Script, tower_throttle::respond::Responder<AsError>> {
    RateLimitLayer::new(Global, script.clone()).respond(AsError)
}

/// Shows promise 49.
#[tokio::test]
async fn an_admitted_request_gets_the_response_of_the_service() {
    let (mut service, mut handle) =
        mock::spawn_layer::<u8, &str, _>(layer(&Script::now([admit()])));
    assert_ready_ok!(service.poll_ready());
    let response = service.call(7);
    assert_request_eq!(handle, 7).send_response("seven");
    assert_eq!(response.await.unwrap(), "seven");
}

/// Shows promise 49.
#[tokio::test]
async fn readiness_is_that_of_the_inner_service() {
    let (mut service, mut handle) = mock::spawn_layer::<u8, u8, _>(layer(&Script::default()));
    handle.allow(0);
    assert_pending!(service.poll_ready());
    handle.allow(1);
    assert!(service.is_woken());
    assert_ready_ok!(service.poll_ready());
}

/// Shows promise 49.
#[tokio::test]
async fn errors_of_poll_ready_and_of_the_response_pass_unchanged() {
    let (mut service, mut handle) = mock::spawn_layer::<u8, u8, _>(layer(&Script::default()));
    assert_ready_ok!(service.poll_ready());
    let response = service.call(1);
    assert_request_eq!(handle, 1).send_error("broken");
    assert_eq!(response.await.unwrap_err().to_string(), "broken");

    handle.send_error("gone");
    let error = match service.poll_ready() {
        Poll::Ready(Err(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(error.to_string(), "gone");
}

/// Shows promise 49.
#[tokio::test]
async fn a_denied_request_does_not_use_the_readiness_of_the_service() {
    let script = Script::now([deny(), admit()]);
    let (mut service, mut handle) = mock::spawn_layer::<u8, u8, _>(layer(&script));
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    let denied = service.call(1).await.unwrap_err();
    assert!(
        denied
            .downcast_ref::<RateLimited>()
            .unwrap()
            .retry_after()
            .is_some()
    );
    let mut request = task::spawn(handle.next_request());
    assert_pending!(request.poll());
    drop(request);

    // The one request that the mock allows is still available.
    assert_ready_ok!(service.poll_ready());
    let response = service.call(2);
    assert_request_eq!(handle, 2).send_response(2);
    assert_eq!(response.await.unwrap(), 2);
}

/// Fails if it is called without being ready itself. Clones are not ready.
struct Strict {
    ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false }
    }
}

impl Service<u8> for Strict {
    type Response = u8;
    type Error = Boxed;
    type Future = Ready<Result<u8, Boxed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u8) -> Self::Future {
        ready(if std::mem::take(&mut self.ready) {
            Ok(request)
        } else {
            Err("called without poll_ready".into())
        })
    }
}

/// Whether the service that `wrap` makes calls only a service that was ready.
async fn calls_only_ready_services<L>(wrap: L) -> bool
where
    L: Layer<Strict>,
    L::Service: Service<u8, Response = u8, Error = Boxed>,
{
    let mut service = wrap.layer(Strict { ready: false });
    let mut right = true;
    for n in 0..3 {
        right &= service.ready().await.unwrap().call(n).await.is_ok();
    }
    right
}

/// Shows promise 49.
#[tokio::test]
async fn the_service_that_was_polled_is_the_one_that_is_called() {
    assert!(calls_only_ready_services(layer(&Script::default())).await);
}

#[tokio::test]
async fn after_a_pending_decision_the_service_is_polled_for_readiness_again() {
    let script = Script::default();
    let (first, second) = (script.later(), script.later());
    first.send(Ok(admit())).unwrap();
    second.send(Ok(admit())).unwrap();
    assert!(calls_only_ready_services(layer(&script)).await);
}

/// Shows promise 77.
#[test]
fn debug_output_has_no_keys() {
    let layer = RateLimitLayer::new(
        |_: &u8| "a key".to_owned(),
        TokenBucket::new(Quota::per_second(1)),
    )
    .name("shown")
    .respond(AsError);
    let shown = format!("{layer:?} {:?} {:?}", layer.layer(5_u8), layer.handle());
    let is_right = shown.contains("\"shown\"") && !shown.contains("a key");
    assert!(is_right, "{shown}");
}
