//! Limits a gRPC server: `cargo run --example grpc --features tonic`
//!
//! The program starts tonic's health service on a free port, calls it until a call is denied, and
//! prints the gRPC status with its `RetryInfo`.

use std::error::Error;

use tonic::{
    Code,
    transport::{Endpoint, Server, server::TcpIncoming},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt;
use tower_throttle::{ClientIp, Quota, RateLimitLayer, TokenBucket};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // The same layer as for HTTP. A request with a gRPC content type gets a gRPC status.
    let limit = RateLimitLayer::new(ClientIp::peer(), TokenBucket::new(Quota::per_minute(3)));

    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?;
    let address = incoming.local_addr()?;
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(limit).add_service(health);
    tokio::spawn(server.serve_with_incoming(incoming));

    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    let mut client = HealthClient::new(endpoint.connect_lazy());
    let mut denied = 0;
    for n in 1..=4 {
        match client.check(HealthCheckRequest::default()).await {
            Ok(_) => println!("call {n}: served"),
            Err(status) => {
                let retry = status.get_details_retry_info();
                let delay = retry.and_then(|retry| retry.retry_delay);
                println!("call {n}: {:?}, {}", status.code(), status.message());
                println!("        RetryInfo: {delay:?}");
                assert_eq!(status.code(), Code::ResourceExhausted);
                assert!(delay.is_some());
                denied += 1;
            }
        }
    }
    assert_eq!(denied, 1);
    Ok(())
}
