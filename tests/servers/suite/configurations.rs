//! Machines with several configurations under one policy name, as in a rolling deploy.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm};
use tower_throttle::store::Backend;
use tower_throttle::{Quota, TokenBucket};

use super::{Store, algorithms, block_on, connected};

/// What two configurations in turn do wrong: together they admit at most the sum of their promises,
/// and none is denied for longer than two of its periods.
async fn pair_fault<S: Store>(store: &S, policy: &str, pair: [&AnyAlgorithm; 2]) -> Option<String> {
    let long = Duration::from_secs(30);
    let limits = pair.map(|algorithm| store.limit(policy, algorithm.clone(), long));
    let [first, second] = limits;
    let limits = [connected(first).await, connected(second).await];
    let mut admitted = 0;
    for call in 0..50 {
        let decision = limits[call % 2].apply("key", tower_throttle::store::Op::Take(1));
        let decision = decision.await.expect("a decision");
        admitted += u64::from(decision.is_admitted());
        let retry = decision.retry_after.unwrap_or_default();
        if retry > 2 * pair[call % 2].quota().period() {
            return Some(format!("{pair:?}: {decision:?}"));
        }
    }
    let bound: u64 = pair.iter().map(|one| one.quota().capacity()).sum();
    (admitted > bound).then(|| format!("{pair:?}: {admitted} of {bound}"))
}

pub(crate) fn fault<S: Store>() -> Option<String> {
    const HOUR: Duration = Duration::from_secs(3_600);
    let store = S::start();
    // Days, so that no window ends during the test.
    let one = algorithms(Quota::per(10, 24 * 365 * HOUR));
    let mut two = algorithms(Quota::per(7, 24 * 730 * HOUR));
    two.push(AnyAlgorithm::new(TokenBucket::new(Quota::per_day(11))));
    block_on(async {
        for (first, one) in one.iter().enumerate() {
            for (second, two) in two.iter().enumerate() {
                let policy = format!("pair-{first}-{second}");
                let found = pair_fault(&store, &policy, [one, two]).await;
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    })
}
