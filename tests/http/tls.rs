//! The address of a peer over TLS.
#![cfg(feature = "tonic-tls")]

use tonic::{
    Code, Status,
    transport::{
        Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig,
        server::TcpIncoming,
    },
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower_throttle::{ClientIp, FixedWindow, Quota, RateLimitLayer, key::Missing};

async fn check(client: &mut HealthClient<Channel>) -> Result<(), Status> {
    client.check(HealthCheckRequest::default()).await.map(drop)
}

/// Shows promise 81.
#[tokio::test]
async fn the_address_of_a_tls_peer_is_found() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = made.cert.pem();
    let identity = Identity::from_pem(&certificate, made.signing_key.serialize_pem());

    let known = ClientIp::peer().if_missing(Missing::Reject(http::StatusCode::FORBIDDEN));
    let limit = RateLimitLayer::new(known.clone(), FixedWindow::new(Quota::per_day(1)));
    let handle = limit.handle();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder()
        .tls_config(ServerTlsConfig::new().identity(identity))
        .unwrap()
        .layer(limit)
        .add_service(health);
    tokio::spawn(server.serve_with_incoming(incoming));

    let trusted = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&certificate))
        .domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{address}")).unwrap();
    let mut client = HealthClient::new(endpoint.tls_config(trusted).unwrap().connect_lazy());
    check(&mut client).await.unwrap();
    let refused = check(&mut client).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");

    let here = known.key("127.0.0.1".parse().unwrap());
    assert!(handle.peek(&here, 1).await.unwrap().is_denied());
    let elsewhere = known.key("192.0.2.1".parse().unwrap());
    assert!(handle.peek(&elsewhere, 1).await.unwrap().is_admitted());
}
