//! The result of one step, and its line of output.

use std::{
    io::{self, Write},
    time::Duration,
};

use tower_throttle::{Decision, Verdict};

/// The result of a step.
pub(crate) struct Answer {
    /// The time as the step gave it.
    pub(crate) t_ns: u64,
    /// The time of the replay, which never runs backwards.
    pub(crate) now: u64,
    /// The index of the key, in the order of first use.
    pub(crate) key: usize,
    pub(crate) op: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) retry_after_ns: Option<u64>,
    pub(crate) reset_after_ns: u64,
    /// The units taken by a `take_up_to`.
    pub(crate) taken: Option<u64>,
    /// The cost, if the step requested admission.
    pub(crate) offered: Option<u64>,
    /// The cost of a queued request that was cancelled.
    pub(crate) dropped: Option<u64>,
}

#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    /// Admitted: now, or for a `peek` at a queue, after this wait.
    Admit(u64),
    /// Queued, and admitted after this wait.
    Wait(u64),
    Deny,
    /// No decision was made. After an `absorb`, the time until the debt is paid.
    Done(u64),
}

impl Outcome {
    fn wait_ns(self) -> u64 {
        match self {
            Self::Admit(wait) | Self::Wait(wait) | Self::Done(wait) => wait,
            Self::Deny => 0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Admit(_) => "admit",
            Self::Wait(_) => "wait",
            Self::Deny => "deny",
            Self::Done(_) => "done",
        }
    }
}

impl From<&Decision> for Outcome {
    fn from(decision: &Decision) -> Self {
        match decision.verdict {
            Verdict::Wait(wait) => Self::Wait(nanos(wait)),
            Verdict::Admit => Self::Admit(0),
            _ => Self::Deny,
        }
    }
}

impl Answer {
    /// Writes one line of JSON.
    pub(crate) fn write(&self, out: &mut impl Write, key: &str) -> io::Result<()> {
        write!(out, "{{\"t_ns\":{},\"key\":", self.t_ns)?;
        serde_json::to_writer(&mut *out, key)?;
        write!(
            out,
            ",\"op\":\"{}\",\"verdict\":\"{}\",\"wait_ns\":{},\"limit\":{},\"remaining\":{}",
            self.op,
            self.outcome.name(),
            self.outcome.wait_ns(),
            self.limit,
            self.remaining,
        )?;
        match self.retry_after_ns {
            Some(retry_after) => write!(out, ",\"retry_after_ns\":{retry_after}")?,
            None => out.write_all(b",\"retry_after_ns\":null")?,
        }
        write!(out, ",\"reset_after_ns\":{}", self.reset_after_ns)?;
        if let Some(taken) = self.taken {
            write!(out, ",\"taken\":{taken}")?;
        }
        out.write_all(b"}\n")
    }
}

/// Whole nanoseconds, at most `u64::MAX`.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
