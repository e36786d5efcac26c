//! Reading limits and changing them while requests are served.

use std::{
    borrow::Cow,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
};

use tokio::sync::oneshot;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{
    AsError, Decision, FixedWindow, Global, Quota, RateLimitLayer, StoreError,
    key::Extracted,
    store::{Backend, IntoBackend, Op},
};

async fn unit(_: &'static str) -> Result<(), BoxError> {
    Ok(())
}

/// Shows promise 56.
#[tokio::test]
async fn a_handle_peeks_resets_charges_and_refunds() {
    let layer = RateLimitLayer::new(
        |who: &&'static str| Cow::Borrowed(*who),
        FixedWindow::new(Quota::per_day(10)),
    )
    .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(unit));
    for _ in 0..4 {
        service.clone().oneshot("ann").await.unwrap();
    }
    let left = async |who: &str| handle.peek(who, 0).await.unwrap().remaining();
    assert_eq!((left("ann").await, left("bob").await), (6, 10));
    handle.refund("ann", 1).await.unwrap();
    assert_eq!(left("ann").await, 7);
    handle.charge("ann", 100).await.unwrap();
    assert_eq!(left("ann").await, 0);
    assert!(handle.peek("ann", 1).await.unwrap().is_denied());
    assert!(service.clone().oneshot("ann").await.is_err());
    handle.reset("ann").await.unwrap();
    assert_eq!(left("ann").await, 10);
    assert_eq!(left("bob").await, 10);
}

/// Shows promise 56.
#[tokio::test]
async fn outcomes_are_counted() {
    let layer = RateLimitLayer::new(
        |who: &&'static str| match *who {
            "root" => Ok(Extracted::Skip),
            "" => Err(http::StatusCode::BAD_REQUEST),
            who => Ok(Extracted::Key(Cow::Borrowed(who))),
        },
        FixedWindow::new(Quota::per_day(2)),
    )
    .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(unit));
    for who in ["ann", "ann", "ann", "bob", "root", "root", "", "ann"] {
        let _ = service.clone().oneshot(who).await;
    }
    let counts = handle.counts();
    assert_eq!((counts.admitted, counts.denied), (3, 2));
    assert_eq!((counts.skipped, counts.rejected), (2, 1));
    assert_eq!((counts.waited, counts.store_errors), (0, 0));
}

/// Local changes happen even if their futures are never polled.
///
/// Shows promise 56.
#[test]
fn a_local_change_is_complete_when_the_call_returns() {
    let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(10)));
    let handle = layer.handle();
    drop(handle.charge(&(), 7));
    assert_eq!(handle.peek_now(&(), 0).remaining(), 3);
    drop(handle.refund(&(), 4));
    assert_eq!(handle.peek_now(&(), 0).remaining(), 7);
    drop(handle.reset(&()));
    assert_eq!(handle.peek_now(&(), 0).remaining(), 10);
}

/// Completes calls on a signal.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<Vec<oneshot::Receiver<()>>>>);

impl IntoBackend for Slow {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

impl<K: ?Sized> Backend<K> for Slow {
    type Future = Pin<Box<dyn Future<Output = Result<Decision, StoreError>> + Send>>;

    fn apply(&self, _: &K, _: Op) -> Self::Future {
        let go = self.0.lock().unwrap().pop();
        Box::pin(async move {
            go.unwrap().await.unwrap();
            Err(StoreError::new("lost", true))
        })
    }

    fn quotas(&self) -> Vec<Quota> {
        Vec::new()
    }
}

/// Shows promise 56.
#[tokio::test]
async fn an_awaited_remote_change_returns_its_error() {
    let slow = Slow::default();
    let (go, wait) = oneshot::channel();
    slow.0.lock().unwrap().push(wait);
    let layer = RateLimitLayer::new(Global, slow);
    let mut change = tokio_test::task::spawn(layer.handle().reset(&()));
    tokio_test::assert_pending!(change.poll());
    go.send(()).unwrap();
    assert_eq!(change.await, Err(StoreError::new("lost", true)));
}
