//! Two configurations under one policy name, over hours of the server's clock.

use std::time::Duration;

use super::{RedisServer, Step, random::Random, run_scripts};
use crate::algorithm::{
    FixedWindow, LeakyBucket, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
};
use crate::quota::Quota;
use crate::store::redis::{
    call::Call,
    script::{Scripted, sealed::Script as _},
};

const MINUTE: u64 = 60_000_000;

/// Exhausts a key under the first configuration, and asks both without taking anything for a day,
/// the second one from half an hour on. Each admits again after at most `longest` minutes.
fn check_recovery<A: Scripted>(
    connection: &mut redis::Connection,
    configurations: [A; 2],
    longest: [u64; 2],
) {
    let variants = configurations.map(|algorithm| algorithm.prepared().expect("figures that fit"));
    let begun = 1_700_000_000_000_000;
    let step = |minute, variant, call| Step {
        now: begun + minute * MINUTE,
        variant,
        call,
    };
    let exhausting = (0..variants[0].quota().limit()).map(|_| step(0, 0, Call::Take(1)));
    let asking = (1..24 * 60).flat_map(|minute| {
        let both = [0, 1].map(|variant| step(minute, variant, Call::Peek(1)));
        both.into_iter()
            .filter(move |step| step.variant == 0 || minute >= 30)
    });
    let steps: Vec<_> = exhausting.chain(asking).collect();
    let replies = run_scripts(connection, &variants, &steps, |body| body);
    for (step, (_, decided)) in steps.iter().zip(replies) {
        let minute = (step.now - begun) / MINUTE;
        let since = [0, 30][step.variant];
        if minute >= since + longest[step.variant] {
            let decision = decided.expect("a decision");
            assert!(
                !decision.is_denied(),
                "{variants:?}: minute {minute}, configuration {}: {decision:?}",
                step.variant
            );
        }
    }
}

/// Shows promise 90.
#[test]
fn no_configuration_is_denied_longer_than_its_own_exhausted_key() {
    let server = RedisServer::start();
    let server = &mut server.connection();
    let (hour, less) = (Quota::per_hour(10), Quota::per_hour(9));
    let two_hours = Quota::per(10, Duration::from_secs(7_200));
    for (other, longest) in [(less, 60), (two_hours, 120)] {
        macro_rules! check {
            ($new:expr, $factor:expr) => {{
                let new = $new;
                let minutes = [60 * $factor, longest * $factor];
                check_recovery(server, [new(hour), new(other)], minutes);
                let (one, two) = (new(other), new(hour));
                check_recovery(server, [one, two], [minutes[1], minutes[0]]);
            }};
        }
        check!(FixedWindow::new, 1);
        check!(|quota| FixedWindow::new(quota).anchored(), 1);
        check!(SlidingLog::new, 1);
        check!(SlidingWindow::new, 2);
        check!(SlidingGrid::new, 2);
        check!(TokenBucket::new, 1);
        check!(LeakyBucket::new, 1);
    }
}

/// Exhausts a key under the first configuration, and then asks several at random moments of two days,
/// without taking anything. Each is denied only for `longest` hours from its first call on.
fn check_returns<A: Scripted>(
    connection: &mut redis::Connection,
    configurations: &[A],
    longest: &[u64],
    sabotage: impl Fn(String) -> String,
    seed: u64,
) -> Option<String> {
    let random = &mut Random::new(31 << 40 | seed);
    let begun = 1_700_000_000_000_000;
    let limit = configurations[0].quota().limit();
    let exhausting = (0..limit).map(|_| Step {
        now: begun,
        variant: 0,
        call: Call::Take(1),
    });
    let mut steps: Vec<_> = exhausting.collect();
    let mut minute = 0;
    while minute < 48 * 60 {
        minute += 1 + random.below(120);
        steps.push(Step {
            now: begun + minute * MINUTE,
            variant: usize::try_from(random.below(configurations.len() as u64)).unwrap(),
            call: Call::Peek(1),
        });
    }
    let replies = run_scripts(connection, configurations, &steps, sabotage);
    let mut first = vec![None; configurations.len()];
    first[0] = Some(begun);
    for (step, (_, decided)) in steps.iter().zip(replies) {
        let since = *first[step.variant].get_or_insert(step.now);
        let hours = longest[step.variant];
        let decision = decided.expect("a decision");
        if decision.is_denied() && step.now >= since + hours * 60 * MINUTE {
            let variant = &configurations[step.variant];
            let minute = (step.now - begun) / MINUTE;
            return Some(format!("seed {seed}, minute {minute}: {variant:?}"));
        }
    }
    None
}

/// For several algorithms, three configurations whose keys are exhausted for longer and longer.
fn first_return(sabotage: impl Fn(String) -> String, seeds: u64) -> Option<String> {
    let server = RedisServer::start();
    let server = &mut server.connection();
    let hours = [1, 2, 4, 3];
    let quotas = hours.map(|hours| Quota::per(10, Duration::from_secs(3_600 * hours)));
    (0..seeds).find_map(|seed| {
        macro_rules! check {
            ($new:expr, $factor:expr) => {{
                let new = $new;
                let all = quotas.map(|quota| new(quota).prepared().expect("figures that fit"));
                let longest = hours.map(|hours| hours * $factor);
                check_returns(server, &all, &longest, &sabotage, seed)
            }};
        }
        None.or_else(|| check!(FixedWindow::new, 1))
            .or_else(|| check!(|quota| FixedWindow::new(quota).anchored(), 1))
            .or_else(|| check!(SlidingLog::new, 1))
            .or_else(|| check!(SlidingWindow::new, 2))
            .or_else(|| check!(SlidingGrid::new, 2))
            .or_else(|| check!(TokenBucket::new, 1))
            .or_else(|| check!(LeakyBucket::new, 1))
    })
}

/// Shows promise 90.
#[test]
fn no_usage_comes_back_to_the_configuration_that_took_it() {
    assert_eq!(first_return(|body| body, 40), None);
}

#[test]
fn a_state_that_expires_before_the_usage_it_was_taken_from_is_found() {
    let found = first_return(
        |body| {
            let without = body.replace(
                "configuration.kept_until = math.max(configuration.kept_until, unused_at)",
                "",
            );
            assert_ne!(without, body, "the mistake is in the script");
            without
        },
        40,
    );
    assert!(found.is_some());
}
