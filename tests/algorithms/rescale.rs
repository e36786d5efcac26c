//! What a state keeps when its quota changes.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, Inherit};
use tower_throttle::clock::Tick;
use tower_throttle::{
    FixedWindow, LeakyBucket, Quota, SlidingGrid, SlidingWindow, TokenBucket, Verdict, WarmUp,
};

use crate::random::{Random, seeds};

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

fn quota(limit: u64, period: u64) -> Quota {
    Quota::per(limit, Duration::from_nanos(period))
}

/// Takes `used` at `newest`, changes the algorithm at `older`, and returns the usage at `newest`.
fn used_after<A: Algorithm>(from: &A, to: &A, used: u64, newest: u64, older: u64) -> u64 {
    let mut state = from.fresh(at(newest));
    assert!(from.decide(&mut state, at(newest), used).is_admitted());
    to.rescale(&mut state, from, at(older), Inherit::AsIs);
    let decision = to.peek(&state, at(newest), 0);
    decision.limit - decision.remaining()
}

/// Shows promise 7.
#[test]
fn a_change_at_a_moment_older_than_the_state_loses_nothing() {
    for seed in seeds(2_000) {
        let mut random = Random::new(seed);
        let (period, other) = (1 + random.below(1_000), 1 + random.below(1_000));
        let (from, to) = (quota(50, period), quota(80, other));
        let newest = 10_000 + random.below(10_000);
        // In an earlier window, which a state can distinguish.
        let older = newest - period - random.below(5_000);
        let used = 1 + random.below(50);
        let offset = Duration::from_nanos(random.below(2_000));
        let cells = usize::try_from(1 + random.below(9)).expect("few cells");
        let windows = [from, to].map(|quota| FixedWindow::new(quota).offset(offset));
        let anchored = [from, to].map(|quota| FixedWindow::new(quota).anchored());
        let sliding = [from, to].map(|quota| SlidingWindow::new(quota).offset(offset));
        let grids = [
            SlidingGrid::new(from).cells(1 + cells / 2).strict(),
            SlidingGrid::new(to).cells(cells).strict(),
        ];
        let kept = [
            used_after(&windows[0], &windows[1], used, newest, older),
            used_after(&windows[0], &anchored[1], used, newest, older),
            used_after(&anchored[0], &windows[1], used, newest, older),
            used_after(&sliding[0], &sliding[1], used, newest, older),
            used_after(&grids[0], &grids[1], used, newest, older),
        ];
        assert_eq!(
            kept, [used; 5],
            "seed {seed}: {from} to {to} at {newest}, {older}"
        );
    }
}

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
        to.rescale(&mut state, &from, at(6_000), Inherit::AsIs);
        assert_eq!(to.peek(&state, at(6_000), 0).remaining(), 4);
        assert!(to.decide(&mut state, at(6_000), 4).is_admitted());
        // Every cost counts for at least a period.
        assert_eq!(to.peek(&state, at(7_199), 0).remaining(), 0);
        assert_eq!(to.peek(&state, at(9_000), 0).remaining(), 10);
    }
}

/// Shows promise 17.
#[test]
fn a_warm_up_is_restored_by_a_change_and_its_reverse() {
    let warm_up = |limit| WarmUp::new(Quota::per_second(limit), Duration::from_secs(4)).queue(100);
    let (slow, fast) = (warm_up(2), warm_up(3));
    let mut state = slow.fresh(at(0));
    for _ in 0..6 {
        assert!(!slow.decide(&mut state, at(0), 1).is_denied());
    }
    let before = state;
    // The first change keeps the share of the store, at the new rate.
    fast.rescale(&mut state, &slow, at(0), Inherit::AsIs);
    let changed = state;
    assert_ne!(changed, before);
    fast.rescale(&mut state, &fast, at(0), Inherit::AsIs);
    assert_eq!(state, changed, "the same quota changes nothing");
    slow.rescale(&mut state, &fast, at(0), Inherit::AsIs);
    assert_eq!(state, before, "changed and changed back");
    // A store of 8 permits with 6 taken: it stays as warm, and the queue is free at the same time.
    let free = slow.peek(&before, at(0), 0).reset_after;
    assert_eq!(fast.peek(&changed, at(0), 0).reset_after, free);
    let now = at(u64::try_from(free.as_nanos()).expect("short"));
    let mut state = changed;
    assert_eq!(fast.decide(&mut state, now, 1).verdict, Verdict::Admit);
    let next = fast.decide(&mut state, now, 1).wait();
    let mut cold = fast.fresh(now);
    let _ = fast.decide(&mut cold, now, 1);
    assert!(next < fast.decide(&mut cold, now, 1).wait(), "{next:?}");
}

/// The state of a bucket does not say when it was written, so the new rate counts from the moment of
/// the change, even if that is older. What was taken since stays taken.
#[test]
fn a_bucket_that_changes_at_an_older_moment_refills_at_the_new_rate_from_then_on() {
    for seed in seeds(2_000) {
        let mut random = Random::new(seed);
        let (period, other) = (1 + random.below(1_000), 1 + random.below(1_000));
        let (from, to) = (quota(50, period), quota(80, other));
        let newest = 10_000 + random.below(10_000);
        let older = newest - random.below(2_000);
        let used = 1 + random.below(50);
        // What the old rate refilled in between is taken again, and the new rate refills instead.
        let refilled = |limit: u64, period: u64| (newest - older) * limit / period;
        let kept = (used + refilled(50, period)).saturating_sub(refilled(80, other) + 2);
        let meters = [from, to].map(LeakyBucket::new);
        let after = used_after(&meters[0], &meters[1], used, newest, older);
        assert!(after >= kept.min(80), "seed {seed}: {after} of {kept} used");
        // A token bucket keeps its tokens: 30 of the 80 are used besides.
        let buckets = [from, to].map(TokenBucket::new);
        let after = used_after(&buckets[0], &buckets[1], used, newest, older);
        let kept = (used + 30 + refilled(50, period)).saturating_sub(refilled(80, other) + 2);
        assert!(after >= kept.min(80), "seed {seed}: {after} of {kept} used");
        if refilled(50, period) > refilled(80, other) + 1 {
            assert!(after >= used, "seed {seed}: a slower rate loses nothing");
        }
    }
}

#[test]
fn a_warm_up_that_changes_at_an_older_moment_keeps_its_turns() {
    let warm_up = |limit| WarmUp::new(Quota::per_second(limit), Duration::from_secs(4)).queue(100);
    let (slow, fast) = (warm_up(2), warm_up(3));
    let (newest, older) = (at(50_000_000_000), at(20_000_000_000));
    let mut state = slow.fresh(newest);
    for _ in 0..6 {
        assert!(!slow.decide(&mut state, newest, 1).is_denied());
    }
    let free = slow.peek(&state, newest, 0).reset_after;
    fast.rescale(&mut state, &slow, older, Inherit::AsIs);
    assert_eq!(fast.peek(&state, newest, 0).reset_after, free);
}
