//! What the page says about other crates.

use std::{net::SocketAddr, num::NonZeroU32, sync::Arc, time::Duration};

use axum::{
    BoxError, Router, error_handling::HandleErrorLayer, extract::ConnectInfo, extract::Request,
    response::Response, routing::get,
};
use governor::{Quota, RateLimiter, clock::FakeRelativeClock};
use http::{HeaderValue, StatusCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Barrier,
    time::Instant,
};
use tower::{ServiceBuilder, buffer::BufferLayer, limit::ConcurrencyLimitLayer};
use tower_governor::{
    GovernorLayer, governor::GovernorConfigBuilder, key_extractor::SmartIpKeyExtractor,
};
use tower_rate_limiter::{IpKeyExtractor, MemoryStore};

use crate::pages::support::{request, send};

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

fn from_client() -> Request {
    let mut request = request("GET", "/");
    let address = SocketAddr::from(([192, 0, 2, 7], 4711));
    request.extensions_mut().insert(ConnectInfo(address));
    request
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    let value = response.headers().get(name);
    value.map_or("", |value| value.to_str().expect("text"))
}

#[tokio::test]
async fn tower_governor_rounds_retry_after_down_to_0() {
    let mut config = GovernorConfigBuilder::default();
    let mut config = config.per_millisecond(900).burst_size(1).use_headers();
    let config = config.finish().expect("a valid configuration");
    let app = hello().layer(GovernorLayer::new(config));
    let admitted = send(&app, from_client()).await;
    assert_eq!(header(&admitted, "x-ratelimit-limit"), "1");
    // A request that comes late is admitted as well.
    let mut denied = send(&app, from_client()).await;
    for _ in 0..1_000 {
        if denied.status() == 429 {
            break;
        }
        denied = send(&app, from_client()).await;
    }
    assert_eq!(denied.status(), 429);
    assert_eq!(header(&denied, "retry-after"), "0");
}

#[tokio::test]
async fn the_smart_key_of_tower_governor_believes_every_client() {
    let mut config = GovernorConfigBuilder::default();
    let mut config = config.key_extractor(SmartIpKeyExtractor);
    let config = config.per_second(3_600).burst_size(1).finish();
    let app = hello().layer(GovernorLayer::new(config.expect("a valid configuration")));
    for n in 0..5 {
        let mut request = from_client();
        let address = HeaderValue::from_str(&format!("198.51.100.{n}")).expect("a value");
        request.headers_mut().insert("x-forwarded-for", address);
        assert_eq!(send(&app, request).await.status(), 200);
    }
}

/// Two requests are in the handler at once, although the limit is one.
#[tokio::test]
async fn the_concurrency_limit_of_tower_counts_each_connection_by_itself_in_axum() {
    let both = Arc::new(Barrier::new(2));
    let handler = async move || {
        both.wait().await;
        "hello"
    };
    let app = Router::new()
        .route("/", get(handler))
        .layer(ConcurrencyLimitLayer::new(1));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async { axum::serve(listener, app).await });
    let call = async || {
        let mut stream = TcpStream::connect(address).await?;
        let request = b"GET / HTTP/1.1\r\nhost: local\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        std::io::Result::Ok(response)
    };
    let (first, second) = tokio::join!(call(), call());
    for response in [first, second] {
        assert!(response.expect("a response").starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test]
async fn tower_rate_limiter_denies_until_the_end_of_the_window() {
    let limit = tower_rate_limiter::RateLimitLayer::builder(IpKeyExtractor::new())
        .limit(1)
        .window(Duration::from_hours(1))
        .with_store(MemoryStore::new())
        .build()
        .expect("a valid policy");
    let app = hello().layer(limit);
    assert_eq!(send(&app, from_client()).await.status(), 200);
    let denied = send(&app, from_client()).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(header(&denied, "retry-after"), "3600");
    assert!(header(&denied, "ratelimit").contains("r=0"));
}

#[test]
fn governor_keeps_keys_until_it_is_told_to_drop_them() {
    let clock = FakeRelativeClock::default();
    let quota = Quota::per_second(NonZeroU32::MIN);
    let limiter = RateLimiter::dashmap_with_clock(quota, clock.clone());
    for key in 0..100 {
        assert!(limiter.check_key(&key).is_ok());
    }
    clock.advance(Duration::from_hours(1));
    assert!(limiter.check_key(&0).is_ok());
    assert_eq!(limiter.len(), 100);
    clock.advance(Duration::from_hours(1));
    limiter.retain_recent();
    assert_eq!(limiter.len(), 0);
}

/// The page's application with tower's own limit of one request per hour.
fn limited_by_tower() -> Router {
    hello().layer(
        ServiceBuilder::new()
            .layer(HandleErrorLayer::new(async |_: BoxError| {
                StatusCode::INTERNAL_SERVER_ERROR
            }))
            .layer(BufferLayer::new(1_024))
            .layer(tower::limit::RateLimitLayer::new(
                1,
                Duration::from_hours(1),
            )),
    )
}

/// For how long a request on this connection waits.
async fn wait_on(connection: &mut TcpStream) -> Duration {
    let start = Instant::now();
    let request = b"GET / HTTP/1.1\r\nhost: local\r\n\r\n";
    connection.write_all(request).await.expect("an open one");
    let mut response = [0; 512];
    let length = connection.read(&mut response).await.expect("a response");
    assert!(response[..length].starts_with(b"HTTP/1.1 200"));
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn the_rate_limit_of_tower_counts_each_connection_by_itself_in_axum() {
    const HOUR: Duration = Duration::from_hours(1);
    const ALMOST_AN_HOUR: Duration = Duration::from_secs(3_599);

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async { axum::serve(listener, limited_by_tower()).await });
    for _ in 0..5 {
        let mut connection = TcpStream::connect(address).await.expect("a server");
        assert!(wait_on(&mut connection).await < HOUR);
        assert!(wait_on(&mut connection).await >= ALMOST_AN_HOUR);
    }
    // Here axum applies the layer once.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let service = limited_by_tower().into_make_service();
    tokio::spawn(async { axum::serve(listener, service).await });
    for n in 0..3 {
        let mut connection = TcpStream::connect(address).await.expect("a server");
        let wait = wait_on(&mut connection).await;
        assert_eq!(wait >= ALMOST_AN_HOUR, n > 0, "{n}: {wait:?}");
    }
}
