//! Limits the messages of clients: `cargo run --example grpc_messages --features stream,tonic`
//!
//! The program starts tonic's health service on a free port. Its first limit lets messages wait, and its second one
//! denies them.

use std::{error::Error, net::SocketAddr, time::Duration};

use tonic::{
    Code, Status,
    transport::{Endpoint, Server, server::TcpIncoming},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower_throttle::{ClientIp, Local, Quota, TokenBucket, stream::BodyLimitLayer};

type Layer = BodyLimitLayer<ClientIp, Local<TokenBucket>>;

/// Serves with a limit on the messages of each client.
fn serve(limit: Layer) -> Result<SocketAddr, Box<dyn Error>> {
    let limit = limit
        .grpc_messages()
        .on_denied(|denied| Status::from(denied).into());
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?;
    let address = incoming.local_addr()?;
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(limit).add_service(health);
    tokio::spawn(server.serve_with_incoming(incoming));
    Ok(address)
}

/// Sends ten messages. Returns how many were denied.
async fn send(address: SocketAddr) -> Result<usize, Box<dyn Error>> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    let mut client = HealthClient::new(endpoint.connect_lazy());
    let mut denied = 0;
    for _ in 0..10 {
        if let Err(status) = client.check(HealthCheckRequest::default()).await {
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            denied += 1;
        }
    }
    Ok(denied)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let bucket = TokenBucket::new(Quota::per_second(20).burst(5));
    let limit = BodyLimitLayer::requests(ClientIp::peer(), bucket);
    let begun = tokio::time::Instant::now();
    let denied = send(serve(limit)?).await?;
    println!(
        "paced:  10 messages in {:?}, {denied} denied",
        begun.elapsed()
    );
    assert_eq!(denied, 0);

    let bucket = TokenBucket::new(Quota::per_hour(20).burst(5));
    let limit = BodyLimitLayer::requests(ClientIp::peer(), bucket).max_wait(Duration::ZERO);
    let denied = send(serve(limit)?).await?;
    println!("denied: {denied} of 10 messages");
    assert_eq!(denied, 5);
    Ok(())
}
