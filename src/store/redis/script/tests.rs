use super::*;
use crate::algorithm::{Algorithm, FixedWindow, TokenBucket, WarmUp};
use crate::quota::Quota;

/// The reply on a take of one from a window of two: the status, and what is used then.
fn take(status: i64, used: i64) -> Result<ScriptReply, StoreError> {
    let window = FixedWindow::new(Quota::per_second(2));
    let now = Tick::from_nanos(10_000_000_000);
    let mut state = window.fresh(now);
    let _ = window.decide(&mut state, now, 1);
    let current = i64::try_from(state.window).expect("a number");
    decode_reply(&window, Call::Take(1), 10_000_000, &[status, current, used])
}

#[test]
fn a_reply_that_its_own_state_contradicts_is_refused() {
    assert!(take(1, 1).is_ok() && take(0, 2).is_ok());
    assert!(take(0, 1).is_err(), "denied, with one left");
    assert!(take(1, 2).is_err(), "admitted, with none left");
}

#[test]
fn a_reply_says_whether_the_same_request_is_denied_next() {
    let take = |status, used| take(status, used).expect("a reply");
    assert_eq!(take(1, 0).next_denial, None);
    let last = take(1, 1);
    assert!(last.decision.is_admitted());
    let denied = take(0, 2);
    assert_eq!(denied.decision.retry_after, Some(Duration::from_secs(1)));
    for reply in [last, denied] {
        assert_eq!(reply.next_denial, Some(denied.decision));
    }
}

#[test]
fn arguments_stop_at_the_largest_integer_that_a_script_represents() {
    assert_eq!(saturated(7), 7);
    assert_eq!(saturated(u64::MAX), 9_007_199_254_740_991);
}

#[test]
fn every_span_of_a_decision_is_rounded_up_to_microseconds() {
    let wait = |ns| Verdict::Wait(Duration::from_nanos(ns));
    let exact = Decision::new(wait(1_001), 5, 0, Some(2_001), 3_001);
    let rounded = Decision::new(wait(2_000), 5, 0, Some(3_000), 4_000);
    assert_eq!(ceil_to_micros(exact), rounded);
    assert_eq!(ceil_to_micros(rounded), rounded);
}

#[test]
fn keys_of_a_warm_up_have_no_quotas_of_their_own() {
    let quota = Quota::per_second(2);
    let (bucket, warm_up) = (
        TokenBucket::new(quota),
        WarmUp::new(quota, Duration::from_secs(4)),
    );
    assert!(shares_use(&bucket));
    assert!(!shares_use(&warm_up));
    assert!(!shares_use(&(bucket, warm_up)));
}
