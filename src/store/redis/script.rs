//! The script of a policy: its text, its arguments, and how its reply is decoded.

use std::{fmt, time::Duration};

use self::sealed::Script;
use super::{call::Call, send::Text};
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::StoreError;

/// The algorithms that a Redis server can run.
///
/// These are all algorithms of this crate and all tuples of them, and
/// [`AnyAlgorithm`](crate::algorithm::AnyAlgorithm) if it holds one of this crate or an
/// [`All`](crate::algorithm::All) of such. Not [`DenialLockout`](crate::algorithm::DenialLockout): a script
/// writes nothing if it denies. [`Cas`](crate::store::cas::Cas) runs it, with the same server as its store.
#[diagnostic::on_unimplemented(
    message = "a Redis server has no script for `{Self}`",
    note = "`tower_throttle::store::cas::Cas` runs every algorithm of this crate, with `Redis` as its store"
)]
pub trait Scripted: Script {}

impl<A: Script> Scripted for A {}

pub(super) mod sealed {
    use super::super::call::Call;
    use super::{Args, Part, StateWords};
    use crate::algorithm::Algorithm;
    use crate::error::ConfigError;

    /// How an algorithm is encoded for its script. The Lua file of the algorithm documents its
    /// parameters, arguments and state.
    #[expect(
        unnameable_types,
        reason = "sealed: the scripts are part of this crate"
    )]
    pub trait Script: Algorithm {
        /// The algorithm with parameters that the script can represent.
        fn prepared(self) -> Result<Self, ConfigError>;

        /// The limits it consists of. Each has its own script function and its own key.
        fn parts(&self, parts: &mut Vec<Part>);

        /// The arguments of a call for each part.
        fn push_args(&self, call: Call, args: &mut Vec<Args>);

        /// The state that the script decided on, or that it left if it decided nothing.
        fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State>;
    }
}

/// One limit of a script.
#[derive(Debug)]
#[expect(unnameable_types, reason = "an argument of the sealed trait")]
pub struct Part {
    /// Its Lua sources, in order. The last one is chosen by the letter in `header`.
    pub(super) sources: &'static [&'static str],
    /// The start of its values: the algorithm and the parameters they were written with.
    pub(super) header: String,
    /// The parameters of its Lua function, after the header.
    pub(super) params: Vec<u64>,
}

/// The arguments of a limit in a call: integers below 2^53.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(unnameable_types, reason = "an argument of the sealed trait")]
pub struct Args(Vec<u64>);

impl Args {
    /// The bound of a cost that is never admitted.
    pub(super) const NEVER: u64 = u64::MAX;

    pub(super) fn new<const N: usize>(numbers: [u64; N]) -> Self {
        Self(numbers.map(saturated).to_vec())
    }

    /// The cost of a call.
    pub(super) fn cost(call: Call) -> Self {
        Self::new([call.cost()])
    }

    /// With when the cost of a refund was taken, if the call is one.
    pub(super) fn and_taken_at(mut self, call: Call, is_line: bool) -> Self {
        self.0.extend(call.taken_at(is_line).map(saturated));
        self
    }
}

/// Doubles represent larger integers only roughly.
fn saturated(number: u64) -> u64 {
    number.min((1 << 53) - 1)
}

/// The numbers of a state in a reply.
#[derive(Debug)]
#[expect(unnameable_types, reason = "an argument of the sealed trait")]
pub struct StateWords<'a> {
    words: std::slice::Iter<'a, i64>,
    cost: u64,
}

impl StateWords<'_> {
    pub(super) fn next_word(&mut self) -> Option<u64> {
        self.words.next().and_then(|word| u64::try_from(*word).ok())
    }

    /// The cost of the call.
    pub(super) const fn cost(&self) -> u64 {
        self.cost
    }
}

/// The operation of a call and the arguments of all limits, as a script reads them.
pub(super) fn call_args<A: Scripted>(algorithm: &A, call: Call) -> String {
    let mut args = Vec::new();
    algorithm.push_args(call, &mut args);
    let args: Vec<_> = args.into_iter().map(|Args(numbers)| numbers).collect();
    format!("[{}, {args:?}]", call.opcode())
}

/// The same for a call under the quota of its key: with the settings of that quota, and the units of the
/// call.
pub(super) fn key_call_args<A: Scripted>(algorithm: &A, call: Call) -> String {
    let mut text = call_args(algorithm, call);
    text.truncate(text.len() - 1);
    text + &format!(
        ", {}, {}]",
        settings(&parts(algorithm)),
        saturated(call.cost())
    )
}

fn parts<A: Scripted>(algorithm: &A) -> Vec<Part> {
    let mut parts = Vec::new();
    algorithm.parts(&mut parts);
    parts
}

/// Whether the script can count what a key uses under each quota that it had. It cannot for a warm-up, whose
/// headers do not say what a unit costs.
pub(super) fn shares_use<A: Scripted>(algorithm: &A) -> bool {
    parts(algorithm)
        .iter()
        .all(|part| !part.header.starts_with("~u"))
}

/// The headers and the parameters of all parts, as a script reads them.
fn settings(parts: &[Part]) -> String {
    let settings = parts.iter().map(|Part { header, params, .. }| {
        let params: Vec<_> = params.iter().map(u64::to_string).collect();
        format!("[{header:?}, {}]", params.join(", "))
    });
    format!("[{}]", settings.collect::<Vec<_>>().join(", "))
}

/// The script of one policy, and the argument that all its calls have in common.
pub(super) struct Program {
    /// lua/common.lua describes its structure.
    pub(super) script: Text,
    /// The headers and the parameters of all parts.
    pub(super) settings: String,
    /// How many keys a call has.
    pub(super) keys_per_call: usize,
    /// What follows the name of the key in the names of the keys after the first.
    pub(super) part_suffixes: Vec<String>,
}

impl Program {
    pub(super) fn new<A: Scripted>(algorithm: &A) -> Self {
        Self::with_prelude("", algorithm)
    }

    /// With a prelude, by which tests replace the server's clock.
    pub(super) fn with_prelude<A: Scripted>(prelude: &str, algorithm: &A) -> Self {
        let parts = parts(algorithm);
        let mut files = vec![
            prelude,
            include_str!("lua/common.lua"),
            include_str!("lua/configurations.lua"),
        ];
        for source in parts.iter().flat_map(|part| part.sources) {
            if !files.contains(source) {
                files.push(source);
            }
        }
        files.push(include_str!("lua/decide.lua"));
        Self {
            script: Text::new(files.concat()),
            settings: settings(&parts),
            keys_per_call: parts.len(),
            part_suffixes: (1..parts.len()).map(|part| format!(":{part}")).collect(),
        }
    }
}

/// Manual impl: the text is long and the same for all policies of an algorithm.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("hash", &self.script.hash)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// What a script replied on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScriptReply {
    pub(super) decision: Decision,
    /// The decision on a repetition of the same request, if that is denied.
    pub(super) next_denial: Option<Decision>,
}

/// Decodes a script's reply on one call: its status and a state.
pub(super) fn decode_reply<A: Scripted>(
    algorithm: &A,
    call: Call,
    now_us: u64,
    outcome: &[i64],
) -> Result<ScriptReply, StoreError> {
    let now = Tick::from_nanos(now_us.saturating_mul(1_000));
    let (status, words) = outcome.split_first().ok_or_else(unexpected_reply)?;
    let denied = match status {
        0 => true,
        1 => false,
        2 => return Err(corrupt_value("was not written by this crate")),
        3 => return Err(corrupt_value("is not a string")),
        _ => return Err(unexpected_reply()),
    };
    let cost = match call {
        Call::Take(cost) | Call::Reserve(cost, _) | Call::Peek(cost) | Call::PeekOf(cost, _) => {
            cost
        }
        Call::Refund(..)
        | Call::Cancel(..)
        | Call::Forgive(..)
        | Call::Charge(_)
        | Call::Ban(_)
        | Call::Reset => 0,
    };
    let mut words = StateWords {
        words: words.iter(),
        cost,
    };
    let mut state = algorithm
        .read_state(&mut words)
        .ok_or_else(unexpected_reply)?;
    let decision = match call {
        Call::Take(_) => algorithm.decide(&mut state, now, cost),
        Call::Reserve(_, most) => {
            algorithm.reserve(&mut state, now, cost, Duration::from_nanos(most))
        }
        _ => {
            let decision = match call {
                Call::PeekOf(_, part) => A::peek_part(algorithm, &state, now, cost, part),
                _ => algorithm.peek(&state, now, cost),
            };
            return Ok(ScriptReply {
                decision: ceil_to_micros(decision),
                next_denial: None,
            });
        }
    };
    // A take of no cost is a peek to the script, and never denied there. A full queue may deny it.
    if call.takes() && decision.is_denied() != denied {
        return Err(unexpected_reply());
    }
    let next_denial = match call {
        _ if denied => Some(decision),
        Call::Take(_) if decision.remaining() < cost => Some(algorithm.peek(&state, now, cost)),
        _ => None,
    };
    Ok(ScriptReply {
        decision: ceil_to_micros(decision),
        next_denial: next_denial.filter(Decision::is_denied).map(ceil_to_micros),
    })
}

/// Rounds waits up to microseconds, which is what Redis counts in.
pub(super) fn ceil_to_micros(decision: Decision) -> Decision {
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
            "Redis: the value at the key {what}; another program writes there: give this limiter a \
             prefix of its own, or delete the key"
        ),
        false,
    )
}

fn unexpected_reply() -> StoreError {
    StoreError::new(
        "Redis: the script returned an impossible reply; its text or its values were changed",
        false,
    )
}

#[cfg(test)]
mod tests;
