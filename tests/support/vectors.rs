//! Replays the test suites of other limiters with `examples/replay`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// The path of the replay example, which `cargo test` builds together with the tests.
fn replay() -> PathBuf {
    let tests = std::env::current_exe().expect("the path of this test");
    let profile = tests.ancestors().nth(2).expect("target/PROFILE/deps/test");
    let replay = profile.join("examples/replay");
    assert!(
        replay.exists(),
        "{} is missing: build it with `cargo build --example replay`",
        replay.display()
    );
    replay
}

pub fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

/// The first difference between the expected and the actual decision of a step.
fn difference(step: &Value, decision: &Value, tolerance: &Value) -> Option<String> {
    let expect = step.get("expect")?;
    let operation = step["op"].as_str().unwrap_or("check");
    let verdict = decision["verdict"]
        .as_str()
        .expect("every decision has a verdict");
    if let Some(allowed) = expect.get("allowed").and_then(Value::as_bool) {
        // `acquire` accepts a queue position. `check` and `peek` require an immediate admission.
        let actual = match operation {
            "acquire" => verdict != "deny",
            _ => verdict == "admit" || (verdict == "wait" && expect.get("wait_ns").is_some()),
        };
        if actual != allowed {
            return Some(format!("verdict is {verdict}, expected allowed: {allowed}"));
        }
    }
    let denied = expect
        .get("allowed")
        .is_some_and(|allowed| allowed == false);
    let figures = [
        "wait_ns",
        "remaining",
        "taken",
        "reset_after_ns",
        "retry_after_ns",
    ];
    figures.into_iter().find_map(|figure| {
        let expected = expect.get(figure)?;
        if figure == "wait_ns" && denied {
            return None;
        }
        let actual = &decision[figure];
        let same = match (actual.as_u64(), expected.as_u64()) {
            (Some(actual), Some(expected)) => {
                actual.abs_diff(expected) <= tolerance[figure].as_u64().unwrap_or(0)
            }
            _ => actual == expected,
        };
        (!same).then(|| format!("{figure} is {actual}, expected {expected}"))
    })
}

/// Replays a case with `arguments`. Returns the first difference, if there is one.
pub fn fault(case: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(replay())
        .args(arguments)
        .arg(case)
        .output()
        .expect("the example runs");
    if !output.status.success() {
        return Some(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let input = lines(&fs::read_to_string(case).expect("a readable case"));
    let decisions = lines(&String::from_utf8(output.stdout).expect("JSON is text"));
    let (policy, steps) = input.split_first().expect("a policy first");
    if decisions.len() != steps.len() {
        return Some(format!(
            "{} decisions for {} steps",
            decisions.len(),
            steps.len()
        ));
    }
    let tolerance = &policy["_meta"]["tolerance"];
    (2..)
        .zip(steps.iter().zip(&decisions))
        .find_map(|(line, (step, decision))| {
            difference(step, decision, tolerance).map(|fault| format!("line {line}: {fault}"))
        })
}

/// The paths of all cases, sorted.
pub fn cases() -> Vec<PathBuf> {
    let root = crate::root().join("tests/vectors");
    let mut cases: Vec<_> = ["peers", "quotas", "random"]
        .iter()
        .flat_map(|folder| fs::read_dir(root.join(folder)).expect("the folder of the cases"))
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    cases.sort();
    cases
}
