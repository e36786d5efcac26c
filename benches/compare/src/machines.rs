//! Many machines on one store, under a load that does not wait for decisions: what they admit of a
//! limit, and what the store has to do for it.
//!
//! A machine is a limiter with a connection of its own. The limits of all keys sum to [`LIMIT`].

use std::fs;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tower_throttle::algorithm::Portable;
use tower_throttle::store::Backend;
use tower_throttle::store::cas::postgres::{Connections, PostgreSql};
use tower_throttle::store::cas::{Cas, CasBuilder, CasStore};
use tower_throttle::store::redis::{Redis, RedisLimiter, Scripted};
use tower_throttle::{
    Decision, FixedWindow, Quota, SlidingLog, SlidingWindow, StoreError, TokenBucket,
};

use crate::redis::redis_server::RedisServer;
use crate::row::Effort;
use crate::stores::postgres_server::PostgresServer;

/// What all keys together may admit per second.
const LIMIT: u64 = 20_000;
/// Requests are sent in portions of this many milliseconds.
const PORTION: Duration = Duration::from_millis(5);
/// Before the measurement: connections are made, and each machine learns of the others.
const WARM_UP: u64 = 2;

/// One row of the table.
#[derive(Clone, Copy, Debug)]
struct Case {
    mode: Mode,
    algorithm: &'static str,
    machines: u64,
    keys: u64,
    /// Tenths of the limit.
    load: u64,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Exact,
    Cas(Place),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Redis,
    PostgreSql,
}

/// How the load is spread over the machines.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Even,
    /// A fifth of the machines has four fifths of the load.
    Skewed,
}

/// What happened, per second of the measurement.
#[derive(Default)]
struct Seen {
    admitted: Vec<AtomicU64>,
    denied: AtomicU64,
    errors: AtomicU64,
    /// Nanoseconds of the longest decision.
    longest: AtomicU64,
}

/// What a server has used since it was started.
#[derive(Clone, Copy, Debug)]
struct Used {
    commands: f64,
    cpu_seconds: f64,
}

/// A limiter of one machine.
trait Machine: Backend<u64, Future: Future<Output = Result<Decision, StoreError>>> + Clone {
    /// Writes that found another version.
    fn conflicts(&self) -> u64;
}

impl<A: Scripted> Machine for RedisLimiter<A>
where
    Self: Backend<u64> + Clone,
{
    fn conflicts(&self) -> u64 {
        0
    }
}

impl<S: CasStore, A: Portable> Machine for Cas<S, A>
where
    Self: Backend<u64> + Clone,
{
    fn conflicts(&self) -> u64 {
        self.counts().conflicts
    }
}

pub(crate) fn run(effort: &Effort) {
    let redis = RedisServer::start();
    let postgres = PostgresServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let store = PostgreSql::open(&postgres.url()).expect("a URL");
    runtime.block_on(store.create_table()).expect("a table");
    println!(
        "| mode | algorithm | machines | keys | load | shape | admitted of the limit (seconds) | errors | conflicts/s | commands/s | CPU | longest |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    for case in cases() {
        if effort.wants(&format!("{case:?}")) {
            runtime.block_on(measure(case, effort, &redis, &postgres));
        }
    }
}

/// The base, and then one column varies at a time.
fn cases() -> Vec<Case> {
    let base = |mode, machines| Case {
        mode,
        algorithm: "token bucket",
        machines,
        keys: 20,
        load: 20,
        shape: Shape::Even,
    };
    let mut cases = Vec::new();
    for mode in [
        Mode::Exact,
        Mode::Cas(Place::Redis),
        Mode::Cas(Place::PostgreSql),
    ] {
        let most = if mode == Mode::Cas(Place::PostgreSql) {
            32
        } else {
            64
        };
        let machines = [1, 2, 4, 8, 16, 32, 64].into_iter();
        cases.extend(machines.filter(|n| *n <= most).map(|n| base(mode, n)));
        for machines in [8, most] {
            let base = base(mode, machines);
            cases.push(Case { keys: 1, ..base });
            cases.push(Case {
                keys: 1_000,
                ..base
            });
            cases.extend([5, 10, 100].map(|load| Case { load, ..base }));
            cases.push(Case {
                shape: Shape::Skewed,
                ..base
            });
            let others = ["fixed window", "sliding window", "log"];
            cases.extend(others.map(|algorithm| Case { algorithm, ..base }));
        }
    }
    cases
}

async fn measure(case: Case, effort: &Effort, redis: &RedisServer, postgres: &PostgresServer) {
    let quota = Quota::per_second(LIMIT / case.keys);
    match case.algorithm {
        "token bucket" => {
            measure_with(case, effort, redis, postgres, TokenBucket::new(quota)).await
        }
        "fixed window" => {
            measure_with(case, effort, redis, postgres, FixedWindow::new(quota)).await
        }
        "sliding window" => {
            measure_with(case, effort, redis, postgres, SlidingWindow::new(quota)).await
        }
        _ => measure_with(case, effort, redis, postgres, SlidingLog::new(quota)).await,
    }
}

async fn measure_with<A>(
    case: Case,
    effort: &Effort,
    redis: &RedisServer,
    postgres: &PostgresServer,
    algorithm: A,
) where
    A: Scripted + Portable,
{
    let name = format!("{case:?}").replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let name = &name[name.len().saturating_sub(60)..];
    let machines = 0..case.machines;
    let redis_of = |_| Redis::open(&redis.url()).expect("a URL");
    let used = async || match case.mode {
        Mode::Exact | Mode::Cas(Place::Redis) => redis_used(redis),
        Mode::Cas(Place::PostgreSql) => postgres_used(postgres).await,
    };
    // A hot key of many machines has its turn of each within the deadline.
    let deadline = Duration::from_secs(1);
    match case.mode {
        Mode::Exact => {
            let of = |n| {
                redis_of(n)
                    .deadline(deadline)
                    .limiter(name, algorithm.clone())
            };
            drive(case, effort, machines.map(of).collect(), used).await;
        }
        Mode::Cas(Place::Redis) => {
            let of = |n| {
                CasBuilder::new(redis_of(n))
                    .deadline(deadline)
                    .build(name, algorithm.clone())
            };
            drive(
                case,
                effort,
                machines.map(|n| of(n).expect("a limit")).collect(),
                used,
            )
            .await;
        }
        Mode::Cas(Place::PostgreSql) => {
            let of = |_| {
                let connection = Connections::open(&postgres.url()).and_then(|one| one.size(1));
                let store = PostgreSql::new(connection.expect("a URL"));
                CasBuilder::new(store)
                    .deadline(deadline)
                    .build(name, algorithm.clone())
                    .expect("a limit")
            };
            drive(case, effort, machines.map(of).collect(), used).await;
        }
    }
}

/// Sends the load to all machines, and prints the row.
async fn drive<M: Machine>(
    case: Case,
    effort: &Effort,
    machines: Vec<M>,
    used: impl AsyncFn() -> Used,
) {
    let seconds: u64 = if effort.quick { 2 } else { 5 };
    let seen = Arc::new(Seen {
        admitted: (0..seconds).map(|_| AtomicU64::new(0)).collect(),
        ..Seen::default()
    });
    let begun = Instant::now();
    let first = begun + Duration::from_secs(WARM_UP);
    let mut senders = JoinSet::new();
    for (number, machine) in machines.iter().enumerate() {
        let per_second = rate_of(case, number as u64);
        senders.spawn(send(
            machine.clone(),
            case.keys,
            per_second,
            first,
            Arc::clone(&seen),
        ));
    }
    tokio::time::sleep_until(first.into()).await;
    let (before, conflicts) = (used().await, conflicts(&machines));
    senders.join_all().await;
    let (after, conflicts) = (used().await, self::conflicts(&machines) - conflicts);
    let admitted: Vec<u64> = seen
        .admitted
        .iter()
        .map(|count| count.load(Ordering::Relaxed))
        .collect();
    let share = |count: u64| count as f64 / LIMIT as f64;
    let total: u64 = admitted.iter().sum();
    let errors = seen.errors.load(Ordering::Relaxed);
    let calls = total + errors + seen.denied.load(Ordering::Relaxed);
    println!(
        "| {:?} | {} | {} | {} | {} | {:?} | {:.3} ({:.2}-{:.2}) | {:.2} % | {} | {:.0} | {:.0} % | {} ms |",
        case.mode,
        case.algorithm,
        case.machines,
        case.keys,
        case.load as f64 / 10.0,
        case.shape,
        share(total) / seconds as f64,
        share(admitted.iter().copied().min().unwrap_or(0)),
        share(admitted.iter().copied().max().unwrap_or(0)),
        100.0 * errors as f64 / calls.max(1) as f64,
        conflicts / seconds,
        (after.commands - before.commands) / seconds as f64,
        100.0 * (after.cpu_seconds - before.cpu_seconds) / seconds as f64,
        seen.longest.load(Ordering::Relaxed) / 1_000_000,
    );
}

fn conflicts<M: Machine>(machines: &[M]) -> u64 {
    machines.iter().map(Machine::conflicts).sum()
}

/// Requests per second of one machine.
fn rate_of(case: Case, machine: u64) -> f64 {
    let all = (LIMIT * case.load / 10) as f64;
    let busy = case.machines.div_ceil(5);
    match case.shape {
        Shape::Skewed if case.machines > busy && machine < busy => all * 0.8 / busy as f64,
        Shape::Skewed if case.machines > busy => all * 0.2 / (case.machines - busy) as f64,
        _ => all / case.machines as f64,
    }
}

/// Sends requests at a steady rate until the measurement ends, whether earlier ones have their
/// decisions or not.
async fn send<M: Machine>(machine: M, keys: u64, per_second: f64, first: Instant, seen: Arc<Seen>) {
    let length = Duration::from_secs(seen.admitted.len() as u64);
    let begun = Instant::now();
    let mut sent = 0_u64;
    let mut calls = JoinSet::new();
    while first.elapsed() < length || Instant::now() < first {
        let due = (begun.elapsed().as_secs_f64() * per_second) as u64;
        for number in sent..due {
            let call = decide(machine.clone(), number % keys, first, Arc::clone(&seen));
            let mut call = Box::pin(call);
            // A decision in memory needs no task.
            if pin!(&mut call).poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending {
                calls.spawn(call);
            }
        }
        sent = due;
        while calls.try_join_next().is_some() {}
        tokio::time::sleep(PORTION).await;
    }
    calls.join_all().await;
}

/// One request. It counts in the second in which it was sent.
async fn decide<M: Machine>(machine: M, key: u64, first: Instant, seen: Arc<Seen>) {
    let sent_at = Instant::now();
    let decision = machine.decide(&key, 1).await;
    let Some(second) = sent_at.checked_duration_since(first) else {
        return;
    };
    let took = u64::try_from(sent_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
    seen.longest.fetch_max(took, Ordering::Relaxed);
    let count = match decision {
        Ok(decision) if decision.is_admitted() => seen.admitted.get(second.as_secs() as usize),
        Ok(_) => Some(&seen.denied),
        Err(_) => Some(&seen.errors),
    };
    if let Some(count) = count {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn redis_used(server: &RedisServer) -> Used {
    let info: String = redis::cmd("INFO")
        .arg("everything")
        .query(&mut server.connection())
        .expect("statistics");
    let figure = |name: &str| {
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map_or(0.0, |figure| figure.trim().parse().expect("a number"))
    };
    Used {
        commands: figure("total_commands_processed"),
        cpu_seconds: figure("used_cpu_user") + figure("used_cpu_sys"),
    }
}

/// The processes of the connections stay as long as the limiters.
async fn postgres_used(server: &PostgresServer) -> Used {
    let figures = "SELECT sum(xact_commit)::bigint, (SELECT array_agg(pid) FROM pg_stat_activity) \
                   FROM pg_stat_database";
    let row = server.client().await.query_one(figures, &[]).await;
    let row = row.expect("statistics");
    let ticks = row.get::<_, Vec<i32>>(1).into_iter().map(|process| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // After the name in parentheses: the state, and ten figures before the two of the time.
        let figures = stat.rsplit(')').next().unwrap_or_default();
        let ticks = figures.split_whitespace().skip(11).take(2);
        ticks
            .filter_map(|ticks| ticks.parse::<u64>().ok())
            .sum::<u64>()
    });
    Used {
        commands: row.get::<_, i64>(0) as f64,
        cpu_seconds: ticks.sum::<u64>() as f64 / 100.0,
    }
}
