//! The rows: a base, and then one column varies at a time.

use std::fmt;
use std::time::Duration;

use crate::row::Effort;

/// What all keys together may admit per second.
pub(super) const LIMIT: u64 = 20_000;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Case {
    /// The column that varies.
    pub(super) part: &'static str,
    pub(super) mode: Mode,
    pub(super) place: Place,
    pub(super) algorithm: &'static str,
    pub(super) machines: u64,
    pub(super) keys: u64,
    /// Tenths of the limit.
    pub(super) load: u64,
    pub(super) traffic: Traffic,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    /// Scripts in Redis, `Cas` in PostgreSQL.
    Exact,
    Cas,
    Synced,
    Leased,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    Redis,
    PostgreSql,
}

/// How the load is spread over the machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Traffic {
    Even,
    /// A fifth of the machines has four fifths of the load.
    Skewed,
    /// One machine has all of it, each second another one.
    Moving,
}

impl Case {
    /// The time between two exchanges of a key.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_millis(if self.keys < 1_000 { 100 } else { 1_000 })
    }

    pub(super) fn is_fleet(&self) -> bool {
        matches!(self.mode, Mode::Synced | Mode::Leased)
    }

    /// Requests per second of one machine in a second.
    pub(super) fn rate(&self, machine: u64, second: u64) -> f64 {
        let all = (LIMIT * self.load / 10) as f64;
        let busy = self.machines.div_ceil(5);
        match self.traffic {
            Traffic::Moving if machine == second % self.machines => all,
            Traffic::Moving => 0.0,
            Traffic::Skewed if self.machines > busy && machine < busy => all * 0.8 / busy as f64,
            Traffic::Skewed if self.machines > busy => all * 0.2 / (self.machines - busy) as f64,
            _ => all / self.machines as f64,
        }
    }
}

/// The first columns.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "| {} | {:?} | {:?} | {} | {} | {} | {} | {:?} |",
            self.part,
            self.mode,
            self.place,
            self.algorithm,
            self.machines,
            self.keys,
            self.load as f64 / 10.0,
            self.traffic,
        )
    }
}

pub(super) fn cases(effort: &Effort) -> Vec<Case> {
    let mut cases = Vec::new();
    for machines in [1, 2, 4, 8, 16, 32, 64] {
        row(&mut cases, "machines", machines, |_| {});
    }
    for machines in [8, 64] {
        let mut of = |part, change: fn(&mut Case)| row(&mut cases, part, machines, change);
        of("keys", |case| case.keys = 1);
        of("keys", |case| case.keys = 1_000);
        of("load", |case| case.load = 5);
        of("load", |case| case.load = 10);
        of("load", |case| case.load = 100);
        of("traffic", |case| case.traffic = Traffic::Skewed);
        of("traffic", |case| case.traffic = Traffic::Moving);
        of("algorithm", |case| case.algorithm = "fixed window");
        of("algorithm", |case| case.algorithm = "sliding window");
        of("algorithm", |case| case.algorithm = "log");
        of("PostgreSQL", |case| {
            case.place = Place::PostgreSql;
            if case.mode == Mode::Exact {
                case.machines = case.machines.min(32);
            }
        });
        row(&mut cases, "Cas", machines, |case| case.mode = Mode::Cas);
        cases.dedup();
    }
    // Exact limits that collapse if machines work in vain. The first row of a load is that of one machine.
    for load in [5, 10, 20, 100] {
        for machines in [1, 8, 64] {
            let mut of = |mode, place| {
                row(&mut cases, "plateau", machines, |case| {
                    (case.mode, case.place, case.load) = (mode, place, load);
                });
                cases.dedup();
            };
            of(Mode::Exact, Place::PostgreSql);
            of(Mode::Exact, Place::Redis);
            of(Mode::Cas, Place::Redis);
        }
    }
    cases.retain(|case| effort.wants(&case.to_string()) && (!effort.quick || is_quick(case)));
    cases
}

/// The same for each mode.
fn row(cases: &mut Vec<Case>, part: &'static str, machines: u64, change: impl Fn(&mut Case)) {
    cases.extend([Mode::Exact, Mode::Synced, Mode::Leased].map(|mode| {
        let mut case = Case {
            part,
            mode,
            place: Place::Redis,
            algorithm: "token bucket",
            machines,
            keys: 20,
            load: 20,
            traffic: Traffic::Even,
        };
        change(&mut case);
        case
    }));
}

/// A minute: each part once.
fn is_quick(case: &Case) -> bool {
    let is_usual = case.keys < 1_000 && case.load > 10 && case.algorithm != "sliding window";
    let is_base = ["machines", "PostgreSQL"].contains(&case.part);
    case.machines == 8 && is_usual && (is_base || case.mode == Mode::Synced)
}
