//! Compare-and-swap, in PostgreSQL.

use std::time::Duration;

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::cas::postgres::PostgreSql;
use tower_throttle::store::cas::{Cas, CasBuilder};

use super::{Fault, Store, block_on};
use crate::postgres_server::PostgresServer;

/// A crash empties its table.
struct InPostgres(PostgresServer);

impl Store for InPostgres {
    type Limit = Cas<PostgreSql, AnyAlgorithm>;

    const NANOS_PER_MOMENT: u64 = 1;

    fn start() -> Self {
        let server = PostgresServer::start();
        let store = PostgreSql::open(&server.url()).expect("a URL");
        // The caller may be in a runtime.
        let made = std::thread::spawn(move || block_on(store.create_table()));
        made.join().expect("no panic").expect("a table");
        Self(server)
    }

    fn limit(&self, policy: &str, algorithm: AnyAlgorithm, deadline: Duration) -> Self::Limit {
        let store = PostgreSql::open(&self.0.url()).expect("a URL");
        let builder = CasBuilder::new(store).deadline(deadline);
        // Without a kept record each decision is at the store's time.
        let builder = builder.without_deny_cache().cached_keys(0);
        builder.build(policy, algorithm).expect("a limit")
    }

    /// Its network is tested with its connections.
    fn inflict(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::Killed => self.0.kill(),
            Fault::Stopped => self.0.signal("STOP"),
            Fault::Restarted => {
                self.0.kill();
                self.0.restart();
            }
            _ => return false,
        }
        true
    }

    fn heal(&mut self, fault: Fault) {
        match fault {
            Fault::Killed => self.0.restart(),
            Fault::Stopped => self.0.signal("CONT"),
            _ => {}
        }
    }
}

super::check!(InPostgres);
