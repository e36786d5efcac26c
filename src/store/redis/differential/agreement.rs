//! Every algorithm decides as the script.

#[cfg(feature = "governor")]
use super::policies::gcra;
use super::policies::{
    fixed_window, leaky_bucket, quota, sliding_grid, sliding_log, sliding_window, small_quota,
    token_bucket,
};
use super::random::{Random, seeds};
use super::{RedisServer, find_difference, random_steps};
use crate::algorithm::{Algorithm, All, AnyAlgorithm, FixedWindow, IntoAlgorithm, TokenBucket};
use crate::quota::Quota;

/// Compares random traces of a policy. `name` selects the random numbers. The limit changes in between, if the state
/// in process does not know it either.
pub(super) fn assert_agree<A: IntoAlgorithm>(
    name: u64,
    changes_limit: bool,
    policy: impl Fn(&mut Random) -> A,
) {
    let server = RedisServer::start();
    let mut connection = server.connection();
    for seed in seeds(100) {
        let mut random = Random::new(name << 40 | seed);
        let mut variants = vec![policy(&mut random).into_algorithm()];
        if changes_limit {
            let quota = variants[0].quota();
            let limit = 1 + random.below((2 * quota.limit()).min(1_000));
            let changed = variants[0].with_quota(Quota::per(limit, quota.period()));
            variants.push(changed.expect("another limit"));
        }
        let changes = changes_limit.then_some(2 + seed % 10);
        let steps = random_steps(&mut random, &variants, changes);
        let found = find_difference(&mut connection, &variants, &steps, |body| body);
        if let Some(difference) = found {
            panic!("seed {seed}: {difference}");
        }
    }
}

/// Shows promise 83.
#[test]
fn windows_grids_and_logs_decide_as_the_script() {
    assert_agree(1, true, fixed_window);
    assert_agree(2, true, |random| FixedWindow::new(quota(random)).anchored());
    assert_agree(3, true, sliding_log);
    assert_agree(4, true, sliding_window);
    assert_agree(5, true, sliding_grid);
}

/// Shows promise 83.
#[test]
fn buckets_decide_as_the_script() {
    assert_agree(6, false, token_bucket);
    assert_agree(7, false, |random| {
        let quota = match random.below(2) {
            0 => small_quota(random),
            _ => quota(random),
        };
        TokenBucket::new(quota).initial(random.below(quota.limit()))
    });
    assert_agree(8, false, leaky_bucket);
    #[cfg(feature = "governor")]
    assert_agree(15, false, gcra);
}

/// Shows promise 83.
#[test]
fn sets_decide_as_the_script() {
    assert_agree(16, false, |random| AnyAlgorithm::new(token_bucket(random)));
    assert_agree(17, false, |random| {
        AnyAlgorithm::new(All::new([
            AnyAlgorithm::new(leaky_bucket(random)),
            AnyAlgorithm::new(sliding_log(random)),
        ]))
    });
    assert_agree(20, false, |random| {
        let window = fixed_window(random).anchored();
        ((leaky_bucket(random), sliding_window(random)), window)
    });
    assert_agree(12, false, |random| {
        let windows = (fixed_window(random), sliding_window(random));
        (windows, (sliding_grid(random), leaky_bucket(random)))
    });
    assert_agree(13, false, |random| {
        All::new([
            token_bucket(random),
            token_bucket(random),
            token_bucket(random),
        ])
    });
}
