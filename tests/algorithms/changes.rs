//! Changes of limit and burst: what was used stays used, to the last part of a unit.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm};
use tower_throttle::clock::Tick;
use tower_throttle::{
    FixedWindow, Lockout, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket, WarmUp,
};

use crate::at;
use crate::random::{Random, seeds};
use crate::subjects::quota;

/// Shows promise 17.
#[test]
fn a_grid_keeps_its_usage_with_another_number_of_cells() {
    let grid = |cells| SlidingGrid::new(quota(10, 1_200)).cells(cells);
    for (from, to) in [(10, 4), (4, 10), (3, 60), (60, 1)] {
        let (from, to) = (grid(from), grid(to).strict());
        let mut state = from.fresh(at(0));
        for now in [5_600, 5_700, 5_900] {
            assert!(from.decide(&mut state, at(now), 2).is_admitted());
        }
        to.rescale(&mut state, &from, at(6_000));
        assert_eq!(to.peek(&state, at(6_000), 0).remaining(), 4);
        assert!(to.decide(&mut state, at(6_000), 4).is_admitted());
        // Every cost counts for at least a period.
        assert_eq!(to.peek(&state, at(7_199), 0).remaining(), 0);
        assert_eq!(to.peek(&state, at(9_000), 0).remaining(), 10);
    }
}

/// Shows promise 317.
#[test]
fn another_algorithm_is_charged_what_was_used_and_at_most_all() {
    let kinds = |quota: Quota| {
        [
            AnyAlgorithm::new(TokenBucket::new(quota)),
            AnyAlgorithm::new(FixedWindow::new(quota)),
            AnyAlgorithm::new(SlidingLog::new(quota)),
            AnyAlgorithm::new((SlidingGrid::new(quota), SlidingWindow::new(quota))),
            AnyAlgorithm::new(Lockout::new(quota)),
        ]
    };
    for (old, from) in kinds(Quota::per_minute(10)).into_iter().enumerate() {
        for (new, to) in kinds(Quota::per_second(6)).into_iter().enumerate() {
            for used in [0, 4, 10] {
                let mut state = from.fresh(at(7));
                assert!(from.decide(&mut state, at(7), used).is_admitted());
                to.rescale(&mut state, &from, at(7));
                let left = to.peek(&state, at(7), 0).remaining();
                // The same kind keeps what was used, and of another period.
                let expected = 6_u64.saturating_sub(used);
                assert!(left == expected || old == new, "{from:?} to {to:?}");
            }
        }
    }
}

/// Shows promise 317.
#[test]
fn each_limit_of_a_set_is_charged_what_was_used_and_at_most_all() {
    let from = AnyAlgorithm::new(FixedWindow::new(Quota::per_day(1_000)));
    let window = FixedWindow::new(Quota::per_day(999));
    let bucket = TokenBucket::new(Quota::per_second(10));
    let sets = [
        AnyAlgorithm::new((window, bucket)),
        AnyAlgorithm::new((bucket, window)),
    ];
    for to in sets {
        let mut state = from.fresh(at(7));
        assert!(from.decide(&mut state, at(7), 600).is_admitted());
        to.rescale(&mut state, &from, at(7));
        assert!(to.peek(&state, at(7), 1).is_denied());
        assert_eq!(to.peek(&state, at(1_000_000_007), 0).remaining(), 399);
        // Back again: the bucket is empty, and is not the limit of which most is used.
        from.rescale(&mut state, &to, at(7));
        assert_eq!(from.peek(&state, at(7), 0).remaining(), 400);
    }
}

/// Stored permits mean something only under the settings that stored them.
///
/// Shows promise 17.
#[test]
fn a_warm_up_of_other_settings_is_cold_and_its_line_keeps_its_turns() {
    let warm_up = |limit| WarmUp::new(Quota::per_second(limit), Duration::from_secs(4));
    let slow = warm_up(2);
    let mut before = slow.fresh(at(0));
    for _ in 0..6 {
        slow.charge(&mut before, at(0), 1);
    }
    let free = slow.peek(&before, at(0), 0).reset_after;
    let now = at(u64::try_from(free.as_nanos()).expect("short"));
    let longer = WarmUp::new(slow.quota(), Duration::from_secs(9));
    for other in [warm_up(3), longer, slow.cold_factor(7)] {
        let (mut state, mut cold) = (before, other.fresh(now));
        other.rescale(&mut state, &slow, at(0));
        assert_eq!(other.peek(&state, at(0), 0).reset_after, free);
        for _ in 0..6 {
            let decision = other.decide(&mut state, now, 1);
            assert_eq!(decision, other.decide(&mut cold, now, 1), "{other:?}");
        }
    }
}

/// Whether a bucket whose limit and burst change at random moments admits more in some interval than the larger
/// ones allow. `spoil` runs after each conversion of the state.
fn exceeds_the_larger(
    seed: u64,
    spoil: impl Fn(&TokenBucket, &mut <TokenBucket as Algorithm>::State, Tick),
) -> bool {
    let mut random = Random::new(seed);
    let period = 1 + random.below(40);
    let settings = [(); 2].map(|()| (1 + random.below(9), 1 + random.below(6)));
    let limit = settings[0].0.max(settings[1].0);
    let burst = settings[0].1.max(settings[1].1);
    let with = |(limit, burst)| TokenBucket::new(quota(limit, period).burst(burst));
    let mut bucket = with(settings[0]);
    let (mut state, mut now, mut admitted) = (bucket.fresh(at(0)), 0, Vec::new());
    for _ in 0..300 {
        now += random.below(4);
        let next = with(*random.pick(&settings));
        next.rescale(&mut state, &bucket, at(now));
        spoil(&next, &mut state, at(now));
        bucket = next;
        if bucket.decide(&mut state, at(now), 1).is_admitted() {
            admitted.push(now);
        }
    }
    (0..admitted.len()).any(|first| {
        let since = &admitted[first..];
        since
            .iter()
            .zip(1..)
            .any(|(last, count)| count * period > burst * period + (last - admitted[first]) * limit)
    })
}

/// Shows promises 17, 29.
#[test]
fn changes_of_a_bucket_admit_what_the_larger_allows_and_a_lost_remainder_is_found() {
    assert!(seeds(300).all(|seed| !exceeds_the_larger(seed, |_, _, _| {})));
    let found = (0..200).filter(|seed| {
        exceeds_the_larger(*seed, |bucket, state, now| {
            // Whole units alone: the last one may have been used in part.
            let used = bucket.quota().capacity() - bucket.peek(state, now, 0).remaining();
            *state = bucket.fresh(now);
            let _ = bucket.decide(state, now, used.saturating_sub(1));
        })
    });
    let found = found.count();
    assert!(found > 20, "{found} of 200");
}
