//! A real gRPC server and client.

use std::{net::SocketAddr, time::Duration};

use http_body::Body as _;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint, Server, server::TcpIncoming},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{FixedWindow, Global, Headers, Quota, RateLimitLayer, TokenBucket};

/// A gRPC health service behind a limit.
macro_rules! server {
    ($layer:expr) => {{
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap();
        let (_, health) = tonic_health::server::health_reporter();
        let server = Server::builder().layer($layer).add_service(health);
        tokio::spawn(server.serve_with_incoming(incoming));
        client(address)
    }};
}

fn client(address: SocketAddr) -> HealthClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    HealthClient::new(endpoint.connect_lazy())
}

async fn check(client: &mut HealthClient<Channel>) -> Result<(), Status> {
    client.check(HealthCheckRequest::default()).await.map(drop)
}

/// Shows promise 74.
#[tokio::test]
async fn tower_governor_15_and_modal_1216_a_denial_states_when_to_retry() {
    let limit =
        RateLimitLayer::new(Global, TokenBucket::new(Quota::per_hour(2))).headers(Headers::Draft11);
    let mut client = server!(limit);
    check(&mut client).await.unwrap();
    check(&mut client).await.unwrap();
    let status = check(&mut client).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(
        status
            .message()
            .starts_with("rate limit exceeded, retry in 1"),
        "{status:?}"
    );
    let info = status.get_details_retry_info().unwrap();
    let delay = info.retry_delay.unwrap();
    assert!((Duration::from_secs(1_790)..=Duration::from_secs(1_800)).contains(&delay));
    let details = tonic_types::pb::Status::from_details(&status);
    assert_eq!(details, (8, status.message().to_owned()));
    let metadata = |name: &str| status.metadata().get(name).unwrap().to_str().unwrap();
    let pushback: u128 = metadata("grpc-retry-pushback-ms").parse().unwrap();
    assert_eq!(pushback, delay.as_nanos().div_ceil(1_000_000));
    assert_eq!(metadata("retry-after"), "1800");
    assert_eq!(metadata("ratelimit"), r#""default";r=0;t=1800"#);
}

/// The code and the message in the details.
trait FromDetails {
    fn from_details(status: &Status) -> (i32, String);
}

impl FromDetails for tonic_types::pb::Status {
    fn from_details(status: &Status) -> (i32, String) {
        use prost::Message;
        let inside = Self::decode(status.details()).unwrap();
        (inside.code, inside.message)
    }
}

/// Shows promise 74.
#[tokio::test]
async fn a_denied_stream_ends_with_the_status() {
    let limit = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(1)));
    let mut client = server!(limit);
    let mut stream = client
        .watch(HealthCheckRequest::default())
        .await
        .unwrap()
        .into_inner();
    // The first request is served.
    assert!(stream.message().await.unwrap().is_some());
    let watched = client.watch(HealthCheckRequest::default());
    let refused = watched.await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(stream.message_is_still_open().await);
}

/// Whether the stream is still open.
trait StillOpen {
    async fn message_is_still_open(&mut self) -> bool;
}

impl<T> StillOpen for tonic::Streaming<T> {
    async fn message_is_still_open(&mut self) -> bool {
        use tokio_test::task;
        let mut next = task::spawn(self.message());
        next.poll().is_pending()
    }
}

/// Shows promise 74.
#[tokio::test]
async fn guardian_363_a_limit_is_not_bypassed_with_grpc() {
    let inner = service_fn(async |_: http::Request<()>| {
        Ok::<_, Status>(http::Response::new(tonic::body::Body::default()))
    });
    let service = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(1))).layer(inner);
    let http = http::Request::new(());
    assert_eq!(service.clone().oneshot(http).await.unwrap().status(), 200);
    for (asked, answered) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc-web+proto", "application/grpc-web+proto"),
        ("application/grpc-web-text", "application/grpc-web-text"),
    ] {
        let rpc = http::Request::post("/").header("content-type", asked);
        let rpc = rpc.header("te", "trailers").body(()).unwrap();
        let refused = service.clone().oneshot(rpc).await.unwrap();
        assert_eq!(refused.headers()["content-type"], answered);
        assert_eq!(refused.headers()["grpc-status"], "8");
        assert!(refused.body().is_end_stream(), "a response of headers only");
    }
}

/// Shows promise 79.
#[cfg(feature = "tonic")]
#[tokio::test]
async fn the_address_of_a_tonic_peer_is_found() {
    use tower_throttle::{ClientIp, key::Missing};

    let known = ClientIp::peer().if_missing(Missing::Reject(http::StatusCode::FORBIDDEN));
    let limit = RateLimitLayer::new(known, FixedWindow::new(Quota::per_day(1)));
    let mut client = server!(limit);
    check(&mut client).await.unwrap();
    let found = check(&mut client).await.unwrap_err().code();
    assert_eq!(found, Code::ResourceExhausted);
}
