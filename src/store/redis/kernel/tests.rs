use std::cell::Cell;

use super::*;
use crate::algorithm::{
    Algorithm, All, AnyAlgorithm, FixedWindow, IntoAlgorithm, LeakyBucket, Lockout, SlidingGrid,
    SlidingLog, SlidingWindow, TokenBucket,
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
    let hour = Duration::from_secs(3_600);
    for limit in [1, 1_000] {
        let offset = FixedWindow::new(Quota::per_day(limit)).offset(hour);
        let both = (
            TokenBucket::new(Quota::per_second(limit)),
            FixedWindow::new(minute(limit)),
        );
        for (algorithm, expected) in [
            (
                AnyAlgorithm::new(TokenBucket::new(minute(limit))),
                "bucket/60s",
            ),
            (
                AnyAlgorithm::new(LeakyBucket::new(minute(limit))),
                "bucket/60s",
            ),
            (
                AnyAlgorithm::new(FixedWindow::new(minute(limit))),
                "window/60s",
            ),
            (AnyAlgorithm::new(offset), "window/86400s-82800s"),
            (
                AnyAlgorithm::new(FixedWindow::new(minute(limit)).anchored()),
                "anchored/60s",
            ),
            (
                AnyAlgorithm::new(SlidingWindow::new(minute(limit))),
                "sliding/60s",
            ),
            (
                AnyAlgorithm::new(SlidingGrid::new(minute(limit)).strict()),
                "grid/6sx11",
            ),
            (AnyAlgorithm::new(SlidingLog::new(minute(limit))), "log/60s"),
            (AnyAlgorithm::new(both), "bucket/1s+window/60s"),
        ] {
            let layout = Kernels::of(&algorithm).map(|kernels| kernels.layout);
            assert_eq!(layout.as_deref(), Some(expected));
        }
    }
}

#[test]
fn what_a_script_cannot_decide_exactly_has_no_kernels() {
    fn has_kernels(algorithm: impl IntoAlgorithm) -> bool {
        Kernels::of(&algorithm.into_algorithm()).is_some()
    }
    let quota = Quota::per_second(1_000);
    let (bucket, lockout) = (TokenBucket::new(quota), Lockout::new(quota));
    let nanos = Duration::from_nanos;
    let most = Quota::per_second;
    assert!(has_kernels(SlidingLog::new(quota)));
    assert!(has_kernels(TokenBucket::new(Quota::per(1, nanos(1_500)))));
    assert!(has_kernels(TokenBucket::new(most(1 << 52))));
    assert!(has_kernels(FixedWindow::new(most(1 << 52))));

    assert!(!has_kernels(SlidingLog::new(Quota::per_second(1_001))));
    assert!(!has_kernels(FixedWindow::new(Quota::per(1, nanos(1_500)))));
    assert!(!has_kernels(TokenBucket::new(most((1 << 52) + 1))));
    assert!(!has_kernels(FixedWindow::new(most((1 << 52) + 1))));
    assert!(!has_kernels(bucket.debt(1)));
    assert!(!has_kernels(bucket.refill_every(nanos(1_000_000))));
    assert!(!has_kernels(lockout) && !has_kernels((bucket, lockout)));
    assert!(!has_kernels(All::<Vec<TokenBucket>>::new([])));
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
    let kernels = Kernels::of(&AnyAlgorithm::new(bucket)).expect("kernels");
    let reply = [i64::try_from(now).expect("a moment"), 0, (1 << 53) - 1, 0];
    let (_, decided) = kernels.decided(Call::Take(1), 1, &reply).expect("a reply");
    let decision = decided[0];
    assert!(
        decision.is_denied() && decision.retry_after <= own.retry_after,
        "{decision:?}, {own:?}"
    );
    assert!(
        decision.reset_after <= own.reset_after,
        "{decision:?}, {own:?}"
    );
}

/// Shows promise 89.
#[test]
fn the_denial_after_the_last_unit_is_known_from_the_reply_that_took_it() {
    let bucket = TokenBucket::new(Quota::per_second(2));
    let kernels = Kernels::of(&AnyAlgorithm::new(bucket)).expect("kernels");
    // Half a unit of two is used.
    let reply = [1_700_000_000_000_000, 1, 0, 500_000];
    let next = |calls| kernels.next_denial(Call::Take(1), calls, &reply);
    assert_eq!(next(0).map(|denial| denial.retry_after), None);
    let quarter = Duration::from_millis(250);
    assert_eq!(
        next(1).map(|denial| denial.retry_after),
        Some(Some(quarter))
    );
}
