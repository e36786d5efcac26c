//! Every algorithm decides as its script.

#[cfg(feature = "governor")]
use super::policies::gcra;
use super::policies::{
    fixed_window, leaky_meter, leaky_queue, lockout, quota, sliding_grid, sliding_log,
    sliding_window, small_quota, token_bucket, warm_up,
};
use super::random::{Random, seeds};
use super::{RedisServer, find_difference, random_steps, random_variants};
use crate::algorithm::{All, AnyAlgorithm, Charge, TokenBucket};
use crate::store::redis::script::Scripted;

/// Compares random traces of a policy. `name` selects the random numbers.
pub(super) fn assert_agree<A: Scripted>(
    name: u64,
    retunes: bool,
    policy: impl Fn(&mut Random) -> A,
) {
    let server = RedisServer::start();
    let mut connection = server.connection();
    for seed in seeds(200) {
        let mut random = Random::new(name << 40 | seed);
        let changes = [None, Some(12), Some(3), Some(2)][usize::try_from(seed % 4).unwrap()];
        let variants = random_variants(&mut random, &policy);
        let steps = random_steps(&mut random, &variants, changes.filter(|_| retunes));
        let found = find_difference(&mut connection, &variants, &steps, |body| body);
        if let Some(difference) = found {
            panic!("seed {seed}: {difference}");
        }
    }
}

/// Shows promise 82.
#[test]
fn fixed_window_decides_as_its_script() {
    assert_agree(1, true, fixed_window);
}

/// Shows promise 82.
#[test]
fn anchored_window_decides_as_its_script() {
    assert_agree(2, true, |random| fixed_window(random).anchored());
}

/// Shows promise 82.
#[test]
fn sliding_log_decides_as_its_script() {
    assert_agree(3, true, sliding_log);
}

/// Shows promise 82.
#[test]
fn sliding_window_decides_as_its_script() {
    assert_agree(4, true, sliding_window);
}

/// Shows promise 82.
#[test]
fn sliding_grid_decides_as_its_script() {
    assert_agree(5, true, sliding_grid);
}

/// Shows promise 82.
#[test]
fn token_bucket_decides_as_its_script() {
    assert_agree(6, true, token_bucket);
}

#[test]
fn a_token_bucket_that_begins_with_less_decides_as_its_script() {
    assert_agree(7, true, |random| {
        let quota = match random.below(2) {
            0 => small_quota(random),
            _ => quota(random),
        };
        TokenBucket::new(quota).initial(random.below(quota.limit()))
    });
}

/// Shows promise 82.
#[test]
fn leaky_meter_decides_as_its_script() {
    assert_agree(8, true, leaky_meter);
    // The charge mode matters to queued requests.
    assert_agree(14, true, |random| {
        leaky_meter(random).charge_mode(Charge::Before)
    });
}

/// Shows promise 82.
#[test]
fn leaky_queue_decides_as_its_script() {
    assert_agree(9, true, leaky_queue);
}

/// Shows promise 190.
#[test]
fn lockout_decides_as_its_script() {
    assert_agree(21, true, lockout);
    assert_agree(22, false, |random| (lockout(random), token_bucket(random)));
}

/// Shows promise 82.
#[test]
fn warm_up_decides_as_its_script() {
    assert_agree(10, true, warm_up);
}

/// Shows promise 82.
#[cfg(feature = "governor")]
#[test]
fn gcra_decides_as_its_script() {
    assert_agree(15, true, gcra);
}

#[test]
fn any_algorithm_decides_as_its_script() {
    assert_agree(16, true, |random| AnyAlgorithm::new(token_bucket(random)));
    assert_agree(18, true, |random| AnyAlgorithm::new(sliding_grid(random)));
    assert_agree(17, false, |random| {
        AnyAlgorithm::new(All::new([
            AnyAlgorithm::new(leaky_meter(random)),
            AnyAlgorithm::new(sliding_log(random)),
        ]))
    });
}

#[test]
fn a_pair_decides_as_its_script() {
    assert_agree(11, false, |random| {
        (token_bucket(random), sliding_log(random))
    });
}

#[test]
fn sets_of_two_and_three_limits_decide_as_their_script() {
    assert_agree(19, false, |random| {
        (token_bucket(random), fixed_window(random))
    });
    assert_agree(20, false, |random| {
        let window = fixed_window(random).anchored();
        ((leaky_meter(random), sliding_window(random)), window)
    });
}

/// Shows promise 82.
#[test]
fn four_limits_of_four_kinds_decide_as_their_script() {
    assert_agree(12, false, |random| {
        let windows = (fixed_window(random), sliding_window(random));
        (windows, (sliding_grid(random), leaky_meter(random)))
    });
}

#[test]
fn a_list_of_one_kind_decides_as_its_script() {
    assert_agree(13, false, |random| {
        All::new([
            token_bucket(random),
            token_bucket(random),
            token_bucket(random),
        ])
    });
}
