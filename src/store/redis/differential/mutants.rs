//! Bugs planted in the scripts, which a trace must find.

use super::policies::{
    fixed_window, leaky_meter, leaky_queue, sliding_grid, sliding_log, sliding_window,
    token_bucket, warm_up,
};
use super::{RedisServer, difference, random::Random, steps, toggle_fast_path};
use crate::store::redis::script::Scripted;

/// Whether a trace tells a script with a planted bug from the transition.
fn is_caught<A: Scripted>(policy: impl Fn(&mut Random) -> A, right: &str, wrong: &str) -> bool {
    let server = RedisServer::start();
    let mut connection = server.connection();
    (0..400).any(|seed| {
        let mut random = Random::new(77 << 40 | seed);
        let variants: Vec<_> = (0..3)
            .map(|_| policy(&mut random).prepared().expect("figures that fit"))
            .collect();
        let steps = steps(&mut random, &variants, seed % 2 == 0);
        let sabotage = |body: String| {
            assert!(body.contains(right), "no {right:?} to plant a bug in");
            toggle_fast_path(seed, body.replace(right, wrong))
        };
        difference(&mut connection, &variants, &steps, sabotage).is_some()
    })
}

#[test]
fn a_planted_bug_in_a_script_is_caught() {
    let plant = |caught: bool, bug: &str| assert!(caught, "{bug} was not caught");
    let bug = "used + cost <= limit";
    plant(
        is_caught(fixed_window, bug, "used + cost <= limit + 1"),
        "one too many",
    );
    let bug = "used, open = place(from, used, old";
    plant(
        is_caught(fixed_window, &format!("{bug}[1]"), &format!("{bug}[1] + 1")),
        "another grid",
    );
    let bug = "room + 1, length)";
    plant(
        is_caught(sliding_window, bug, "room, length)"),
        "a floor that is none",
    );
    let bug = "window + 1 == present and current or 0";
    plant(
        is_caught(sliding_window, bug, "current"),
        "a window that was skipped",
    );
    let bug = "passed < age and";
    plant(
        is_caught(sliding_grid, bug, "passed <= age and"),
        "a cell too many",
    );
    let bug = "if not log[2] or log[2] == 0 or now < log[4] + span then";
    let wrong = "if not log[2] or log[2] == 0 or now <= log[4] + span then";
    plant(
        is_caught(sliding_log, bug, wrong),
        "an entry that is gone a moment late",
    );
    let bug = "return total >= target";
    plant(
        is_caught(sliding_log, bug, "return total > target"),
        "the wrong entry",
    );
    let bug = "after_part <= bound_part";
    plant(
        is_caught(token_bucket, bug, "after_part < bound_part"),
        "what exactly fits",
    );
    let bug = "after, after_part = after + 1, after_part - parts";
    plant(
        is_caught(leaky_meter, bug, "after_part = after_part - parts"),
        "no carry",
    );
    let bug = "return x.divide_up(times(count, x.to.num), x.from.num)";
    let wrong = "return (x.divide(times(count, x.to.num), x.from.num))";
    plant(
        is_caught(leaky_meter, bug, wrong),
        "a change of quota that mints",
    );
    let bug = "local held = x.divide(";
    plant(
        is_caught(token_bucket, bug, "local held = x.divide_up("),
        "a change of quota that mints a part of a token",
    );
    let bug = "if lead + lead_part > 0 and due + part > 0 then";
    plant(
        is_caught(leaky_queue, bug, "if false then"),
        "a place in line that nobody paid before",
    );
    let bug = "if due > unused or due == unused and part >= unused_part then";
    plant(
        is_caught(leaky_queue, bug, "if due >= now then"),
        "a free line that cannot be given back",
    );
    let bug = "local more = extra(s) - extra(left)";
    plant(
        is_caught(warm_up, bug, "local more = extra(s)"),
        "an extra that does not telescope",
    );
    let bug = "stored + (idle * 1000 - begun) * refill";
    plant(
        is_caught(warm_up, bug, "stored + idle * 1000 * refill"),
        "a begun nanosecond",
    );
    let pair = |random: &mut Random| (fixed_window(random), leaky_meter(random));
    let bug = "fault = steps[part](KEYS[first + part - 1], op, ok)";
    plant(
        is_caught(
            pair,
            bug,
            "fault = steps[part](KEYS[first + part - 1], op, true)",
        ),
        "half a pair",
    );
    let bug = "call('PSETEX', key, floor((forgettable - now) / 1000) + 2, value)";
    plant(
        is_caught(token_bucket, bug, "call('PSETEX', key, 1, value)"),
        "a key that expires too early",
    );
}

#[cfg(feature = "governor")]
#[test]
fn a_planted_bug_in_governors_script_is_caught() {
    let gcra = super::policies::gcra;
    assert!(
        is_caught(gcra, "max(old[4] - used, 0)", "old[4]"),
        "a change of quota that forgets what was used"
    );
    assert!(
        is_caught(
            gcra,
            "x.small((x.divide(arrival, interval(old))))",
            "x.small((x.divide_up(arrival, interval(old))))"
        ),
        "a begun cell that counts"
    );
}

#[test]
fn a_planted_bug_in_the_fast_path_is_caught() {
    let plant = |caught: bool, bug: &str| assert!(caught, "{bug} was not caught");
    plant(
        is_caught(sliding_window, "or weight < most", "or weight <= most"),
        "a floor that is none, where it is decided before",
    );
    plant(
        is_caught(fixed_window, "window < oldest", "window <= oldest"),
        "a window that is over too early",
    );
    let bug = "answer[slot + 1], answer[slot + 2] = due, part";
    plant(
        is_caught(
            leaky_meter,
            bug,
            "answer[slot + 1], answer[slot + 2] = due, 0",
        ),
        "a part that is not told",
    );
}
