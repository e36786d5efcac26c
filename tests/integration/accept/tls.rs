//! TLS on limited connections, in tonic.
#![cfg(feature = "tonic-tls")]

use std::io;

use tokio::{io::AsyncWriteExt, sync::mpsc};
use tonic::{
    codegen::tokio_stream::wrappers::ReceiverStream,
    transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower_throttle::{ClientIp, FixedWindow, Quota, RateLimitLayer, accept::ConnectionLimit};

use crate::accept::support::{ONE, bind, connect, is_reset};
use test_support::wait::until;

/// Shows promise 319.
#[tokio::test]
async fn a_connection_is_refused_before_tls_and_a_failed_handshake_frees_its_place() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = made.cert.pem();
    let identity = Identity::from_pem(&certificate, made.signing_key.serialize_pem());
    let limit = ConnectionLimit::new(1);
    let mut listener = limit.clone().listen(bind().await);
    let server = listener.local_addr().unwrap();
    let (sender, connections) = mpsc::channel(1);
    tokio::spawn(async move {
        while sender
            .send(Ok::<_, io::Error>(listener.accept().await.0))
            .await
            .is_ok()
        {}
    });
    let (_, health) = tonic_health::server::health_reporter();
    // The address of the peer is found through the connection.
    let requests = RateLimitLayer::new(ClientIp::peer(), FixedWindow::new(Quota::per_day(1)));
    let handle = requests.handle();
    let serving = Server::builder()
        .tls_config(ServerTlsConfig::new().identity(identity))
        .unwrap()
        .layer(requests)
        .add_service(health)
        .serve_with_incoming(ReceiverStream::new(connections));
    tokio::spawn(serving);

    // No TLS.
    let mut nonsense = connect(ONE, server).await;
    nonsense.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    until("it is accepted and closed", async || {
        limit.counts().accepted == 1 && limit.open(ONE) == 0
    })
    .await;

    let trusted = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&certificate))
        .domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{server}")).unwrap();
    let mut client = HealthClient::new(endpoint.tls_config(trusted).unwrap().connect_lazy());
    client.check(HealthCheckRequest::default()).await.unwrap();
    let here = ClientIp::peer().key(ONE);
    assert!(handle.peek_now(&here, 1).is_denied());
    assert!(is_reset(ONE, server).await);
    drop(client);
    until("it is closed", async || limit.open(ONE) == 0).await;
}
