//! Differential tests: the same traces give equal decisions by the script, on a real server, and by
//! the algorithms in Rust.
//!
//! `TRACES=100000 cargo test --release --all-features --lib redis::differential` is the long run.

use std::time::Duration;

use super::call::Call;
use super::kernel::{Kernels, ceil_to_micros, tests::MACHINE};
use super::script::{SCRIPT, decode, replies};
use crate::algorithm::{Algorithm, Cost, GiveBack, reserve};
use crate::clock::Tick;
use crate::decision::Decision;

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
use test_support::{proxy, random, redis_server};

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
    call: Call,
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
        command.arg(format!("{{k}}{}", kernels.layout));
        command.arg("").arg(kernels.args(step.call));
        command.arg(0).arg(step.now);
        by.push(kernels);
    }
    let all: Vec<redis::Value> = pipeline.query(connection).expect("no script fails");
    let decisions = all.into_iter().zip(steps).zip(by);
    let decide = |((reply, step), kernels): ((redis::Value, &Step), Kernels)| {
        let reply = replies(reply, 1).expect("the script's").remove(0);
        let decided = decode(&kernels, step.call, 1, &reply);
        decided.expect("a decision")[0]
    };
    decisions.map(decide).collect()
}

/// What an algorithm in Rust decides.
fn decide<A: Algorithm>(algorithm: &A, state: &mut A::State, step: Step) -> Decision {
    let now = Tick::from_nanos(step.now * 1_000);
    let mut refund = |cost, taken_at: u64, why| {
        let taken_at = Tick::from_nanos(taken_at.saturating_mul(1_000));
        algorithm.refund(state, now, Cost::new(cost, taken_at), why);
    };
    match step.call {
        Call::Take(cost) => return algorithm.decide(state, now, cost),
        Call::Reserve(cost, most) => {
            return reserve(algorithm, state, now, cost, Duration::from_nanos(most));
        }
        Call::Peek(cost) => return algorithm.peek(state, now, cost),
        Call::Refund(cost, taken_at) => refund(cost, taken_at, GiveBack::Refund),
        Call::Cancel(cost, turn) => {
            // A receipt is a nanosecond before the turn.
            let taken_at = Tick::from_nanos(turn.saturating_mul(1_000) - 1);
            algorithm.refund(state, now, Cost::new(cost, taken_at), GiveBack::Cancel);
        }
        Call::Forgive(cost, taken_at) => refund(cost, taken_at, GiveBack::Forgive),
        Call::Charge(cost) => drop(algorithm.charge(state, now, cost)),
        Call::Reset => *state = algorithm.fresh(now),
    }
    algorithm.peek(state, now, 0)
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
    let books_turns = facts.books_turns && facts.limits == 1;
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
            // A bucket that is unused for as long as it takes to fill it many times.
            7 if random.below(8) == 0 => random.below(filling.saturating_mul(900).min(1 << 45) + 1),
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
        let call = match random.below(20) {
            0..=10 => Call::Take(cost),
            11 | 12 => Call::Reserve(
                cost,
                random.below(3 * period + 1) * 1_000 + random.below(1_000),
            ),
            13 | 14 => Call::Peek(cost),
            15 | 16 => {
                let taken_at = match random.below(4) {
                    0 => u64::MAX,
                    1 => now,
                    2 => now - random.below(unit + 1),
                    _ => now - random.below(2 * period + 2),
                };
                match random.below(4) {
                    // Only a single bucket has turns.
                    0 if books_turns => {
                        Call::Cancel(cost, now - unit + random.below(period + unit))
                    }
                    1 => Call::Forgive(cost, taken_at),
                    _ => Call::Refund(cost, taken_at),
                }
            }
            17 | 18 => Call::Charge(cost.min(2_000)),
            _ if random.below(4) == 0 => Call::Reset,
            _ => Call::Take(1),
        };
        if changes.is_some_and(|rarely| random.below(rarely) == 0) {
            variant = usize::try_from(random.below(variants.len() as u64)).unwrap();
        }
        steps.push(Step { now, variant, call });
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
        let expected = ceil_to_micros(decide(algorithm, &mut of_key, *step));
        let is_written = !step.call.asks() || step.call.takes() && !expected.is_denied();
        if is_written && step.call.number() != 2 {
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

const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
