//! Bad input: one line that says where the error is, what was found and what was expected.

use crate::harness::{TOKENS, WINDOW, fault};

#[test]
fn errors_in_the_policy_name_the_line() {
    for (policy, expected) in [
        ("", "line 1: expected a policy, found the end of the input"),
        (
            "{",
            "line 1: expected a JSON object: EOF while parsing an object",
        ),
        ("[1]", "line 1: expected a JSON object, found [1]"),
        (
            r#"{"limit":1}"#,
            "line 1: algorithm: expected this field, it is missing",
        ),
        (
            r#"{"algorithm":"tokens"}"#,
            "line 1: algorithm: expected fixed_window, sliding_log,",
        ),
        (
            r#"{"algorithm":7}"#,
            "line 1: algorithm: expected a string, found 7",
        ),
        (
            r#"{"algorithm":"gcra","period_ns":1}"#,
            "line 1: limit: expected this field",
        ),
        (
            r#"{"algorithm":"gcra","limit":1}"#,
            "line 1: period_ns: expected this field",
        ),
        (
            r#"{"algorithm":"gcra","limit":1,"limit":1}"#,
            "line 1: expected each field once",
        ),
        (
            r#"{"algorithm":"all"}"#,
            "line 1: parts: expected this field",
        ),
        (
            r#"{"algorithm":"all","parts":[]}"#,
            "line 1: parts: expected a list of policies",
        ),
        (
            r#"{"algorithm":"all","parts":[5]}"#,
            "line 1: parts[0]: expected a JSON object",
        ),
        (
            r#"{"algorithm":"all","limit":1,"parts":[{}]}"#,
            "line 1: parts[0]: algorithm: ",
        ),
    ] {
        let fault = fault(&["-"], policy);
        assert!(fault.starts_with(expected), "{policy}\n{fault}");
    }
}

#[test]
fn errors_in_an_option_of_the_policy_name_the_line() {
    // The limit is 1 per 100 ns.
    for (options, expected) in [
        (r#""gcra","burst":0"#, "burst: 0 is not allowed"),
        (
            r#""gcra","burst":-1"#,
            "burst: expected a whole number from 0 to 2^64 - 1, found -1",
        ),
        (r#""gcra","burst":1.0"#, "burst: expected a whole number"),
        (
            r#""gcra","burst":18446744073709551616"#,
            "burst: expected a whole number",
        ),
        (r#""gcra","burst":null"#, "burst: expected a whole number"),
        (r#""gcra","burst":"2""#, "burst: expected a whole number"),
        (
            r#""gcra","queue":1"#,
            r#"unknown field "queue": gcra has algorithm, "#,
        ),
        (
            r#""token_bucket","cells":4"#,
            r#"unknown field "cells": token_bucket has"#,
        ),
        (r#""token_bucket","expect":{}"#, r#"unknown field "expect""#),
        (r#""fixed_window","burst":4"#, r#"unknown field "burst""#),
        (
            r#""fixed_window","anchored":1"#,
            "anchored: expected true or false, found 1",
        ),
        (
            r#""fixed_window","anchored":true,"offset_ns":1"#,
            "offset_ns: an anchored window",
        ),
        (
            r#""sliding_log","offset_ns":1"#,
            r#"unknown field "offset_ns""#,
        ),
        (
            r#""sliding_grid","cells":0"#,
            "cells: 0 is not allowed; give a number from 1 to 60",
        ),
        (r#""sliding_grid","cells":61"#, "cells: 61 is not allowed"),
        (
            r#""leaky_bucket","charge":"before""#,
            r#"unknown field "charge""#,
        ),
        (
            r#""leaky_bucket","initial":1"#,
            r#"unknown field "initial""#,
        ),
        (r#""warm_up""#, "warm_up_ns: expected this field"),
        (r#""warm_up","warm_up_ns":0"#, "warm_up: 0ns is not allowed"),
        (
            r#""warm_up","warm_up_ns":9,"cold_factor":0"#,
            "cold_factor: 0 is not allowed",
        ),
    ] {
        let policy = format!(r#"{{"algorithm":{options},"limit":1,"period_ns":100}}"#);
        let fault = fault(&["-"], &format!("\n{policy}"));
        assert!(
            fault.starts_with(&format!("line 2: {expected}")),
            "{policy}\n{fault}"
        );
    }
    for (limit, period, expected) in [(0, 1, "limit: 0 is"), (1, 0, "period: 0ns is")] {
        let policy = format!(r#"{{"algorithm":"gcra","limit":{limit},"period_ns":{period}}}"#);
        let fault = fault(&["-"], &policy);
        assert!(fault.starts_with(&format!("line 1: {expected}")), "{fault}");
    }
}

#[test]
fn errors_in_a_step_name_the_line() {
    for (policy, step, expected) in [
        (
            TOKENS,
            "nonsense",
            "expected a JSON object: expected ident at column 2",
        ),
        (TOKENS, "{}", "t_ns: expected this field, it is missing"),
        (TOKENS, r#"{"t_ns":-1}"#, "t_ns: expected a whole number"),
        (TOKENS, r#"{"t_ns":1,"t_ns":1}"#, "expected each field once"),
        (TOKENS, r#"{"t_ns":1,"n":-5}"#, "n: expected a whole number"),
        (
            TOKENS,
            r#"{"t_ns":1,"n":1e3}"#,
            "n: expected a whole number",
        ),
        (
            TOKENS,
            r#"{"t_ns":1,"key":5}"#,
            "key: expected a string, found 5",
        ),
        (
            TOKENS,
            r#"{"t_ns":1,"op":"chek"}"#,
            "op: expected check, peek, acquire,",
        ),
        (
            TOKENS,
            r#"{"t_ns":1,"cost":5}"#,
            r#"unknown field "cost": check has t_ns, key, op, n"#,
        ),
        (
            TOKENS,
            r#"{"t_ns":1,"_meta":{}}"#,
            r#"unknown field "_meta""#,
        ),
        (
            TOKENS,
            r#"{"t_ns":1,"max_wait_ns":5}"#,
            r#"unknown field "max_wait_ns": check has"#,
        ),
        (
            TOKENS,
            r#"{"t_ns":1,"op":"peek","id":"x"}"#,
            r#"unknown field "id": peek has"#,
        ),
        (
            TOKENS,
            r#"{"t_ns":1,"id":"first"}"#,
            r#"id: expected a new one, "first" is taken"#,
        ),
        (
            TOKENS,
            r#"{"t_ns":1,"op":"cancel"}"#,
            "of: expected this field",
        ),
        (
            TOKENS,
            r#"{"t_ns":1,"op":"cancel","of":"x"}"#,
            "of: expected the id of an earlier",
        ),
        (
            TOKENS,
            r#"{"t_ns":1,"op":"cancel","of":"first","key":"k"}"#,
            r#"key: expected "","#,
        ),
        (
            TOKENS,
            r#"{"t_ns":1,"op":"set_quota"}"#,
            "set_quota: expected limit, period_ns or",
        ),
        (
            TOKENS,
            r#"{"t_ns":1,"op":"set_quota","limit":0}"#,
            "limit: 0 is not allowed",
        ),
        (
            TOKENS,
            r#"{"t_ns":1,"op":"set_quota","burst":1,"inherit":"all"}"#,
            "inherit: expected",
        ),
        (
            WINDOW,
            r#"{"t_ns":1,"op":"set_quota","burst":1}"#,
            "burst: this policy has no burst",
        ),
        (
            WINDOW,
            r#"{"t_ns":1,"op":"acquire"}"#,
            "acquire: expected a policy with a queue",
        ),
    ] {
        let trace = [policy, r#"{"t_ns":0,"id":"first"}"#, step].join("\n");
        let fault = fault(&["-"], &trace);
        assert!(
            fault.starts_with(&format!("line 3: {expected}")),
            "{step}\n{fault}"
        );
    }
}

#[test]
fn set_quota_is_refused_for_several_limits() {
    let several = format!(r#"{{"algorithm":"all","parts":[{TOKENS},{WINDOW}]}}"#);
    let trace = [&several, r#"{"t_ns":1,"op":"set_quota","limit":5}"#].join("\n");
    assert!(fault(&["-"], &trace).starts_with("line 2: one quota for a set of several limits"));
}
