//! Real servers, with clients that hang up and handlers that panic.

use std::{
    convert::Infallible,
    future::pending,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body, routing::get};
use bytes::Bytes;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tower_throttle::{
    Global, Handle,
    concurrency::{ConcurrencyLimitLayer, Permits},
};

use crate::wait::until;

const PATIENCE: Duration = Duration::from_secs(30);

/// A body that never ends: one frame, and then it is pending.
#[derive(Default)]
struct Endless {
    is_sent: bool,
}

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_sent {
            return Poll::Pending;
        }
        self.is_sent = true;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"more")))))
    }
}

/// A server with two permits.
async fn serve() -> (SocketAddr, Handle<(), Permits>) {
    let layer = ConcurrencyLimitLayer::new(Global, 2);
    let handle = layer.handle();
    let app = Router::new()
        .route("/", get(async || "done"))
        .route("/stuck", get(pending::<&str>))
        .route("/endless", get(async || Body::new(Endless::default())))
        .route(
            "/panic",
            get(async || -> &str { std::panic::resume_unwind(Box::new(())) }),
        )
        .layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });
    (address, handle)
}

fn request(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path)
        .header("host", "local")
        .body(Empty::new())
        .unwrap()
}

async fn http1(address: SocketAddr) -> http1::SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn http2(address: SocketAddr) -> http2::SendRequest<Empty<Bytes>> {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

/// The server still serves two requests at a time, and no more.
async fn assert_whole(address: SocketAddr, handle: &Handle<(), Permits>) {
    until("the permits are released", async || handle.keys() == 0).await;
    let mut held = Vec::new();
    for expected in [200, 200, 429] {
        let mut sender = http1(address).await;
        let response = timeout(PATIENCE, sender.send_request(request("/endless")));
        let response = response.await.unwrap().unwrap();
        assert_eq!(response.status(), expected);
        held.push((sender, response));
    }
    drop(held);
    until("the permits are released", async || handle.keys() == 0).await;
}

/// Shows promise 180.
#[tokio::test]
async fn clients_that_hang_up_over_http1_release_their_permits() {
    let (address, handle) = serve().await;
    for _ in 0..20 {
        // One hangs up before the response, one in the middle of the body.
        let mut stuck = http1(address).await;
        let waits = tokio::spawn(async move { stuck.send_request(request("/stuck")).await });
        let mut reads = http1(address).await;
        let mut response = reads.send_request(request("/endless")).await.unwrap();
        let frame = response.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "more");
        until("both are in flight", async || handle.in_flight(&()) == 2).await;
        waits.abort();
        drop((reads, response));
        until("both are over", async || handle.keys() == 0).await;
    }
    assert_whole(address, &handle).await;
}

/// Shows promise 180.
#[tokio::test]
async fn streams_that_are_reset_over_http2_release_their_permits() {
    let (address, handle) = serve().await;
    let sender = http2(address).await;
    let path = |path: &str| request(&format!("http://local{path}"));
    for _ in 0..20 {
        let mut clone = sender.clone();
        let stuck = path("/stuck");
        let waits = tokio::spawn(async move { clone.send_request(stuck).await });
        let mut response = sender.clone().send_request(path("/endless")).await.unwrap();
        let frame = response.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "more");
        until("both are in flight", async || handle.in_flight(&()) == 2).await;
        // The connection stays; the streams are reset.
        waits.abort();
        drop(response);
        until("both are over", async || handle.keys() == 0).await;
    }
    let response = sender.clone().send_request(path("/")).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_whole(address, &handle).await;
}
