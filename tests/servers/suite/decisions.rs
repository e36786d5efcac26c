//! Every decision is that of the algorithm in process at the moment of its receipt.

use std::time::Duration;

use tower_throttle::Quota;
use tower_throttle::testkit::check_backend;

use super::{Store, algorithms, block_on, connected};

/// What is wrong with a store. Periods of milliseconds end during a trace.
pub(crate) fn fault<S: Store>() -> Option<String> {
    let store = S::start();
    block_on(async {
        for seed in 0..4 {
            let micros = [5_000, 40_000, 3_600_000_000][usize::try_from(seed % 3).expect("small")];
            let quota = Quota::per(
                [9, 1, 12, 4][usize::try_from(seed).expect("small")],
                Duration::from_micros(micros),
            );
            for (number, algorithm) in algorithms(quota).into_iter().enumerate() {
                let policy = format!("decisions-{seed}-{number}");
                let limit = store.limit(&policy, algorithm.clone(), Duration::from_secs(30));
                let limit = connected(limit).await;
                let pass = async |span| store.pass(span);
                let checked = check_backend(&limit, &algorithm, ["key", "other"], pass, seed).await;
                if let Err(fault) = checked {
                    return Some(format!("{algorithm:?}: {fault}"));
                }
            }
        }
        None
    })
}
