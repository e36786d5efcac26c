//! Reading limits and changing them while requests are served.

use std::borrow::Cow;

use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{AsError, FixedWindow, Global, Quota, RateLimitLayer, key::Extracted};

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
    drop(handle.charge(&(), 4));
    handle.set_quota(Quota::per_day(20)).unwrap();
    assert_eq!(handle.peek_now(&(), 0).remaining(), 16);
    let burst = Quota::per_day(20).burst(40);
    assert!(handle.set_algorithm(FixedWindow::new(burst)).is_err());
}
