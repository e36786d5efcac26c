//! The scripts against the transitions that they repeat: the same traces, on a real server, give
//! equal decisions.
//!
//! `TRACES=100000 cargo test --release --all-features --lib redis::differential` is the long run.

use std::time::Duration;

use super::params::Call;
use super::reply::numbers;
use super::script::{Part, Program, Scripted, decision};
use crate::algorithm::{All, AnyAlgorithm, Charge, Inherit, TokenBucket};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::StoreError;

mod batched;
mod clock;
mod mutants;
mod policies;
#[path = "../../../../tests/algorithms/random.rs"]
mod random;
#[path = "../../../../tests/common/redis_server.rs"]
#[expect(dead_code, reason = "shared with the tests of the store")]
mod redis_server;

use self::policies::{
    fixed_window, leaky_meter, leaky_queue, sliding_grid, sliding_log, sliding_window, small,
    token_bucket, warm_up,
};
use self::random::{Random, seeds};
use self::redis_server::RedisServer;

/// A clock of the test's own in the place of the server's, for the time and for expiry.
const FAKE_CLOCK: &str = include_str!("../../../../examples/replay/clock.lua");

/// What happens to one key: at a time in microseconds, under one of several variants.
#[derive(Clone, Copy, Debug)]
struct Step {
    now: u64,
    variant: usize,
    call: Call,
}

/// One key as the pure transitions see it.
struct Oracle<A: Scripted> {
    state: Option<A::State>,
    made_for: usize,
}

impl<A: Scripted> Oracle<A> {
    fn step(&mut self, variants: &[A], step: Step) -> Decision {
        let now = Tick::from_nanos(step.now * 1_000);
        let algorithm = &variants[step.variant];
        if self.made_for != step.variant {
            let from = &variants[self.made_for];
            self.state = self.state.take().filter(|s| from.forgettable_at(s) > now);
            // Two variants may be one policy, to a script.
            if let Some(state) = self.state.as_mut().filter(|_| !is_same(from, algorithm)) {
                algorithm.rescale(state, from, now, Inherit::AsIs);
            }
            self.made_for = step.variant;
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
        if !decision.is_denied() && step.call.op() != 2 {
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
    let figures = |parts: Vec<Part>| parts.into_iter().map(|part| (part.header, part.figures));
    figures(one).eq(figures(other))
}

/// Half of the traces go without what decides the usual call before.
fn toggle_fast_path(seed: u64, body: String) -> String {
    match seed / 2 % 2 {
        0 => body,
        _ => body.replace("op == TAKE\n", "op == -1\n"),
    }
}

fn in_micros(decision: Decision) -> Decision {
    super::script::in_micros(decision)
}

/// Plays the steps on the server, on a key that no other trace has.
fn play<A: Scripted>(
    connection: &mut redis::Connection,
    variants: &[A],
    steps: &[Step],
    sabotage: impl Fn(String) -> String,
) -> Vec<Result<Decision, StoreError>> {
    let mut programs = Vec::<Program>::new();
    for variant in variants {
        let mut program = Program::after(FAKE_CLOCK, variant);
        program.body = sabotage(program.body);
        // A server takes longer to learn a script than to carry it out.
        let learned = programs.iter().find(|other| other.body == program.body);
        program.hash = learned.map_or_else(
            || {
                let mut load = redis::cmd("SCRIPT");
                let loaded = load.arg("LOAD").arg(&program.body).query(connection);
                loaded.expect("the script compiles")
            },
            |other| other.hash.clone(),
        );
        programs.push(program);
    }
    let mut pipeline = redis::pipe();
    pipeline.cmd("FLUSHALL").ignore();
    for step in steps {
        let program = &programs[step.variant];
        let args = super::script::Args::of(&variants[step.variant], step.call);
        let command = pipeline
            .cmd("EVALSHA")
            .arg(&program.hash)
            .arg(program.parts);
        for part in 0..program.parts {
            command.arg(format!("{{k}}:{part}"));
        }
        let (figures, headers) = program.begin();
        command.arg(figures).arg(headers);
        command.arg(args.packed()).arg(0).arg(step.now);
    }
    let answers: Vec<redis::Value> = pipeline.query(connection).expect("no script fails");
    steps
        .iter()
        .zip(answers)
        .map(|(step, answer)| {
            let variant = &variants[step.variant];
            let answer = numbers(&answer, 1 + programs[step.variant].stride())?;
            assert_eq!(answer[0].cast_unsigned(), step.now, "the clock of the test");
            let told = decision(variant, step.call, step.now, &answer[1..]);
            told.map(|told| told.decision)
        })
        .collect()
}

/// A trace under variants of one algorithm, of which the first is the usual one.
fn steps<A: Scripted>(random: &mut Random, variants: &[A], retunes: bool) -> Vec<Step> {
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

/// The first step on which the server and the oracle differ, and what they say.
fn difference<A: Scripted>(
    connection: &mut redis::Connection,
    variants: &[A],
    steps: &[Step],
    sabotage: impl Fn(String) -> String,
) -> Option<String> {
    let mut oracle = Oracle::<A> {
        state: None,
        made_for: 0,
    };
    let answers = play(connection, variants, steps, sabotage);
    for (at, (step, answer)) in steps.iter().zip(&answers).enumerate() {
        let expected = in_micros(oracle.step(variants, *step));
        // Debts of a century are where figures saturate, each side at its own.
        let ends = |decision: &Decision| decision.reset_after > CENTURY;
        if ends(&expected) || answer.as_ref().is_ok_and(ends) || saturates(variants, steps, at) {
            return None;
        }
        if answer.as_ref() != Ok(&expected) {
            return Some(format!(
                "{variants:#?}\nsteps {:#?}\nstep {at}: the script says\n{answer:?}\nthe transition\n{expected:?}",
                &steps[..=at]
            ));
        }
    }
    None
}

const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Whether a change of quota up to this step makes a full bucket of the old one worth a century of
/// the new one.
fn saturates<A: Scripted>(variants: &[A], steps: &[Step], at: usize) -> bool {
    steps[..=at].windows(2).any(|pair| {
        let [from, to] = [0, 1].map(|step| variants[pair[step].variant].quota());
        let units = u128::from(from.capacity().max(from.limit()));
        units * to.period().as_nanos() / u128::from(to.limit()) > CENTURY.as_nanos()
    })
}

fn agree<A: Scripted>(name: u64, retunes: bool, policy: impl Fn(&mut Random) -> A) {
    let server = RedisServer::start();
    let mut connection = server.connection();
    for seed in seeds(200) {
        let mut random = Random::new(name << 40 | seed);
        let variants: Vec<_> = (0..3)
            .map(|_| policy(&mut random).prepared().expect("figures that fit"))
            .collect();
        let steps = steps(&mut random, &variants, retunes && seed % 2 == 0);
        let body = |body| toggle_fast_path(seed, body);
        if let Some(difference) = difference(&mut connection, &variants, &steps, body) {
            panic!("seed {seed}: {difference}");
        }
    }
}

#[test]
fn the_fixed_window_decides_as_its_script() {
    agree(1, true, fixed_window);
}

#[test]
fn the_anchored_window_decides_as_its_script() {
    agree(2, true, |random| fixed_window(random).anchored());
}

#[test]
fn the_sliding_log_decides_as_its_script() {
    agree(3, true, sliding_log);
}

#[test]
fn the_sliding_window_decides_as_its_script() {
    agree(4, true, sliding_window);
}

#[test]
fn the_sliding_grid_decides_as_its_script() {
    agree(5, true, sliding_grid);
}

#[test]
fn the_token_bucket_decides_as_its_script() {
    agree(6, true, token_bucket);
}

#[test]
fn a_token_bucket_that_begins_with_less_decides_as_its_script() {
    agree(7, true, |random| {
        let quota = small(random);
        TokenBucket::new(quota).initial(random.below(quota.limit()))
    });
}

#[test]
fn the_leaky_meter_decides_as_its_script() {
    agree(8, true, leaky_meter);
    // How it charges matters to those who wait.
    agree(14, true, |random| {
        leaky_meter(random).charge_mode(Charge::Before)
    });
}

#[test]
fn the_leaky_queue_decides_as_its_script() {
    agree(9, true, leaky_queue);
}

#[test]
fn the_warm_up_decides_as_its_script() {
    agree(10, true, warm_up);
}

#[cfg(feature = "governor")]
#[test]
fn governors_algorithm_decides_as_its_script() {
    agree(15, true, policies::gcra);
}

#[test]
fn any_algorithm_decides_as_its_script() {
    agree(16, true, |random| AnyAlgorithm::new(token_bucket(random)));
    agree(18, true, |random| AnyAlgorithm::new(sliding_grid(random)));
    agree(17, false, |random| {
        AnyAlgorithm::new(All::new([
            AnyAlgorithm::new(leaky_meter(random)),
            AnyAlgorithm::new(sliding_log(random)),
        ]))
    });
}

#[test]
fn a_pair_decides_as_its_script() {
    agree(11, false, |random| {
        (token_bucket(random), sliding_log(random))
    });
}

#[test]
fn four_limits_of_four_kinds_decide_as_their_script() {
    agree(12, true, |random| {
        let windows = (fixed_window(random), sliding_window(random));
        (windows, (sliding_grid(random), leaky_meter(random)))
    });
}

#[test]
fn a_list_of_one_kind_decides_as_its_script() {
    agree(13, false, |random| {
        All::new([
            token_bucket(random),
            token_bucket(random),
            token_bucket(random),
        ])
    });
}
