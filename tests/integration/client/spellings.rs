//! One path or one key, written in many ways.

use axum::{Router, routing::any};
use tower_throttle::{
    FixedWindow, HeaderKey, Quota, RateLimitLayer,
    key::{FromExtension, KeyExtractor},
};

use crate::client::support::{Calls, policy, send, serve};

const LIMIT: usize = 5;

/// Targets of requests: some are served by a guarded route, and the others by none.
const TARGETS: [&str; 32] = [
    "/login",
    "/login?next=/",
    "//login",
    "///login",
    "/x/login",
    "/./login",
    "/../login",
    "/%2e%2e/login",
    "/%2F/login",
    "/x%2Flogin",
    "/%6Cogin",
    "/login/",
    "/login//",
    "/login/.",
    "/login;a=b",
    "/login%20",
    "/LOGIN",
    "http://a/login",
    "http://a//login",
    "HTTP://A/x/login",
    "http://user@a:80/login?next=/",
    "http://a",
    "/u/",
    "/u//",
    "/u/x",
    "/u/../login",
    "/u/%2e%2e/login",
    "//u/x",
    "/v//w",
    "/v//x//w",
    "/v/x/w/",
    "*",
];

/// How often the guarded handler was called by `requests` requests for each target.
async fn calls_of_targets(guarded: &str, requests: usize) -> Vec<(&'static str, usize)> {
    let calls = Calls::default();
    let mut counted = Vec::new();
    for target in TARGETS {
        let text = format!(
            "[[limit]]\nname = \"all\"\nlimit = \"fixed_window {LIMIT}/d\"\nkey = \"client_ip\"\nmatch = {{ path = {guarded} }}"
        );
        let handler = {
            let calls = calls.clone();
            any(async move || calls.record())
        };
        let app = Router::new()
            .route("/login", handler.clone())
            .route("/{tenant}/login", handler.clone())
            .route("/u/{*rest}", handler.clone())
            .nest(
                "/v",
                Router::new()
                    .route("/{a}/w", handler.clone())
                    .route("/{a}/{b}/{c}/w", handler),
            )
            .layer(policy(&text));
        let address = serve(app).await;
        for _ in 0..requests {
            let response = send(
                address,
                &format!("GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"),
            )
            .await;
            assert!(response.starts_with("HTTP/1.1 "), "{target}: {response}");
        }
        counted.push((target, calls.take()));
    }
    counted
}

/// Shows promise 304.
#[tokio::test]
async fn no_spelling_of_a_path_gets_past_its_limit() {
    let guarded = r#"["/login", "/{tenant}/login", "/u/{*rest}", "/v/{a}/w", "/v/{a}/{b}/{c}/w"]"#;
    let calls = calls_of_targets(guarded, 2 * LIMIT).await;
    assert!(
        calls.iter().all(|(_, calls)| [0, LIMIT].contains(calls)),
        "{calls:?}"
    );
    let served = calls.iter().filter(|(_, calls)| *calls > 0).count();
    assert!(served > 10, "{calls:?}");
}

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
    assert_eq!(
        calls_of_headers(HeaderKey::new("x-api-key"), &KEYS).await,
        2
    );

    assert_eq!(calls_of_headers(HeaderKey::bearer(), &TOKENS).await, 2);
    // Whatever the client sends: the operator has forgotten the layer that inserts the extension.
    assert_eq!(
        calls_of_headers(FromExtension::<String>::new(), &TOKENS).await,
        0
    );
}
