use std::cell::Cell;

use super::*;
use crate::algorithm::{
    All, AnyAlgorithm, FixedWindow, IntoAlgorithm, Lockout, SlidingLog, TokenBucket,
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

/// Shows promise 89.
#[test]
fn the_denial_after_the_last_unit_is_known_from_the_reply_that_took_it() {
    let bucket = TokenBucket::new(Quota::per_second(2));
    let kernels = Kernels::of(&AnyAlgorithm::new(bucket)).expect("kernels");
    // A unit and a half of two are used after it.
    let reply = [1_700_000_000_000_000, 1, 0, 250_000, 750_000, 0];
    let (decided, next) = kernels.decided(Op::Take(1), 1, &reply).expect("a reply");
    assert!(decided[0].is_admitted() && decided[0].retry_after.is_none());
    let next = next.expect("a denial");
    assert!(next.is_denied());
    assert_eq!(next.retry_after, Some(Duration::from_millis(250)));
}
