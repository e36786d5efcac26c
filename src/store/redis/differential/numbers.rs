//! Products at the edges of what a script counts exactly.

use super::random::{Random, seeds};
use super::{RedisServer, SCRIPT, Step, decide, run_script};
use crate::algorithm::{Algorithm, TokenBucket};
use crate::backend::Op;
use crate::clock::Tick;
use crate::quota::Quota;

/// floor(a * b / c) and the rest, by the function of the script.
fn mul_div(connection: &mut redis::Connection, script: &str, numbers: [u64; 3]) -> (u64, u64) {
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(0);
    command.arg(&numbers.map(|number| number.to_string()));
    let (whole, rest): (String, String) = command.query(connection).expect("two numbers");
    [whole, rest]
        .map(|text| text.parse().expect("a whole number"))
        .into()
}

fn first_difference(script: &str) -> Option<String> {
    const EDGES: [u64; 9] = [
        1,
        2,
        3,
        1_000_003,
        1 << 26,
        (1 << 27) - 1,
        1 << 52,
        (1 << 53) - 2,
        (1 << 53) - 1,
    ];
    let server = RedisServer::start();
    let connection = &mut server.connection();
    let mut random = Random::new(4);
    let mut cases = Vec::new();
    for a in EDGES {
        for b in EDGES {
            cases.extend(EDGES.map(|c| [a, b, c]));
        }
    }
    // Half of a product is the divisor.
    cases.push([3 << 50, 8, 1 << 52]);
    for _ in seeds(2_000) {
        cases.push([(); 3].map(|()| 1 + random.log_uniform(53)));
    }
    cases.into_iter().find_map(|numbers| {
        let [a, b, c] = numbers.map(u128::from);
        let expected = (a * b / c, a * b % c);
        // The caller knows that the quotient is smaller.
        if expected.0 >= 1 << 53 || numbers.iter().any(|number| *number >= 1 << 53) {
            return None;
        }
        let (whole, rest) = mul_div(connection, script, numbers);
        let found = (whole.into(), rest.into());
        (found != expected).then(|| format!("{numbers:?}: {found:?}, not {expected:?}"))
    })
}

/// Shows promise 83.
#[test]
fn products_of_any_size_are_divided_exactly() {
    let split = SCRIPT.body.split_once("-- Decides calls on keys.");
    let (head, _) = split.expect("the helper");
    let script = format!(
        "{head}
        local whole, rest = mul_div(tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]))
        return {{ string.format('%.0f', whole), string.format('%.0f', rest) }}"
    );
    assert_eq!(first_difference(&script), None);
}

/// A charge that is as large as can be: in process a state ends at the last moment, and so do its figures.
#[test]
fn a_huge_charge_says_no_more_than_the_algorithm_itself() {
    let (bucket, now) = (TokenBucket::new(Quota::per_day(1)), 1_700_000_000_000_000);
    let variant = 0;
    let steps = [Op::Charge(u64::MAX), Op::Take(1)].map(|op| Step { now, variant, op });
    let server = RedisServer::start();
    let told = run_script(&mut server.connection(), &[bucket], &steps, |body| body)[1];
    let mut state = bucket.fresh(Tick::from_nanos(now * 1_000));
    let [_, own] = steps.map(|step| decide(&bucket, &mut state, step));
    assert!(told.is_denied() && told.retry_after.is_some());
    assert!(told.retry_after <= own.retry_after, "{told:?}, {own:?}");
    assert!(told.reset_after <= own.reset_after, "{told:?}, {own:?}");
}
