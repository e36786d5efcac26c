//! The script of a fleet does what a batch does in process, byte by byte.

use std::collections::HashMap;

use redis::Connection;

use super::{FAKE_CLOCK, ONLY_DECLARED_KEYS, RedisServer, random::seeds};
use crate::clock::{Tick, nanos};
use crate::store::{
    fleet::{Batch, Replies, simulation::traces::Trace},
    redis::fleet::{Group, SCRIPT},
};

/// The values of keys, and when they expire by the script's fake clock.
type Values = HashMap<String, (Vec<u8>, u64)>;

/// Executes a batch in process.
fn execute(values: &mut Values, batch: &Batch, now: u64) -> Replies {
    let keys: Vec<_> = batch.keys().collect();
    let before = keys.iter().map(|key| Some(&values.get(*key)?.0[..]));
    let time = Tick::from_nanos(now * 1_000);
    let (writes, replies) = batch.execute(before, Some(time));
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
        values.retain(|key, (_, due)| *due > now || batch.keys().all(|name| name != key));
        let expected = execute(&mut values, &batch, now);
        let group = Group::whole(&batch);
        let mut command = redis::cmd("EVALSHA");
        group.add_args(command.arg(&digest));
        let told = match command.arg(0).arg(now).query(connection) {
            Ok(reply) => group.parse(reply).expect("the script's reply"),
            Err(error) => return Some(error.to_string()),
        };
        let told = Replies::new(told.0, told.1);
        if told != expected {
            return Some(format!(
                "{batch:#?}\nstep {at} at {now}: {told:#?}\nexpected {expected:#?}"
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
                return Some(format!("{batch:#?}\nstep {at} at {now}: {key} {texts:#?}"));
            }
        }
        trace.adopt(&batch, &expected);
    }
    None
}

/// Damages the value of a key.
fn damage(connection: &mut Connection, trace: &mut Trace, batch: &Batch, values: &mut Values) {
    let keys: Vec<_> = batch.keys().collect();
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
        "ARGV[1] <= last",
        "ARGV[1] < last",
        "a batch that counts twice",
    ),
    (
        "#ARGV[1] < #last or #ARGV[1] == #last and ARGV[1] <= last",
        "tonumber(ARGV[1]) <= tonumber(last)",
        "a large sequence number that is rounded",
    ),
    (
        "if at - now <= interval then",
        "if true then",
        "a clock set back that freezes a key",
    ),
    (
        "if now >= ends then lapsed1, out, old_out = old_out, 0, out end",
        "if now >= ends then out, old_out = 0, out end",
        "units that lapse and do not count",
    ),
    (
        "max(spent1 - charged, 0)",
        "spent1",
        "units that count twice",
    ),
    ("a[2] < b[2]", "false", "costs out of order"),
    (
        "when < part.padding + part.length and 0 or 1",
        "0",
        "a window of the calendar that does not end",
    ),
    (
        "free = min(free, free_at(next_at + next_for, index) - max(next_places - next, 0))",
        "",
        "units of the next window in this one",
    ),
    (
        "- max(next_places - next, 0)",
        "",
        "a place of a slot that two may use",
    ),
    (
        "max(next - next_returned, 0), 0",
        "max(next - next_returned, 0), next_places",
        "a place that is granted again while another has it",
    ),
    (
        "ceil(ticks % layout / step)",
        "floor(ticks % layout / step)",
        "a change of the rate that mints",
    ),
    (
        "ceil(min(cells[2 - steps]",
        "floor(min(cells[2 - steps]",
        "a weight that is rounded down",
    ),
    (
        "min(#cells, part.count - steps)",
        "min(#cells, part.count)",
        "cells that are counted for too long",
    ),
    (
        "max(moment, known_reset + 1)",
        "moment",
        "two resets with one number",
    ),
    (
        "if index > part.count then return cells end",
        "index = 1",
        "a cost that counts in a later cell",
    ),
    (
        "min(at1 + late, moment), min(at2 + late, moment)",
        "min(at1, moment), min(at2, moment)",
        "a cost that counts before the time of its record",
    ),
    (
        "if is_current and given_back > 0",
        "if given_back > 0",
        "units from before a reset",
    ),
    (
        "min(share * GAIN, WHOLE)",
        "share",
        "the share of a quiet fleet",
    ),
    (
        "KEYS[index], record_ttl,",
        "KEYS[index], record_ttl / 2,",
        "a record that expires early",
    ),
    (
        "return is_list and list",
        "return is_list and list or { 0 }",
        "a damaged list that is read as an empty one",
    ),
    (
        "elseif place <= #text then",
        "elseif false then",
        "a damaged value that is written over",
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
