//! A script for an algorithm: its text, what it is called with, and what its answer means.

use std::{collections::BTreeSet, fmt, time::Duration};

use self::sealed::Script;
use super::params::Call;
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::StoreError;

/// The algorithms that a Redis server can carry out: every one of this crate and every tuple of
/// these; of [`AnyAlgorithm`](crate::algorithm::AnyAlgorithm) what holds one of this crate or
/// [`All`](crate::algorithm::All) of such.
pub trait Scripted: Script {}

impl<A: Script> Scripted for A {}

pub(super) mod sealed {
    use super::super::params::Call;
    use super::{Args, Part, StateWords};
    use crate::algorithm::Algorithm;
    use crate::error::ConfigError;

    /// How an algorithm talks to its script; what an argument, a figure and a word mean stands
    /// there.
    #[expect(
        unnameable_types,
        reason = "sealed: the scripts are part of this crate"
    )]
    pub trait Script: Algorithm {
        /// The algorithm in figures that the script can count with.
        fn prepared(self) -> Result<Self, ConfigError>;

        /// The limits it is made of, one script function and one key each.
        fn parts(&self, parts: &mut Vec<Part>);

        /// What each part is told of a call.
        fn arguments(&self, call: Call, args: &mut Args);

        /// The state that the script decided upon, or left behind where it decided nothing.
        fn recall(&self, words: &mut StateWords<'_>) -> Option<Self::State>;
    }
}

/// One limit of a script.
#[derive(Debug)]
#[expect(unnameable_types, reason = "an argument of the sealed trait")]
pub struct Part {
    /// The function that makes it.
    pub(super) name: &'static str,
    /// What decides the usual call, where that is written a second time for speed.
    pub(super) quick: &'static [&'static str],
    /// What that function needs, in order, itself last.
    pub(super) sources: &'static [&'static str],
    /// What its values begin with: which algorithm, and the figures it was made for.
    pub(super) header: String,
    /// What it reads when it is made.
    pub(super) figures: Vec<u64>,
    /// How many numbers tell its state.
    pub(super) words: usize,
}

/// The operation and the arguments of a call: whole numbers below 2^53, packed as a script reads
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(unnameable_types, reason = "an argument of the sealed trait")]
pub struct Args(Vec<u8>);

impl Args {
    /// What a script is told of a call.
    pub(super) fn of<A: Script>(algorithm: &A, call: Call) -> Self {
        let mut args = Self(Vec::with_capacity(8 * 8));
        args.push(call.op().unsigned_abs());
        algorithm.arguments(call, &mut args);
        args
    }

    pub(super) fn push(&mut self, number: u64) {
        /// The largest number of which a script can count every one before it.
        const MAX_INT: u64 = (1 << 53) - 1;
        #[expect(clippy::cast_precision_loss, reason = "below 2^53 there is none")]
        let double = number.min(MAX_INT) as f64;
        self.0.extend(double.to_le_bytes());
    }

    /// In the place of a moment that is never reached.
    pub(super) fn never(&mut self) {
        self.0.extend((-1.0_f64).to_le_bytes());
    }

    pub(super) fn packed(&self) -> &[u8] {
        &self.0
    }
}

/// The numbers of a state, as a script told them.
#[derive(Debug)]
#[expect(unnameable_types, reason = "an argument of the sealed trait")]
pub struct StateWords<'a> {
    words: std::slice::Iter<'a, i64>,
    cost: u64,
}

impl StateWords<'_> {
    pub(super) fn next(&mut self) -> Option<u64> {
        self.words.next().and_then(|word| u64::try_from(*word).ok())
    }

    /// What was asked for.
    pub(super) const fn cost(&self) -> u64 {
        self.cost
    }
}

/// A script for one policy: its text, and the figures that every call of it begins with.
pub(super) struct Program {
    pub(super) body: String,
    pub(super) hash: String,
    /// All figures, packed.
    figures: Args,
    headers: Vec<String>,
    /// How many keys a call has.
    pub(super) parts: usize,
    /// How many numbers tell the state of a call.
    pub(super) words: usize,
}

impl Program {
    pub(super) fn new<A: Scripted>(algorithm: &A) -> Self {
        Self::after("", algorithm)
    }

    /// With a prelude, by which tests put their own clock in the place of the server's.
    pub(super) fn after<A: Scripted>(prelude: &str, algorithm: &A) -> Self {
        let mut parts = Vec::new();
        algorithm.parts(&mut parts);
        let mut seen = BTreeSet::new();
        let mut body = prelude.to_owned();
        match &*parts {
            [alone] if !alone.quick.is_empty() => {
                body.push_str(include_str!("lua/quick/open.lua"));
                body.extend(alone.quick.iter().copied());
                body.push_str(include_str!("lua/quick/close.lua"));
            }
            _ => body.push_str("local answer, left, clock, spread = {}\n"),
        }
        for source in parts.iter().flat_map(|part| part.sources) {
            if seen.insert(*source) {
                body.push_str(source);
            }
        }
        let names: Vec<_> = parts.iter().map(|part| part.name).collect();
        body.extend(["local parts = { ", &names.join(", "), " }\n"]);
        body.push_str(include_str!("lua/run.lua"));

        let words = parts.iter().map(|part| part.words).sum::<usize>();
        let mut figures = Args::default();
        figures.push(words as u64);
        for figure in parts.iter().flat_map(|part| &part.figures) {
            figures.push(*figure);
        }
        let count = parts.len();
        let headers = parts.into_iter().map(|part| part.header).collect();
        Self {
            hash: sha1_smol::Sha1::from(&body).digest().to_string(),
            body,
            figures,
            headers,
            parts: count,
            words,
        }
    }

    /// What every call begins with, after its keys.
    pub(super) fn begin(&self) -> (&[u8], &[String]) {
        (self.figures.packed(), &self.headers)
    }

    /// How many numbers tell the outcome of a call.
    pub(super) const fn stride(&self) -> usize {
        1 + self.words
    }
}

/// The text is long and of no use in a log.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("hash", &self.hash)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

/// What a script told of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScriptReply {
    pub(super) decision: Decision,
    /// The denial of the same request that comes next, if it would be denied.
    pub(super) denied: Option<Decision>,
}

/// The decision on a call, from the numbers that the script told of it: how it went, and a state.
pub(super) fn decision<A: Scripted>(
    algorithm: &A,
    call: Call,
    now_us: u64,
    outcome: &[i64],
) -> Result<ScriptReply, StoreError> {
    let now = Tick::from_nanos(now_us.saturating_mul(1_000));
    let (how, words) = outcome.split_first().ok_or_else(disagree)?;
    let denied = match how {
        0 => true,
        1 => false,
        2 => return Err(corrupt_value("is not one that this crate wrote")),
        3 => return Err(corrupt_value("is of another type than a string")),
        _ => return Err(disagree()),
    };
    let cost = match call {
        Call::Take(cost) | Call::Reserve(cost, _) | Call::Peek(cost) => cost,
        Call::Refund(_) | Call::Charge(_) | Call::Reset => 0,
    };
    let mut words = StateWords {
        words: words.iter(),
        cost,
    };
    let mut state = algorithm.recall(&mut words).ok_or_else(disagree)?;
    let decision = match call {
        Call::Take(_) => algorithm.decide(&mut state, now, cost),
        Call::Reserve(_, most) => {
            algorithm.reserve(&mut state, now, cost, Duration::from_nanos(most))
        }
        _ => {
            return Ok(ScriptReply {
                decision: in_micros(algorithm.peek(&state, now, cost)),
                denied: None,
            });
        }
    };
    // A script only looks where nothing is asked for, and so denies nothing; a line may be too long
    // even for that.
    if call.op() == Call::Take(1).op() && decision.is_denied() != denied {
        return Err(disagree());
    }
    let denied = match call {
        _ if denied => Some(decision),
        Call::Take(_) if decision.remaining() < cost => Some(algorithm.peek(&state, now, cost)),
        _ => None,
    };
    Ok(ScriptReply {
        decision: in_micros(decision),
        denied: denied.filter(Decision::is_denied).map(in_micros),
    })
}

/// Redis counts microseconds: whoever waits a part of one waits for the whole.
pub(super) fn in_micros(decision: Decision) -> Decision {
    let whole = |span: Duration| {
        let ns = nanos(span);
        Duration::from_nanos(ns.checked_next_multiple_of(1_000).unwrap_or(ns))
    };
    Decision {
        verdict: match decision.verdict {
            Verdict::Wait(span) => Verdict::Wait(whole(span)),
            verdict => verdict,
        },
        retry_after: decision.retry_after.map(whole),
        reset_after: whole(decision.reset_after),
        ..decision
    }
}

fn corrupt_value(what: &str) -> StoreError {
    StoreError::new(
        format!(
            "the value at the key in Redis {what}; another program writes there: give this limiter \
             a prefix of its own, or delete the key"
        ),
        false,
    )
}

fn disagree() -> StoreError {
    StoreError::new(
        "the script in Redis answered what it cannot answer: its text or its values were changed",
        false,
    )
}
