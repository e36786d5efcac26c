//! Batches: calls on several keys in one script call are decided like single calls.

use super::policies::{fixed_window, leaky_queue, sliding_log, sliding_window, token_bucket};
use super::random::{Random, seeds};
use super::{CENTURY, FAKE_CLOCK, Oracle, Program, RedisServer, Stored, random_steps};
use crate::store::{
    redis::reply::parse_reply,
    redis::script::{Scripted, call_args, ceil_to_micros, decode_reply},
};

const KEYS: usize = 5;

/// The first difference between batched and single calls on several keys.
fn find_difference<A: Scripted>(
    connection: &mut redis::Connection,
    algorithm: &A,
    seed: u64,
    sabotage: impl Fn(String) -> String,
) -> Option<String> {
    let mut random = Random::new(99 << 40 | seed);
    let variants = std::slice::from_ref(algorithm);
    let mut times = random_steps(&mut random, variants, None);
    let program = Program::with_prelude(FAKE_CLOCK, algorithm);
    let body = sabotage(program.script.body);
    let mut keys: Vec<_> = (0..KEYS).map(|_| Oracle::<A>::new()).collect();
    let _: () = redis::cmd("FLUSHALL").query(connection).expect("done");
    // All calls are of one configuration.
    let stored = Stored {
        newest: None,
        is_displaced: false,
    };
    for at in 0..times.len() {
        let now = times[at].now;
        // Batches of equal calls, and of different ones.
        let alike = random.below(2) == 0;
        let calls: Vec<_> = (0..KEYS)
            .map(|key| {
                let other = (at + key * 7) % times.len();
                times[if alike { at } else { other }].call
            })
            .collect();
        // The same call on one key more than once.
        let repeats = alike && random.below(2) == 0;
        let on_keys: Vec<_> = (0..KEYS)
            .map(|key| if repeats { key / 2 } else { key })
            .collect();
        let mut command = redis::cmd("EVAL");
        command.arg(&body).arg(KEYS * program.keys_per_call);
        for key in &on_keys {
            for part in 0..program.keys_per_call {
                command.arg(format!("{key}:{part}"));
            }
        }
        command.arg(&program.settings);
        let args = calls.iter().map(|call| call_args(algorithm, *call));
        for args in args.take(if alike { 1 } else { KEYS }) {
            command.arg(args);
        }
        let reply: redis::Value = command.arg(0).arg(now).query(connection).expect("it runs");
        let (_, outcomes) = parse_reply(reply, KEYS).expect("the script's");
        for (index, call) in calls.into_iter().enumerate() {
            let key = on_keys[index];
            times[at].call = call;
            let expected = ceil_to_micros(keys[key].step(variants, times[at], &stored));
            if expected.reset_after > CENTURY {
                return None;
            }
            let told = decode_reply(algorithm, call, now, &outcomes[index]);
            let told = told.map(|told| told.decision);
            if told.as_ref() != Ok(&expected) {
                return Some(format!(
                    "{algorithm:#?}\nstep {at}, key {key}, {call:?}: the script says\n{told:?}\n\
                     the transition\n{expected:?}"
                ));
            }
        }
    }
    None
}

fn assert_agree<A: Scripted>(policy: impl Fn(&mut Random) -> A) {
    let server = RedisServer::start();
    let mut connection = server.connection();
    for seed in seeds(40) {
        let algorithm = policy(&mut Random::new(55 << 40 | seed));
        let algorithm = algorithm.prepared().expect("figures that fit");
        if let Some(difference) = find_difference(&mut connection, &algorithm, seed, |body| body) {
            panic!("seed {seed}: {difference}");
        }
    }
}

/// Shows promise 88.
#[test]
fn batched_calls_decide_as_single_calls() {
    assert_agree(fixed_window);
    assert_agree(|random| fixed_window(random).anchored());
    assert_agree(sliding_window);
    assert_agree(token_bucket);
    assert_agree(leaky_queue);
    assert_agree(|random| (token_bucket(random), sliding_log(random)));
    assert_agree(|random| (token_bucket(random), fixed_window(random)));
}

/// Shows promise 88.
#[test]
fn a_planted_bug_in_batching_is_caught() {
    for (right, wrong, what) in [
        (
            "ARGV[#replies + 1] or ARGV[2]",
            "ARGV[2]",
            "the arguments of the first call for all",
        ),
        (
            "if own_text ~= text then",
            "if not text then",
            "arguments that are read once",
        ),
        (
            "KEYS[first_key + part - 1]",
            "KEYS[part]",
            "all calls on the key of the first",
        ),
    ] {
        assert!(is_caught(token_bucket, right, wrong), "{what}");
    }
    let pair = |random: &mut Random| (token_bucket(random), fixed_window(random));
    let right = "for first_key = 1, #KEYS, part_count do";
    let wrong = "for first_key = 1, #KEYS / part_count do";
    assert!(is_caught(pair, right, wrong), "keys of other calls");
}

/// Whether a trace finds the planted bug.
fn is_caught<A: Scripted>(policy: impl Fn(&mut Random) -> A, right: &str, wrong: &str) -> bool {
    let server = RedisServer::start();
    let mut connection = server.connection();
    (0..40).any(|seed| {
        let algorithm = policy(&mut Random::new(55 << 40 | seed));
        let algorithm = algorithm.prepared().expect("figures that fit");
        let sabotage = |body: String| {
            assert!(body.contains(right), "no {right:?} to plant a bug in");
            body.replace(right, wrong)
        };
        find_difference(&mut connection, &algorithm, seed, sabotage).is_some()
    })
}
