//! Batches as transactions of a real PostgreSQL.

use std::{future::poll_fn, task::Poll};

use super::*;
use crate::store::cas::postgres::PostgreSql;

use test_support::{pooler::Pooler, postgres_server::PostgresServer};

type Machine = Arc<Shared<PostgreSql>>;

/// The store of a machine with one connection for transactions.
fn open(url: &str, table: &str) -> PostgreSql {
    let store = PostgreSql::open(url).and_then(|store| store.connections(1));
    let store = store.and_then(|store| store.table(table)).unwrap();
    patient(store)
}

/// A busy machine may let 16 transactions wait for longer than a second, or stop in one.
fn patient(store: PostgreSql) -> PostgreSql {
    let store = store.with_mistake("timeout = '1s'", "timeout = '20s'");
    store.with_mistake("'50ms'", "'20s'")
}

fn machine(store: PostgreSql) -> Machine {
    Arc::new(Shared::new(store, Duration::from_secs(20)))
}

/// Sixteen machines on a table made anew.
async fn machines(
    server: &PostgresServer,
    table: &str,
    store: impl Fn() -> PostgreSql,
) -> Vec<Machine> {
    open(&server.url(), table).create_table().await.unwrap();
    (0..16).map(|_| machine(store())).collect()
}

/// Shows promise 202.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_wait_for_each_other_and_lose_nothing() {
    let server = PostgresServer::shared();
    let all = machines(&server, "waits", || open(&server.url(), "waits")).await;
    assert_eq!(used_by_all(&all).await, Ok(ALL));
    let order = ("ORDER BY k.key COLLATE \"C\"", "");
    let queue = ("$2::text", "$2::text || random()");
    let slow = ("$3::bigint", "$3::bigint + length(pg_sleep(0.01)::text)");
    let begin = ("BEGIN ISOLATION LEVEL READ COMMITTED;", "");
    // The rows alone are enough, but not in any order, and not without a transaction.
    let cases: [(_, _, &[_]); 4] = [
        ("unqueued", true, &[queue]),
        ("slow", true, &[queue, slow]),
        ("unordered", false, &[queue, order, slow]),
        ("unlocked", false, &[begin]),
    ];
    for (table, is_right, mistakes) in cases {
        let store = || {
            let store = open(&server.url(), table);
            let mistakes = mistakes.iter();
            mistakes.fold(store, |store, (right, wrong)| {
                store.with_mistake(right, wrong)
            })
        };
        let all = machines(&server, table, store).await;
        let used = used_by_all(&all).await;
        assert_eq!(used == Ok(ALL), is_right, "{table}: {used:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_with_serializable_transactions_by_default() {
    let server = PostgresServer::shared();
    let role = "CREATE ROLE strict LOGIN SUPERUSER; \
                ALTER ROLE strict SET default_transaction_isolation = 'serializable'";
    server.client().await.batch_execute(role).await.unwrap();
    let url = server.url_of("strict");
    let all = machines(&server, "strict", || open(&url, "strict")).await;
    assert_eq!(used_by_all(&all).await, Ok(ALL));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_behind_a_pooler_in_transaction_mode() {
    let server = PostgresServer::shared();
    let pooler = Pooler::before(&server, "auth_type = any");
    let store = || {
        let store = PostgreSql::open(&pooler.url()).unwrap().behind_pooler();
        patient(store.table("pooled").unwrap())
    };
    let all = machines(&server, "pooled", store).await;
    assert_eq!(used_by_all(&all).await, Ok(ALL));
}

#[tokio::test]
async fn a_row_that_has_expired_counts_as_none() {
    let server = PostgresServer::shared();
    let client = server.client().await;
    for (table, is_expired, used) in [("kept", "false", 6), ("expired", "true", 3)] {
        let machine = &machines(&server, table, || open(&server.url(), table)).await[0];
        let first = Flights::of(machine, &batch(8, 1, 3));
        exchange_all(machine, &first).await.unwrap();
        let expire = format!("UPDATE {table} SET expires_at = 1 WHERE {is_expired}");
        client.batch_execute(&expire).await.unwrap();
        let second = Flights::of(machine, &batch(8, 2, 3));
        exchange_all(machine, &second).await.unwrap();
        assert_eq!(taken(machine, "a").await.0, used);
    }
}

/// Cancelled after each of its steps: neither is a lock held then, nor is half of it executed.
///
/// Shows promise 202.
#[tokio::test]
async fn a_batch_that_is_cancelled_leaves_no_transaction() {
    let server = PostgresServer::shared();
    let client = server.client().await;
    let url = format!("{}?application_name=cancelled", server.url());
    let all = machines(&server, "cancelled", || open(&url, "cancelled")).await;
    let sessions = "SELECT array_agg(pid ORDER BY pid) FROM pg_stat_activity \
                    WHERE application_name = 'cancelled'";
    let mut first = Vec::<i32>::new();
    for polls in 1_u32.. {
        let sequence = u64::from(polls);
        let own = Flights::of(&all[0], &batch(8, sequence, 1));
        let mut exchanging = Box::pin(exchange_all(&all[0], &own));
        let mut left = polls;
        let ended = poll_fn(|context| {
            left -= 1;
            let polled = exchanging.as_mut().poll(context).is_ready();
            if polled || left == 0 {
                Poll::Ready(polled)
            } else {
                Poll::Pending
            }
        });
        let ended = ended.await;
        drop(exchanging);
        let other = Flights::of(&all[1], &batch(9, sequence, 1));
        exchange_all(&all[1], &other).await.unwrap();
        assert_eq!(taken(&all[1], "a").await.0, taken(&all[1], "b").await.0);
        exchange_all(&all[0], &own).await.unwrap();
        assert_eq!(taken(&all[1], "a").await.0, 2 * i64::from(polls));
        // A session that had held a lock would have been ended by the server.
        let now: Vec<i32> = client.query_one(sessions, &[]).await.unwrap().get(0);
        if first.is_empty() {
            first.clone_from(&now);
        }
        assert_eq!(now, first);
        if ended {
            break;
        }
    }
}
