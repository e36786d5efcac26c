//! Looking at limits and changing them while requests are served.

use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{AsError, FixedWindow, Quota, RateLimitLayer};

async fn unit(_: &'static str) -> Result<(), BoxError> {
    Ok(())
}

#[tokio::test]
async fn a_handle_looks_resets_penalises_and_refunds() {
    let layer = RateLimitLayer::new(
        |who: &&'static str| *who,
        FixedWindow::new(Quota::per_day(10)),
    )
    .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(unit));
    for _ in 0..4 {
        service.clone().oneshot("ann").await.unwrap();
    }
    let left = async |who| handle.peek(&who, 0).await.unwrap().remaining();
    assert_eq!((left("ann").await, left("bob").await), (6, 10));
    let _ = handle.refund(&"ann", 1).await;
    assert_eq!(left("ann").await, 7);
    let _ = handle.penalise(&"ann", 100).await;
    assert_eq!(left("ann").await, 0);
    assert!(handle.peek(&"ann", 1).await.unwrap().is_denied());
    assert!(service.clone().oneshot("ann").await.is_err());
    let _ = handle.reset(&"ann").await;
    assert_eq!(left("ann").await, 10);
    assert_eq!(left("bob").await, 10);
}

#[tokio::test]
async fn a_new_quota_keeps_what_was_used() {
    let layer = RateLimitLayer::new(
        |who: &&'static str| *who,
        FixedWindow::new(Quota::per_day(10)),
    )
    .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(unit));
    for _ in 0..4 {
        service.clone().oneshot("ann").await.unwrap();
    }
    handle.set_quota(Quota::per_day(6)).unwrap();
    assert_eq!(handle.peek(&"ann", 0).await.unwrap().remaining(), 2);
    assert_eq!(handle.peek(&"bob", 0).await.unwrap().remaining(), 6);
}

#[tokio::test]
async fn fates_are_counted() {
    let layer = RateLimitLayer::new(
        |who: &&'static str| match *who {
            "root" => Ok(None),
            "" => Err(http::StatusCode::BAD_REQUEST),
            who => Ok(Some(who)),
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
