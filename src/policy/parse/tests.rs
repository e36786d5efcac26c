use test_support::random::Random;

use super::*;
use crate::algorithm::{AnyAlgorithm, CalendarWindow};
use crate::policy::{
    Spec,
    kinds::{CALENDAR, KINDS},
};

fn printed(text: &str) -> String {
    let spec: Spec = text.parse().unwrap_or_else(|error| panic!("{error}"));
    let printed = spec.to_string();
    assert_eq!(printed.parse(), Ok(spec), "{printed}");
    printed
}

fn error(text: &str) -> String {
    match text.parse::<Spec>() {
        Ok(spec) => panic!("{text:?} was read as {spec}"),
        Err(error) => error.to_string(),
    }
}

/// Shows promise 220.
#[test]
fn every_algorithm_is_read_and_printed_in_one_order() {
    for (text, expected) in [
        (
            "  token_bucket   10 / s;queue = 20;  burst=50 ;max_wait= 2000ms;initial=0",
            "token_bucket 10/s; burst=50; initial=0; queue=20; max_wait=2s",
        ),
        (
            "leaky_bucket 2/s; max_wait=1h; queue=9; burst=1",
            "leaky_bucket 2/s; burst=1; queue=9; max_wait=1h",
        ),
        ("fixed_window 2/s;queue=1", "fixed_window 2/s; queue=1"),
        ("fixed_window 5/10 seconds", "fixed_window 5/10s"),
        ("fixed_window 5/d; offset=6h", "fixed_window 5/d; offset=6h"),
        (
            "fixed_window 5/d; anchored=true",
            "fixed_window 5/d; anchored=true",
        ),
        (
            "fixed_window 5/d; anchored=false; offset=1s",
            "fixed_window 5/d; offset=1s",
        ),
        (
            "sliding_window 5/min; offset=0s",
            "sliding_window 5/min; offset=0ns",
        ),
        (
            "sliding_grid 5/min; strict=true; cells=6",
            "sliding_grid 5/min; cells=6; strict=true",
        ),
        ("sliding_log 5/min", "sliding_log 5/min"),
        (
            "warm_up 100/s; cold_factor=3; warm_up=1min; queue=5",
            "warm_up 100/s; warm_up=1min; cold_factor=3; queue=5",
        ),
        (
            "lockout 5/15min; on_success=clear; block=1min; max_block=1d; forget=1week",
            "lockout 5/15min; block=1min; max_block=1d; forget=1w; on_success=clear",
        ),
        ("lockout 5/15min; on_success=keep", "lockout 5/15min"),
        (
            "concurrency 20; max_wait=1s; queue=5",
            "concurrency 20; queue=5; max_wait=1s",
        ),
        (
            "token_bucket 10/s; burst=50+fixed_window 1000/d",
            "token_bucket 10/s; burst=50 + fixed_window 1000/d",
        ),
    ] {
        assert_eq!(printed(text), expected);
    }
}

#[cfg(feature = "governor")]
#[test]
fn gcra_is_read_and_printed() {
    assert_eq!(printed("gcra 10/s; burst=5"), "gcra 10/s; burst=5");
}

#[cfg(not(feature = "governor"))]
#[test]
fn gcra_without_its_feature_says_which_one_it_needs() {
    assert!(error("gcra 10/s").contains("enable the feature `governor`"));
}

/// Texts with a fault, and a part of the message.
const FAULTS: &[(&str, &str)] = &[
    ("10/s", "an algorithm (token_bucket, "),
    ("", "there is none"),
    (
        "token_buket 1/s",
        "found \"token_buket\"; did you mean token_bucket?",
    ),
    (
        "token_bucket",
        "expected LIMIT/PERIOD, such as 10/s or 100/min after token_bucket",
    ),
    ("token_bucket 10", "expected LIMIT/PERIOD"),
    (
        "token_bucket 0/s",
        "limit: 0 is not allowed; give a number from 1 to",
    ),
    ("token_bucket 1/fortnight", "a unit of time"),
    (
        "fixed_window 5/s; burst=9",
        "anchored, offset, queue, max_wait: fixed_window has no burst",
    ),
    (
        "token_bucket 5/s; burts=9",
        "has no burts; did you mean burst?",
    ),
    (
        "token_bucket 5/s; burst=9; burst=9",
        "burst once, it is given twice",
    ),
    (
        "token_bucket 5/s; burst=-1",
        "a whole number for burst, found \"-1\"",
    ),
    (
        "token_bucket 5/s; burst=99999999999999999999",
        "burst: 99999999999999999999 is not",
    ),
    ("token_bucket 5/s; burst", "OPTION=VALUE, found \"burst\""),
    ("token_bucket 5/s;", "OPTION=VALUE, found \"\""),
    (
        "token_bucket 5/s; queue=1; max_wait=2",
        "2 needs a unit, as in 2s or 2ms",
    ),
    (
        "token_bucket 5/s; queue=1; max_wait=s",
        "such as 500ms, 2s or 15min, found \"s\"",
    ),
    (
        "token_bucket 5/s; queue=1; max_wait=99999999999d",
        "a time up to 10 years",
    ),
    (
        "token_bucket 5/s; max_wait=2s",
        "queue too: max_wait has no effect without it",
    ),
    (
        "token_bucket 5/s; debt=0",
        "debt: 0 is not allowed; give a number from 1 that the rate works off within 10 years",
    ),
    (
        "token_bucket 5/s; queue=0",
        "queue: 0 is not allowed; give a number from 1",
    ),
    (
        "token_bucket 5/s; queue=1 + fixed_window 9/h; queue=2",
        "queue once: requests wait for all of the limits together",
    ),
    (
        "fixed_window 5/s; anchored=yes",
        "false or true for anchored, found \"yes\"",
    ),
    (
        "fixed_window 5/s; anchored=true; offset=1s",
        "offset has no effect beside anchored",
    ),
    (
        "sliding_grid 5/s; cells=100",
        "cells: 100 is not allowed; give a number from 1 to 60",
    ),
    ("warm_up 5/s", "warm_up=TIME: warm_up needs it"),
    (
        "concurrency 0",
        "limit: 0 is not allowed; give a number from 1 to 4294967295",
    ),
    (
        "concurrency 10/s",
        "a number of requests, such as 20 after concurrency",
    ),
    ("concurrency 1 + token_bucket 5/s", "concurrency alone"),
    ("token_bucket 5/s +", "there is none"),
];

/// Shows promise 220.
#[test]
fn every_fault_names_the_value_and_what_is_allowed() {
    for (text, expected) in FAULTS {
        let error = error(text);
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}

#[test]
fn every_option_is_in_the_table_of_specs_and_on_the_page() {
    let (page, table) = (
        include_str!("../../../docs/policy_reference.md"),
        include_str!("../spec.rs"),
    );
    let row_of = |name| {
        let begins = format!("/// | `{name}` |");
        table.lines().find(|line| line.starts_with(&begins))
    };
    let of_all = table.lines().find(|line| line.starts_with("/// | all |"));
    let of_all = of_all.expect("a row");
    for kind in KINDS.iter().chain([&CALENDAR]) {
        let row = row_of(name_in_text(kind)).expect("a row");
        for option in kind.options().unwrap_or_default() {
            let name = format!("`{}", option.name);
            let is_listed = [row, of_all].iter().any(|row| row.contains(&name));
            assert!(is_listed, "{row} lacks {name}");
            let mut rows = page.lines().filter(|line| line.starts_with("| `"));
            assert!(rows.any(|row| row.contains(&format!("{name}`"))), "{name}");
        }
    }
    assert!(row_of("nothing").is_none());
}

#[test]
fn a_limit_in_flight_is_no_algorithm() {
    let spec: Spec = "concurrency 20; queue=5".parse().expect("a limit");
    assert_eq!(
        (spec.concurrency(), spec.queue()),
        (Some(20), Some((5, None)))
    );
    let error = "concurrency 20".parse::<AnyAlgorithm>().expect_err("none");
    let named = error.to_string().contains("ConcurrencyLimitLayer");
    assert!(named, "{error}");
    let queue = "token_bucket 1/s; queue=1".parse::<AnyAlgorithm>();
    assert!(queue.is_err());
}

fn name_in_text(kind: &AlgorithmKind) -> &'static str {
    match kind.name {
        "calendar_window" => "fixed_window",
        name => name,
    }
}

/// Shows promise 318.
#[test]
fn windows_of_the_calendar_are_read_and_printed() {
    if cfg!(not(feature = "calendar")) {
        for text in ["fixed_window 1/month", "fixed_window 1/d; zone=UTC"] {
            assert!(error(text).contains("enable the feature `calendar`"));
        }
        return;
    }
    for (text, expected) in [
        (
            "fixed_window 1000/month; anchor=15; zone=europe/berlin",
            "fixed_window 1000/month; zone=Europe/Berlin; anchor=15",
        ),
        ("fixed_window 9/months", "fixed_window 9/month"),
        ("fixed_window 9/d; zone=UTC", "fixed_window 9/d; zone=UTC"),
        ("fixed_window 9/7d; anchor=7", "fixed_window 9/w; anchor=7"),
        (
            "fixed_window 9/d; zone=Etc/GMT+5 + token_bucket 5/s",
            "fixed_window 9/d; zone=Etc/GMT+5 + token_bucket 5/s",
        ),
        ("token_bucket 9/month", "token_bucket 9/month"),
    ] {
        assert_eq!(printed(text), expected);
    }
    let is_calendar = |text: &str| {
        let algorithm: AnyAlgorithm = text.parse().expect("a limit");
        algorithm.get::<CalendarWindow>().is_some()
    };
    assert!(is_calendar("fixed_window 9/month"));
    assert!(is_calendar("fixed_window 9/d; zone=UTC"));
    assert!(is_calendar("fixed_window 9/w; anchor=1"));
    assert!(!is_calendar("fixed_window 9/d"));
    for (text, expected) in [
        (
            "fixed_window 9/d; zone=Mars/Olympus",
            "zone: \"Mars/Olympus\" is not allowed; give the name of a time zone, such as Europe/Berlin or UTC",
        ),
        ("fixed_window 9/d; zone=", "the name of a time zone"),
        (
            "fixed_window 9/h; zone=UTC",
            "period: 9/h is not allowed; give a day, a week or a month",
        ),
        (
            "fixed_window 9/d; zone=UTC; anchor=2",
            "no anchor for a day",
        ),
        ("fixed_window 9/w; anchor=8", "a weekday from 1 (Monday)"),
        ("fixed_window 9/month; anchor=32", "a number from 1 to 31"),
        (
            "fixed_window 9/month; anchored=true",
            "zone, anchor, queue, max_wait: calendar_window has no anchored",
        ),
        (
            "fixed_window 9/month; zone=UTC; zone=UTC",
            "zone once, it is given twice",
        ),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}

/// A random text from the words of the grammar: most are wrong, and many are right.
fn random_text(random: &mut impl FnMut(usize) -> usize) -> String {
    let mut text = String::new();
    for part in 0..=random(2) {
        if part > 0 {
            text += ["+", " + "][random(2)];
        }
        let kind = KINDS.get(random(11)).unwrap_or(&CALENDAR);
        let counts = ["0", "1", "3", "60", "1000", "9007199254740991", "x", ""];
        let times = [
            "0ns",
            "1ns",
            "90s",
            "1 min",
            "2d",
            "5",
            "99999999999999d",
            "µs",
        ];
        let units = ["s", "min", "10s", "7d", "month", "0s", "", "fortnight"];
        let count = counts[random(8)];
        text += name_in_text(kind);
        text += [" ", "  ", "\t", ""][random(4)];
        text += count;
        if matches!(kind.make, Make::Algorithm(_)) {
            text += "/";
            text += units[random(8)];
        }
        for option in kind.options().unwrap_or_default() {
            let value = match option.takes {
                Takes::Count => counts[random(8)],
                Takes::Time => times[random(8)],
                Takes::OneOf(words) => words[random(words.len())],
                Takes::Zone => ["UTC", "europe/berlin", "Etc/GMT+5", ""][random(4)],
            };
            if random(2) == 0 {
                text = format!("{text}; {}={value}", option.name);
            }
        }
    }
    text
}

/// Shows promise 220.
#[test]
fn no_text_panics_and_what_is_read_is_printed_and_read_back_equal() {
    let mut numbers = Random::new(20);
    let mut random = |end: usize| usize::try_from(numbers.below(end as u64)).expect("small");
    let (mut read, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let mut text = random_text(&mut random);
        if random(4) == 0 {
            // Cut or repeat a part of it.
            let at = (0..=random(text.len() + 1))
                .rev()
                .find(|at| text.is_char_boundary(*at))
                .unwrap_or_default();
            text.truncate(at);
        }
        match text.parse::<Spec>() {
            Ok(spec) => {
                read += 1;
                assert_eq!(spec.to_string().parse(), Ok(spec), "{text:?}");
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(
        read > 500 && refused > 500,
        "{read} read, {refused} refused"
    );
}
