//! The endpoint that says what is left, over a real server.
#![cfg(feature = "axum")]

use std::net::{IpAddr, SocketAddr};

use axum::{Router, extract::Request, routing::get};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower_throttle::{
    ClientIp, FixedWindow, HeaderKey, Headers, Local, Lockout, Quota, RateLimitLayer, Settle,
    TokenBucket, key::Missing, layer::Usage,
};

use crate::support::Gone;

/// The head and the body of a response.
async fn fetch(server: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let head = "host: local\r\nconnection: close\r\nx-api-key: secret";
    let request = format!("GET {path} HTTP/1.1\r\n{head}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

async fn usage(server: SocketAddr) -> Value {
    let (head, body) = fetch(server, "/rate_limit").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    assert!(head.contains("cache-control: no-store"), "{head}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });
    server
}

/// Shows promise 322.
#[tokio::test]
async fn the_limits_of_the_caller_are_stated_as_in_headers_and_nothing_is_taken() {
    let search = RateLimitLayer::new(ClientIp::peer(), FixedWindow::new(Quota::per_day(3)))
        .name("search \"quoted\\\"")
        .headers(Headers::Draft11);
    let logins = RateLimitLayer::new(HeaderKey::new("x-api-key"), Lockout::new(Quota::per_day(1)))
        .name("logins")
        .settle(|_: &http::Response<axum::body::Body>| Settle::Keep);
    let others = RateLimitLayer::new(ClientIp::peer(), TokenBucket::new(Quota::per_day(5)))
        .name("others")
        .skip(|_: &Request| true);
    let asked = Usage::new().of(&search).of(&logins).of(&others);
    let (handle, banned) = (search.handle(), logins.handle());
    let app = Router::new()
        .route("/search", get(async || "found").layer(search))
        .route("/login", get(async || "welcome").layer(logins))
        .route_service("/rate_limit", asked);
    let server = serve(app).await;

    for left in (0..3).rev() {
        let (head, _) = fetch(server, "/search").await;
        let said = format!("r={left};t=");
        assert!(head.contains(&said), "{head}");
        for _ in 0..3 {
            let usage = usage(server).await;
            let search = &usage["limits"][0];
            assert_eq!(search["name"], "search \"quoted\\\"");
            assert_eq!(
                (&search["limit"], &search["remaining"]),
                (&json!(3), &json!(left))
            );
            assert_eq!(search.get("retry_after").is_some(), left == 0, "{usage}");
            assert!(search["reset"].as_u64().unwrap() > 0);
            assert_eq!(
                usage["limits"].as_array().unwrap().len(),
                2,
                "one does not apply"
            );
        }
    }
    assert!(takes_nothing(async || drop(usage(server).await), &handle).await);
    let banning = banned.ban(
        &HeaderKey::key("secret"),
        std::time::Duration::from_secs(60),
    );
    banning.await.unwrap();
    let usage = usage(server).await;
    assert_eq!(usage["limits"][1]["remaining"], 0);
    let after = usage["limits"][1]["retry_after"].as_u64().unwrap();
    assert!((1..=60).contains(&after), "{usage}");
}

type Search = tower_throttle::Handle<tower_throttle::key::Client, Local<FixedWindow>>;

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Whether asking leaves all that a client has.
async fn takes_nothing(ask: impl AsyncFn(), handle: &Search) -> bool {
    let here = ClientIp::peer().key(HERE);
    handle.reset(&here).await.unwrap();
    for _ in 0..10 {
        ask().await;
    }
    handle.peek_now(&here, 1).remaining() == 3
}

/// Shows promise 322.
#[tokio::test]
async fn each_limit_of_a_tuple_is_listed() {
    let minute = TokenBucket::new(Quota::per_minute(60));
    let limits = (minute, FixedWindow::new(Quota::per_day(100)));
    let layer = RateLimitLayer::new(ClientIp::peer(), limits).name("tokens");
    let here = ClientIp::peer().key(HERE);
    assert!(layer.handle().backend().check(&here, 30).is_admitted());
    let asked = Usage::new().of(&layer);
    let usage = usage(serve(Router::new().route_service("/rate_limit", asked)).await).await;
    for (at, name, limit) in [(0, "tokens-1", 60), (1, "tokens-2", 100)] {
        let listed = &usage["limits"][at];
        let figures = ["name", "limit"].map(|field| listed[field].clone());
        assert_eq!(figures, [json!(name), json!(limit)]);
        // The bucket refills meanwhile.
        let left = listed["remaining"].as_u64().unwrap();
        assert!((limit - 30..limit).contains(&left), "{usage}");
    }
}

/// Shows promise 322.
#[tokio::test]
async fn what_is_not_known_is_said_and_the_rest_too() {
    let quota = Quota::per_day(3);
    let gone = RateLimitLayer::new(ClientIp::peer(), Gone).name("gone");
    let rejects =
        HeaderKey::new("x-none").if_missing(Missing::Reject(http::StatusCode::BAD_REQUEST));
    let rejects = RateLimitLayer::new(rejects, FixedWindow::new(quota)).name("keyless");
    let known = RateLimitLayer::new(ClientIp::peer(), FixedWindow::new(quota)).name("known");
    let asked = Usage::new().of(&gone).of(&rejects).of(&known);
    let server = serve(Router::new().route_service("/rate_limit", asked)).await;
    let usage = usage(server).await;
    let unknown = |name| json!({"name": name, "error": "unknown"});
    assert_eq!(usage["limits"][0], unknown("gone"));
    assert_eq!(usage["limits"][1], unknown("keyless"));
    let known = json!({"name": "known", "limit": 3, "remaining": 3, "reset": 0});
    assert_eq!(usage["limits"][2], known);
}
