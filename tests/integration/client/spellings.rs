//! One key, written in many ways.

use axum::{Router, routing::any};
use tower_throttle::{
    FixedWindow, HeaderKey, Quota, RateLimitLayer,
    key::{FromExtension, KeyExtractor},
};

use crate::client::support::{Calls, send, serve};

/// How often the handler is called by three requests with each of these header lines.
async fn calls_of_headers<K>(keys: K, headers: &[&str]) -> usize
where
    K: KeyExtractor<axum::extract::Request, Key: Send + Sync> + Clone + Send + Sync + 'static,
{
    let calls = Calls::default();
    let handler = {
        let calls = calls.clone();
        any(async move || calls.record())
    };
    let limit = RateLimitLayer::new(keys, FixedWindow::new(Quota::per_day(1)));
    let address = serve(Router::new().route("/", handler).layer(limit)).await;
    for headers in headers {
        for _ in 0..3 {
            let request =
                format!("GET / HTTP/1.1\r\nhost: a\r\n{headers}\r\nconnection: close\r\n\r\n");
            send(address, &request).await;
        }
    }
    calls.take()
}

/// Shows promise 304.
#[tokio::test]
async fn every_spelling_of_a_key_is_counted_as_that_key_or_as_none() {
    const KEYS: [&str; 10] = [
        "x-api-key: k",
        "X-API-KEY: k",
        "x-Api-kEY:k",
        "x-api-key: \t k \t",
        "x-api-key: k\r\nx-api-key: k",
        "x-api-key: k\r\nX-Api-Key: z",
        "x-api-key:\r\nx-api-key: y",
        "x-api-key : k",
        "x_api_key: k",
        "accept: */*",
    ];
    const TOKENS: [&str; 10] = [
        "authorization: Bearer k",
        "Authorization: bearer k",
        "AUTHORIZATION: BEARER   k",
        "authorization: Bearer k  ",
        "authorization: Bearer \tk",
        "authorization: Bearer k\r\nauthorization: Bearer z",
        "authorization: Bearer",
        "authorization: Bearer ",
        "authorization: Basic k",
        "accept: */*",
    ];
    // One for `k`, and one for all requests without the key, or with two.
    let found = calls_of_headers(HeaderKey::new("x-api-key"), &KEYS).await;
    assert_eq!(found, 2);

    assert_eq!(calls_of_headers(HeaderKey::bearer(), &TOKENS).await, 2);
    // Whatever the client sends: the operator has forgotten the layer that inserts the extension.
    let found = calls_of_headers(FromExtension::<String>::new(), &TOKENS).await;
    assert_eq!(found, 0);
}
