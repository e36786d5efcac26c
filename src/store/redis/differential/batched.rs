//! Batches: calls on several keys in one script call are decided like single calls.

use super::policies::{fixed_window, leaky_bucket, sliding_log, sliding_window, token_bucket};
use super::random::{Random, seeds};
use super::{CENTURY, RedisServer, Step, decide, decode, is_written, load, numbers, random_steps};
use crate::algorithm::{Algorithm, IntoAlgorithm};
use crate::backend::Op;
use crate::clock::Tick;
use crate::store::redis::{kernel::Kernels, send::packed};

const KEYS: usize = 5;

/// The first difference between batched and single calls on several keys.
fn find_difference<A: Algorithm>(
    connection: &mut redis::Connection,
    algorithm: &A,
    seed: u64,
    sabotage: impl Fn(String) -> String,
) -> Option<String> {
    let mut random = Random::new(99 << 40 | seed);
    let steps = random_steps(&mut random, std::slice::from_ref(algorithm), None);
    let kernels = Kernels::of(algorithm).expect("a limit of the script");
    let hash = load(connection, sabotage);
    let mut keys: [Option<A::State>; KEYS] = std::array::from_fn(|_| None);
    let _: () = redis::cmd("FLUSHALL").query(connection).expect("done");
    for at in 0..steps.len() {
        let now = steps[at].now;
        // Batches of equal calls, and of different ones.
        let alike = random.below(2) == 0;
        let calls = (0..KEYS).map(|key| {
            let other = (at + key * 7) % steps.len();
            steps[if alike { at } else { other }].op
        });
        let calls: Vec<_> = calls.collect();
        // The same call on one key more than once, one after the other or as a run of calls.
        let repeats = alike && random.below(2) == 0;
        let on_keys: [_; KEYS] = std::array::from_fn(|key| if repeats { key / 2 } else { key });
        let runs = !repeats && random.below(2) == 0;
        let counts = calls.iter().map(|op| match op {
            Op::Take(1..) if runs => 1 + random.below(6),
            _ => 1,
        });
        let counts: Vec<_> = counts.collect();
        let mut command = redis::cmd("EVALSHA");
        command.arg(&hash).arg(KEYS);
        for key in on_keys {
            command.arg(key.to_string());
        }
        let told_counts = counts.iter().copied().take(if runs { KEYS } else { 0 });
        command.arg(packed(told_counts));
        let args = calls.iter().map(|op| kernels.args(*op, algorithm));
        for args in args.take(if alike { 1 } else { KEYS }) {
            command.arg(args);
        }
        let reply: redis::Value = command.arg(0).arg(now).query(connection).expect("it runs");
        let numbers = numbers(reply).expect("the script's");
        let mut rest = &numbers[..];
        for ((op, key), count) in calls.into_iter().zip(on_keys).zip(counts) {
            let count = usize::try_from(count).expect("a few");
            let (told, next) = decode(&kernels, op, count, &mut rest).expect("decisions");
            let step = Step {
                now,
                variant: 0,
                op,
            };
            let fresh = || algorithm.fresh(Tick::from_nanos(now * 1_000));
            let mut expected: Vec<_> = (0..count)
                .map(|_| {
                    let mut state = keys[key].clone().unwrap_or_else(fresh);
                    let decision = decide(algorithm, &mut state, step);
                    if is_written(op, &decision) {
                        keys[key] = Some(state);
                    }
                    decision
                })
                .collect();
            // All that are admitted are told what is left after the last one.
            if let Some(last) = expected.iter().rposition(|one| !one.is_denied()) {
                let of_last = expected[last];
                expected[..last].fill(of_last);
            }
            if expected.iter().any(|one| one.reset_after > CENTURY) {
                return None;
            }
            let mut state = keys[key].clone().unwrap_or_else(fresh);
            let after = decide(algorithm, &mut state, step);
            let is_next = next.is_none_or(|next| next == after);
            if told != expected || !is_next {
                return Some(format!(
                    "{algorithm:#?}\nstep {at}, key {key}, {count} times {op:?}: the script says\n{told:?}\n\
                     the transition\n{expected:?}\nand then\n{next:?}\n{after:?}"
                ));
            }
        }
    }
    None
}

fn assert_agree<A: IntoAlgorithm>(policy: impl Fn(&mut Random) -> A) {
    let server = RedisServer::start();
    let mut connection = server.connection();
    for seed in seeds(40) {
        let algorithm = policy(&mut Random::new(55 << 40 | seed)).into_algorithm();
        if let Some(difference) = find_difference(&mut connection, &algorithm, seed, |body| body) {
            panic!("seed {seed}: {difference}");
        }
    }
}

/// A batch decides as single calls; calls in flight at the same time share a script call.
#[test]
fn batched_calls_decide_as_single_calls() {
    assert_agree(fixed_window);
    assert_agree(|random| fixed_window(random).anchored());
    assert_agree(sliding_window);
    assert_agree(token_bucket);
    assert_agree(leaky_bucket);
    assert_agree(|random| (token_bucket(random), sliding_log(random)));
    assert_agree(|random| (token_bucket(random), fixed_window(random)));
}

#[test]
fn a_planted_bug_in_batching_is_caught() {
    for (right, wrong, what) in [
        (
            "args[index + 1] or args[2]",
            "args[2]",
            "the arguments of the first call for all",
        ),
        (
            "if not has_room then break end",
            "",
            "a run of calls that is admitted as a whole",
        ),
        (
            "pcall('GET', key)",
            "pcall('GET', KEYS[1])",
            "all calls on the key of the first",
        ),
    ] {
        let server = RedisServer::start();
        let mut connection = server.connection();
        let is_caught = (0..40).any(|seed| {
            let algorithm = token_bucket(&mut Random::new(55 << 40 | seed));
            let sabotage = |body: String| {
                assert!(body.contains(right), "no {right:?} to plant a bug in");
                body.replace(right, wrong)
            };
            find_difference(&mut connection, &algorithm, seed, sabotage).is_some()
        });
        assert!(is_caught, "{what}");
    }
}
