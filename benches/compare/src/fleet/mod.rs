//! Many machines on one store, under a load that does not wait for decisions: what they admit of a
//! limit, and what the store has to do for it.
//!
//! A machine is a limiter with a connection of its own. The limits of all keys sum to [`case::LIMIT`].

mod case;
mod load;
mod memory;
mod servers;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tower_throttle::algorithm::Algorithm;
use tower_throttle::store::cas::{Cas, CasStore};
use tower_throttle::store::fleet::{Leased, Synced};
use tower_throttle::{FixedWindow, Quota, SlidingLog, SlidingWindow, TokenBucket};

use self::case::{Case, LIMIT, Mode, Place, Traffic, cases};
use self::load::{Machine, SLOTS, Seen, send};
use self::servers::Servers;
use crate::row::{Effort, ends};

/// A hot key of many machines has its turn of each within it.
const DEADLINE: Duration = Duration::from_secs(1);

pub(crate) fn run(effort: &Effort) {
    memory::run(effort);
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut rows: Vec<Row> = Vec::new();
    runtime.block_on(async {
        let cases = cases(effort);
        if cases.is_empty() {
            return;
        }
        let servers = Servers::start().await;
        println!("{}", Row::HEAD);
        for case in cases {
            let row = Run(case, rows.len(), effort, &servers).measure().await;
            row.print(&rows);
            rows.push(row);
            // Connections of the machines are closed.
            tokio::time::sleep(Duration::from_secs(u64::from(!effort.quick))).await;
        }
    });
}

/// One row to be measured, and its number.
struct Run<'a>(Case, usize, &'a Effort, &'a Servers);

impl Run<'_> {
    async fn measure(&self) -> Row {
        let quota = Quota::per_second(LIMIT / self.0.keys);
        match self.0.algorithm {
            "token bucket" => self.of(TokenBucket::new(quota)).await,
            "fixed window" => self.of(FixedWindow::new(quota)).await,
            "sliding window" => self.of(SlidingWindow::new(quota)).await,
            _ => self.of(SlidingLog::new(quota)).await,
        }
    }

    async fn of<A: Algorithm>(&self, algorithm: A) -> Row {
        let Self(case, _, _, servers) = self;
        match (case.place, case.mode) {
            (Place::Redis, Mode::Exact) => {
                let of = |_| {
                    let redis = servers.redis().deadline(DEADLINE);
                    redis.limiter(&self.name(), algorithm.clone())
                };
                self.drive((0..case.machines).map(of).collect()).await
            }
            (Place::Redis, _) => self.over(|| servers.redis(), algorithm).await,
            (Place::PostgreSql, _) => self.over(|| servers.postgres(), algorithm).await,
        }
    }

    async fn over<S: CasStore, A: Algorithm>(&self, store: impl Fn() -> S, algorithm: A) -> Row {
        let (name, interval) = (self.name(), self.0.interval());
        let machines = 0..self.0.machines;
        match self.0.mode {
            Mode::Exact | Mode::Cas => {
                let of = |_| {
                    let limit = Cas::new(store(), &name, algorithm.clone()).expect("a limit");
                    limit.deadline(DEADLINE)
                };
                self.drive(machines.map(of).collect()).await
            }
            Mode::Synced => {
                let of = |_| {
                    let limit = Synced::new(store(), &name, algorithm.clone());
                    limit.expect("a limit").interval(interval)
                };
                self.drive(machines.map(of).collect()).await
            }
            Mode::Leased => {
                let of = |_| {
                    let limit = Leased::new(store(), &name, algorithm.clone());
                    limit.expect("a limit").interval(interval)
                };
                self.drive(machines.map(of).collect()).await
            }
        }
    }

    fn name(&self) -> String {
        format!("row-{}", self.1)
    }

    /// Sends the load to all machines.
    async fn drive<M: Machine>(&self, machines: Vec<M>) -> Row {
        let Self(case, _, effort, servers) = *self;
        let seconds = if effort.quick { 1 } else { 5 };
        let seen = Arc::new(Seen::new(seconds));
        // Before the measurement connections are made, and each machine learns of the others.
        let warm_up = Duration::from_secs(2).max(4 * case.interval());
        let first = Instant::now() + warm_up;
        let mut senders = JoinSet::new();
        for machine in machines.iter().cloned().zip(0..) {
            senders.spawn(send(machine, case, first, Arc::clone(&seen)));
        }
        let counts = || {
            machines.iter().fold([0; 2], |[exchanged, conflicts], one| {
                let [more, also] = one.counts();
                [exchanged + more, conflicts + also]
            })
        };
        tokio::time::sleep_until(first.into()).await;
        let (before, counted) = (servers.used(case.place).await, counts());
        senders.join_all().await;
        let after = servers.used(case.place).await;
        let [exchanged, conflicts] = counts();
        let per_second = |count: f64| count / seconds as f64;
        let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed) as f64;
        let admitted: Vec<f64> = seen.admitted.iter().map(load).collect();
        let calls = admitted.iter().sum::<f64>() + load(&seen.denied) + load(&seen.errors);
        let in_percent = |count: f64| 100.0 * count / calls.max(1.0);
        Row {
            case,
            admitted: admitted
                .iter()
                .map(|count| count * 1_000.0 / LIMIT as f64)
                .collect(),
            denied: in_percent(load(&seen.denied)),
            errors: in_percent(load(&seen.errors)),
            exchanges: (exchanged - counted[0]) as f64 / load(&seen.in_use).max(1.0),
            conflicts: per_second((conflicts - counted[1]) as f64),
            commands: per_second(after.commands - before.commands),
            cpu: 100.0 * per_second(after.cpu_seconds - before.cpu_seconds),
            bytes: servers.largest_value(case.place, &self.name()).await,
            lag: load(&seen.lag) / 1e6,
            longest: load(&seen.longest) / 1e6,
        }
    }
}

/// What was measured.
struct Row {
    case: Case,
    /// Per slot, in thousandths of what the limit admits per second.
    admitted: Vec<f64>,
    /// In percent of all requests.
    denied: f64,
    errors: f64,
    /// Per key in use, machine and interval.
    exchanges: f64,
    /// Per second.
    conflicts: f64,
    commands: f64,
    /// In percent of a processor.
    cpu: f64,
    bytes: u64,
    /// In milliseconds.
    lag: f64,
    longest: f64,
}

impl Row {
    const HEAD: &str = "| part | mode | store | algorithm | machines | keys | load | traffic | \
        admitted (worst to best second) | denied | errors | exchanges | conflicts/s | commands/s | CPU \
        | bytes | lag | longest | not met |\n\
        |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

    fn seconds(&self) -> Vec<f64> {
        let seconds = self.admitted.chunks(SLOTS as usize);
        seconds.map(|slots| slots.iter().sum()).collect()
    }

    fn mean(&self) -> f64 {
        let seconds = self.seconds();
        seconds.iter().sum::<f64>() / seconds.len() as f64
    }

    fn print(&self, rows: &[Self]) {
        let (worst, best) = ends(&self.seconds());
        println!(
            "{} {:.0} ({worst:.0}-{best:.0}) | {:.1} % | {:.2} % | {:.2} | {:.0} | {:.0} | {:.1} % | {} \
             | {:.0} ms | {:.0} ms | {} |",
            self.case,
            self.mean(),
            self.denied,
            self.errors,
            self.exchanges,
            self.conflicts,
            self.commands,
            self.cpu,
            self.bytes,
            self.lag,
            self.longest,
            self.missed(rows).join(", "),
        );
    }

    /// The goals that it does not reach, some of which compare it with a row before.
    fn missed(&self, rows: &[Self]) -> Vec<&'static str> {
        let case = self.case;
        let cpu_of = |other: Case| {
            let other = rows.iter().find(|row| {
                Case {
                    part: "",
                    ..row.case
                } == Case { part: "", ..other }
            });
            other.map_or(f64::INFINITY, |row| row.cpu)
        };
        let (worst, best) = ends(&self.seconds());
        let (mean, is_log) = (self.mean(), case.algorithm == "log");
        if case.part == "plateau" {
            let alone = |row: &&Self| {
                row.case
                    == Case {
                        machines: 1,
                        ..case
                    }
            };
            let alone = rows.iter().find(alone).map_or(mean, Self::mean);
            return missed(&[
                (mean >= 0.5 * alone, "half"),
                (self.errors <= 1.0, "errors"),
            ]);
        }
        if case.mode == Mode::Cas || (case.mode, case.place) == (Mode::Exact, Place::PostgreSql) {
            let goals = [(mean >= 950.0, "mean"), (self.errors <= 0.1, "errors")];
            return missed(&goals);
        }
        if !case.is_fleet() {
            return Vec::new();
        }
        let interval = case.interval().as_secs_f64();
        // Of the machine with the least traffic.
        let per_key = case.rate(case.machines - 1, 0) * interval / case.keys as f64;
        let is_steady = case.traffic != Traffic::Moving;
        let is_synced = case.mode == Mode::Synced;
        // A bucket of a second has to hold what refills in two intervals, or leased units do not suffice.
        let is_over = case.load > 10 && is_steady && (is_synced || interval <= 0.5);
        let least = match (case.mode, is_log) {
            (Mode::Synced, false) => 990.0,
            (Mode::Synced, true) => 870.0,
            (_, false) => 970.0,
            (_, true) => 850.0,
        };
        // All slots but the first four of each second, in which traffic has moved.
        let after_moves = self
            .admitted
            .chunks(SLOTS as usize)
            .flat_map(|slots| &slots[4..]);
        let after_moves = after_moves.sum::<f64>() / self.seconds().len() as f64;
        let exact = cpu_of(Case {
            mode: Mode::Exact,
            ..case
        });
        let of_exact = if case.machines > 8 { 1.0 } else { 0.6 };
        let is_redis = case.place == Place::Redis;
        missed(&[
            (
                !is_steady || per_key < 2.0 || self.exchanges <= 1.05,
                "exchanges",
            ),
            (!is_redis || self.conflicts == 0.0, "conflicts"),
            (!is_over || mean >= least, "mean"),
            (!is_over || !is_synced || is_log || mean <= 1_010.0, "mean"),
            (
                !is_over || !is_synced || is_log || (worst >= 950.0 && best <= 1_050.0),
                "seconds",
            ),
            (is_steady || after_moves >= 570.0, "moves"),
            (case.load != 5 || self.denied <= 1.0, "denied"),
            (self.errors == 0.0, "errors"),
            (self.lag <= 2_000.0 * interval, "lag"),
            (
                case.load != 20 || !is_redis || self.cpu <= of_exact * exact,
                "CPU",
            ),
            (
                case.load != 100 || self.cpu <= 1.1 * cpu_of(Case { load: 20, ..case }),
                "CPU",
            ),
            (
                !is_redis || self.bytes <= if is_log { 300 } else { 120 },
                "bytes",
            ),
        ])
    }
}

fn missed(goals: &[(bool, &'static str)]) -> Vec<&'static str> {
    goals
        .iter()
        .filter(|(met, _)| !met)
        .map(|(_, goal)| *goal)
        .collect()
}
