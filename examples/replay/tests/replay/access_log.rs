//! Access logs as input.

use serde_json::Value;

use crate::harness::{WINDOW, fault, file, run, text};

/// Shows promise 101.
#[test]
fn an_access_log_replays_its_clients_in_any_time_zone() {
    let policy = file(
        "log-policy.json",
        "{\n  \"algorithm\": \"fixed_window\",\n  \"limit\": 1,\n  \"period_ns\": 60000000000\n}\n",
    );
    let log = [
        r#"192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326"#,
        // The same second in another time zone.
        r#"192.0.2.7 - a b [11/Oct/2000:02:25:36 +0530] "GET /\"x\" HTTP/1.0" 404 - "http://r" "agent" 7"#,
        r#"2001:db8::1 - - [10/Oct/2000:20:55:59 +0000] "-" 408 0 "-" "-""#,
        // Out of order: servers write a line when a request ends.
        r#"192.0.2.7 - - [10/Oct/2000:20:55:50 +0000] "GET / HTTP/1.0" 200 1"#,
        r#"192.0.2.7 - - [10/Oct/2000:20:56:00 +0000] "GET / HTTP/1.0" 200 1"#,
    ]
    .join("\n");
    let log_file = file("access.log", &log);
    let from_file = run(&["--policy", &policy, "--access-log", &log_file], "");
    assert_eq!(text(&from_file.stderr), "");
    let from_stdin = run(&["--policy", &policy, "--access-log", "-"], &log);
    assert_eq!(text(&from_file.stdout), text(&from_stdin.stdout));

    let expected = [
        (971_211_336, "192.0.2.7", "admit", None),
        (971_211_336, "192.0.2.7", "deny", Some(24)),
        (971_211_359, "2001:db8::1", "admit", None),
        (971_211_350, "192.0.2.7", "deny", Some(1)),
        (971_211_360, "192.0.2.7", "admit", None),
    ];
    let answers = text(&from_file.stdout).lines();
    for (line, (seconds, key, verdict, retry_after)) in answers.zip(expected) {
        let answer: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(answer["t_ns"], seconds * 1_000_000_000_u64);
        assert_eq!(
            (&answer["key"], &answer["verdict"]),
            (&key.into(), &verdict.into())
        );
        let retry_after = retry_after.map(|seconds: u64| seconds * 1_000_000_000);
        assert_eq!(answer["retry_after_ns"].as_u64(), retry_after);
    }
    assert_eq!(text(&from_file.stdout).lines().count(), expected.len());
}

#[test]
fn errors_in_an_access_log_or_its_policy_name_the_line() {
    let policy = file("fault-policy.json", WINDOW);
    let log = |line: &str| {
        let good = r#"192.0.2.7 - - [29/Feb/2024:00:00:00 +0000] "GET / HTTP/1.0" 200 1"#;
        let fault = fault(
            &["--policy", &policy, "--access-log", "-"],
            &format!("{good}\n{line}\n"),
        );
        let fault = fault.strip_prefix("line 2: ").map(str::to_owned);
        fault.expect("the second line is at fault")
    };
    for (line, expected) in [
        ("nonsense", "expected a client's address"),
        (" - - [x]", "expected a client's address"),
        (
            "a [10/Oct/2000:13:55:36 -0700]",
            "expected two names after the address, then a time",
        ),
        (
            "a - - [10/Oct/2000:13:55:36 -0700",
            "expected a time such as",
        ),
        (
            "a - - [10/Oct/2000:13:55:36 -0700]",
            "expected \"request\", a status and a size",
        ),
        (
            "a - - [10/Oct/2000:13:55:36 -0700] GET",
            "expected \"request\"",
        ),
        (
            "a - - [10/Oct/2000:13:55:36 -0700] \"GET / 200 1",
            "expected \"request\"",
        ),
        (
            "a - - [10/Oct/2000:13:55:36 -0700] \"GET /\" ok 1",
            "expected \"request\"",
        ),
        (
            "a - - [10/Oct/2000:13:55:36 -0700] \"GET /\" 200 much",
            "expected \"request\"",
        ),
    ] {
        let fault = log(line);
        assert!(fault.starts_with(expected), "{line}\n{fault}");
    }
    for stamp in [
        "",
        "10/Oct/2000:13:55:36",
        "10/Oct/2000 -0700",
        "1/Oct/2000:13:55:36 -0700",
        "00/Oct/2000:13:55:36 -0700",
        "31/Sep/2000:13:55:36 -0700",
        "29/Feb/2023:13:55:36 -0700",
        "29/Feb/2100:13:55:36 -0700",
        "10/Okt/2000:13:55:36 -0700",
        "10/Oct/1969:13:55:36 -0700",
        "01/Jan/1970:00:00:00 +0001",
        "10/Oct/9999:13:55:36 -0700",
        "10/Oct/2000:24:00:00 -0700",
        "10/Oct/2000:13:60:36 -0700",
        "10/Oct/2000:13:55:61 -0700",
        "10/Oct/2000:13:55:36:07 -0700",
        "10/Oct/2000:13:55:36 0700",
        "10/Oct/2000:13:55:36 -07:00",
        "10/Oct/2000:13:55:36 -0760",
        "10/Oct/2000:13:55:36 é700",
    ] {
        let fault = log(&format!("a - - [{stamp}] \"GET /\" 200 1"));
        assert!(
            fault.starts_with("expected a time such as"),
            "{stamp}\n{fault}"
        );
        assert!(
            fault.ends_with(&format!("found \"[{stamp}]\"")),
            "{stamp}\n{fault}"
        );
    }
    let broken = file(
        "broken-policy.json",
        "{\n  \"algorithm\": \"gcra\",\n  \"limit\":\n}",
    );
    let found = fault(&["--policy", &broken, "--access-log", "-"], "");
    assert!(
        found.starts_with("line 4: policy: expected a JSON object"),
        "{found}"
    );
}
