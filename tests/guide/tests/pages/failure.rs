use axum::{Router, routing::get};
use http::HeaderValue;
use tower_throttle::{
    HeaderKey, Quota, RateLimitLayer, StoreError, TokenBucket,
    layer::OnStoreError,
    store::cas::{Cas, CasStore, Fault, Faulty, Loaded, MemoryStore, Swapped, Value, Version},
};

use crate::support::{request, send};

fn app<S: CasStore>(store: S, on_store_error: OnStoreError) -> Router {
    let limit = Cas::new(store, "pay", TokenBucket::new(Quota::per_second(10)));
    let limit = RateLimitLayer::new(HeaderKey::new("x-tenant"), limit);
    let limit = limit.on_store_error(on_store_error);
    Router::new().route("/", get(async || "paid").layer(limit))
}

#[tokio::test(start_paused = true)]
async fn a_grpc_request_is_told_that_the_service_is_unavailable() {
    let store = Faulty::new(MemoryStore::new());
    store.plan([Fault::LostRequest; 50]);
    let app = app(store, OnStoreError::Deny);
    let mut request = request("POST", "/");
    let headers = request.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    headers.insert("te", HeaderValue::from_static("trailers"));
    let response = send(&app, request).await;
    // 14 is UNAVAILABLE.
    assert_eq!(response.headers()["grpc-status"], "14");
}

/// A store with a wrong password.
#[derive(Clone, Debug)]
struct Refusing;

impl CasStore for Refusing {
    async fn load(&self, _: &str) -> Result<Loaded, StoreError> {
        Err(StoreError::new("wrong password", false))
    }

    async fn swap(
        &self,
        _: &str,
        _: Option<Version>,
        _: &Value,
        _: std::time::Duration,
    ) -> Result<Swapped, StoreError> {
        Err(StoreError::new("wrong password", false))
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_denies_requests_with_every_setting() {
    for setting in [OnStoreError::Allow, OnStoreError::Deny] {
        let app = app(Refusing, setting);
        let mut request = request("GET", "/");
        let headers = request.headers_mut();
        headers.insert("x-tenant", HeaderValue::from_static("acme"));
        assert_eq!(send(&app, request).await.status(), 503, "{setting:?}");
    }
}
