//! Processes that share limits in real servers: what they admit beside the limit and the bound, and
//! what the server has to do for it.

use std::fmt::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tower_throttle::store::Backend;
use tower_throttle::store::cas::postgres::PostgreSql;
use tower_throttle::store::redis::Redis;
use tower_throttle::store::synced::SyncedBuilder;
use tower_throttle::{Quota, TokenBucket};

use crate::fleet_chart::picture;
use crate::redis::redis_server::RedisServer;
use crate::redis::statistic;
use crate::row::{Effort, ends, median};
use crate::stores::postgres_server::PostgresServer;

#[path = "../../../tests/common/fleet.rs"]
mod processes;

use self::processes::{Admitted, Extent, Job, LIMIT, cases, run_fleet, run_machine};

/// The variable that tells a process how fast it shall decide: `synced URL SECONDS` or `exact ...`.
const SPEED: &str = "TOWER_THROTTLE_SPEED";
const MACHINES: [u64; 3] = [2, 4, 8];
const INTERVALS: [u64; 3] = [10, 100, 1_000];
/// Keys of the measurements of speed. A synced limit exchanges each of them once per interval.
const KEYS: [u64; 2] = [100, 1_000];
/// How many times the decisions of exact limits, at least.
const GOAL: f64 = 20.0;

/// The work of one process.
pub(crate) fn machine() {
    if let Ok(work) = std::env::var(SPEED) {
        return decide_fast(&work);
    }
    assert!(
        run_machine(),
        "`machine` is a process that `fleet` starts: run `fleet` instead"
    );
}

fn command() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.arg("machine");
    command
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// A server, and how to ask what it has done.
enum Server {
    Redis(RedisServer),
    PostgreSql(PostgresServer),
}

impl Server {
    fn name(&self) -> &'static str {
        match self {
            Self::Redis(_) => "Redis",
            Self::PostgreSql(_) => "PostgreSQL",
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::PostgreSql(server) => server.url(),
        }
    }

    /// Scripts, or transactions.
    fn commands(&self) -> f64 {
        match self {
            Self::Redis(server) => statistic(server, "evalsha", "calls"),
            Self::PostgreSql(server) => runtime().block_on(async {
                let committed = "SELECT sum(xact_commit)::bigint FROM pg_stat_database";
                let row = server.client().await.query_one(committed, &[]).await;
                row.expect("statistics").get::<_, i64>(0) as f64
            }),
        }
    }
}

/// The cases of one number of machines and one interval.
struct Run {
    server: &'static str,
    machines: u64,
    interval: u64,
    seconds: u64,
    commands_per_second: f64,
    admitted: Vec<Admitted>,
}

pub(crate) fn run(effort: &Effort, writes: bool) {
    let postgres = PostgresServer::start();
    let store = PostgreSql::open(&postgres.url()).expect("a URL");
    let made = runtime().block_on(store.create_table());
    made.expect("a table");
    let servers = [
        Server::Redis(RedisServer::start()),
        Server::PostgreSql(postgres),
    ];
    let seconds = if effort.quick { 2 } else { 5 };
    let mut runs = Vec::new();
    for server in &servers {
        for interval in INTERVALS {
            for machines in MACHINES {
                if !effort.wants(server.name()) {
                    continue;
                }
                let job = Job {
                    url: server.url(),
                    extent: Extent::Full,
                    machines,
                    interval: Duration::from_millis(interval),
                    seconds,
                };
                let before = server.commands();
                let admitted = run_fleet(&job, command);
                let run = Run {
                    server: server.name(),
                    machines,
                    interval,
                    seconds,
                    commands_per_second: (server.commands() - before) / seconds as f64,
                    admitted,
                };
                run.print();
                runs.push(run);
            }
        }
    }
    let speeds = if effort.wants("Redis") {
        KEYS.map(|keys| speed(effort, &servers[0], keys)).into()
    } else {
        Vec::new()
    };
    let broken = runs.iter().flat_map(|run| &run.admitted);
    let broken = broken.filter(|case| case.excess > case.bound).count();
    println!("{broken} cases exceed their bound");
    if writes {
        let page = page(&runs, &speeds);
        std::fs::write("docs/img/synced.svg", picture(&page)).expect("docs/img");
        std::fs::write("docs/synced.md", page).expect("docs");
    }
}

impl Run {
    fn print(&self) {
        let Self {
            server,
            machines,
            interval,
            commands_per_second,
            ..
        } = self;
        println!(
            "{server}, {machines} processes, {interval} ms: {commands_per_second:.0} commands per second"
        );
        for admitted in &self.admitted {
            let case = &admitted.case;
            println!(
                "  {:<14} load {:>4.1} {} {:<9} {:>6} admitted, {:.2} of the limit at most, bound {:.2}{}",
                case.name,
                case.load as f64 / 10.0,
                if case.is_skewed { "skewed" } else { "even  " },
                case.strict
                    .map_or(String::new(), |strict| format!("strict {strict}")),
                admitted.total,
                admitted.worst(),
                admitted.most_allowed(),
                if admitted.excess > admitted.bound {
                    "  EXCEEDED"
                } else {
                    ""
                },
            );
        }
    }
}

impl Admitted {
    /// The most that was admitted in any time, beside what the algorithm admits in it.
    fn worst(&self) -> f64 {
        if self.excess == 0 && self.total < LIMIT {
            return self.total as f64 / LIMIT as f64;
        }
        1.0 + self.excess as f64 / LIMIT as f64
    }

    fn most_allowed(&self) -> f64 {
        1.0 + self.bound as f64 / LIMIT as f64
    }
}

/// The requests per second of all cases.
fn requests_per_second() -> u64 {
    cases(Extent::Full)
        .iter()
        .map(|case| LIMIT * case.load / 10)
        .sum()
}

/// Decisions per second of eight processes, each of which decides as fast as it can.
struct Speed {
    keys: u64,
    synced: Vec<f64>,
    exact: Vec<f64>,
    /// Of the server, for each of them.
    commands: (f64, f64),
}

impl Speed {
    fn ratios(&self) -> Vec<f64> {
        let pairs = self.synced.iter().zip(&self.exact);
        pairs.map(|(synced, exact)| synced / exact).collect()
    }
}

fn speed(effort: &Effort, server: &Server, keys: u64) -> Speed {
    let mut speed = Speed {
        keys,
        synced: Vec::new(),
        exact: Vec::new(),
        commands: (0.0, 0.0),
    };
    let seconds = if effort.quick { 1 } else { 2 };
    for _ in 0..effort.rounds().min(5) {
        let before = server.commands();
        speed
            .synced
            .push(decisions("synced", server, keys, seconds));
        let between = server.commands();
        speed.exact.push(decisions("exact", server, keys, seconds));
        let per_second = |count: f64| count / seconds as f64;
        speed.commands = (
            per_second(between - before),
            per_second(server.commands() - between),
        );
    }
    let ratios = speed.ratios();
    let (least, most) = ends(&ratios);
    println!(
        "8 processes on one Redis at 100 ms, {keys} keys: {:.0} decisions per second with {:.0} commands, exact {:.0} \
         with {:.0}, ratio {:.0} ({least:.0}-{most:.0}), goal >= {GOAL} {}",
        median(&speed.synced),
        speed.commands.0,
        median(&speed.exact),
        speed.commands.1,
        median(&ratios),
        if median(&ratios) >= GOAL {
            "met"
        } else {
            "NOT MET"
        },
    );
    speed
}

/// Decisions per second of eight processes.
fn decisions(kind: &str, server: &Server, keys: u64, seconds: u64) -> f64 {
    let work = format!("{kind} {} {keys} {seconds}", server.url());
    let processes: Vec<_> = (0..8)
        .map(|_| {
            let mut command = command();
            command.env(SPEED, &work).stdout(Stdio::piped());
            command.spawn().expect("it starts")
        })
        .collect();
    let each = processes.into_iter().map(|process| {
        let output = process.wait_with_output().expect("it ends");
        let text = String::from_utf8(output.stdout).expect("text");
        text.trim().parse::<f64>().expect("a number")
    });
    each.sum()
}

/// Decides for some seconds, and prints the decisions per second.
fn decide_fast(work: &str) {
    let words: Vec<_> = work.split(' ').collect();
    let &[kind, url, keys, seconds] = &*words else {
        panic!("{work}");
    };
    let keys: u64 = keys.parse().expect("a number");
    let length = Duration::from_secs(seconds.parse().expect("a number"));
    let bucket = TokenBucket::new(Quota::per_second(1_000_000_000));
    let redis = Redis::open(url).expect("a URL");
    let decided = runtime().block_on(async {
        if kind == "exact" {
            let redis = redis.deadline(Duration::from_secs(10));
            let limit = redis.limiter("speed", bucket);
            let _ = limit.decide(&0, 1).await;
            let begun = Instant::now();
            let mut tasks = JoinSet::new();
            for task in 0..64_u64 {
                let limit = limit.clone();
                tasks.spawn(async move {
                    let mut count = 0;
                    while begun.elapsed() < length {
                        let key = (task + 64 * count) % keys;
                        assert!(limit.decide(&key, 1).await.is_ok());
                        count += 1;
                    }
                    count
                });
            }
            tasks.join_all().await.into_iter().sum::<u64>()
        } else {
            let builder = SyncedBuilder::new(redis).interval(Duration::from_millis(100));
            let limit = builder.build("speed", bucket).expect("a limit");
            let _ = limit.decide(&0, 1).await;
            let begun = Instant::now();
            let mut count = 0;
            while begun.elapsed() < length {
                for _ in 0..500 {
                    let key = count % keys;
                    if !limit.try_admit(&key, 1) {
                        assert!(limit.decide(&key, 1).await.is_ok());
                    }
                    count += 1;
                }
                tokio::task::yield_now().await;
            }
            count
        }
    });
    println!("{}", decided as f64 / length.as_secs_f64());
}

/// The worst case of an algorithm at an interval.
fn worst<'a>(
    runs: &'a [Run],
    (server, interval): (&str, u64),
    (name, is_strict): (&str, bool),
) -> Option<(&'a Admitted, u64)> {
    let runs = runs
        .iter()
        .filter(|run| run.server == server && run.interval == interval);
    let of = runs.flat_map(|run| run.admitted.iter().map(|case| (case, run.machines)));
    of.filter(|(admitted, _)| {
        admitted.case.name == name && admitted.case.strict.is_some() == is_strict
    })
    .max_by(|a, b| a.0.worst().total_cmp(&b.0.worst()))
}

fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = cases(Extent::Full).iter().map(|case| case.name).collect();
    names.dedup();
    names
}

/// The page of the documentation.
fn page(runs: &[Run], speeds: &[Speed]) -> String {
    let mut page = String::from(
        "# Synced limits, measured\n\n\
         Made by `cargo run --release -p compare -- fleet --write`; without `--write` the command prints \
         every case. Processes\nshare limits of 100 units per second in a real server, at 0.5, 1, 2 and 10 \
         times the limit, with an even load and\nwith four fifths of it at one process. A cell is the worst \
         case of 2, 4 and 8 processes, and the bound of that case: 1.00\nis what the algorithm promises of \
         one process, in any time, and every further 1.00 is 100 units more. `WarmUp` has no burst,\nso its \
         bound is lower. On a busy machine exchanges are late, so more is admitted.\n\n![admitted, beside the limit and the bound](img/synced.svg)\n",
    );
    for server in ["Redis", "PostgreSQL"] {
        let _ = write!(
            page,
            "\n## {server}\n\n| algorithm | 10 ms | 100 ms | 1,000 ms |\n|---|---|---|---|\n"
        );
        for is_strict in [false, true] {
            for name in names() {
                let strict = if is_strict {
                    ", `strict_budget(5)`"
                } else {
                    ""
                };
                let _ = write!(page, "| `{name}`{strict} |");
                for interval in INTERVALS {
                    let found = worst(runs, (server, interval), (name, is_strict));
                    let cell = found.map_or(String::new(), |(case, machines)| {
                        let (worst, bound) = (case.worst(), case.most_allowed());
                        format!("{worst:.2} of {bound:.2} ({machines})")
                    });
                    let _ = write!(page, " {cell} |");
                }
                page.push('\n');
            }
        }
    }
    let requests = requests_per_second();
    let limits = cases(Extent::Full).len();
    let seconds = runs.first().map_or(0, |run| run.seconds);
    let _ = write!(
        page,
        "\nThe number of processes of the worst case is in parentheses. A run takes {seconds} s.\n\n\
         ## What the server does\n\n\
         Commands per second for {limits} keys and {requests} requests per second in all processes. With an \
         exact limit each\nrequest is a command.\n\n\
         | processes | interval | Redis | PostgreSQL |\n|---|---|---|---|\n"
    );
    for machines in MACHINES {
        for interval in INTERVALS {
            let of = |server: &str| {
                let mut runs = runs.iter();
                let run = runs.find(|run| {
                    (run.server, run.machines, run.interval) == (server, machines, interval)
                });
                run.map_or(0.0, |run| run.commands_per_second)
            };
            let (redis, postgres) = (of("Redis"), of("PostgreSQL"));
            let _ = writeln!(
                page,
                "| {machines} | {interval} ms | {redis:.0} | {postgres:.0} |"
            );
        }
    }
    let _ = write!(
        page,
        "\n## Decisions per second\n\n\
         Eight processes and one Redis on a machine with {} processors, all of them as fast as they can, \
         interval 100 ms.\nExact limits send the decisions of 64 tasks per process in batches.\n\n\
         A synced limit exchanges each key once per interval in each process, if the machine keeps up.\n\n\
         | keys | synced | exact | ratio, with the least and the most of the rounds | commands, synced | exact |\n\
         |---|---|---|---|---|---|\n",
        std::thread::available_parallelism().map_or(0, usize::from),
    );
    for speed in speeds {
        let ratios = speed.ratios();
        let (least, most) = ends(&ratios);
        let _ = writeln!(
            page,
            "| {} | {:.0} | {:.0} | {:.0} ({least:.0} to {most:.0}) | {:.0} | {:.0} |",
            speed.keys,
            median(&speed.synced),
            median(&speed.exact),
            median(&ratios),
            speed.commands.0,
            speed.commands.1,
        );
    }
    page
}
