//! Invalid settings panic at the line that sets them.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use tower_throttle::store::local::Overflow;
use tower_throttle::{
    All, AnyAlgorithm, FixedWindow, Global, Local, RateLimitLayer, SlidingGrid, SlidingLog,
    SlidingWindow,
};

use super::*;

thread_local! {
    /// The location of the last expected panic of this thread. `None` if no panic is expected.
    static PANIC: RefCell<Option<(String, u32)>> = const { RefCell::new(None) };
}

/// The message, file and line of the panic of `f`.
fn catch_panic<T>(f: impl FnOnce() -> T) -> (String, String, u32) {
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
    let payload = catch_unwind(AssertUnwindSafe(|| drop(f()))).expect_err("a panic");
    let (file, line) = PANIC.take().expect("a location");
    let text = match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a text")).to_owned(),
    };
    (text, file, line)
}

/// Asserts that `f` panics at the line of the caller, with a message that starts with `prefix` and
/// contains the allowed values.
#[track_caller]
fn assert_rejected<T>(f: impl FnOnce() -> T, prefix: &str) {
    let here = std::panic::Location::caller();
    let (text, file, line) = catch_panic(f);
    assert!(
        text.starts_with(prefix),
        "{text:?} does not start with {prefix:?}"
    );
    assert!(text.contains(" is not allowed; give a"), "{text:?}");
    assert_eq!(file, here.file(), "{text}");
    // rustfmt may break the call into several lines.
    let lines = here.line()..here.line() + 8;
    assert!(
        lines.contains(&line),
        "{text}: at line {line}, not {lines:?}"
    );
}

/// Shows promise 11.
#[test]
fn quotas_out_of_range_panic() {
    let second = Duration::from_secs(1);
    assert_rejected(|| Quota::per_second(0), "limit: this number is");
    assert_rejected(|| Quota::per_minute(0), "limit: this number is");
    assert_rejected(|| Quota::per_hour(1 << 53), "limit: this number is");
    assert_rejected(|| Quota::per_day(u64::MAX), "limit: this number is");
    assert_rejected(|| Quota::per(0, second), "limit: 0 is");
    assert_rejected(|| Quota::per(1, Duration::ZERO), "period: 0ns is");
    assert_rejected(
        || Quota::per(1, Duration::MAX),
        "period: 18446744073709551615.999999999s is",
    );
    assert_rejected(|| Quota::per_second(1).burst(0), "burst: this number is");
    assert_rejected(
        || Quota::per_day(1).burst(1_000_000),
        "burst: this number is",
    );
}

/// Shows promise 11.
#[test]
fn capacities_out_of_range_panic() {
    fn local() -> Local<TokenBucket> {
        Local::new(TokenBucket::new(Quota::per_second(1)))
    }
    assert_rejected(|| local().capacity(0), "capacity: 0 is");
    assert_rejected(
        || local().capacity(usize::MAX),
        "capacity: 18446744073709551615 is",
    );
    assert_eq!(local().capacity(1).stats().capacity, 1);
    let denying = || local().overflow(Overflow::Deny);
    assert_rejected(|| denying().capacity(0), "capacity: 0 is");
}

/// Shows promise 11.
#[test]
fn settings_without_effect_panic() {
    let burst = Quota::per_minute(5).burst(50);
    assert_rejected(|| Limiter::new(FixedWindow::new(burst)), "burst: 50 is");
    assert_rejected(|| Limiter::new(SlidingLog::new(burst)), "burst: 50 is");
    assert_rejected(|| Limiter::new(SlidingWindow::new(burst)), "burst: 50 is");
    assert_rejected(|| Limiter::new(SlidingGrid::new(burst)), "burst: 50 is");
    assert_rejected(|| Local::new(SlidingLog::new(burst)), "burst: 50 is");
    let huge = u64::MAX;
    assert_rejected(
        || Local::new(TokenBucket::new(burst).debt(huge)),
        "debt: 18446744073709551615 is",
    );
}

/// Shows promise 11.
#[test]
fn settings_without_effect_in_tuples_panic() {
    let burst = Quota::per_minute(5).burst(50);
    let bucket = TokenBucket::new(burst);
    assert_rejected(
        || Limiter::new((bucket, SlidingLog::new(burst))),
        "burst: 50 is",
    );
    assert_rejected(
        || Local::new(All::new([FixedWindow::new(burst)])),
        "burst: 50 is",
    );
    assert_rejected(
        || Local::new(AnyAlgorithm::new(FixedWindow::new(burst))),
        "burst: 50 is",
    );
}

/// Shows promise 11.
#[test]
fn settings_without_effect_in_a_layer_panic() {
    let burst = Quota::per_minute(5).burst(50);
    let key = |(): &()| 7_u64;
    assert_rejected(
        || RateLimitLayer::new(Global, FixedWindow::new(burst)),
        "burst: 50 is",
    );
    assert_rejected(
        || RateLimitLayer::new(key, FixedWindow::new(burst)),
        "burst: 50 is",
    );
}

/// Shows promise 11.
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
