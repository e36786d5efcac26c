//! A limit in a Redis server that speaks TLS with a certificate of its own.

use std::time::Duration;

use tower_throttle::store::{Backend, redis::Redis};
use tower_throttle::{FixedWindow, Quota, StoreError};

use redis::{Client, TlsCertificates};
use test_support::redis_tls::{TlsServer, certificate};

/// A client that trusts one certificate, for the server behind this port.
fn client_of(port: u16, trusted: &str) -> Client {
    let certificates = TlsCertificates {
        client_tls: None,
        root_cert: Some(trusted.as_bytes().to_vec()),
    };
    let url = format!("rediss://localhost:{port}");
    Client::build_with_tls(url, certificates).expect("a client")
}

/// A client that trusts one certificate.
fn client(server: &TlsServer, trusted: &str) -> Redis {
    Redis::with_client(client_of(server.port(), trusted)).deadline(Duration::from_secs(5))
}

async fn first_error(redis: Redis) -> StoreError {
    let limiter = redis.limiter("tls", FixedWindow::new(Quota::per_day(2)));
    limiter.decide("key", 1).await.expect_err("no connection")
}

/// Shows promise 97.
#[tokio::test]
async fn a_limit_works_over_tls_by_the_feature_alone() {
    let server = TlsServer::start();
    let redis = client(&server, &server.certificate);
    let limiter = redis.limiter("tls", FixedWindow::new(Quota::per_day(2)).anchored());
    for admitted in [true, true, false] {
        let decision = limiter.decide("key", 1).await.expect("a decision");
        assert_eq!(decision.is_admitted(), admitted);
    }
}

/// Shows promise 97.
#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_a_permanent_error() {
    let server = TlsServer::start();
    let (other, _) = certificate();
    let error = first_error(client(&server, &other)).await;
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
}
