//! Invalid settings are refused at the line that has them.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use tower_throttle::store::local::Overflow;
use tower_throttle::{
    All, AnyAlgorithm, FixedWindow, Global, LeakyBucket, Local, RateLimitLayer, SlidingLog,
    SlidingWindow,
};

use super::*;

thread_local! {
    /// Where the last expected panic of this thread was, if one is expected.
    static PANIC: RefCell<Option<(String, u32)>> = const { RefCell::new(None) };
}

/// The text of the panic of `f`, and the file and line that it names.
fn panic_of<T>(f: impl FnOnce() -> T) -> (String, String, u32) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |info| {
            let expected = PANIC.with_borrow_mut(|panic| {
                let location = info.location().expect("a location");
                panic
                    .as_mut()
                    .map(|panic| *panic = (location.file().to_owned(), location.line()))
            });
            if expected.is_none() {
                print(info);
            }
        }));
    });
    PANIC.set(Some((String::new(), 0)));
    let payload = catch_unwind(AssertUnwindSafe(|| drop(f()))).expect_err("a refusal");
    let (file, line) = PANIC.take().expect("a location");
    let text = match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a text")).to_owned(),
    };
    (text, file, line)
}

/// Expects that `f`, written at `line`, panics there with a text that starts with `says` and names
/// what is allowed.
#[track_caller]
fn refused<T>(f: impl FnOnce() -> T, says: &str) {
    let here = std::panic::Location::caller();
    let (text, file, line) = panic_of(f);
    assert!(text.starts_with(says), "{text:?} does not say {says:?}");
    assert!(text.contains(" is not allowed; give a"), "{text:?}");
    assert_eq!(file, here.file(), "{text}");
    // The formatter may break the line of the call.
    let lines = here.line()..here.line() + 8;
    assert!(
        lines.contains(&line),
        "{text}: at line {line}, not {lines:?}"
    );
}

#[test]
fn quotas_out_of_range() {
    let second = Duration::from_secs(1);
    refused(|| Quota::per_second(0), "limit: 0 is");
    refused(|| Quota::per_minute(0), "limit: 0 is");
    refused(|| Quota::per_hour(1 << 63), "limit: 9223372036854775808 is");
    refused(
        || Quota::per_day(u64::MAX),
        "limit: 18446744073709551615 is",
    );
    refused(|| Quota::per(0, second), "limit: 0 is");
    refused(|| Quota::per(1, Duration::ZERO), "period: 0ns is");
    refused(
        || Quota::per(1, Duration::MAX),
        "period: 18446744073709551615.999999999s is",
    );
    refused(|| Quota::per_second(1).burst(0), "burst: 0 is");
    refused(|| Quota::per_day(1).burst(1_000_000), "burst: 1000000 is");
}

#[test]
fn capacities_out_of_range() {
    fn local() -> Local<TokenBucket> {
        Local::new(TokenBucket::new(Quota::per_second(1)))
    }
    refused(|| local().capacity(0), "capacity: 0 is");
    refused(
        || local().capacity(usize::MAX),
        "capacity: 18446744073709551615 is",
    );
    let error = local().try_capacity(usize::MAX).expect_err("too large");
    assert!(
        error.to_string().contains("a number of keys from 1 to "),
        "{error}"
    );
    assert_eq!(
        local().try_capacity(1).expect("allowed").stats().capacity,
        1
    );
    let denying = local().overflow(Overflow::Deny);
    assert!(denying.try_capacity(0).is_err());
}

#[test]
fn settings_without_effect() {
    let burst = Quota::per_minute(5).burst(50);
    refused(|| Limiter::new(FixedWindow::new(burst)), "burst: 50 is");
    refused(|| Limiter::new(SlidingLog::new(burst)), "burst: 50 is");
    refused(|| Limiter::new(SlidingWindow::new(burst)), "burst: 50 is");
    refused(|| Limiter::new(SlidingGrid::new(burst)), "burst: 50 is");
    refused(|| Local::new(SlidingLog::new(burst)), "burst: 50 is");
    let long = Duration::from_secs(1);
    refused(
        || Local::new(TokenBucket::new(burst).max_wait(long)),
        "max_wait: 1s is",
    );
    refused(
        || Limiter::new(LeakyBucket::new(burst).max_wait(long)),
        "max_wait: 1s is",
    );
}

#[test]
fn settings_without_effect_in_several_limits() {
    let burst = Quota::per_minute(5).burst(50);
    let bucket = TokenBucket::new(burst);
    refused(
        || Limiter::new((bucket, SlidingLog::new(burst))),
        "burst: 50 is",
    );
    refused(
        || Local::new(All::new([FixedWindow::new(burst)])),
        "burst: 50 is",
    );
    refused(
        || Local::new(AnyAlgorithm::new(FixedWindow::new(burst))),
        "burst: 50 is",
    );
}

#[test]
fn settings_without_effect_in_a_layer() {
    let burst = Quota::per_minute(5).burst(50);
    let key = |(): &()| 7_u64;
    refused(
        || RateLimitLayer::new(Global, FixedWindow::new(burst)),
        "burst: 50 is",
    );
    refused(
        || RateLimitLayer::new(key, FixedWindow::new(burst)),
        "burst: 50 is",
    );
}

#[test]
fn settings_without_effect_at_run_time_are_errors_and_change_nothing() {
    let burst = Quota::per_minute(5).burst(50);
    let limiter = Limiter::new(FixedWindow::new(Quota::per_minute(3)));
    let local = Local::new(FixedWindow::new(Quota::per_minute(3)));
    for error in [
        limiter.set_quota(burst).expect_err("a burst"),
        local.set_quota(burst).expect_err("a burst"),
    ] {
        assert!(
            error.to_string().starts_with("burst: 50 is not allowed"),
            "{error}"
        );
    }
    assert_eq!(limiter.quota(), Quota::per_minute(3));
    assert_eq!(local.quota(), Quota::per_minute(3));
}
