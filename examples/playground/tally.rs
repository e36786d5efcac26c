//! Counts of what a route returned since the last sample.

use std::time::Duration;

use axum::response::Response;
use tower_throttle::{Decision, RateLimited, Verdict};

use crate::answer::Answer;

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Admitted,
    /// Admitted after this wait.
    Queued(Duration),
    Denied,
}

impl Outcome {
    /// Reads it from the response. The layer reports whether it waited, the clock how long.
    pub(crate) fn of(response: &Response, took: Duration) -> Self {
        if response.extensions().get::<RateLimited>().is_some() {
            return Self::Denied;
        }
        match response.extensions().get::<Decision>() {
            Some(decision) if matches!(decision.verdict, Verdict::Wait(_)) => Self::Queued(took),
            _ => Self::Admitted,
        }
    }
}

/// Counts, waits and the last answers.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) admitted: u64,
    pub(crate) queued: u64,
    pub(crate) denied: u64,
    pub(crate) longest_wait: Duration,
    pub(crate) total_wait: Duration,
    /// The last answer to a request that was admitted, perhaps after a wait.
    pub(crate) last_admitted: Option<Answer>,
    pub(crate) last_denied: Option<Answer>,
}

impl Tally {
    pub(crate) fn record(&mut self, outcome: Outcome, response: &Response) {
        let answer = Some(Answer::of(response));
        match outcome {
            Outcome::Admitted => self.admitted += 1,
            Outcome::Queued(wait) => {
                self.queued += 1;
                self.total_wait += wait;
                self.longest_wait = self.longest_wait.max(wait);
            }
            Outcome::Denied => {
                self.denied += 1;
                self.last_denied = answer;
                return;
            }
        }
        self.last_admitted = answer;
    }
}
