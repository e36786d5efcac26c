//! Replays the test suites of other limiters with `examples/replay`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// The replay example, which `cargo test` builds beside the tests.
fn replay() -> PathBuf {
    let tests = std::env::current_exe().expect("this test is a file");
    let profile = tests.ancestors().nth(2).expect("target/PROFILE/deps/test");
    let replay = profile.join("examples/replay");
    assert!(
        replay.exists(),
        "{} is missing: build it with `cargo build --example replay`",
        replay.display()
    );
    replay
}

pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

/// The first difference between the expected and the actual answer of a step.
fn difference(step: &Value, answer: &Value, tolerance: &Value) -> Option<String> {
    let expect = step.get("expect")?;
    let operation = step["op"].as_str().unwrap_or("check");
    let verdict = answer["verdict"].as_str().expect("every answer has one");
    if let Some(allowed) = expect.get("allowed").and_then(Value::as_bool) {
        // `acquire` accepts a place in the queue; `check` and `peek` need an admission now.
        let came = match operation {
            "acquire" => verdict != "deny",
            _ => verdict == "admit" || (verdict == "wait" && expect.get("wait_ns").is_some()),
        };
        if came != allowed {
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
        let came = &answer[figure];
        let same = match (came.as_u64(), expected.as_u64()) {
            (Some(came), Some(expected)) => {
                came.abs_diff(expected) <= tolerance[figure].as_u64().unwrap_or(0)
            }
            _ => came == expected,
        };
        (!same).then(|| format!("{figure} is {came}, expected {expected}"))
    })
}

/// The first difference of a replay with `arguments`, if there is one.
pub(crate) fn fault(case: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(replay())
        .args(arguments)
        .arg(case)
        .output()
        .expect("the example runs");
    if !output.status.success() {
        return Some(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let input = lines(&fs::read_to_string(case).expect("a readable case"));
    let answers = lines(&String::from_utf8(output.stdout).expect("JSON is text"));
    let (policy, steps) = input.split_first().expect("a policy first");
    if answers.len() != steps.len() {
        return Some(format!(
            "{} answers to {} steps",
            answers.len(),
            steps.len()
        ));
    }
    let tolerance = &policy["_meta"]["tolerance"];
    (2..)
        .zip(steps.iter().zip(&answers))
        .find_map(|(line, (step, answer))| {
            difference(step, answer, tolerance).map(|fault| format!("line {line}: {fault}"))
        })
}

/// All cases.
pub(crate) fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut cases: Vec<_> = ["peers", "random"]
        .iter()
        .flat_map(|folder| fs::read_dir(root.join(folder)).expect("the cases are here"))
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    cases.sort();
    cases
}
