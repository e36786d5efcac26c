//! The address of a peer over TLS.
#![cfg(feature = "tonic-tls")]

use std::sync::Arc;

use futures_util::stream::unfold;
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, rustls};
use tonic::{
    Code, Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Server},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower_throttle::{ClientIp, FixedWindow, Quota, RateLimitLayer, key::Missing};

async fn check(client: &mut HealthClient<Channel>) -> Result<(), Status> {
    client.check(HealthCheckRequest::default()).await.map(drop)
}

/// A limit refuses the second request of an address, and all whose address is not known. If the program accepts TLS
/// itself, tonic tells the address only with the certificates.
///
/// Shows promise 79.
#[tokio::test]
async fn the_address_of_a_tls_peer_is_found() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(ring);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth();
    let mut config = config
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = unfold((listener, acceptor), async |(listener, acceptor)| {
        let (connection, _) = listener.accept().await.unwrap();
        Some((acceptor.accept(connection).await, (listener, acceptor)))
    });
    let known = ClientIp::peer().if_missing(Missing::Reject(http::StatusCode::FORBIDDEN));
    let limit = RateLimitLayer::new(known.clone(), FixedWindow::new(Quota::per_day(1)));
    let handle = limit.handle();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(limit).add_service(health);
    tokio::spawn(server.serve_with_incoming(Box::pin(incoming)));
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
