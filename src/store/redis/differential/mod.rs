//! Differential tests: the same traces give equal decisions by the scripts, on a real server, and by
//! the algorithms in Rust.
//!
//! `TRACES=100000 cargo test --release --all-features --lib redis::differential` is the long run.

use std::time::Duration;

use super::call::Call;
use super::reply::parse_numbers;
use super::script::{Args, Part, Program, Scripted, ceil_to_micros, decode_reply};
use crate::algorithm::Inherit;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::StoreError;

mod agreement;
mod batched;
mod clock;
mod mutants;
mod policies;
#[path = "../../../../tests/algorithms/random.rs"]
mod random;
#[path = "../../../../tests/common/redis_server.rs"]
#[expect(dead_code, reason = "shared with the tests of the store")]
mod redis_server;

use self::random::Random;
use self::redis_server::RedisServer;

/// Replaces the server's clock, for the time and for expiry.
const FAKE_CLOCK: &str = include_str!("../../../../examples/replay/clock.lua");

/// A call on one key: at a time in microseconds, under one of several variants of a policy.
#[derive(Clone, Copy, Debug)]
struct Step {
    now: u64,
    variant: usize,
    call: Call,
}

/// One key, decided by the algorithm in Rust.
struct Oracle<A: Scripted> {
    state: Option<A::State>,
    variant: usize,
}

impl<A: Scripted> Oracle<A> {
    fn step(&mut self, variants: &[A], step: Step) -> Decision {
        let now = Tick::from_nanos(step.now * 1_000);
        let algorithm = &variants[step.variant];
        if self.variant != step.variant {
            let from = &variants[self.variant];
            self.state = self.state.take().filter(|s| from.forgettable_at(s) > now);
            // Two variants may be one policy to a script.
            if let Some(state) = self.state.as_mut().filter(|_| !is_same(from, algorithm)) {
                algorithm.rescale(state, from, now, Inherit::AsIs);
            }
            self.variant = step.variant;
        }
        let mut state = self.state.clone().unwrap_or_else(|| algorithm.fresh(now));
        let decision = match step.call {
            Call::Take(cost) => algorithm.decide(&mut state, now, cost),
            Call::Reserve(cost, most) => {
                algorithm.reserve(&mut state, now, cost, Duration::from_nanos(most))
            }
            Call::Peek(cost) => return algorithm.peek(&state, now, cost),
            Call::Refund(cost) => {
                algorithm.refund(&mut state, now, now, cost);
                algorithm.peek(&state, now, 0)
            }
            Call::Charge(cost) => {
                algorithm.charge(&mut state, now, cost);
                algorithm.peek(&state, now, 0)
            }
            Call::Reset => {
                state = algorithm.fresh(now);
                algorithm.peek(&state, now, 0)
            }
        };
        if !decision.is_denied() && step.call.opcode() != 2 {
            self.state = Some(state);
        }
        decision
    }
}

fn is_same<A: Scripted>(one: &A, other: &A) -> bool {
    let [one, other] = [one, other].map(|algorithm| {
        let mut parts = Vec::new();
        algorithm.parts(&mut parts);
        parts
    });
    let figures = |parts: Vec<Part>| parts.into_iter().map(|part| (part.header, part.params));
    figures(one).eq(figures(other))
}

/// Half of the traces run without the fast path.
fn toggle_fast_path(seed: u64, body: String) -> String {
    match seed / 2 % 2 {
        0 => body,
        _ => body.replace("op == TAKE\n", "op == -1\n"),
    }
}

/// Runs the steps on the server, on an empty database.
fn run_scripts<A: Scripted>(
    connection: &mut redis::Connection,
    variants: &[A],
    steps: &[Step],
    sabotage: impl Fn(String) -> String,
) -> Vec<Result<Decision, StoreError>> {
    let mut programs = Vec::<Program>::new();
    for variant in variants {
        let mut program = Program::with_prelude(FAKE_CLOCK, variant);
        program.body = sabotage(program.body);
        // Loading a script takes longer than running it.
        let loaded = programs.iter().find(|other| other.body == program.body);
        program.hash = loaded.map_or_else(
            || {
                let mut load = redis::cmd("SCRIPT");
                let reply = load.arg("LOAD").arg(&program.body).query(connection);
                reply.expect("the script compiles")
            },
            |other| other.hash.clone(),
        );
        programs.push(program);
    }
    let mut pipeline = redis::pipe();
    pipeline.cmd("FLUSHALL").ignore();
    for step in steps {
        let program = &programs[step.variant];
        let args = Args::for_call(&variants[step.variant], step.call);
        let command = pipeline
            .cmd("EVALSHA")
            .arg(&program.hash)
            .arg(program.keys_per_call);
        for part in 0..program.keys_per_call {
            command.arg(format!("{{k}}:{part}"));
        }
        let (params, headers) = program.shared_args();
        command.arg(params).arg(headers);
        command.arg(args.as_bytes()).arg(0).arg(step.now);
    }
    let replies: Vec<redis::Value> = pipeline.query(connection).expect("no script fails");
    steps
        .iter()
        .zip(replies)
        .map(|(step, reply)| {
            let variant = &variants[step.variant];
            let numbers = parse_numbers(&reply, 1 + programs[step.variant].stride())?;
            assert_eq!(
                numbers[0].cast_unsigned(),
                step.now,
                "the clock of the test"
            );
            let decoded = decode_reply(variant, step.call, step.now, &numbers[1..]);
            decoded.map(|reply| reply.decision)
        })
        .collect()
}

/// A random trace under variants of one algorithm. The first variant is the most frequent.
fn random_steps<A: Scripted>(random: &mut Random, variants: &[A], retunes: bool) -> Vec<Step> {
    let mut now = 1_700_000_000_000_000 + random.below(1 << 50);
    let mut variant = 0;
    let mut steps = Vec::new();
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
            15 | 16 => Call::Refund(cost),
            17 | 18 => Call::Charge(cost.min(2_000)),
            _ if random.below(4) == 0 => Call::Reset,
            _ => Call::Take(1),
        };
        if retunes && random.below(12) == 0 {
            variant = usize::try_from(random.below(variants.len() as u64)).unwrap();
        }
        steps.push(Step { now, variant, call });
    }
    steps
}

/// The first step on which the server and the oracle differ, with both decisions.
fn find_difference<A: Scripted>(
    connection: &mut redis::Connection,
    variants: &[A],
    steps: &[Step],
    sabotage: impl Fn(String) -> String,
) -> Option<String> {
    let mut oracle = Oracle::<A> {
        state: None,
        variant: 0,
    };
    let decisions = run_scripts(connection, variants, steps, sabotage);
    for (at, (step, decided)) in steps.iter().zip(&decisions).enumerate() {
        let expected = ceil_to_micros(oracle.step(variants, *step));
        // Script and algorithm saturate at different debts, both above a century.
        let saturated = |decision: &Decision| decision.reset_after > CENTURY;
        if saturated(&expected)
            || decided.as_ref().is_ok_and(saturated)
            || saturates(variants, steps, at)
        {
            return None;
        }
        if decided.as_ref() != Ok(&expected) {
            return Some(format!(
                "{variants:#?}\nsteps {:#?}\nstep {at}: the script\n{decided:?}\nthe algorithm\n{expected:?}",
                &steps[..=at]
            ));
        }
    }
    None
}

const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Whether a change of quota up to this step makes a full bucket worth a century of the new quota.
fn saturates<A: Scripted>(variants: &[A], steps: &[Step], at: usize) -> bool {
    steps[..=at].windows(2).any(|pair| {
        let [from, to] = [0, 1].map(|step| variants[pair[step].variant].quota());
        let units = u128::from(from.capacity().max(from.limit()));
        units * to.period().as_nanos() / u128::from(to.limit()) > CENTURY.as_nanos()
    })
}
