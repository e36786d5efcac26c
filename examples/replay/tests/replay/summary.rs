//! The summary.

use crate::harness::{TOKENS, printed};

/// Shows promise 101.
#[test]
fn the_summary_counts_requests_and_units_and_finds_the_worst_window() {
    let policy = r#"{"algorithm":"token_bucket","limit":1,"period_ns":100,"burst":4,"queue":2}"#;
    let summary = printed(
        &["--summary"],
        &[
            policy,
            r#"{"t_ns":0,"key":"a","n":3}"#,
            r#"{"t_ns":50,"key":"b"}"#,
            r#"{"t_ns":90,"key":"a","n":2}"#, // waits 10, goes at 100
            r#"{"t_ns":90,"key":"a","n":1,"id":"x"}"#, // waits 110
            r#"{"t_ns":90,"key":"a","n":4}"#, // denied
            r#"{"t_ns":95,"key":"a","op":"cancel","of":"x"}"#,
            r#"{"t_ns":99,"key":"a","op":"peek"}"#,
            r#"{"t_ns":120,"key":"b","op":"take_up_to","n":6}"#, // takes 3 or 4
        ],
    );
    let words = |start: &str| -> String {
        let line = summary
            .lines()
            .find(|line| line.trim_start().starts_with(start));
        let line = line.unwrap_or_else(|| panic!("no {start} in\n{summary}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for expected in [
        "policy token_bucket 1/100ns; burst=4; queue=2",
        "trace steps: 8, keys: 2, time: 120ns",
        "offered 6 17 100.0 %",
        "admitted 4 9 52.9 %",
        "at once 3 7 41.2 %",
        "waited 1 2 11.8 %",
        "denied 1 7 41.2 %",
        "cancelled 1 1 5.9 %",
        "longest wait 110ns, key \"a\" at 90ns",
        // Half open: admissions at 0 and at 100 are in different windows.
        "worst window 4 units within 100ns, key \"b\" from 50ns",
        "remaining 16.7 % of the limit on average after a request, 0.0 % at least",
        "10 5 2 4 \"a\"",
        "7 4 0 3 \"b\"",
    ] {
        let start = expected.split(' ').next().expect("a word");
        assert_eq!(words(start), expected);
    }
}

/// Shows promise 101.
#[test]
fn a_queue_has_admitted_what_it_served() {
    let policy =
        r#"{"algorithm":"leaky_bucket","limit":10,"period_ns":1000000000,"burst":1,"queue":223}"#;
    let summary = printed(
        &["--summary"],
        &[&[policy], &*vec![r#"{"t_ns":0}"#; 225]].concat(),
    );
    let rows = summary
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let rows: Vec<_> = rows
        .skip_while(|row| !row.starts_with("offered"))
        .take(5)
        .collect();
    let expected = [
        "offered 225 225 100.0 %",
        "admitted 224 224 99.6 %",
        "at once 1 1 0.4 %",
        "waited 223 223 99.1 %",
        "denied 1 1 0.4 %",
    ];
    assert_eq!(rows, expected);
}

#[test]
fn the_worst_window_counts_requests_at_their_release() {
    let worst = |steps: &[&str]| {
        let policy =
            r#"{"algorithm":"leaky_bucket","limit":3,"period_ns":300,"burst":1,"queue":9}"#;
        let summary = printed(&["--summary"], &[&[policy], steps].concat());
        let line = summary
            .lines()
            .find_map(|line| line.strip_prefix("worst window  "));
        line.expect("a worst window").to_owned()
    };
    // Turns at 0, 100, 200 and 300; the trace ends before the last ones.
    let check = r#"{"t_ns":0}"#;
    let named = r#"{"t_ns":0,"id":"x"}"#;
    let three = r#"3 units within 300ns, key "" from 0ns"#;
    assert_eq!(worst(&[check, check, check, check]), three);
    assert_eq!(worst(&[check, named, check]), three);
    // The requests behind the cancelled one are released at 100 and 200.
    let cancel = r#"{"t_ns":50,"op":"cancel","of":"x"}"#;
    assert_eq!(worst(&[check, named, check, check, cancel]), three);
    // The cancelled request is not counted.
    let two = r#"2 units within 300ns, key "" from 0ns"#;
    assert_eq!(worst(&[check, named, check, cancel]), two);
}

#[test]
fn an_empty_summary_says_so() {
    let summary = printed(&["--summary"], &[TOKENS]);
    assert!(summary.contains("steps: 0, keys: 0"), "{summary}");
    assert!(summary.contains("no request waited"), "{summary}");
    assert!(summary.contains("nothing was admitted"), "{summary}");
}

#[test]
fn the_ten_busiest_keys_are_listed() {
    let steps: Vec<String> = (1..=12)
        .map(|n| format!(r#"{{"t_ns":0,"key":"k{n}","n":{n}}}"#))
        .collect();
    let lines: Vec<&str> = [TOKENS]
        .into_iter()
        .chain(steps.iter().map(|step| &**step))
        .collect();
    let summary = printed(&["--summary"], &lines);
    let table = summary
        .lines()
        .skip_while(|line| !line.starts_with("units of the busiest"));
    let keys: Vec<_> = table
        .skip(2)
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    assert_eq!(keys.len(), 10);
    assert_eq!((keys[0], keys[9]), ("\"k12\"", "\"k3\""));
}
