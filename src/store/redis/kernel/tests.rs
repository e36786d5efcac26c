use std::cell::Cell;

use super::*;
use crate::algorithm::{
    Algorithm, All, AnyAlgorithm, FixedWindow, LeakyBucket, Lockout, SlidingGrid, SlidingLog,
    SlidingWindow, TokenBucket,
};
use crate::clock::{Tick, unix_now};
use crate::quota::Quota;

thread_local! {
    pub(in crate::store::redis) static MACHINE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The wall clock of this machine, which tests replace.
pub(super) fn now() -> Tick {
    let second = MACHINE.get();
    second.map_or_else(unix_now, |second| Tick::from_nanos(second * 1_000_000_000))
}

#[test]
fn a_layout_says_how_a_value_is_read_and_not_what_the_limit_is() {
    let minute = Quota::per_minute;
    let layout = |algorithm: AnyAlgorithm| Kernels::of(&algorithm).map(|kernels| kernels.layout);
    let hour = Duration::from_secs(3_600);
    for limit in [1, 1_000] {
        for (algorithm, expected) in [
            (TokenBucket::new(minute(limit)).into(), "bucket/60s"),
            (LeakyBucket::new(minute(limit)).into(), "bucket/60s"),
            (FixedWindow::new(minute(limit)).into(), "window/60s"),
            (
                FixedWindow::new(Quota::per_day(limit)).offset(hour).into(),
                "window/86400s-82800s",
            ),
            (
                FixedWindow::new(minute(limit)).anchored().into(),
                "anchored/60s",
            ),
            (SlidingWindow::new(minute(limit)).into(), "sliding/60s"),
            (
                SlidingGrid::new(minute(limit)).strict().into(),
                "grid/6sx11",
            ),
            (SlidingLog::new(minute(limit)).into(), "log/60s"),
            (
                All::new([
                    AnyAlgorithm::from(TokenBucket::new(Quota::per_second(limit))),
                    AnyAlgorithm::from(FixedWindow::new(minute(limit))),
                ])
                .into(),
                "bucket/1s+window/60s",
            ),
        ] {
            let algorithm: AnyAlgorithm = algorithm;
            assert_eq!(layout(algorithm).as_deref(), Some(expected));
        }
    }
}

#[test]
fn what_a_script_cannot_decide_exactly_has_no_kernels() {
    let quota = Quota::per_second(1_000);
    let bucket = TokenBucket::new(quota);
    let nanos = Duration::from_nanos;
    let most = |most: u64| Quota::per_second(most);
    for (algorithm, has_kernels) in [
        (AnyAlgorithm::from(SlidingLog::new(quota)), true),
        (SlidingLog::new(Quota::per_second(1_001)).into(), false),
        (FixedWindow::new(Quota::per(1, nanos(1_500))).into(), false),
        (TokenBucket::new(Quota::per(1, nanos(1_500))).into(), true),
        (TokenBucket::new(most(1 << 52)).into(), true),
        (TokenBucket::new(most((1 << 52) + 1)).into(), false),
        (FixedWindow::new(most(1 << 52)).into(), true),
        (FixedWindow::new(most((1 << 52) + 1)).into(), false),
        (bucket.debt(1).into(), false),
        (bucket.refill_every(nanos(1_000_000)).into(), false),
        (Lockout::new(quota).into(), false),
        (
            All::new([AnyAlgorithm::from(bucket), Lockout::new(quota).into()]).into(),
            false,
        ),
        (All::<AnyAlgorithm>::new([]).into(), false),
    ] {
        let algorithm: AnyAlgorithm = algorithm;
        assert_eq!(
            Kernels::of(&algorithm).is_some(),
            has_kernels,
            "{algorithm:?}"
        );
    }
}

/// Shows promise 89.
#[test]
fn an_admission_that_leaves_no_room_says_how_long_the_next_request_is_denied() {
    let minute = Quota::per_minute(6);
    let now = 1_700_000_000_000_000;
    let next = |algorithm: AnyAlgorithm, used: [i64; 2], cost| {
        let kernels = Kernels::of(&algorithm).expect("kernels");
        let reply = [now, 1, used[0], used[1]];
        let run = kernels.decided(Call::Take(cost), 1, &reply);
        let run = run.expect("a reply");
        assert!(run.decisions[0].is_admitted());
        assert!(run.denial.is_none_or(|denial| denial.is_denied()));
        run.denial.and_then(|denial| denial.retry_after)
    };
    let bucket = TokenBucket::new(minute);
    let second = Duration::from_secs;
    assert_eq!(next(bucket.into(), [3, 0], 1), None);
    assert_eq!(next(bucket.into(), [5, 0], 1), Some(second(10)));
    assert_eq!(next(bucket.into(), [2, 30_000_000], 2), Some(second(5)));
    let anchored = FixedWindow::new(minute).anchored();
    let open = now - 20_000_000;
    assert_eq!(next(anchored.into(), [open, 4], 1), None);
    assert_eq!(next(anchored.into(), [open, 5], 1), Some(second(40)));
    assert_eq!(next(anchored.into(), [-1, 0], 6), Some(second(60)));
}

/// A charge that is as large as can be: in process a state ends at the last moment, and so do its figures.
#[test]
fn a_huge_charge_says_no_more_than_the_algorithm_itself() {
    let bucket = TokenBucket::new(Quota::per_day(1));
    let now = 1_700_000_000_000_000;
    let at = Tick::from_nanos(now * 1_000);
    let mut state = bucket.fresh(at);
    let _ = bucket.charge(&mut state, at, u64::MAX);
    let own = bucket.decide(&mut state, at, 1);
    let kernels = Kernels::of(&AnyAlgorithm::from(bucket)).expect("kernels");
    let reply = [i64::try_from(now).expect("a moment"), 0, (1 << 53) - 1, 0];
    let run = kernels.decided(Call::Take(1), 1, &reply);
    let decision = run.expect("a reply").decisions[0];
    assert!(
        decision.is_denied() && decision.retry_after <= own.retry_after,
        "{decision:?}, {own:?}"
    );
    assert!(
        decision.reset_after <= own.reset_after,
        "{decision:?}, {own:?}"
    );
}
