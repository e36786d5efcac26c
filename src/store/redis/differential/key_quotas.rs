//! Two quotas of one key, over hours of the server's clock.

use super::{RedisServer, Step, random::Random, run_calls};
use crate::algorithm::{
    FixedWindow, LeakyBucket, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
};
use crate::decision::Decision;
use crate::quota::Quota;
use crate::store::redis::{
    call::Call,
    script::{Scripted, key_call_args, sealed::Script as _},
};

/// How many of some requests pass, each under one of two quotas.
fn admitted<A: Scripted>(
    connection: &mut redis::Connection,
    quotas: [&A; 2],
    sabotage: impl Fn(String) -> String,
    seed: u64,
) -> usize {
    let random = &mut Random::new(71 << 40 | seed);
    let mut now = 1_700_000_000_000_000;
    let steps = (0..200).map(|_| {
        now += random.below(2_000_000);
        Step {
            now,
            variant: usize::try_from(random.below(2)).expect("0 or 1"),
            call: Call::Take(1),
        }
    });
    let steps: Vec<_> = steps.collect();
    let replies = run_calls(
        connection,
        &quotas.map(A::clone),
        &steps,
        sabotage,
        key_call_args,
    );
    let decisions = replies
        .into_iter()
        .map(|(_, decided)| decided.expect("a decision"));
    decisions.filter(Decision::is_admitted).count()
}

/// Where a key gets more under two quotas in turn than under the larger one.
fn first_excess(sabotage: impl Fn(String) -> String, seeds: u64) -> Option<String> {
    let server = RedisServer::start();
    let server = &mut server.connection();
    (0..seeds).find_map(|seed| {
        let random = &mut Random::new(seed);
        let quotas = [(); 2].map(|()| Quota::per_minute(1 + random.below(40)));
        macro_rules! check {
            ($new:expr) => {{
                let both = quotas.map(|quota| $new(quota).prepared().expect("figures that fit"));
                let mut admitted = |quotas| admitted(server, quotas, &sabotage, seed);
                let most = both.each_ref().map(|one| admitted([one, one]));
                let most = most.into_iter().max();
                let by_both = admitted(both.each_ref());
                let is_excess = Some(by_both) > most;
                is_excess.then(|| format!("seed {seed}: {by_both} > {most:?} of {both:?}"))
            }};
        }
        None.or_else(|| check!(FixedWindow::new))
            .or_else(|| check!(|quota| FixedWindow::new(quota).anchored()))
            .or_else(|| check!(SlidingLog::new))
            .or_else(|| check!(SlidingWindow::new))
            .or_else(|| check!(SlidingGrid::new))
            .or_else(|| check!(TokenBucket::new))
            .or_else(|| check!(LeakyBucket::new))
    })
}

/// Shows promise 391.
#[test]
fn two_quotas_in_turn_admit_no_more_than_the_larger_one() {
    assert_eq!(first_excess(|body| body, 20), None);
}

#[test]
fn use_that_is_not_counted_under_the_other_quota_is_found() {
    let found = first_excess(
        |body| {
            let without =
                body.replace("configurations.count_under_others(key, op, args[part])", "");
            assert_ne!(without, body, "the mistake is in the script");
            without
        },
        20,
    );
    assert!(found.is_some());
}
