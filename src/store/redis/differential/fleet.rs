//! The script of a fleet does what a batch does in process, byte by byte.

use std::collections::HashMap;

use redis::Connection;

use super::{FAKE_CLOCK, ONLY_DECLARED_KEYS, RedisServer, random::seeds};
use crate::clock::nanos;
use crate::store::{
    cas::Program as _,
    fleet::{Batch, Replies, simulation::traces::Trace},
    redis::{fleet::SCRIPT, script::Scripted},
};

/// The values of keys, and when they expire by the script's fake clock.
type Values = HashMap<String, (Vec<u8>, u64)>;

/// Executes a batch in process.
fn execute(values: &mut Values, batch: &Batch, now: u64) -> Replies {
    let keys = batch.keys();
    let before = keys.iter().map(|key| Some(&values.get(*key)?.0[..]));
    let (writes, replies) = batch.execute_at(before, (now, true));
    for write in writes {
        let due = now - now % 1_000 + (nanos(write.ttl) / 1_000_000 + 1) * 1_000;
        let key = keys[write.index].to_owned();
        values.insert(key, (write.value.bytes, due));
    }
    replies
}

/// What differs between the server and the process in a trace.
fn find_difference(connection: &mut Connection, seed: u64, script: &str) -> Option<String> {
    let mut load = redis::cmd("SCRIPT");
    let body = [FAKE_CLOCK, ONLY_DECLARED_KEYS, script].concat();
    let digest: String = load
        .arg("LOAD")
        .arg(body)
        .query(connection)
        .expect("it compiles");
    redis::cmd("FLUSHALL").exec(connection).expect("done");
    let mut trace = Trace::new(91 << 40 | seed);
    let mut values = Values::new();
    for at in 0..40 {
        let batch = trace.step();
        let now = trace.now;
        if trace.random.below(30) == 0 {
            damage(connection, &mut trace, &batch, &mut values);
        }
        values.retain(|key, (_, due)| *due > now || batch.keys().iter().all(|name| name != key));
        let expected = execute(&mut values, &batch, now);
        let parts: Vec<_> = (0..batch.part_keys().len()).collect();
        let mut command = redis::cmd("EVALSHA");
        batch.add_args(&parts, true, command.arg(&digest));
        let told = match command.arg(0).arg(now).query(connection) {
            Ok(reply) => batch.parse(vec![(parts, Ok(reply))]),
            Err(error) => return Some(error.to_string()),
        };
        let told = told.expect("the script's reply");
        if told != expected {
            let reports = (1..batch.keys().len()).map(|index| batch.report_numbers(index - 1));
            let sent = (batch.limit_numbers(), reports.collect::<Vec<_>>());
            let stored = batch.keys().into_iter().map(|key| {
                let value = values
                    .get(key)
                    .map(|(value, _)| String::from_utf8_lossy(value));
                format!("{key} {value:?}")
            });
            let stored: Vec<_> = stored.collect();
            return Some(format!(
                "{sent:?}\nstep {at} at {now}: {told:?}\nexpected {expected:?}\nthen {stored:?}"
            ));
        }
        for key in batch.keys() {
            let mut get = redis::cmd("MGET");
            let stored = get.arg(key).arg(format!("{key}!")).query(connection);
            let stored: (Option<Vec<u8>>, Option<u64>) = stored.expect("values");
            let stored = stored.0.zip(stored.1).filter(|(_, due)| *due > now);
            if stored.as_ref() != values.get(key) {
                let texts = [stored.as_ref(), values.get(key)]
                    .map(|value| value.map(|(text, due)| (String::from_utf8_lossy(text), due)));
                return Some(format!("seed {seed}\nstep {at} at {now}: {key} {texts:#?}"));
            }
        }
        trace.adopt(&batch, &expected);
    }
    None
}

/// Damages the value of a key.
fn damage(connection: &mut Connection, trace: &mut Trace, batch: &Batch, values: &mut Values) {
    let keys = batch.keys();
    let key = *trace.random.pick(&keys);
    if let Some((bytes, _)) = values.get_mut(key) {
        let place = usize::try_from(trace.random.below(bytes.len() as u64)).expect("a place");
        match trace.random.below(3) {
            0 => bytes.truncate(place),
            // A list without its last number.
            1 => bytes.truncate(
                bytes
                    .iter()
                    .rposition(|byte| *byte == b',')
                    .map_or(place, |at| at + 1),
            ),
            _ => bytes[place] = b'x',
        }
        let set = redis::cmd("SET").arg(key).arg(&bytes[..]).exec(connection);
        set.expect("done");
    }
}

/// Shows promise 202.
#[test]
fn the_script_of_a_fleet_does_what_a_batch_does() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    for seed in seeds(200) {
        if let Some(difference) = find_difference(&mut connection, seed, &SCRIPT.body) {
            panic!("seed {seed}: {difference}");
        }
    }
}

/// What is right, what is wrong, and the mistake.
const BUGS: &[(&str, &str, &str)] = &[
    (
        "last >= sequence",
        "last > sequence",
        "a batch that counts twice",
    ),
    (
        "if now + PATIENCE < at then",
        "if false then",
        "a clock set back that freezes a key",
    ),
    (
        "charge(units * keeps + charged,",
        "charge(units + charged,",
        "units that count twice",
    ),
    (
        "known == epoch - 1",
        "false",
        "units of the epoch before that stay out",
    ),
    (
        "length = max(length, life)",
        "",
        "a grant that lapses before its machine knows",
    ),
    (
        "+ ahead)",
        "+ part.refill)",
        "what refills, though it is not to be granted",
    ),
    (
        "if is_unsure then",
        "if false then",
        "units that are given back twice after a record is lost",
    ),
    (
        "waiting <= most and waiting or min(most, 1)",
        "waiting",
        "a cost that is not free",
    ),
    (
        "if index > part.count then return end",
        "if index > part.count then index = 1 end",
        "a cost that counts in a later cell",
    ),
    (
        "min(used_at + moment - now, moment)",
        "min(used_at, moment)",
        "a cost that counts before the time of its record",
    ),
];

/// Shows promise 202.
#[test]
fn a_planted_bug_in_the_script_of_a_fleet_is_caught() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    for (right, wrong, what) in BUGS {
        assert!(
            SCRIPT.body.contains(right),
            "no {right:?} to plant a bug in"
        );
        let wrong = SCRIPT.body.replace(right, wrong);
        let mut found = (0..400).map(|seed| find_difference(&mut connection, seed, &wrong));
        assert!(found.any(|found| found.is_some()), "{what} was not caught");
    }
}
