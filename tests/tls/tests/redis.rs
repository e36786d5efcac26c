//! A limit in a Redis server that speaks TLS with a certificate of its own.

#[path = "../../common/redis_server.rs"]
#[expect(dead_code, reason = "shared with the tests of the store")]
mod redis_server;

use std::{fs, net::TcpListener, path::PathBuf, time::Duration};

use redis::{Client, TlsCertificates};
use tower_throttle::store::{Backend, redis::Redis};
use tower_throttle::{FixedWindow, Quota, StoreError};

use self::redis_server::{RedisServer, Setup};

/// A server that accepts TLS, and its certificate.
struct TlsServer {
    _server: RedisServer,
    port: u16,
    certificate: String,
    folder: PathBuf,
}

impl TlsServer {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tls-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (certificate, key) = certificate();
        let paths = [("cert.pem", &certificate), ("key.pem", &key)].map(|(name, text)| {
            let path = folder.join(name);
            fs::write(&path, text).expect("a file");
            path.display().to_string()
        });
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("its address").port();
        drop(free);
        let server = Setup::default()
            .arguments(&["--tls-port", &port.to_string()])
            .arguments(&["--tls-cert-file", &paths[0], "--tls-key-file", &paths[1]])
            .arguments(&["--tls-ca-cert-file", &paths[0], "--tls-auth-clients", "no"])
            .start();
        Self {
            _server: server,
            port,
            certificate,
            folder,
        }
    }

    /// A client that trusts one certificate.
    fn client(&self, trusted: &str) -> Redis {
        let certificates = TlsCertificates {
            client_tls: None,
            root_cert: Some(trusted.as_bytes().to_vec()),
        };
        let url = format!("rediss://localhost:{}", self.port);
        let client = Client::build_with_tls(url, certificates).expect("a client");
        Redis::with_client(client).deadline(Duration::from_secs(5))
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A self-signed certificate for localhost, and its key.
fn certificate() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

async fn first_error(redis: Redis) -> StoreError {
    let limiter = redis.limiter("tls", FixedWindow::new(Quota::per_day(2)));
    limiter.decide("key", 1).await.expect_err("no connection")
}

#[tokio::test]
async fn a_limit_works_over_tls_by_the_feature_alone() {
    let server = TlsServer::start("limit");
    let redis = server.client(&server.certificate);
    let limiter = redis.limiter("tls", FixedWindow::new(Quota::per_day(2)).anchored());
    for admitted in [true, true, false] {
        let decision = limiter.decide("key", 1).await.expect("a decision");
        assert_eq!(decision.is_admitted(), admitted);
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_a_permanent_error() {
    let server = TlsServer::start("other");
    let (other, _) = certificate();
    let error = first_error(server.client(&other)).await;
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
}
