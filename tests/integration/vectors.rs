//! Replays the test suites of other rate limiters with `examples/replay`.

use test_support::vectors::{cases, fault};

/// Shows promises 10, 101.
#[test]
fn all_cases_are_reproduced() {
    let cases = cases();
    assert!(cases.len() >= 76, "{} cases", cases.len());
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
