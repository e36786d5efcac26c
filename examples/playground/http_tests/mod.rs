//! Tests of the application, by HTTP requests in virtual time.

mod app;
mod bounds;
mod code;
mod live;
mod scenes;

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use serde_json::Value;
use tower::ServiceExt;

/// Sends JSON; returns the status and the JSON of the answer.
pub(crate) async fn post(app: &Router, path: &str, body: Value) -> (StatusCode, Value) {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let json = match &*body {
        [] => Value::Null,
        body => serde_json::from_slice(body).unwrap_or_else(|_| panic!("no JSON: {body:?}")),
    };
    (status, json)
}

pub(crate) async fn get(app: &Router, path: &str) -> axum::response::Response {
    let request = Request::get(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}
