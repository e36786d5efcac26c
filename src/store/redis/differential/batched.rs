//! Calls on several keys in one script call, each of which is decided as if it were alone.

use super::policies::{fixed_window, leaky_queue, sliding_log, sliding_window, token_bucket};
use super::random::{Random, seeds};
use super::toggle_fast_path;
use super::{CENTURY, FAKE_CLOCK, Oracle, Program, RedisServer, in_micros, steps};
use crate::store::{
    redis::reply::numbers,
    redis::script::{Args, Scripted, decision, sealed::Script as _},
};

const KEYS: usize = 5;

/// What the traces of some keys, gathered, tell otherwise than one by one.
fn difference<A: Scripted>(
    connection: &mut redis::Connection,
    algorithm: &A,
    seed: u64,
    sabotage: impl Fn(String) -> String,
) -> Option<String> {
    let mut random = Random::new(99 << 40 | seed);
    let variants = std::slice::from_ref(algorithm);
    let mut times = steps(&mut random, variants, false);
    let mut program = Program::after(FAKE_CLOCK, algorithm);
    program.body = toggle_fast_path(seed, sabotage(program.body));
    let mut keys: Vec<_> = (0..KEYS)
        .map(|_| Oracle::<A> {
            state: None,
            made_for: 0,
        })
        .collect();
    let _: () = redis::cmd("FLUSHALL").query(connection).expect("done");
    for at in 0..times.len() {
        let now = times[at].now;
        // Of all calls alike, and of calls that differ.
        let alike = random.below(2) == 0;
        let calls: Vec<_> = (0..KEYS)
            .map(|key| {
                let other = (at + key * 7) % times.len();
                times[if alike { at } else { other }].call
            })
            .collect();
        let mut command = redis::cmd("EVAL");
        command.arg(&program.body).arg(KEYS * program.parts);
        for key in 0..KEYS {
            for part in 0..program.parts {
                command.arg(format!("{key}:{part}"));
            }
        }
        let (figures, headers) = program.begin();
        command.arg(figures).arg(headers);
        let args = calls.iter().map(|call| Args::of(algorithm, *call));
        for args in args.take(if alike { 1 } else { KEYS }) {
            command.arg(args.packed());
        }
        let answer: redis::Value = command.arg(0).arg(now).query(connection).expect("it runs");
        let answer = numbers(&answer, 1 + KEYS * program.stride()).expect("the script's");
        for (key, call) in calls.into_iter().enumerate() {
            times[at].call = call;
            let expected = in_micros(keys[key].step(variants, times[at]));
            if expected.reset_after > CENTURY {
                return None;
            }
            let stride = program.stride();
            let told = decision(algorithm, call, now, &answer[1 + key * stride..][..stride]);
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

fn agree<A: Scripted>(policy: impl Fn(&mut Random) -> A) {
    let server = RedisServer::start();
    let mut connection = server.connection();
    for seed in seeds(40) {
        let algorithm = policy(&mut Random::new(55 << 40 | seed));
        let algorithm = algorithm.prepared().expect("figures that fit");
        if let Some(difference) = difference(&mut connection, &algorithm, seed, |body| body) {
            panic!("seed {seed}: {difference}");
        }
    }
}

#[test]
fn batched_calls_decide_as_single_calls() {
    agree(fixed_window);
    agree(|random| fixed_window(random).anchored());
    agree(sliding_window);
    agree(token_bucket);
    agree(leaky_queue);
    agree(|random| (token_bucket(random), sliding_log(random)));
}

#[test]
fn a_planted_bug_in_batching_is_caught() {
    let is_caught = |right: &str, wrong: &str| {
        let server = RedisServer::start();
        let mut connection = server.connection();
        (0..40).any(|seed| {
            let algorithm = token_bucket(&mut Random::new(55 << 40 | seed));
            let algorithm = algorithm.prepared().expect("figures that fit");
            let sabotage = |body: String| {
                assert!(body.contains(right), "no {right:?} to plant a bug in");
                body.replace(right, wrong)
            };
            difference(&mut connection, &algorithm, seed, sabotage).is_some()
        })
    };
    assert!(
        is_caught("if differ or index == 1 then", "if index == 1 then"),
        "the first one's arguments for all"
    );
    assert!(
        is_caught("not left or left[index]", "true"),
        "a call that is carried out twice"
    );
}
