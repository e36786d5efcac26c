//! The command line and the exit status.

use std::io::Write;

use crate::harness::{TOKENS, fault, run, start, text};

#[test]
fn decisions_before_an_error_are_printed() {
    let output = run(&["-"], &[TOKENS, r#"{"t_ns":0}"#, "?"].join("\n"));
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stdout).lines().count(), 1);
}

#[test]
fn bad_arguments_are_refused() {
    for (args, expected) in [
        (
            &[] as &[&str],
            "expected a trace, or --policy and --access-log",
        ),
        (&["--fast"], "unknown option --fast"),
        (&["a", "b"], "expected one trace"),
        (&["--svg"], "\"--svg\" needs a value"),
        (
            &["--svg", "a", "--svg", "b", "-"],
            "\"--svg\" is given twice",
        ),
        (
            &["--policy", "p", "-"],
            "expected a trace, or --policy and --access-log",
        ),
        (
            &["--policy", "-", "--access-log", "-"],
            "standard input is either",
        ),
        (
            &["--redis", "redis://127.0.0.1:1", "-"],
            // No server listens there.
            if cfg!(feature = "redis") {
                "--redis: "
            } else {
                "--redis: this build has no Redis support"
            },
        ),
        (&["no/such/file"], "cannot read no/such/file"),
    ] {
        let fault = fault(args, TOKENS);
        assert!(fault.starts_with(expected), "{args:?}\n{fault}");
    }
    let unwritable = fault(&["--summary", "--svg", "no/such/folder/x.svg", "-"], TOKENS);
    assert!(
        unwritable.starts_with("cannot write no/such/folder/x.svg"),
        "{unwritable}"
    );
}

#[test]
fn help_shows_the_format() {
    let output = run(&["--help"], "");
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("take_up_to"));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = start(&["-"]);
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().expect("it is piped");
    let _ = writeln!(stdin, "{TOKENS}");
    for _ in 0..100_000 {
        if writeln!(stdin, "{{\"t_ns\":0}}").is_err() {
            break;
        }
    }
    drop(stdin);
    let output = child.wait_with_output().expect("the example ends");
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
}
