//! Backends that are pending or fail.

use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{AsError, Global, RateLimitLayer, RateLimited, StoreError};

use crate::support::{Reply, Script};

type Boxed = Box<dyn std::error::Error + Send + Sync>;

async fn echo(request: u8) -> Result<u8, Boxed> {
    Ok(request)
}

async fn outcome(denies: bool, error: StoreError, shadow: bool) -> Result<u8, Boxed> {
    let script = Script::default();
    script.push(Reply::Now(Err(error)));
    let mut layer = RateLimitLayer::new(Global, script).respond(AsError);
    if denies {
        layer = layer.deny_on_store_error();
    }
    if shadow {
        layer = layer.shadow();
    }
    let handle = layer.handle();
    let outcome = layer.layer(service_fn(echo)).oneshot(1).await;
    assert_eq!(handle.counts().store_errors, 1);
    outcome
}

/// Shows promise 57.
#[tokio::test]
async fn an_outage_allows_or_denies_as_configured() {
    let outage = || StoreError::new("timed out", true);
    assert_eq!(outcome(false, outage(), false).await.unwrap(), 1);
    let error = outcome(true, outage(), false).await.unwrap_err();
    let limited = error.downcast_ref::<RateLimited>().unwrap();
    assert_eq!(limited.status(), 503);
    assert_eq!(limited.store_error(), Some(&outage()));
    // Clients must not see details.
    assert!(!limited.to_string().contains("timed out"));
}

/// Shows promise 57.
#[tokio::test]
async fn a_wrong_configuration_is_not_an_outage() {
    let wrong = || StoreError::new("wrong password", false);
    assert!(outcome(false, wrong(), false).await.is_err());
    assert!(outcome(false, wrong(), true).await.is_ok());
}

/// Shows promise 56.
#[tokio::test]
async fn an_awaited_remote_change_returns_its_error() {
    let (script, lost) = (Script::default(), StoreError::new("lost", true));
    script.push(Reply::Now(Err(lost.clone())));
    let handle = RateLimitLayer::new(Global, script).handle();
    assert_eq!(handle.reset(&()).await, Err(lost));
}
