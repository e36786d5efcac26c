//! Compares decisions in stores with a compare-and-swap with what the same client and server do
//! without this crate: a plain counter in PostgreSQL, a bare lightweight transaction in Cassandra.
//!
//! Starts the servers on free ports of the loopback interface. In every round each side uses its
//! server alone for a while, one after the other, so that other load on the machine affects all sides
//! alike.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;
use tokio_postgres::{Client, Statement};
use tower_throttle::store::Backend;
use tower_throttle::store::cas::cassandra::Cassandra;
use tower_throttle::store::cas::postgres::PostgreSql;
use tower_throttle::store::cas::{Cas, CasStore};
use tower_throttle::{FixedWindow, Quota};

use crate::row::{Effort, ends, median};

use test_support::cassandra_server::CassandraServer;
use test_support::postgres_server::PostgresServer;

/// So high that every request is admitted and written.
const LIMIT: u64 = 1_000_000_000;

pub(crate) fn run(effort: &Effort) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        if effort.wants("PostgreSQL") {
            postgres(effort).await;
        }
        if effort.wants("Cassandra") {
            cassandra(effort).await;
        }
    });
}

/// How many calls are in flight, for how many keys, and the goal: how many times the rate of that, at
/// least.
pub(crate) const WORK: [(usize, usize); 3] = [(1, 1_000), (64, 1_000), (64, 1)];

async fn postgres(effort: &Effort) {
    let server = PostgresServer::start();
    let client = Arc::new(server.client().await);
    let table = "CREATE UNLOGGED TABLE counters (key text PRIMARY KEY, count bigint NOT NULL) \
                 WITH (fillfactor = 50)";
    client.batch_execute(table).await.expect("a table");
    let upsert = "INSERT INTO counters VALUES ($1, 1) \
                  ON CONFLICT (key) DO UPDATE SET count = counters.count + 1 RETURNING count";
    let upsert = client.prepare(upsert).await.expect("a statement");
    let store = PostgreSql::open(&server.url()).expect("a URL");
    store.create_table().await.expect("a table");
    let limit = limit(store);
    // Alone, at most 1.15 times as long.
    let goals = [1.0 / 1.15, 0.9, 10.0];
    for (work, goal) in WORK.into_iter().zip(goals) {
        let (client, upsert) = (Arc::clone(&client), upsert.clone());
        let count = move |key: String| count_by_hand(Arc::clone(&client), upsert.clone(), key);
        compare(
            effort,
            ("PostgreSQL", "an upsert"),
            work,
            goal,
            &limit,
            count,
        )
        .await;
    }
}

async fn count_by_hand(client: Arc<Client>, upsert: Statement, key: String) {
    let row = client.query_one(&upsert, &[&key]).await.expect("a reply");
    assert!(row.get::<_, i64>(0) > 0);
}

async fn cassandra(effort: &Effort) {
    let server = CassandraServer::start();
    let session = Arc::new(server.session().await);
    for statement in [
        "CREATE KEYSPACE compare WITH replication = \
         {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE compare.counters (key text PRIMARY KEY, count bigint)",
    ] {
        let made = session.query_unpaged(statement, ()).await;
        made.expect("a right of the superuser");
    }
    // Its condition holds for every row, so each transaction writes.
    let update = "UPDATE compare.counters SET count = ? WHERE key = ? IF count != ?";
    let update = session.prepare(update).await.expect("a statement");
    let store = Cassandra::with_session(Arc::clone(&session));
    let store = store.table("compare.limits").expect("a name");
    store.create_table().await.expect("a table");
    let limit = limit(store);
    // Alone, at most 1.1 times as long; no goal for 64 keys at a time.
    let goals = [1.0 / 1.1, 0.0, 10.0];
    for (work, goal) in WORK.into_iter().zip(goals) {
        let (session, update) = (Arc::clone(&session), update.clone());
        let transact = move |key| transact_by_hand(Arc::clone(&session), update.clone(), key);
        let names = ("Cassandra", "a lightweight transaction");
        compare(effort, names, work, goal, &limit, transact).await;
    }
}

async fn transact_by_hand(session: Arc<Session>, update: PreparedStatement, key: String) {
    // Many at once for one key get into each other's way until the server gives up.
    let values = (1_i64, key, -1_i64);
    while session.execute_unpaged(&update, &values).await.is_err() {}
}

fn limit<S: CasStore>(store: S) -> Cas<S, FixedWindow> {
    // Whose states live for longer than the comparison takes.
    let window = FixedWindow::new(Quota::per_day(LIMIT));
    let limit = Cas::new(store, "compare", window).expect("a limit");
    // Long, so that no call gives up.
    limit.deadline(Duration::from_secs(30))
}

/// One call for a key.
pub(crate) trait Call: Fn(String) -> Self::Future + Clone + Send + Sync + 'static {
    type Future: Future<Output = ()> + Send;
}

impl<F, C> Call for F
where
    F: Fn(String) -> C + Clone + Send + Sync + 'static,
    C: Future<Output = ()> + Send,
{
    type Future = C;
}

/// The measurements of one side in all rounds.
#[derive(Default)]
pub(crate) struct Side {
    pub(crate) per_second: Vec<f64>,
    /// In microseconds.
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Side {
    /// Runs `in_flight` tasks, each of which makes one call after the other.
    pub(crate) async fn round(
        &mut self,
        (in_flight, keys): (usize, usize),
        length: Duration,
        call: impl Call,
    ) {
        let begun = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..in_flight {
            let call = call.clone();
            tasks.spawn(async move {
                let mut took = Vec::with_capacity(1 << 12);
                // No two tasks use the same key at the same time, unless there is only one.
                let mut number = task;
                while begun.elapsed() < length {
                    number += in_flight;
                    let at = Instant::now();
                    call(format!("key{}", number % keys)).await;
                    took.push(at.elapsed().as_secs_f64() * 1e6);
                }
                took
            });
        }
        let mut took = tasks.join_all().await.concat();
        took.sort_by(f64::total_cmp);
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
        self.per_second
            .push(took.len() as f64 / begun.elapsed().as_secs_f64());
        self.p50.push(at(0.5));
        self.p99.push(at(0.99));
    }
}

/// Compares by the rate, or for one call in flight by the median time, because the scheduler slows
/// down about one call in a hundred.
async fn compare<S: CasStore>(
    effort: &Effort,
    (store, by_hand): (&str, &str),
    work: (usize, usize),
    goal: f64,
    limit: &Cas<S, FixedWindow>,
    theirs: impl Call,
) {
    let length = Duration::from_millis(if effort.quick { 500 } else { 2_000 });
    let (mut ours, mut raw) = (Side::default(), Side::default());
    let decider = limit.clone();
    let decide = move |key: String| {
        let decided = decider.decide(key.as_str(), 1);
        async move { assert!(decided.await.expect("a decision").is_admitted()) }
    };
    // Connections, statements, and the record of each key.
    for key in 0..work.1 {
        decide(format!("key{key}")).await;
        theirs(format!("key{key}")).await;
    }
    let before = Backend::<str>::stats(limit);
    for _ in 0..effort.rounds() {
        raw.round(work, length, theirs.clone()).await;
        ours.round(work, length, decide.clone()).await;
    }
    let counts = Backend::<str>::stats(limit);

    let (one, other) = match work.0 {
        1 => (&raw.p50, &ours.p50),
        _ => (&ours.per_second, &raw.per_second),
    };
    let pairs = one.iter().zip(other);
    let ratios: Vec<_> = pairs.map(|(one, other)| one / other).collect();
    let (ratio, (least, most)) = (median(&ratios), ends(&ratios));
    let decisions: f64 = ours.per_second.iter().sum::<f64>() * length.as_secs_f64();
    let per_decision = |count: u64| count as f64 / decisions;
    let trips = per_decision(counts.store_calls - before.store_calls);
    let conflicts = per_decision(counts.conflicts - before.conflicts);
    let (in_flight, keys) = work;
    let name = format!("{store}: {in_flight} in flight, {keys} keys");
    if effort.json {
        println!(
            "{{\"work\":\"{name}\",\"peer\":\"{by_hand}\",\"ratio\":{ratio:.3},\"min\":{least:.3},\
             \"max\":{most:.3},\"goal\":{goal:.3},\"met\":{},\"trips\":{trips:.3},\
             \"conflicts\":{conflicts:.3}}}",
            ratio >= goal
        );
        return;
    }
    let verdict = match goal {
        0.0 => String::new(),
        goal if ratio >= goal => format!("  goal >= {goal:.2} met"),
        goal => format!("  goal >= {goal:.2} NOT MET"),
    };
    println!(
        "{name:<38} {:>9.0}/s  p50 {:>7.0} us  p99 {:>7.0} us  {by_hand} {:>9.0}/s  p50 {:>7.0} us  \
         ratio {ratio:.2} ({least:.2}-{most:.2}){verdict}  {trips:.2} trips and {conflicts:.2} \
         conflicts per decision",
        median(&ours.per_second),
        median(&ours.p50),
        median(&ours.p99),
        median(&raw.per_second),
        median(&raw.p50),
    );
}
