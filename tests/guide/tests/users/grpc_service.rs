//! A tonic server: one of its services is limited by an API key in the metadata, and health checks are free.

use http::StatusCode;
use tonic::service::LayerExt;
use tonic::transport::{Server, server::TcpIncoming};
use tower_throttle::{HeaderKey, Quota, RateLimitLayer, TokenBucket, key::Missing};

async fn serve(incoming: TcpIncoming) -> Result<(), tonic::transport::Error> {
    let (_, health) = tonic_health::server::health_reporter();
    // Metadata are headers.
    let key = HeaderKey::new("x-api-key").if_missing(Missing::Reject(StatusCode::UNAUTHORIZED));
    let limit = RateLimitLayer::new(key, TokenBucket::new(Quota::per_hour(60).burst(3)));
    Server::builder()
        .add_service(limit.named_layer(Orders))
        .add_service(health)
        .serve_with_incoming(incoming)
        .await
}

// ---- In place of what tonic makes of a .proto file.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tonic::{Status, body::Body, server::NamedService};
use tonic_prost::ProstCodec;
use tower::Service;

#[derive(Clone)]
struct Orders;

impl NamedService for Orders {
    const NAME: &'static str = "shop.Orders";
}

impl Service<http::Request<Body>> for Orders {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async {
            let place = |order: tonic::Request<String>| async move {
                Ok::<_, Status>(tonic::Response::new(format!("ordered {}", order.get_ref())))
            };
            let codec = ProstCodec::<String, String>::default();
            let mut grpc = tonic::server::Grpc::new(codec);
            Ok(grpc.unary(tower::service_fn(place), request).await)
        })
    }
}

// ---- What its users see.

use std::time::Duration;

use http::uri::PathAndQuery;
use tonic::{
    Code,
    client::Grpc,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt;

fn start() -> Channel {
    let address = "127.0.0.1:0".parse().expect("an address");
    let incoming = TcpIncoming::bind(address).expect("a port");
    let address = incoming.local_addr().expect("an address");
    tokio::spawn(serve(incoming));
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    endpoint.expect("an address").connect_lazy()
}

/// Orders a book, with this API key in the metadata.
async fn order(channel: &Channel, key: Option<&'static str>) -> Result<String, Status> {
    let mut request = tonic::Request::new("a book".to_owned());
    if let Some(key) = key {
        let key = key.parse().expect("ASCII");
        request.metadata_mut().insert("x-api-key", key);
    }
    let mut client = Grpc::new(channel.clone());
    client.ready().await.expect("a connection");
    let path = PathAndQuery::from_static("/shop.Orders/Place");
    let codec = ProstCodec::<String, String>::default();
    let response = client.unary(request, path, codec).await?;
    Ok(response.into_inner())
}

#[tokio::test]
async fn each_api_key_has_its_own_limit_and_a_denial_says_when_to_retry() {
    let channel = start();
    for key in ["ann", "bob"] {
        for _ in 0..3 {
            let ordered = order(&channel, Some(key)).await;
            assert_eq!(ordered.expect("it is admitted"), "ordered a book");
        }
        let denied = order(&channel, Some(key)).await.expect_err("it is denied");
        assert_eq!(denied.code(), Code::ResourceExhausted);
        let wait = denied.get_details_retry_info();
        let wait = wait.and_then(|info| info.retry_delay).expect("a time");
        assert!(
            wait > Duration::from_secs(30) && wait <= Duration::from_mins(1),
            "{wait:?}"
        );
    }
}

#[tokio::test]
async fn a_call_without_a_key_is_unauthenticated() {
    let rejected = order(&start(), None).await.expect_err("it has no key");
    assert_eq!(rejected.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn health_checks_are_not_limited_while_orders_are() {
    let channel = start();
    while order(&channel, Some("ann")).await.is_ok() {}
    let mut health = HealthClient::new(channel);
    for _ in 0..20 {
        let checked = health.check(HealthCheckRequest::default()).await;
        checked.expect("health checks have no limit");
    }
}

/// The same limit on the whole server, to show that the check finds it.
#[tokio::test]
async fn a_limit_on_the_whole_server_denies_health_checks_too() {
    let address = "127.0.0.1:0".parse().expect("an address");
    let incoming = TcpIncoming::bind(address).expect("a port");
    let address = incoming.local_addr().expect("an address");
    let (_, health) = tonic_health::server::health_reporter();
    let bucket = TokenBucket::new(Quota::per_hour(60).burst(3));
    let limit = RateLimitLayer::new(HeaderKey::new("x-api-key"), bucket);
    let server = Server::builder().layer(limit).add_service(health);
    tokio::spawn(server.serve_with_incoming(incoming));
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    let mut health = HealthClient::new(endpoint.expect("an address").connect_lazy());
    let mut denied = 0;
    for _ in 0..5 {
        let checked = health.check(HealthCheckRequest::default()).await;
        denied += usize::from(checked.is_err());
    }
    assert_eq!(denied, 2);
}
