//! Replays the test suites of other rate limiters with `examples/replay`.

use std::fs;
use test_support::vectors;

use self::vectors::{cases, fault};

/// Shows promises 10, 114.
#[test]
fn all_cases_are_reproduced() {
    let cases = cases();
    assert!(cases.len() >= 78, "{} cases", cases.len());
    let faults: Vec<_> = cases
        .iter()
        .filter_map(|case| {
            let name = case
                .file_stem()
                .expect("a file")
                .to_string_lossy()
                .into_owned();
            fault(case, &[]).map(|fault| format!("{name}: {fault}"))
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_wrong_expectation_is_detected() {
    let case = cases()
        .into_iter()
        .find(|case| case.ends_with("mennanov-token_bucket-refill.jsonl"))
        .expect("the case exists");
    assert_eq!(fault(&case, &[]), None);
    let text = fs::read_to_string(case).expect("a readable case");
    for (right, wrong) in [
        ("\"remaining\": 3", "\"remaining\": 4"),
        ("\"allowed\": true", "\"allowed\": false"),
        ("\"reset_after_ns\": 1", "\"reset_after_ns\": 2"),
    ] {
        assert!(text.contains(right), "{text}");
        let name = format!(
            "tower-throttle-{}-{}.jsonl",
            std::process::id(),
            right.len()
        );
        let altered = std::env::temp_dir().join(name);
        fs::write(&altered, text.replacen(right, wrong, 1)).expect("a writable folder");
        let found = fault(&altered, &[]);
        fs::remove_file(&altered).expect("it was written above");
        assert!(found.is_some(), "{wrong} was not detected");
    }
}
