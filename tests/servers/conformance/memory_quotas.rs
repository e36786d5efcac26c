//! Quotas per key over a store in memory.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm};
use tower_throttle::store::cas::{Cas, MemoryStore};
use tower_throttle::store::{Backend, Plan, Quotas};
use tower_throttle::{ManualClock, Quota, WarmUp};

use crate::key_quotas::{a_key_is_counted_once_under_all_its_quotas, algorithms, is_gcra};
use crate::random::Random;

/// Shows promise 391.
#[tokio::test(start_paused = true)]
async fn a_key_is_counted_once_under_all_its_quotas_in_memory() {
    let store = MemoryStore::new();
    let limit = |name: &str, algorithm| {
        let limit = Cas::new(store.clone(), name, algorithm).expect("a limit");
        limit.deadline(Duration::from_secs(10))
    };
    a_key_is_counted_once_under_all_its_quotas(limit).await;
}

/// How many of 300 requests pass, under two quotas of one key in random turns.
async fn admitted(algorithm: &AnyAlgorithm, quotas: [Quota; 2], seed: u64) -> u64 {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let with_quota = |quota| algorithm.with_quota(quota).expect("a quota");
    let limit = |quota: Quota| -> Cas<_, AnyAlgorithm> {
        let limit = Cas::new(store.clone(), "api", with_quota(quota)).expect("a limit");
        limit.without_deny_cache().deadline(Duration::from_secs(30))
    };
    // The plan says which of the two quotas the key has now.
    let under = |quota| Quotas::new(limit(quota), move |_: &u64| Plan::Quota(quota));
    let under = quotas.map(under);
    let mut random = Random::new(seed);
    let mut admitted = 0;
    for _ in 0..300 {
        let turn = usize::try_from(random.below(2)).expect("0 or 1");
        let decision = under[turn].decide(&7, 1).await;
        admitted += u64::from(decision.expect("a decision").is_admitted());
        clock.advance(Duration::from_millis(random.below(2_000)));
    }
    admitted
}

/// Machines that know different quotas of a key, and a key whose quota changes to and fro.
///
/// Shows promise 391.
#[tokio::test(start_paused = true)]
async fn two_quotas_of_a_key_in_turn_admit_no_more_than_the_larger_one() {
    let warm_up = WarmUp::new(Quota::per_minute(1), Duration::from_secs(30));
    let all = algorithms(Duration::ZERO);
    let all = all.into_iter().chain([AnyAlgorithm::new(warm_up)]);
    // A day of the calendar has no minutes.
    let has_minutes = |all: &AnyAlgorithm| all.quota().period() <= Duration::from_secs(3_600);
    // A value of `Gcra` is of one rate.
    for algorithm in all.filter(|all| has_minutes(all) && !is_gcra(all)) {
        for seed in 0..3 {
            let mut random = Random::new(seed);
            let mut quota = || Quota::per_minute(1 + random.below(40));
            let (small, large) = (quota(), quota());
            let alone = async |quota| admitted(&algorithm, [quota; 2], seed).await;
            let most = alone(small).await.max(alone(large).await);
            let both = admitted(&algorithm, [small, large], seed).await;
            assert!(
                both <= most,
                "{both} > {most} of {small} and {large}: {algorithm:?}"
            );
        }
    }
}
