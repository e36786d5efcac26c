//! Tests of quotas and their text form, configuration errors, and clocks.

mod clocks;

use std::time::Duration;

use tower_throttle::{
    Decision, Limiter, ManualClock, Quota, RateLimited, StoreError, Verdict,
    clock::{Tick, Timer},
};

/// Shows promise 220.
#[test]
fn every_quota_parses_to_itself_and_to_no_other() {
    // Each period of up to a nanosecond more or less than a unit, and powers of two up to a year.
    let units = [1, 1_000, 1_000_000, 1_000_000_000, 60_000_000_000]
        .into_iter()
        .chain([3_600_000_000_000, 86_400_000_000_000, 604_800_000_000_000]);
    let periods: Vec<u64> = units
        .flat_map(|unit| (1..=9).map(move |times| times * unit))
        .chain((0..54).map(|bit| 1 << bit))
        .flat_map(|period| [period - 1, period, period + 1])
        .filter(|period| *period > 0)
        .collect();
    let mut seen = std::collections::HashMap::new();
    for period in periods {
        for limit in [1, 2, 9, 10, 999, 1_000, 1 << 31, (1 << 32) - 1] {
            let period = Duration::from_nanos(period);
            let Ok(quota) = Quota::try_from((limit, period)) else {
                continue;
            };
            let bursts = [limit, limit + 1, 1];
            let bursts = bursts.map(|burst| Quota::try_from((limit, period, burst)));
            for quota in [Ok(quota)].into_iter().chain(bursts).flatten() {
                let text = quota.to_string();
                assert_eq!(text.parse(), Ok(quota), "{text}");
                if let Some(other) = seen.insert(text.clone(), quota) {
                    assert_eq!(other, quota, "{text}");
                }
            }
        }
    }
    assert!(seen.len() > 3_000, "{}", seen.len());
}

/// Shows promise 220.
#[test]
fn a_quota_is_parsed_in_common_spellings() {
    let spellings = [
        ("10/s", "10/second"),
        ("10/s", "10/seconds"),
        ("10/5s", "10/5 seconds"),
        ("3/2min", "3/2 minutes"),
        ("3/2h", "3/2hrs"),
        ("3/2h", "3/2 hours"),
        ("3/2d", "3/2 days"),
        ("3/2w", "3/2 weeks"),
        ("1/250ms", "1/250 milliseconds"),
        ("1/7us", "1/7 microseconds"),
        ("1/7us", "1/7\u{b5}s"),
        ("1/7ns", "1/7 nanoseconds"),
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
    for (canonical, spelling) in spellings {
        let found = spelling.parse::<Quota>().expect(spelling);
        assert_eq!(found, canonical.parse().expect(canonical));
    }
}

#[test]
fn an_error_says_until_when_and_whether_it_goes_away() {
    let denied = |wait| RateLimited::new(Decision::new(Verdict::Deny, 1, 0, wait, 0));
    for (nanos, seconds) in [
        (0, 1),
        (1, 1),
        (1_000_000_001, 2),
        (u64::MAX, i32::MAX as u64),
    ] {
        assert_eq!(denied(Some(nanos)).retry_after_secs(), Some(seconds));
    }
    assert_eq!(denied(None).retry_after_secs(), None);
    let goes_away = [true, false].map(|transient| StoreError::new("", transient).is_transient());
    assert_eq!(goes_away, [true, false]);
}

/// Shows promise 220.
#[test]
fn a_parse_error_contains_the_value_and_the_allowed_values() {
    let cases = [
        ("0/s", "limit: 0 is not allowed"),
        ("10/0s", "period: 0ns is not allowed"),
        ("10/200y", "expected a unit of time"),
        ("10/9999w", "period: "),
        ("10/99999999999999999999s", "99999999999999999999 is not"),
        ("99999999999999999999/s", "limit: 99999999999999999999 is"),
        ("9007199254740992/s", "limit: 9007199254740992 is not"),
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
    for (text, expected) in cases {
        let error = text.parse::<Quota>().expect_err(text).to_string();
        assert!(error.contains(expected), "{text:?}: {error:?}");
        let field = error.split(':').next().expect("a field");
        let fields = ["quota", "limit", "period", "burst"];
        assert!(fields.contains(&field), "{text:?}: {error:?}");
    }
}

/// Shows promise 220.
#[cfg(feature = "serde")]
#[test]
fn a_quota_is_serialized_as_its_text_form() {
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
