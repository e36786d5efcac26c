//! The answer to one step, and the line it is printed as.

use std::{
    io::{self, Write},
    time::Duration,
};

use tower_throttle::{Decision, Verdict};

/// What a step brought about.
pub(crate) struct Answer {
    /// The time as the step gave it.
    pub(crate) t_ns: u64,
    /// The time of the replay, which never runs backwards.
    pub(crate) now: u64,
    /// The position of the key among those seen.
    pub(crate) key: usize,
    pub(crate) op: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) retry_after_ns: Option<u64>,
    pub(crate) reset_after_ns: u64,
    /// Of a `take_up_to`.
    pub(crate) taken: Option<u64>,
    /// The cost, if the step was a request for admission.
    pub(crate) offered: Option<u64>,
    /// The cost of a waiting request that was cancelled.
    pub(crate) dropped: Option<u64>,
}

#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    /// Goes through: now, or when a `peek` looked at a line, after this wait.
    Admit(u64),
    /// Has a place in a line and goes through after this wait.
    Wait(u64),
    Deny,
    /// Nothing was decided; of a debt the time until it is paid.
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
    /// Prints it as one line of JSON.
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

/// Whole nanoseconds; the longest times are cut to what 64 bits hold.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
