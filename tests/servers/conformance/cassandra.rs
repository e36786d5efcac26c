//! The suite of all stores, in a real Cassandra behind a proxy.

use std::{
    slice,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use scylla::client::session_builder::SessionBuilder;
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::cas::Cas;
use tower_throttle::store::cas::cassandra::Cassandra;

use crate::{
    cassandra_server::CassandraServer,
    proxy::{Protocol, Proxy},
    suite::{Fault, Servers, Store, block_on, twice, usual, vectors::Replay},
};

/// The servers that no store uses: they take seconds to start.
type FreeServers = Mutex<Vec<CassandraServer>>;

/// Those of all tests that run. They end with the last test.
static SERVERS: Mutex<Weak<FreeServers>> = Mutex::new(Weak::new());
/// The number of tables so far.
static TABLES: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Keeps the servers until the test ends, which has a thread of its own.
    static SERVERS_OF_TEST: Arc<FreeServers> = {
        let mut shared = SERVERS.lock().expect("no panic");
        shared.upgrade().unwrap_or_else(|| {
            let servers = Arc::default();
            *shared = Arc::downgrade(&servers);
            servers
        })
    };
}

fn free_servers<T>(work: impl FnOnce(&mut Vec<CassandraServer>) -> T) -> T {
    SERVERS_OF_TEST.with(|servers| work(&mut servers.lock().expect("no panic")))
}

async fn make_table(server: &CassandraServer, table: &str) {
    let keyspace = "CREATE KEYSPACE IF NOT EXISTS test WITH replication = \
                    {'class': 'SimpleStrategy', 'replication_factor': 1}";
    let session = server.session().await;
    let made = session.query_unpaged(keyspace, ()).await;
    made.expect("a right of the superuser");
    let store = Cassandra::with_session(Arc::new(session));
    let store = store.table(table).expect("a name");
    store.create_table().await.expect("a table");
}

/// A table of its own.
struct InCassandra {
    /// `None` after it was given back.
    server: Option<CassandraServer>,
    proxy: Proxy,
    /// With its keyspace.
    table: String,
    store: Cassandra,
}

impl InCassandra {
    fn server(&mut self) -> &mut CassandraServer {
        self.server.as_mut().expect("it is given back at the end")
    }
}

impl Store for InCassandra {
    type Limit = Cas<Cassandra, AnyAlgorithm>;

    fn start() -> Self {
        let server = free_servers(Vec::pop).unwrap_or_else(CassandraServer::start);
        let table = format!("test.suite_{}", TABLES.fetch_add(1, Ordering::Relaxed));
        std::thread::scope(|scope| {
            // The caller may be in a runtime.
            let made = scope.spawn(|| block_on(make_table(&server, &table)));
            made.join().expect("no panic");
        });
        let proxy = Proxy::before(Protocol::Cassandra, server.port());
        let builder = SessionBuilder::new()
            .known_node(format!("127.0.0.1:{}", proxy.port()))
            .user("cassandra", "cassandra");
        let store = Cassandra::with_builder(builder);
        let store = store.table(&table).expect("a name");
        Self {
            server: Some(server),
            proxy,
            table,
            store,
        }
    }

    fn limit(&self, policy: &str, algorithm: AnyAlgorithm, deadline: Duration) -> Self::Limit {
        let limit = Cas::new(self.store.clone(), policy, algorithm).expect("a limit");
        // Without a kept record each decision is at the time of its reply.
        let limit = limit.without_deny_cache().cached_keys(0);
        limit.deadline(deadline)
    }

    /// The replay decides on the server without the proxy. Each of its decisions takes milliseconds.
    fn replay(&self) -> Replay {
        let server = self.server.as_ref().expect("it is given back at the end");
        let (node, table) = (server.node(), &self.table);
        Replay::in_store(format!("cassandra://cassandra:cassandra@{node}/{table}"))
    }

    /// It writes everything to its log before it replies.
    fn faults() -> Vec<Fault<Self>> {
        let mut faults = usual([false; 2]);
        faults.push(twice());
        faults
    }
}

impl Servers for InCassandra {
    fn proxies(&self) -> &[Proxy] {
        slice::from_ref(&self.proxy)
    }

    fn kill(&mut self) {
        self.server().kill();
    }

    fn restart(&mut self) {
        self.server().restart();
    }

    fn signal(&mut self, name: &str) {
        self.server().signal(name);
    }
}

impl Drop for InCassandra {
    fn drop(&mut self) {
        // After a failure it may be stopped.
        if !std::thread::panicking() {
            free_servers(|servers| servers.extend(self.server.take()));
        }
    }
}

crate::suite::check!(InCassandra, ignore = "it needs Java");
crate::suite::check_vectors!(InCassandra, ignore = "it needs Java");
