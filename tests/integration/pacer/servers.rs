//! Real servers and clients: axum, tonic, nginx.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{Router, routing::get};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{task::JoinSet, time::Instant};
use tonic::transport::{Endpoint, Server, server::TcpIncoming};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt;
use tower::{
    BoxError, Layer, Service, ServiceBuilder, ServiceExt, layer::util::Identity,
    util::BoxCloneService,
};
use tower_throttle::{
    FixedWindow, Global, Headers, Quota, RateLimitLayer,
    client::{Host, PacerLayer},
};

use test_support::nginx::Nginx;

type Body = Empty<Bytes>;
type HttpClient = BoxCloneService<Request<Body>, Response<Incoming>, BoxError>;

/// A hyper client that counts the denials of its server.
#[derive(Clone)]
struct Counting {
    client: HttpClient,
    denied: Arc<AtomicUsize>,
}

impl Counting {
    fn new() -> Self {
        let denied = Arc::new(AtomicUsize::new(0));
        let count = denied.clone();
        let client = ServiceBuilder::new()
            .map_response(move |response: Response<Incoming>| {
                let is_denied = matches!(response.status().as_u16(), 429 | 503);
                count.fetch_add(usize::from(is_denied), Ordering::Relaxed);
                response
            })
            .map_err(BoxError::from)
            .service(Client::builder(TokioExecutor::new()).build_http::<Body>());
        let client = BoxCloneService::new(client);
        Self { client, denied }
    }
}

/// How many of `requests` requests are served, and how many the server denies, sent by 20 tasks.
async fn load<L, S>(address: SocketAddr, requests: usize, layer: L) -> (usize, usize)
where
    L: Layer<HttpClient, Service = S>,
    S: Service<Request<Body>, Response = Response<Incoming>, Error = BoxError>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let counting = Counting::new();
    let client = layer.layer(counting.client);
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let (client, next) = (client.clone(), next.clone());
        tasks.spawn(async move {
            let mut served = 0;
            while next.fetch_add(1, Ordering::Relaxed) < requests {
                let request = Request::get(format!("http://{address}/"))
                    .body(Empty::new())
                    .unwrap();
                let response = client.clone().oneshot(request).await;
                served += usize::from(response.is_ok_and(|response| response.status() == 200));
            }
            served
        });
    }
    let served = tasks.join_all().await.into_iter().sum();
    (served, counting.denied.load(Ordering::Relaxed))
}

async fn axum_server(headers: Headers) -> SocketAddr {
    let limit =
        RateLimitLayer::new(Global, FixedWindow::new(Quota::per_second(20))).headers(headers);
    let app: Router = Router::new().route("/", get(async || "fine").layer(limit));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });
    address
}

/// Shows promise 310.
#[tokio::test]
async fn a_server_that_states_its_limit_has_nothing_to_deny() {
    let mut forms = JoinSet::new();
    for headers in [
        Headers::Draft11,
        Headers::Draft6,
        Headers::XRateLimitDelta,
        Headers::XRateLimitEpoch,
    ] {
        forms.spawn(async move {
            let (served, denied) = load(axum_server(headers).await, 60, Identity::new()).await;
            assert_eq!(served + denied, 60);
            assert!(denied > 0, "{headers:?}: the limit is not too large");
            let paced = load(axum_server(headers).await, 60, PacerLayer::new(Host)).await;
            println!(
                "{headers:?}: {denied} of 60 denied, with the layer {}",
                paced.1
            );
            assert_eq!(paced, (60, 0), "{headers:?}");
        });
    }
    forms.join_all().await;
}

/// An nginx that admits 20 requests per second, spaced, and denies with `status` and this line.
fn nginx(status: u16, line: &str) -> Nginx {
    let http = |address: SocketAddr, place: &str| {
        format!(
            "limit_req_zone $server_port zone=all:1m rate=20r/s;
            server {{ listen {address}; root {place};
                location / {{ limit_req zone=all; limit_req_status {status}; {line} }} }}"
        )
    };
    Nginx::start(http)
}

const RETRY_AFTER: &str = "add_header Retry-After 1 always;";

/// nginx states no limit: the client has to find it out.
#[tokio::test]
async fn nginx_limit_req_is_obeyed() {
    let mut forms = JoinSet::new();
    for (status, line) in [(429, RETRY_AFTER), (503, RETRY_AFTER), (429, "")] {
        forms.spawn(async move {
            let nginx = nginx(status, line);
            let (served, denied) = load(nginx.address, 60, Identity::new()).await;
            assert_eq!(served + denied, 60);
            let paced = load(nginx.address, 60, PacerLayer::new(Host)).await;
            println!(
                "nginx {status} {line:?}: {denied} of 60 denied, with the layer {}",
                paced.1
            );
            assert!(paced.1 < denied, "{paced:?} of {denied}");
        });
    }
    forms.join_all().await;
}

/// A gRPC health service behind a limit.
macro_rules! grpc_server {
    ($layer:expr) => {{
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap();
        let (_, health) = tonic_health::server::health_reporter();
        let server = Server::builder().layer($layer).add_service(health);
        tokio::spawn(server.serve_with_incoming(incoming));
        Endpoint::from_shared(format!("http://{address}"))
            .unwrap()
            .connect_lazy()
    }};
}

/// Shows promise 310.
#[tokio::test]
async fn a_tonic_channel_waits_for_the_time_of_a_denial() {
    // Without headers.
    let channel = grpc_server!(RateLimitLayer::new(
        Global,
        FixedWindow::new(Quota::per_second(1))
    ));
    let layer = ServiceBuilder::new()
        .layer(PacerLayer::new(Global))
        .map_err(BoxError::from);
    let mut client = HealthClient::new(layer.service(channel));
    let (start, status) = loop {
        // The window may end between two requests.
        let start = Instant::now();
        if let Err(status) = client.check(HealthCheckRequest::default()).await {
            break (start, status);
        }
    };
    let info = status.get_details_retry_info().unwrap();
    let delay = info.retry_delay.unwrap();
    client.check(HealthCheckRequest::default()).await.unwrap();
    let took = start.elapsed();
    assert!(took >= delay, "{took:?} of {delay:?}");
}
