//! Bugs planted in the script, which the traces must find.

use super::policies::{fixed_window, leaky_bucket, sliding_log, sliding_window, token_bucket};
use super::{RedisServer, find_difference, random::Random, random_steps};
use crate::algorithm::IntoAlgorithm;

/// Whether a trace finds the planted bug.
pub(super) fn is_caught<A: IntoAlgorithm>(
    policy: impl Fn(&mut Random) -> A,
    right: &str,
    wrong: &str,
) -> bool {
    let server = RedisServer::start();
    let mut connection = server.connection();
    (0..400).any(|seed| {
        let mut random = Random::new(77 << 40 | seed);
        let variants = [policy(&mut random).into_algorithm()];
        let steps = random_steps(&mut random, &variants, None);
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

/// Shows promise 83.
#[test]
fn a_planted_bug_in_cells_is_caught() {
    let right = "used_of(limit) + limit.cost <= limit.limit";
    let wrong = "used_of(limit) + limit.cost <= limit.limit + 1";
    assert_caught(is_caught(fixed_window, right, wrong), "one too many");
    let anchored = |random: &mut Random| fixed_window(random).anchored();
    let right = "if steps >= limit.length then";
    let caught = is_caught(anchored, right, "if steps > limit.length then");
    assert_caught(caught, "a window that is a moment too long");
    let right = "if limit.anchored and state[at + 1] >= 0 then keeps";
    let caught = is_caught(anchored, right, "if false then keeps");
    assert_caught(caught, "an open window that is closed by a refund");
    let right = "steps < age and state[at + age + 1 - steps] or 0";
    assert_caught(
        is_caught(sliding_window, right, "state[at + age + 1 - steps] or 0"),
        "a window that was skipped",
    );
    let right = "max(state[at + 1] - cell_of(limit, taken), 0) + 1";
    assert_caught(
        is_caught(sliding_window, right, "1"),
        "a refund of an earlier window",
    );
}

/// Shows promise 83.
#[test]
fn a_planted_bug_in_a_log_is_caught() {
    for (right, wrong, what) in [
        (
            "limit.period <= now do expired",
            "limit.period < now do expired",
            "a moment that expires late",
        ),
        (
            "if retry < 0 and excess <= 0 then",
            "if retry < 0 and excess < 0 then",
            "the wrong moment",
        ),
        (
            "if own[index - 1] <= taken then",
            "if true then",
            "a refund of a newer cost",
        ),
    ] {
        assert_caught(is_caught(sliding_log, right, wrong), what);
    }
}

/// Shows promise 83.
#[test]
fn a_planted_bug_in_a_level_is_caught() {
    for (right, wrong, what) in [
        (
            "units, part = units - 1, part + period end",
            "part = 0 end",
            "no carry",
        ),
        (
            "local left, left_part = drain(limit, cost, 0, now - taken)",
            "local left, left_part = cost, 0",
            "a refund of what has drained",
        ),
        (
            "(units + 1) * period then",
            "period then",
            "what drains too early",
        ),
        (
            "now < taken and (ahead <",
            "(ahead <",
            "a turn that has come and is given back",
        ),
    ] {
        assert_caught(is_caught(token_bucket, right, wrong), what);
        assert_caught(is_caught(leaky_bucket, right, wrong), what);
    }
}

/// Shows promise 83.
#[test]
fn a_planted_bug_in_sets_and_expiry_is_caught() {
    let pair = |random: &mut Random| (token_bucket(random), sliding_log(random));
    let caught = is_caught(pair, "has_room = has_room and has", "has_room = has");
    assert_caught(caught, "a set that takes if the last limit admits");
    for (right, wrong) in [
        ("ceil((state[2] - now) / 1000) + 100", "100"),
        ("if now + kept > expires or", "if expires == 0 or"),
        (
            "if keeps > kept then kept = keeps end",
            "kept = min(1, keeps)",
        ),
    ] {
        assert_caught(
            is_caught(token_bucket, right, wrong),
            "a key that expires too early",
        );
    }
}
