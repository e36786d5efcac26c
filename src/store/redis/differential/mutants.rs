//! Bugs planted in the scripts, which the traces must find.

use super::policies::{
    fixed_window, leaky_meter, leaky_queue, lockout, sliding_grid, sliding_log, sliding_window,
    token_bucket, warm_up,
};
use super::{RedisServer, find_difference, random::Random, random_steps, random_variants};
use crate::store::redis::script::Scripted;

/// Whether a trace finds the planted bug.
pub(super) fn is_caught<A: Scripted>(
    policy: impl Fn(&mut Random) -> A,
    right: &str,
    wrong: &str,
) -> bool {
    let server = RedisServer::start();
    let mut connection = server.connection();
    (0..400).any(|seed| {
        let mut random = Random::new(77 << 40 | seed);
        let variants = random_variants(&mut random, &policy);
        let changes = (seed % 2 == 0).then_some(2 + seed % 10);
        let steps = random_steps(&mut random, &variants, changes);
        let sabotage = |body: String| {
            assert!(body.contains(right), "no {right:?} to plant a bug in");
            body.replace(right, wrong)
        };
        find_difference(&mut connection, &variants, &steps, sabotage).is_some()
    })
}

pub(super) fn assert_caught(caught: bool, bug: &str) {
    assert!(caught, "{bug} was not caught");
}

/// Shows promise 82.
#[test]
fn a_planted_bug_in_a_script_is_caught() {
    let bug = "used + cost <= limit";
    assert_caught(
        is_caught(fixed_window, bug, "used + cost <= limit + 1"),
        "one too many",
    );
    let bug = "is_open = advance(stored_window, used, unpack(old_params))";
    assert_caught(
        is_caught(
            fixed_window,
            bug,
            "is_open = advance(stored_window, used, length, pad, anchored)",
        ),
        "another grid",
    );
    let bug = "if window < oldest then";
    assert_caught(
        is_caught(fixed_window, bug, "if window <= oldest then"),
        "a window that ends too early",
    );
    let bug = "return left < right";
    assert_caught(
        is_caught(sliding_window, bug, "return not is_exact or left < right"),
        "large products that are not compared",
    );
    let bug = "length - elapsed, room + 1, length)";
    assert_caught(
        is_caught(sliding_window, bug, "length - elapsed, room, length)"),
        "a missing floor",
    );
    let bug = "window + 1 == current_window and current or 0";
    assert_caught(
        is_caught(sliding_window, bug, "current"),
        "a window that was skipped",
    );
    let bug = "elapsed_cells < age and";
    assert_caught(
        is_caught(sliding_grid, bug, "elapsed_cells <= age and"),
        "a cell too many",
    );
    let bug = "if log.count == 0 or now < log.first_at + span then";
    let wrong = "if log.count == 0 or now <= log.first_at + span then";
    assert_caught(
        is_caught(sliding_log, bug, wrong),
        "an entry that expires a moment late",
    );
    let bug = "return total >= target";
    assert_caught(
        is_caught(sliding_log, bug, "return total > target"),
        "the wrong entry",
    );
    let bug = "after_part <= bound_part";
    assert_caught(
        is_caught(token_bucket, bug, "after_part < bound_part"),
        "a cost that fits exactly",
    );
    let bug = "after, after_part = after + 1, after_part - parts_per_us";
    let wrong = "after_part = after_part - parts_per_us";
    assert_caught(is_caught(leaky_meter, bug, wrong), "no carry");
    let bug = "push_reply(part)";
    assert_caught(
        is_caught(leaky_meter, bug, "push_reply(0)"),
        "a part that is not returned",
    );
    let bug = "return bn.divide_up(multiply(count, bn.to.num), bn.from.num)";
    let wrong = "return (bn.divide(multiply(count, bn.to.num), bn.from.num))";
    assert_caught(
        is_caught(leaky_meter, bug, wrong),
        "a change of quota that mints",
    );
    let bug = "return longest, longest_part";
    assert_caught(
        is_caught(token_bucket, bug, "return due, part"),
        "a change of quota that denies for longer than before",
    );
    let bug = "if lead + lead_part > 0 and due + part > 0 then";
    assert_caught(
        is_caught(leaky_queue, bug, "if false then"),
        "a lead that is not charged",
    );
    let bug = "if due > earliest or due == earliest and part >= earliest_part then";
    assert_caught(
        is_caught(leaky_queue, bug, "if due >= now then"),
        "a refund that an empty queue ignores",
    );
    let bug = "local ramp_ns = ramp_cost(stored_now) - ramp_cost(stored_after)";
    assert_caught(
        is_caught(warm_up, bug, "local ramp_ns = ramp_cost(stored_now)"),
        "an extra that does not telescope",
    );
    let bug = "stored + (idle * 1000 - begun_ns) * refill";
    assert_caught(
        is_caught(warm_up, bug, "stored + idle * 1000 * refill"),
        "a nanosecond that has begun",
    );
}

/// Shows promise 84.
#[test]
fn a_planted_bug_in_a_set_of_limits_is_caught() {
    let pair = |random: &mut Random| (fixed_window(random), leaky_meter(random));
    for (bug, wrong, what) in [
        (
            "limits[part](key, op, args[part], admitted)",
            "limits[part](key, op, args[part], true)",
            "half of a pair",
        ),
        (
            "admitted = admitted and part_admits\n        if op",
            "admitted = part_admits\n        if op",
            "the verdict of the last limit",
        ),
        (
            "for part = 2, part_count do",
            "for part = 3, part_count do",
            "a first limit that takes before the second is asked",
        ),
    ] {
        assert_caught(is_caught(pair, bug, wrong), what);
    }
    let meters = |random: &mut Random| (leaky_meter(random), leaky_meter(random));
    assert_caught(
        is_caught(meters, "op, args[part], nil)", "op, args[1], nil)"),
        "the arguments of the first limit",
    );
}

/// Shows promise 85.
#[test]
fn a_key_that_expires_too_early_is_caught() {
    let bug = "redis.call('PSETEX', key, ttl_ms(unused_at), header .. state)";
    assert_caught(
        is_caught(
            token_bucket,
            bug,
            "redis.call('PSETEX', key, 1, header .. state)",
        ),
        "a key that expires too early",
    );
}

#[test]
fn a_planted_bug_in_the_lockout_script_is_caught() {
    for (bug, wrong, what) in [
        (
            "if at_now < ends then",
            "if at_now <= ends then",
            "a block that ends late",
        ),
        (
            "2 ^ state.level, params[4]",
            "2 ^ state.level, MAX_INT",
            "a block above the longest",
        ),
        (
            "if moment <= taken_at then",
            "if moment <= taken_at and now < moment + own_params[2] then",
            "a late success that does not end its block",
        ),
        (
            "state.moments[expired + 1] + params[2] <= at_now",
            "state.moments[expired + 1] + params[2] < at_now",
            "a failure that expires late",
        ),
        (
            "keep_newest(state, places(state, own_params) - 1)",
            "keep_newest(state, MAX_COUNT)",
            "a lower quota that starts a block",
        ),
        (
            "return ends, true",
            "return ends, false",
            "a failure that extends a block",
        ),
    ] {
        assert!(is_caught(lockout, bug, wrong), "{what} was not caught");
    }
}

/// Shows promise 82.
#[test]
fn a_planted_bug_in_a_change_of_quota_is_caught() {
    let bug = "    store(key, header, '', now)";
    let wrong = "    return";
    let anchored = |random: &mut Random| fixed_window(random).anchored();
    assert_caught(
        is_caught(anchored, bug, wrong),
        "usage that comes back with the third quota",
    );
    assert_caught(
        is_caught(token_bucket, bug, wrong),
        "tokens that a third quota finds gone",
    );
    let bug = "if commit ~= nil then\n            store";
    let wrong = "if commit ~= nil and log.count > 0 then\n            store";
    assert_caught(
        is_caught(sliding_log, bug, wrong),
        "entries that come back under a longer period",
    );
    let bug = "is_open = advance(window, used, length, pad, anchored)\n                else";
    assert_caught(
        is_caught(
            anchored,
            bug,
            "is_open = advance(now + 1, used, length, pad, anchored)\n                else",
        ),
        "an anchored window that a change moves",
    );
    let bug = "if is_unused then\n                    configuration";
    assert_caught(
        is_caught(
            sliding_window,
            bug,
            "if index ~= own_index then\n                    configuration",
        ),
        "a configuration that loses its state",
    );
}

/// The script of GCRA is that of the token bucket.
#[cfg(feature = "governor")]
#[test]
fn a_planted_bug_in_the_gcra_script_is_caught() {
    assert!(
        is_caught(
            super::policies::gcra,
            "local longest, longest_part = now, 0",
            "local longest, longest_part, depth = now, 0, 0"
        ),
        "a change of quota that forgets what ten empty buckets lack"
    );
}

/// Shows promise 85.
#[test]
fn a_time_to_live_that_is_too_short_is_caught() {
    let bug = "(unused_at - now) / 1000";
    assert_caught(
        is_caught(token_bucket, bug, "(unused_at - now) / 2000"),
        "half the time to live of a bucket",
    );
    assert_caught(
        is_caught(sliding_log, bug, "(unused_at - now) / 2000"),
        "half the time to live of a log",
    );
    let bug = "redis.call('PEXPIRE', key, ttl_ms(log.last_at + period))";
    assert_caught(
        is_caught(sliding_log, bug, ""),
        "a log that keeps its first time to live",
    );
}

/// The states of several configurations are in one value.
///
/// Shows promise 90.
#[test]
fn a_state_that_ends_with_that_of_another_configuration_is_caught() {
    for (bug, wrong, what) in [
        (
            "last_until = math.max(last_until, kept_until)",
            "",
            "a value that ends with the state that was written last",
        ),
        (
            "first.kept_until = now + math.max(left, 0)",
            "first.kept_until = now",
            "a state that ends when that of another configuration is written",
        ),
        (
            "if kept[1] and not units or not is_unused then",
            "if not is_unused then",
            "a configuration that takes usage over for the second time",
        ),
        (
            "if own_index ~= #list then",
            "if false then",
            "usage that is taken over after a reset",
        ),
    ] {
        assert!(is_caught(token_bucket, bug, wrong), "{what} was not caught");
    }
}
