//! Runs the example and reads its output.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread,
};

use serde_json::Value;

pub(crate) const TOKENS: &str =
    r#"{"algorithm":"token_bucket","limit":1,"period_ns":100,"burst":2}"#;
pub(crate) const QUEUE: &str =
    r#"{"algorithm":"leaky_bucket","limit":1,"period_ns":100,"queue":3}"#;
pub(crate) const WINDOW: &str = r#"{"algorithm":"fixed_window","limit":2,"period_ns":100}"#;

/// The example, which cargo builds together with this test.
fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test");
    let profile = test
        .ancestors()
        .nth(2)
        .expect("it is in target/PROFILE/deps");
    let name = format!("examples/replay{}", std::env::consts::EXE_SUFFIX);
    let binary = profile.join(name);
    assert!(
        binary.exists(),
        "{} is missing: `cargo build --example replay` makes it, and so does `cargo test`",
        binary.display()
    );
    binary
}

pub(crate) fn start(args: &[&str]) -> Child {
    Command::new(binary())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example starts")
}

pub(crate) fn run(args: &[&str], input: &str) -> Output {
    let mut child = start(args);
    let mut stdin = child.stdin.take().expect("it is piped");
    thread::scope(|scope| {
        // In a thread, because both pipes have a limited capacity. Writing fails if the example
        // exits early.
        scope.spawn(move || drop(stdin.write_all(input.as_bytes())));
        child.wait_with_output().expect("the example ends")
    })
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// The output for a trace of these lines, which must be valid.
pub(crate) fn printed(args: &[&str], lines: &[&str]) -> String {
    let output = run(&[args, &["-"]].concat(), &lines.join("\n"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout).to_owned()
}

pub(crate) fn decisions(lines: &[&str]) -> Vec<Value> {
    let printed = printed(&[], lines);
    let decisions = printed
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    decisions.collect()
}

/// `verdict wait_ns remaining` of each step.
pub(crate) fn short(lines: &[&str]) -> Vec<String> {
    let short = |one: &Value| {
        let verdict = one["verdict"].as_str().expect("a verdict");
        format!("{verdict} {} {}", one["wait_ns"], one["remaining"])
    };
    decisions(lines).iter().map(short).collect()
}

/// The error message for bad input.
pub(crate) fn fault(args: &[&str], input: &str) -> String {
    let output = run(args, input);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{input}\n{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr.trim_end().to_owned()
}

/// The path of a file with this content. Another run of these tests has its own.
pub(crate) fn file(name: &str, content: &str) -> String {
    let name = format!("{}-{name}", std::process::id());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).expect("the scratch folder can be written");
    path.to_str().expect("UTF-8").to_owned()
}
