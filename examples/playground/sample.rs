//! What the page gets four times per second.

use std::time::Duration;

use serde::Serialize;
use tower_throttle::Decision;

use crate::{answer::AnswerText, tally::Tally};

/// The time between two samples.
pub(crate) const PERIOD: Duration = Duration::from_millis(250);

/// What happened in one period, on all routes.
#[derive(Debug, Serialize)]
pub(crate) struct Sample {
    /// Milliseconds since the run began.
    pub(crate) at: u64,
    pub(crate) lanes: Vec<LaneSample>,
}

/// What happened on one route.
#[derive(Debug, Serialize)]
pub(crate) struct LaneSample {
    admitted: u64,
    queued: u64,
    denied: u64,
    /// Requests that wait now.
    waiting: u64,
    longest_wait: u64,
    mean_wait: u64,
    /// The first ones in the line of client 1, in the order in which they are served.
    line: Vec<Waiter>,
    /// The level of each client, as far as it is known.
    levels: Vec<Level>,
    last_admitted: Option<AnswerText>,
    last_denied: Option<AnswerText>,
}

/// A request that waits in line.
#[derive(Debug, Serialize)]
pub(crate) struct Waiter {
    pub(crate) number: u64,
    pub(crate) important: bool,
    /// Milliseconds.
    pub(crate) waits: u64,
}

/// How much of a policy a client has left, by the limit of the policy that has the least left.
#[derive(Debug, Serialize)]
pub(crate) struct Level {
    /// What the client may use now.
    remaining: u64,
    /// What an unused client may use at once.
    limit: u64,
    /// The index of the limit in the policy.
    part: usize,
    /// Milliseconds until the whole limit is available again: of a window, until it ends.
    full_after: u64,
}

impl Level {
    /// The level that a peek reports.
    pub(crate) fn of(peek: &Decision) -> Self {
        Self {
            remaining: peek.remaining(),
            limit: peek.limit,
            part: peek.policy,
            full_after: millis(peek.reset_after),
        }
    }
}

impl LaneSample {
    pub(crate) fn new(tally: Tally, waiting: u64, line: Vec<Waiter>, levels: Vec<Level>) -> Self {
        let mean = tally.total_wait.as_millis() / u128::from(tally.queued.max(1));
        Self {
            admitted: tally.admitted,
            queued: tally.queued,
            denied: tally.denied,
            waiting,
            longest_wait: millis(tally.longest_wait),
            mean_wait: u64::try_from(mean).unwrap_or(u64::MAX),
            line,
            levels,
            last_admitted: tally.last_admitted.map(|answer| answer.text()),
            last_denied: tally.last_denied.map(|answer| answer.text()),
        }
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
