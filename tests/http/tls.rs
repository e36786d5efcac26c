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

/// A limit refuses the second request of an address, and all whose address is not known.
///
/// Shows promise 79.
#[tokio::test]
async fn the_address_of_a_tls_peer_is_found() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let identity = Identity::from_pem(made.cert.pem(), made.signing_key.serialize_pem());
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let known = ClientIp::peer().if_missing(Missing::Reject(http::StatusCode::FORBIDDEN));
    let limit = RateLimitLayer::new(known.clone(), FixedWindow::new(Quota::per_day(1)));
    let handle = limit.handle();
    let (_, health) = tonic_health::server::health_reporter();
    let tls = ServerTlsConfig::new().identity(identity);
    let mut server = Server::builder().tls_config(tls).unwrap().layer(limit);
    tokio::spawn(server.add_service(health).serve_with_incoming(incoming));
    let trusted = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(made.cert.pem()))
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
