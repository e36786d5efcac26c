//! gRPC-Web with tonic-web's client.

use std::net::SocketAddr;

use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tonic::{
    Code, Status,
    transport::{Server, server::TcpIncoming},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt;
use tonic_web::{GrpcWebClientLayer, GrpcWebLayer};
use tower::ServiceBuilder;
use tower_throttle::{FixedWindow, Global, Quota, RateLimitLayer};

fn once() -> FixedWindow {
    FixedWindow::new(Quota::per_day(1))
}

/// Sends two requests. Returns the status of the second one.
async fn refused(address: SocketAddr) -> Status {
    let browser = ServiceBuilder::new()
        .layer(GrpcWebClientLayer::new())
        .service(Client::builder(TokioExecutor::new()).build_http());
    let origin = format!("http://{address}").parse().unwrap();
    let mut client = HealthClient::with_origin(browser, origin);
    client.check(HealthCheckRequest::default()).await.unwrap();
    let second = client.check(HealthCheckRequest::default()).await;
    second.unwrap_err()
}

#[track_caller]
fn assert_retry_info(status: &Status) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(
        status
            .message()
            .starts_with("rate limit exceeded, retry in"),
        "{status:?}"
    );
    let retry = status.get_details_retry_info().unwrap();
    assert!(retry.retry_delay.unwrap().as_secs() > 0);
}

/// Shows promise 74.
#[tokio::test]
async fn clients_understand_a_limit_inside_the_grpc_web_layer() {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder()
        .accept_http1(true)
        .layer(GrpcWebLayer::new())
        .layer(RateLimitLayer::new(Global, once()))
        .add_service(health);
    tokio::spawn(server.serve_with_incoming(incoming));
    assert_retry_info(&refused(address).await);
}
