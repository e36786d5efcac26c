//! One kind of traffic through one algorithm.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::traffic::{LENGTH, Traffic};
use crate::{
    answer::Outcome,
    policy::Policy,
    replay::{Released, Replay},
    states::InProcess,
    step::{Op, Step},
};

const MS: u64 = 1_000_000;
const KEYS: [&str; 2] = ["one", "other"];

/// What became of the requests. Times are in milliseconds, clients are 0 or 1.
#[derive(Default)]
pub(super) struct Run {
    pub(super) arrivals: Vec<Arrival>,
    /// The times and clients of admitted requests, in the order of time.
    pub(super) admissions: Vec<(u64, usize)>,
}

pub(super) struct Arrival {
    pub(super) at: u64,
    pub(super) client: usize,
    pub(super) fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    AtOnce,
    Queued,
    Denied,
}

impl Run {
    pub(super) fn new(policy: &str, traffic: &Traffic) -> Result<Self, String> {
        let policy = Policy::parse(policy.as_bytes(), 1).map_err(|(_, fault)| fault)?;
        let states = Box::new(InProcess::new(&policy));
        let mut replay = Replay::new(policy, states);
        let mut run = Self::default();
        let mut clients = Vec::new();
        let mut to_come: BinaryHeap<_> = (traffic.requests)().into_iter().map(Reverse).collect();
        while let Some(Reverse((at, client))) = to_come.pop() {
            let answer = replay.step(Step {
                t_ns: at * MS,
                key: Some(KEYS[client].to_owned()),
                n: 1,
                op: Op::Check { id: None },
            })?;
            if answer.key == clients.len() {
                clients.push(client);
            }
            let fate = match answer.outcome {
                Outcome::Wait(_) => Fate::Queued,
                Outcome::Deny => Fate::Denied,
                Outcome::Admit(_) | Outcome::Done(_) => Fate::AtOnce,
            };
            run.arrivals.push(Arrival { at, client, fate });
            run.admit(replay.released(), &clients);
            match traffic.retry {
                Some(after) if fate == Fate::Denied && at + after < LENGTH => {
                    to_come.push(Reverse((at + after, client)));
                }
                _ => {}
            }
        }
        replay.finish();
        run.admit(replay.released(), &clients);
        run.admissions.sort_unstable();
        Ok(run)
    }

    /// `clients` has the client of each key.
    fn admit(&mut self, released: &[Released], clients: &[usize]) {
        let admissions = released.iter().map(|one| (one.at / MS, clients[one.key]));
        self.admissions.extend(admissions);
    }

    #[cfg(test)]
    pub(super) fn offered(&self) -> usize {
        self.arrivals.len()
    }

    pub(super) fn count(&self, fate: Fate) -> usize {
        self.arrivals.iter().filter(|one| one.fate == fate).count()
    }

    #[cfg(test)]
    pub(super) fn denied_of(&self, client: usize) -> usize {
        let denied = |one: &&Arrival| one.fate == Fate::Denied && one.client == client;
        self.arrivals.iter().filter(denied).count()
    }

    /// The requests of a client admitted in the second that ends at `at`.
    pub(super) fn in_a_second(&self, client: usize, at: u64) -> u64 {
        let in_second = |(admitted, by): &&(u64, usize)| {
            *by == client && *admitted <= at && admitted + 1_000 > at
        };
        self.admissions.iter().filter(in_second).count() as u64
    }

    /// The most requests of one client admitted within a second.
    pub(super) fn most_in_a_second(&self) -> u64 {
        let ends = self.admissions.iter();
        let counts = ends.map(|(at, client)| self.in_a_second(*client, *at));
        counts.max().unwrap_or_default()
    }

    /// Whether there is a second client.
    pub(super) fn has_two_clients(&self) -> bool {
        self.arrivals.iter().any(|one| one.client == 1)
    }
}
