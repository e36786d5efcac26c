//! Differential tests: the same traces give equal decisions by the script, on a real server, and by
//! the algorithms in Rust.
//!
//! `TRACES=100000 cargo test --release --all-features --lib redis::differential` is the long run.

use std::time::Duration;

use super::kernel::{Kernels, PEEK, TAKE, script_op, tests::MACHINE};
use super::script::{SCRIPT, decode, numbers};
use crate::algorithm::Algorithm;
use crate::backend::Op;
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::receipt::Receipt;
use crate::store::apply::apply_op;

mod agreement;
mod batched;
#[cfg(feature = "calendar")]
mod calendar;
mod clock;
mod declared;
mod fleet;
mod fleet_servers;
mod mutants;
mod numbers;
mod policies;
mod rollouts;

use test_support::redis_cluster;
use test_support::{random, redis_server};

use self::random::Random;
use self::redis_server::RedisServer;

/// Replaces the server's clock, for the time and for expiry.
const FAKE_CLOCK: &str = include_str!("../../../../examples/replay/clock.lua");

/// Fails a script that touches a key that is not declared, as some servers do.
const ONLY_DECLARED_KEYS: &str = "\
    local redis = (function()
        local inner, declared = redis, {}
        for _, key in ipairs(KEYS) do
            declared[key] = true
        end
        local function checked(call)
            return function(name, ...)
                assert(name == 'TIME' or declared[...], 'a key that is not declared')
                return call(name, ...)
            end
        end
        return { call = checked(inner.call), pcall = checked(inner.pcall) }
    end)()
    ";

/// A call on one key, at a time in microseconds.
#[derive(Clone, Copy, Debug)]
struct Step {
    now: u64,
    /// By which of several variants of a limit.
    variant: usize,
    op: Op,
}

/// Loads the script with another clock, and with a planted bug. Returns its hash.
fn load(connection: &mut redis::Connection, sabotage: impl Fn(String) -> String) -> String {
    let body = [
        FAKE_CLOCK,
        ONLY_DECLARED_KEYS,
        &sabotage(SCRIPT.body.clone()),
    ]
    .concat();
    let mut load = redis::cmd("SCRIPT");
    let loaded = load.arg("LOAD").arg(body).query(connection);
    loaded.expect("the script compiles")
}

/// Runs the steps on the server, on an empty database. Returns the decisions.
fn run_script<A: Algorithm>(
    connection: &mut redis::Connection,
    variants: &[A],
    steps: &[Step],
    sabotage: impl Fn(String) -> String,
) -> Vec<Decision> {
    let hash = load(connection, sabotage);
    let mut pipeline = redis::pipe();
    pipeline.cmd("FLUSHALL").ignore();
    let mut by = Vec::new();
    for step in steps {
        // The clock of the machine is up to 20 hours away from that of the server.
        let skewed = step.now + step.now % 3 * 72_000_000_000 - 72_000_000_000;
        MACHINE.set(Some(skewed / 1_000_000));
        let kernels = Kernels::of(&variants[step.variant]).expect("a limit of the script");
        let command = pipeline.cmd("EVALSHA").arg(&hash).arg(1);
        command.arg(format!("{{k}}{}", kernels.layout()));
        command
            .arg("")
            .arg(kernels.args(step.op, &variants[step.variant]));
        command.arg(0).arg(step.now);
        by.push(kernels);
    }
    let all: Vec<redis::Value> = pipeline.query(connection).expect("no script fails");
    let decisions = all.into_iter().zip(steps).zip(by);
    let decide = |((reply, step), kernels): ((redis::Value, &Step), Kernels)| {
        let reply = numbers(reply).expect("the script's");
        let decided = decode(&kernels, step.op, 1, &mut &reply[..]);
        decided.expect("a decision").0[0]
    };
    decisions.map(decide).collect()
}

/// What an algorithm in Rust decides. Redis counts in microseconds, so waits are rounded up to these.
fn decide<A: Algorithm>(algorithm: &A, state: &mut A::State, step: Step) -> Decision {
    let now = Tick::from_nanos(step.now * 1_000);
    if step.op == Op::Reset {
        *state = algorithm.fresh(now);
    }
    let decision = apply_op(algorithm, state, now, step.op);
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

/// Whether what was decided is written.
fn is_written(op: Op, decision: &Decision) -> bool {
    match script_op(op).0 {
        TAKE => !decision.is_denied(),
        number => number != PEEK,
    }
}

/// A random trace under variants of one algorithm. The variant changes once per
/// `changes` steps.
fn random_steps<A: Algorithm>(
    random: &mut Random,
    variants: &[A],
    changes: Option<u64>,
) -> Vec<Step> {
    let mut now = 1_700_000_000_000_000 + random.below(1 << 50);
    let facts = variants[0].capabilities();
    let books_turns = facts.books_turns() && facts.limits == 1;
    let mut variant = 0;
    let mut steps = Vec::new();
    // How long the fastest one takes to fill.
    let filling = variants.iter().map(|variant| {
        let quota = variant.quota();
        let capacity = u128::from(quota.capacity());
        let nanos = quota.period().as_nanos() * capacity / u128::from(quota.limit());
        u64::try_from(nanos / 1_000).unwrap_or(u64::MAX)
    });
    let filling = filling.min().unwrap_or_default();
    for _ in 0..20 + random.below(60) {
        let quota = variants[variant].quota();
        let period = u64::try_from(quota.period().as_micros()).expect("small figures");
        let unit = period / quota.limit() + 1;
        now += match random.below(8) {
            0..=2 => 0,
            3 => random.below(3),
            4 => random.below(2 * unit),
            5 => random.below(2 * period + 2),
            6 => [unit, period, period - 1, unit - 1][usize::try_from(random.below(4)).unwrap()],
            // A bucket that is unused for long.
            7 if random.below(8) == 0 => random.below(filling.saturating_mul(900).min(WEEK) + 1),
            _ => random.below(period / 2 + 1),
        };
        let capacity = quota.capacity().max(quota.limit());
        let cost = match random.below(8) {
            0..=3 => 1,
            4 => random.below(4),
            5 => capacity - random.below(2).min(capacity),
            6 => random.below(capacity + 3),
            _ => random.below(capacity / 3 + 2),
        };
        let op = match random.below(20) {
            0..=10 => Op::Take(cost),
            11 | 12 => {
                let most = random.below(3 * period + 1) * 1_000 + random.below(1_000);
                Op::Reserve {
                    cost,
                    queue: u64::MAX,
                    max_wait: Duration::from_nanos(most),
                }
            }
            13 | 14 => Op::Peek(cost),
            15 | 16 => {
                let taken_at = match random.below(4) {
                    0 => u64::MAX,
                    1 => now,
                    2 => now - random.below(unit + 1),
                    _ => now - random.below(2 * period + 2),
                };
                let receipt = Receipt::at(taken_at.saturating_mul(1_000));
                match random.below(4) {
                    // Only a single bucket has turns. A receipt is a nanosecond before the turn.
                    0 if books_turns => {
                        let turn = now - unit + random.below(period + unit);
                        Op::Cancel(cost, Receipt::at(turn * 1_000 - 1))
                    }
                    1 => Op::Forgive(cost, receipt),
                    _ => Op::Refund(cost, receipt),
                }
            }
            17 | 18 => Op::Charge(cost.min(2_000)),
            _ if random.below(4) == 0 => Op::Reset,
            _ => Op::Take(1),
        };
        if changes.is_some_and(|rarely| random.below(rarely) == 0) {
            variant = usize::try_from(random.below(variants.len() as u64)).unwrap();
        }
        steps.push(Step { now, variant, op });
    }
    steps
}

/// The first step on which the server and the algorithm differ, with both decisions. All variants have one layout and
/// states of one meaning.
fn find_difference<A: Algorithm>(
    connection: &mut redis::Connection,
    variants: &[A],
    steps: &[Step],
    sabotage: impl Fn(String) -> String,
) -> Option<String> {
    let told = run_script(connection, variants, steps, sabotage);
    let mut state: Option<A::State> = None;
    for (at, (step, told)) in steps.iter().zip(told).enumerate() {
        let algorithm = &variants[step.variant];
        let now = Tick::from_nanos(step.now * 1_000);
        // A key that is only asked for begins later.
        let mut of_key = state.clone().unwrap_or_else(|| algorithm.fresh(now));
        let expected = decide(algorithm, &mut of_key, *step);
        if is_written(step.op, &expected) {
            state = Some(of_key);
        }
        // Script and algorithm saturate at different debts, both above a century.
        if [expected, told].iter().any(|one| one.reset_after > CENTURY) {
            return None;
        }
        if told != expected {
            let steps = &steps[..=at];
            return Some(format!(
                "{variants:#?}\nsteps {steps:#?}\nstep {at}: the script\n{told:?}\nthe algorithm\n{expected:?}"
            ));
        }
    }
    None
}

const WEEK: u64 = 7 * 86_400 * 1_000_000;
const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
