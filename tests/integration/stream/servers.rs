//! Real servers and clients.

use std::{net::SocketAddr, time::Duration};

use axum::{Extension, Router, extract::Request, response::IntoResponse, routing::get};
use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tonic::{
    Code,
    transport::{Endpoint, Server, server::TcpIncoming},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower_throttle::{
    ConcurrencyLimitLayer, Global, Handle, Quota, TokenBucket,
    concurrency::{PermitHolder, Permits},
    stream::BodyLimitLayer,
};

use test_support::wait::until;

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });
    address
}

/// Sends one request on a connection of its own.
async fn send(address: SocketAddr, body: Bytes) -> Response<hyper::body::Incoming> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("/").header("host", "local");
    let request = request.body(Full::new(body)).unwrap();
    sender.send_request(request).await.unwrap()
}

/// 3 MB at 10 MB/s, after a burst of 64 KiB. Real time: only that it is not faster.
///
/// Shows promise 344.
#[tokio::test]
async fn uploads_and_downloads_are_no_faster_than_the_limit() {
    let bucket = TokenBucket::new(Quota::per_second(10_000_000).burst(65_536));
    let body = Bytes::from(vec![7; 3_000_000]);
    let due = Duration::from_millis(293);

    let echo = axum::routing::post(async |body: Bytes| body.len().to_string());
    let layer = BodyLimitLayer::requests(Global, bucket);
    let app = Router::new().route("/", echo.layer(layer));
    let address = serve(app.layer(axum::extract::DefaultBodyLimit::disable())).await;
    let begun = Instant::now();
    let response = send(address, body.clone()).await;
    assert_eq!(response.collect().await.unwrap().to_bytes(), "3000000");
    assert!(begun.elapsed() >= due, "{:?}", begun.elapsed());

    let sent = body.clone();
    let file = axum::routing::post(async move || sent);
    let layer = BodyLimitLayer::responses(Global, bucket);
    let address = serve(Router::new().route("/", file.layer(layer))).await;
    let begun = Instant::now();
    let response = send(address, Bytes::new()).await;
    assert_eq!(response.headers()[header::CONTENT_LENGTH], "3000000");
    assert_eq!(response.collect().await.unwrap().to_bytes(), body);
    assert!(begun.elapsed() >= due, "{:?}", begun.elapsed());
}

/// Shows promise 343.
#[tokio::test]
async fn grpc_messages_over_the_limit_fail_with_resource_exhausted() {
    let bucket = TokenBucket::new(Quota::per_hour(3));
    let layer = BodyLimitLayer::requests(Global, bucket)
        .grpc_messages()
        .max_wait(Duration::ZERO)
        .on_denied(|denied| tonic::Status::resource_exhausted(denied.to_string()).into());
    let (_, health) = tonic_health::server::health_reporter();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(incoming));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(endpoint.connect_lazy());
    for _ in 0..3 {
        client.check(HealthCheckRequest::default()).await.unwrap();
    }
    let checked = client.check(HealthCheckRequest::default());
    let denied = checked.await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
}

/// A server with two permits that echoes on upgraded connections. With `holds`, they hold their permits.
async fn echo_server(holds: bool) -> (SocketAddr, Handle<(), Permits>) {
    let echo = async move |request: Request| {
        let holder = PermitHolder::new();
        let keep = holds.then(|| Extension(holder.clone()));
        let upgrade = hyper::upgrade::on(request);
        tokio::spawn(async move {
            let _held = holder;
            let Ok(upgraded) = upgrade.await else { return };
            let mut stream = TokioIo::new(upgraded);
            let mut byte = [0];
            while stream.read_exact(&mut byte).await.is_ok() {
                assert_ne!(byte, *b"!", "the panic of a connection");
                stream.write_all(&byte).await.unwrap();
            }
        });
        let head = [(header::CONNECTION, "upgrade"), (header::UPGRADE, "echo")];
        (StatusCode::SWITCHING_PROTOCOLS, keep, head).into_response()
    };
    let layer = ConcurrencyLimitLayer::new(Global, 2);
    let handle = layer.handle();
    (
        serve(Router::new().route("/", get(echo).layer(layer))).await,
        handle,
    )
}

/// An upgraded connection on which one byte has come back, or the status of the response.
async fn connect(address: SocketAddr) -> Result<TokioIo<hyper::upgrade::Upgraded>, StatusCode> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let request = Request::get("/").header("host", "local");
    let request = request
        .header("connection", "upgrade")
        .header("upgrade", "echo");
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(response.status());
    }
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
    Ok(stream)
}

/// Shows promise 180.
#[tokio::test]
async fn an_upgraded_connection_holds_its_permit_until_it_ends() {
    let (address, handle) = echo_server(true).await;
    for round in 0..10 {
        let mut first = connect(address).await.unwrap();
        let second = connect(address).await.unwrap();
        assert_eq!(handle.in_flight(&()), 2);
        let found = connect(address).await.unwrap_err();
        assert_eq!(found, StatusCode::TOO_MANY_REQUESTS);
        drop(second);
        until("one has hung up", async || handle.in_flight(&()) == 1).await;
        let third = connect(address).await.unwrap();
        if round % 2 == 0 {
            first.write_all(b"!").await.unwrap(); // its task panics
        }
        drop((first, third));
        until("all are over", async || handle.keys() == 0).await;
    }
}

/// Shows promise 180.
#[tokio::test]
async fn a_holder_that_is_gone_before_the_response_holds_nothing() {
    let gone = async || Extension(PermitHolder::new());
    let layer = ConcurrencyLimitLayer::new(Global, 1);
    let handle = layer.handle();
    let address = serve(Router::new().route("/", axum::routing::post(gone).layer(layer))).await;
    for _ in 0..3 {
        let response = send(address, Bytes::new()).await;
        assert_eq!(response.status(), StatusCode::OK);
        drop(response);
        until("it is released", async || handle.keys() == 0).await;
    }
}
