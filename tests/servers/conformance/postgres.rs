//! Compare-and-swap, in PostgreSQL behind a proxy.

use std::{slice, time::Duration};

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::cas::Cas;
use tower_throttle::store::cas::postgres::PostgreSql;

use crate::postgres_server::PostgresServer;
use crate::proxy::{Protocol, Proxy};
use crate::suite::fleet::Port;
use crate::suite::vectors::Replay;
use crate::suite::{Fault, Servers, Store, block_on, twice, usual};
use crate::wait::connected;

/// A crash empties its table, unless it is logged.
struct InPostgres<const LOGGED: bool = false> {
    server: PostgresServer,
    proxy: Proxy,
}

impl<const LOGGED: bool> Store for InPostgres<LOGGED> {
    type Limit = Cas<PostgreSql, AnyAlgorithm>;

    fn start() -> Self {
        let server = PostgresServer::start();
        let store = PostgreSql::open(&server.url()).expect("a URL");
        let store = if LOGGED { store.logged() } else { store };
        // The caller may be in a runtime.
        let made =
            std::thread::spawn(move || block_on(connected(async || store.create_table().await)));
        made.join().expect("no panic").expect("a table");
        let proxy = Proxy::before(Protocol::PostgreSql, server.port());
        Self { server, proxy }
    }

    fn limit(&self, policy: &str, algorithm: AnyAlgorithm, deadline: Duration) -> Self::Limit {
        let limit = Cas::new(self.port(), policy, algorithm).expect("a limit");
        // Without a kept record each decision is at the store's time.
        let limit = limit.without_deny_cache().cached_keys(0);
        limit.deadline(deadline)
    }

    /// The replay decides on the server without the proxy.
    fn replay(&self) -> Replay {
        Replay::in_store(self.server.url())
    }

    /// A replay writes its keys in the table, and lets them expire.
    fn fault_after_replay(&self) -> Option<String> {
        let count = "SELECT count(*), count(*) FILTER (WHERE expires_at > extract(epoch FROM \
                     clock_timestamp()) * 1000000) FROM tower_throttle";
        let row = block_on(async {
            let client = self.server.client().await;
            client.query_one(count, &[]).await.expect("two counts")
        });
        let (keys, left): (i64, i64) = (row.get(0), row.get(1));
        (left > 0 || keys < 73).then(|| format!("{left} of {keys} keys left"))
    }

    fn faults() -> Vec<Fault<Self>> {
        let stops = |it: &mut Self| it.server.stop();
        let in_order = Fault::new("stopped in order, and started", stops, Self::restart);
        let mut faults = usual([!LOGGED, false]);
        faults.extend([in_order, twice()]);
        faults
    }
}

impl<const LOGGED: bool> Servers for InPostgres<LOGGED> {
    fn proxies(&self) -> &[Proxy] {
        slice::from_ref(&self.proxy)
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    fn restart(&mut self) {
        self.server.restart();
    }

    fn signal(&mut self, name: &str) {
        self.server.signal(name);
    }
}

impl<const LOGGED: bool> Port for InPostgres<LOGGED> {
    type Port = PostgreSql;

    fn port(&self) -> PostgreSql {
        let url = format!(
            "postgres://postgres@127.0.0.1:{}/postgres",
            self.proxy.port()
        );
        PostgreSql::open(&url).expect("a URL")
    }
}

crate::suite::check!(InPostgres);

/// The test of an unlogged table is one of the suite, which allows one limit more for what it forgets.
///
/// Shows promise 143.
#[test]
fn a_logged_table_admits_no_more_under_faults() {
    assert_eq!(crate::suite::chaos::fault::<InPostgres<true>>(), None);
}

crate::suite::fleet::check_fleet!(super::InPostgres);
crate::suite::check_vectors!(InPostgres);
