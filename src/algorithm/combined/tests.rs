//! A tuple, a list and an [`AnyAlgorithm`] of one limit do what that limit does alone.

use std::time::Duration;

use super::super::{
    Algorithm, AnyAlgorithm, Cost, Fields, FixedWindow, GiveBack, IntoAlgorithm, LeakyBucket,
    Lockout, SlidingLog, SlidingWindow, TokenBucket, WarmUp, fields::share_of, reserve,
};
use super::All;
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::Quota;

const MINUTE: Duration = Duration::from_secs(60);

/// An algorithm of a user. Its state is the latest moment.
#[derive(Clone, Debug)]
struct Own;

impl Algorithm for Own {
    type State = Tick;

    fn quota(&self) -> Quota {
        Quota::per_second(1)
    }
    fn with_quota(&self, _: Quota) -> Result<Self, ConfigError> {
        Ok(Self)
    }
    fn fresh(&self, now: Tick) -> Tick {
        now
    }
    fn decide(&self, state: &mut Tick, now: Tick, _: u64) -> Decision {
        *state = now;
        Decision::new(Verdict::Admit, 1, 1, None, 0)
    }
    fn refund(&self, _: &mut Tick, _: Tick, _: Cost, _: GiveBack) {}
    fn charge(&self, state: &mut Tick, now: Tick, _: u64) -> Duration {
        *state = now;
        Duration::ZERO
    }
    fn forgettable_at(&self, state: &Tick) -> Tick {
        *state
    }
    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(99);
        fields.quota(&mut self.quota());
    }
    fn state_fields(&self, _: &mut Tick, _: &mut Fields<'_>) {}
}

/// A bucket that starts empty, with a fraction that leaves 43 bits of a word for a moment.
fn slow_start() -> TokenBucket {
    TokenBucket::new(Quota::per_second(999_983)).initial(0)
}

/// Compares what `$check` returns for each limit alone and for all that can hold one limit.
macro_rules! check_all {
    ($check:expr) => {{
        fn check_wrapped<A: Algorithm>(part: A) {
            let nothing = All::<Vec<FixedWindow>>::new([]);
            let expected = $check(&part);
            let any = AnyAlgorithm::new(part.clone());
            assert_eq!($check(&any), expected, "{part:?}");
            assert_eq!($check(&All::new([part.clone()])), expected, "{part:?}");
            let first = (part.clone(), nothing.clone()).into_algorithm();
            assert_eq!($check(&first), expected, "{part:?}");
            let second = (nothing, part.clone()).into_algorithm();
            assert_eq!($check(&second), expected, "{part:?}");
        }
        let quota = Quota::per_minute(10);
        check_wrapped(TokenBucket::new(quota));
        check_wrapped(slow_start());
        check_wrapped(LeakyBucket::new(quota.burst(1)));
        check_wrapped(WarmUp::new(quota, MINUTE));
        check_wrapped(FixedWindow::new(quota));
        check_wrapped(FixedWindow::new(quota).anchored());
        check_wrapped(SlidingWindow::new(quota));
        check_wrapped(SlidingLog::new(quota));
        check_wrapped(Lockout::new(quota));
        check_wrapped(Lockout::new(quota).after_denials_of(LeakyBucket::new(quota)));
        check_wrapped(Own);
    }};
}

#[test]
fn a_wrapped_limit_reports_what_it_does_alone() {
    fn questions<A: Algorithm>(limit: &A) -> (usize, [bool; 4]) {
        (
            limit.capabilities().limits,
            [
                limit.capabilities().books_turns(),
                limit.capabilities().is_user_code,
                limit.capabilities().is_about_one_key,
                limit.capabilities().counts_denials,
            ],
        )
    }
    check_all!(questions);

    let quota = Quota::per_minute(10);
    let bucket = TokenBucket::new(quota);
    let turns = [true, false, false, false];
    assert_eq!(questions(&FixedWindow::new(quota)), (1, [false; 4]));
    assert_eq!(questions(&bucket), (1, turns));
    assert_eq!(questions(&WarmUp::new(quota, MINUTE)), (1, turns));
    assert_eq!(questions(&Own), (1, [false, true, false, false]));
    let alone = [false, false, true, false];
    assert_eq!(questions(&Lockout::new(quota)), (1, alone));
    let denials = Lockout::new(quota).after_denials_of(bucket);
    assert_eq!(questions(&denials), (1, [true, false, true, true]));
    let mixed = (denials, Own).into_algorithm();
    assert_eq!(questions(&mixed), (2, [true; 4]));
}

#[test]
fn a_cancelled_request_reaches_a_wrapped_limit() {
    fn steps<A: Algorithm>(limit: &A) -> Vec<Option<Duration>> {
        let now = Tick::from_nanos(1 << 40);
        let mut state = limit.fresh(now);
        let mut results = Vec::new();
        let _ = limit.decide(&mut state, now, 1);
        for _ in 0..2 {
            let placed = reserve(limit, &mut state, now, 1, MINUTE);
            results.push(placed.wait());
            let turn = now.plus(placed.wait().unwrap_or_default());
            limit.refund(
                &mut state,
                now,
                Cost { units: 1, at: turn },
                GiveBack::Cancel,
            );
        }
        results
    }
    check_all!(steps);
    let line = LeakyBucket::new(Quota::per_minute(10).burst(1));
    assert_eq!(steps(&line), [Some(MINUTE / 10); 2]);
    let denials = Lockout::new(Quota::per_minute(10)).after_denials_of(line);
    assert_eq!(steps(&denials), [Some(MINUTE / 10); 2]);
}

#[test]
fn the_share_of_a_wrapped_limit_has_a_share_of_each_quota() {
    fn share<A: Algorithm>(limit: &A) -> (Vec<Quota>, bool) {
        let share = share_of(limit, 3).expect("at least one of ten");
        let too_many = share_of(limit, u64::MAX);
        (A::quotas(&share), too_many.is_ok())
    }
    check_all!(share);
    let quota = Quota::per_minute(10);
    let minute = Quota::per_minute(3);
    assert_eq!(share(&TokenBucket::new(quota)), (vec![minute], false));
    let hour = SlidingWindow::new(Quota::per_hour(10));
    let both = (FixedWindow::new(quota), hour).into_algorithm();
    let (quotas, _) = share(&both);
    assert_eq!(quotas, [minute, Quota::per_hour(3)]);
}

#[test]
fn a_limit_that_joins_a_list_begins_as_it_would_alone() {
    let limit = |tokens| TokenBucket::new(Quota::per_hour(10)).initial(tokens);
    let [short, long] =
        [&[10][..], &[10, 3, 0]].map(|list| All::new(list.iter().copied().map(limit)));
    let now = Tick::ZERO.plus(MINUTE);
    let mut state = short.fresh(Tick::ZERO);
    long.rescale(&mut state, &short, now);
    assert_eq!(state[1..], long.fresh(now)[1..]);
    short.rescale(&mut state, &long, now);
    assert_eq!(state.len(), 1);
}
