//! Quotas, errors and clocks say what they mean.

use std::time::Duration;

use tower_throttle::{
    ConfigError, Limiter, ManualClock, Quota, SlidingGrid, TokenBucket, WarmUp,
    clock::{Clock, MonotonicClock, Tick, Timer},
};

#[test]
fn a_quota_prints_as_it_reads() {
    let texts = [
        "10/s",
        "100/min",
        "5/10s",
        "1/d",
        "2/w",
        "1/250ms",
        "7/7000013ns",
        "3/90min",
        "10/s; burst=50",
        "1/36h; burst=3",
        "9223372036854775807/ns",
    ];
    for text in texts {
        let quota: Quota = text.parse().expect(text);
        assert_eq!(quota.to_string(), text);
        assert_eq!(quota.to_string().parse(), Ok(quota));
    }
}

#[test]
fn a_quota_is_read_in_the_forms_people_write() {
    let same = [
        ("10/s", "10/second"),
        ("10/s", " 10 / sec "),
        ("10/s", "10/1s"),
        ("10/s", "10/1000ms"),
        ("1/min", "1/60s"),
        ("1/min", "1/m"),
        ("1/h", "1/hour"),
        ("1/d", "1/day"),
        ("1/w", "1/7d"),
        ("10/s; burst=50", "10/s;burst=50"),
        ("10/s; burst=50", "10/s ; burst = 50 "),
    ];
    for (plain, written) in same {
        assert_eq!(
            written.parse::<Quota>().expect(written),
            plain.parse().expect(plain)
        );
    }
}

#[test]
fn per_second_twenty_means_twenty_a_second() {
    let quota = Quota::per_second(20);
    assert_eq!(
        (quota.limit(), quota.period()),
        (20, Duration::from_secs(1))
    );
    let limiter = Limiter::new(TokenBucket::new(quota)).with_clock(ManualClock::new());
    let admitted = (0..100).filter(|_| limiter.try_acquire()).count();
    assert_eq!(admitted, 20);
}

#[test]
fn nonsense_is_an_error_that_names_the_value_and_what_is_allowed() {
    let cases = [
        ("0/s", "limit: 0 is not allowed"),
        ("10/0s", "period: 0ns is not allowed"),
        ("10/200y", "expected a unit of time"),
        ("10/9999w", "period: "),
        (
            "10/99999999999999999999s",
            "period: 99999999999999999999 is not allowed",
        ),
        (
            "99999999999999999999/s",
            "limit: 99999999999999999999 is not allowed",
        ),
        (
            "9223372036854775808/s",
            "limit: 9223372036854775808 is not allowed",
        ),
        ("-1/s", "a whole number for the limit, found \"-1\""),
        ("1.5/s", "a whole number for the limit, found \"1.5\""),
        ("/s", "a whole number for the limit, found \"\""),
        ("10", "expected LIMIT/PERIOD"),
        ("", "expected LIMIT/PERIOD"),
        ("10/", "expected a unit of time"),
        ("10/s; burst=0", "burst: 0 is not allowed"),
        ("10/s; burst=-3", "a whole number for the burst"),
        ("10/s; 50", "expected burst=N after the semicolon"),
        ("10/s;", "expected burst=N after the semicolon"),
        ("1/d; burst=1000000", "burst: 1000000 is not allowed"),
    ];
    for (text, says) in cases {
        let error = text.parse::<Quota>().expect_err(text).to_string();
        assert!(error.contains(says), "{text:?} says {error:?}");
    }
}

#[test]
fn every_constructor_error_names_the_field() {
    let quota = Quota::per_second(1);
    let errors: [(ConfigError, &str); 6] = [
        (
            Quota::try_per(0, Duration::from_secs(1)).expect_err("zero"),
            "limit: 0 ",
        ),
        (
            Quota::try_per(1, Duration::MAX).expect_err("too long"),
            "period: ",
        ),
        (quota.try_burst(0).expect_err("zero"), "burst: 0 "),
        (
            SlidingGrid::new(quota).try_cells(61).expect_err("too many"),
            "cells: 61 ",
        ),
        (
            WarmUp::try_new(quota, Duration::ZERO).expect_err("zero"),
            "warm_up: 0 ns ",
        ),
        (
            WarmUp::new(quota, Duration::from_secs(1))
                .try_cold_factor(0)
                .expect_err("zero"),
            "cold_factor: 0 ",
        ),
    ];
    for (error, names) in errors {
        let says = error.to_string();
        assert!(says.starts_with(names), "{says}");
        assert!(says.contains("give a"), "{says}");
    }
    let error = TokenBucket::at_most(5)
        .burst(6)
        .try_in_any(Duration::from_secs(1));
    assert!(
        error
            .expect_err("too large")
            .to_string()
            .starts_with("burst: 6 ")
    );
    let error = TokenBucket::at_most(0).try_in_any(Duration::from_secs(1));
    assert!(error.expect_err("zero").to_string().starts_with("n: 0 "));
}

#[cfg(feature = "serde")]
#[test]
fn a_quota_in_a_configuration_file_is_its_text() {
    let quota = Quota::per_second(10).burst(50);
    let json = serde_json::to_string(&quota).expect("a string");
    assert_eq!(json, "\"10/s; burst=50\"");
    assert_eq!(
        serde_json::from_str::<Quota>(&json).expect("the same"),
        quota
    );
    let error = serde_json::from_str::<Quota>("\"0/s\"").expect_err("zero");
    assert!(error.to_string().contains("limit: 0 is not allowed"));
}

#[test]
fn a_manual_clock_never_runs_backwards() {
    let clock = ManualClock::new();
    clock.set(Tick::from_nanos(100));
    clock.set(Tick::from_nanos(50));
    assert_eq!(clock.now().as_nanos(), 100);
    clock.advance(Duration::MAX);
    assert_eq!(clock.now(), Tick::MAX);
}

#[test]
fn the_system_clock_rises_and_its_windows_begin_with_the_utc_week() {
    let clock = MonotonicClock;
    let first = clock.now();
    assert!(clock.now() >= first);
    // Somewhere in the second week of its time, so that windows reach back before it.
    let week = Duration::from_secs(7 * 86_400);
    assert!(
        (week..2 * week).contains(&first.since(Tick::ZERO)),
        "{first:?}"
    );
}

#[test]
fn a_sleeper_on_a_manual_clock_wakes_when_its_time_has_come() {
    use std::{
        future::Future,
        pin::pin,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::{Context, Poll, Wake, Waker},
    };

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    let clock = ManualClock::new();
    let mut sleep = pin!(clock.sleep_until(Tick::from_nanos(10)));
    assert_eq!(sleep.as_mut().poll(&mut context), Poll::Pending);
    clock.advance(Duration::from_nanos(9));
    assert_eq!(count.0.load(Ordering::Relaxed), 0);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert_eq!(sleep.poll(&mut context), Poll::Ready(()));
}

#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn the_system_clock_obeys_paused_time() {
    let window = tower_throttle::FixedWindow::new(Quota::per_hour(1));
    let limiter = Limiter::new(window.anchored());
    assert!(limiter.try_acquire());
    tokio::time::advance(Duration::from_secs(3_599)).await;
    assert!(!limiter.try_acquire());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(limiter.try_acquire());
}
