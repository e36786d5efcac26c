//! Redis with TLS, behind a proxy that cannot read what it forwards.

use std::time::Duration;

use redis::{Client, TlsCertificates};
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::{cas::Cas, redis::Redis};

use super::{has_harmed, heal, inflict, limiter};
use crate::proxy::{Protocol, Proxy};
use crate::redis_tls::TlsServer;
use crate::suite::{Fault, Store};

struct OverTls {
    tls: TlsServer,
    proxy: Proxy,
}

impl Store for OverTls {
    type Limit = Cas<Redis, AnyAlgorithm>;

    fn start() -> Self {
        let tls = TlsServer::start();
        let proxy = Proxy::before(Protocol::Bytes, tls.port());
        Self { tls, proxy }
    }

    fn limit(&self, policy: &str, algorithm: AnyAlgorithm, deadline: Duration) -> Self::Limit {
        let certificates = TlsCertificates {
            client_tls: None,
            root_cert: Some(self.tls.certificate.clone().into_bytes()),
        };
        let url = format!("rediss://localhost:{}", self.proxy.port());
        let client = Client::build_with_tls(url, certificates).expect("a client");
        limiter(Redis::with_client(client), policy, algorithm, deadline)
    }

    fn inflict(&mut self, fault: Fault) -> bool {
        inflict(fault, &mut self.tls.server, &self.proxy);
        true
    }

    fn has_harmed(&self, fault: Fault) -> bool {
        has_harmed(fault, [&self.proxy])
    }

    fn heal(&mut self, fault: Fault) {
        assert!(self.has_harmed(fault), "{fault:?} harmed no reply");
        heal(fault, &mut self.tls.server, &self.proxy);
    }
}

crate::suite::check_way!(OverTls);
