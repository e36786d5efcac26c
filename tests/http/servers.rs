//! Real servers on the loopback interface, and many clients.

use std::{convert::Infallible, net::SocketAddr};

use axum::{Extension, Router, routing::get};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::{body::Incoming, client::conn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, ServiceBuilder, service_fn};
use tower_throttle::{
    ClientIp, Decision, FixedWindow, Global, Quota, RateLimitLayer,
    key::{Missing, PeerAddr},
};

fn window(limit: u64) -> FixedWindow {
    FixedWindow::new(Quota::per_day(limit)).anchored()
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Sends `requests` requests over one connection. Returns the responses.
async fn requests(address: SocketAddr, h2: bool, requests: usize) -> Vec<Response<Bytes>> {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let mut responses = Vec::new();
    let request = || {
        let uri = format!("http://{address}/");
        Request::get(uri)
            .header("host", "local")
            .body(Empty::<Bytes>::new())
            .unwrap()
    };
    if h2 {
        let (mut sender, connection) = conn::http2::handshake(TokioExecutor::new(), stream)
            .await
            .unwrap();
        tokio::spawn(connection);
        for _ in 0..requests {
            let response = sender.send_request(request()).await.unwrap();
            responses.push(collected(response).await);
        }
    } else {
        let (mut sender, connection) = conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..requests {
            let response = sender.send_request(request()).await.unwrap();
            responses.push(collected(response).await);
        }
    }
    responses
}

async fn collected(response: Response<Incoming>) -> Response<Bytes> {
    let (head, body) = response.into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

/// A server without a framework, which adds the peer address to its requests.
async fn hyper_server<L>(layer: L) -> SocketAddr
where
    L: Layer<tower::util::ServiceFn<fn(Request<Incoming>) -> Ready>> + Send + Clone + 'static,
    L::Service: tower::Service<
            Request<Incoming>,
            Response = Response<Full<Bytes>>,
            Error = Infallible,
            Future: Send,
        > + Clone
        + Send,
{
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let hello: fn(_) -> Ready =
                |_| std::future::ready(Ok(Response::new(Full::from("hello"))));
            let service = ServiceBuilder::new()
                .map_request(move |mut request: Request<Incoming>| {
                    request.extensions_mut().insert(PeerAddr(peer));
                    request
                })
                .layer(layer.clone())
                .service(service_fn(hello));
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let service = TowerToHyperService::new(service);
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

type Ready = std::future::Ready<Result<Response<Full<Bytes>>, Infallible>>;

/// Shows promise 79.
#[tokio::test]
async fn the_address_of_a_hyper_peer_is_found() {
    let known = ClientIp::peer().if_missing(Missing::Reject(StatusCode::FORBIDDEN));
    let address = hyper_server(RateLimitLayer::new(known, window(1))).await;
    let statuses = async |h2| {
        let responses = requests(address, h2, 1).await;
        responses[0].status().as_u16()
    };
    assert_eq!(statuses(false).await, 200);
    assert_eq!(statuses(true).await, 429);
}

#[tokio::test]
async fn a_handler_sees_the_decision_and_an_outer_layer_sees_the_reason() {
    use tower::ServiceExt;
    let left = async |Extension(decision): Extension<Decision>| decision.remaining().to_string();
    let limit = RateLimitLayer::new(Global, window(2)).share_decision();
    let app = Router::new().route("/", get(left)).layer(limit);
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let request = Request::new(axum::body::Body::empty());
        let response = app.clone().oneshot(request).await.unwrap();
        bodies.push(response.into_body().collect().await.unwrap().to_bytes());
    }
    assert_eq!(bodies, ["1", "0"]);
    let request = Request::new(axum::body::Body::empty());
    let response = app.oneshot(request).await.unwrap();
    assert!(
        response
            .extensions()
            .get::<tower_throttle::RateLimited>()
            .is_some()
    );
}

/// Shows promise 49.
#[tokio::test]
async fn the_body_of_a_denied_request_is_not_read() {
    use tower::ServiceExt;

    struct Untouched;

    impl http_body::Body for Untouched {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
            panic!("the body was read")
        }
    }

    let limit = RateLimitLayer::new(Global, window(1)).cost(|_: &_| 2);
    let read = axum::routing::post(async |body: String| body);
    let app = Router::new().route("/", read).layer(limit);
    let request = || {
        let body = axum::body::Body::new(Untouched);
        Request::post("/").body(body).unwrap()
    };
    assert_eq!(app.clone().oneshot(request()).await.unwrap().status(), 429);

    // A planted bug: a service that reads the body before the limit decides.
    let greedy = axum::middleware::map_request(async |request: axum::extract::Request| {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 100).await.unwrap();
        Request::from_parts(parts, axum::body::Body::from(body))
    });
    let seen = tokio::spawn(app.layer(greedy).oneshot(request())).await;
    assert!(seen.unwrap_err().is_panic());
}

#[cfg(feature = "axum")]
mod with_axum {

    use super::*;

    /// Shows promise 79.
    #[tokio::test]
    async fn the_address_of_an_axum_peer_is_found() {
        let known = ClientIp::peer().if_missing(Missing::Reject(StatusCode::FORBIDDEN));
        let limit = RateLimitLayer::new(known, window(1));
        let app = Router::new().route("/", get(async || ())).layer(limit);

        let (listener, address) = listen().await;
        let forgetful = app.clone();
        tokio::spawn(async { axum::serve(listener, forgetful).await });
        assert_eq!(requests(address, false, 1).await[0].status(), 403);

        let (listener, address) = listen().await;
        let make = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async { axum::serve(listener, make).await });
        let responses = requests(address, false, 2).await;
        assert_eq!(responses[0].status(), 200);
        assert_eq!(responses[1].status(), 429);
    }
}
