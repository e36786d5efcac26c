//! A policy as text, in the vocabulary of policy files.

use crate::harness::{fault, printed};

const STEPS: [&str; 6] = [
    r#"{"t_ns":0}"#,
    r#"{"t_ns":0,"op":"acquire"}"#,
    r#"{"t_ns":0,"op":"acquire","n":2}"#,
    r#"{"t_ns":300000000}"#,
    r#"{"t_ns":1000000000,"n":3}"#,
    r#"{"t_ns":61000000000}"#,
];

fn answers(policy: &str) -> String {
    // Only these have requests that wait, and a policy of several limits has none.
    let waits = ["token_bucket", "leaky_bucket", "warm_up"];
    let waits = waits.iter().any(|name| policy.contains(name)) && !policy.contains("fixed_window");
    let mut lines = vec![policy];
    lines.extend(
        STEPS
            .iter()
            .filter(|step| waits || !step.contains("acquire")),
    );
    printed(&[], &lines)
}

/// Each line as text, and as the object that it means.
const POLICIES: [(&str, &str); 10] = [
    (
        "token_bucket 2/s; max_wait=1500ms; queue=3; burst=4; initial=1",
        r#"{"algorithm":"token_bucket","limit":2,"period_ns":1000000000,"burst":4,"initial":1,"queue":3,"max_wait_ns":1500000000}"#,
    ),
    (
        "leaky_bucket 2/s; burst=3",
        r#"{"algorithm":"leaky_bucket","limit":2,"period_ns":1000000000,"burst":3}"#,
    ),
    (
        "leaky_bucket 2/s; burst=1; queue=3",
        r#"{"algorithm":"leaky_bucket","limit":2,"period_ns":1000000000,"burst":1,"queue":3}"#,
    ),
    (
        "fixed_window 2/s; anchored=true",
        r#"{"algorithm":"fixed_window","limit":2,"period_ns":1000000000,"anchored":true}"#,
    ),
    (
        "sliding_window 2/s; offset=0s",
        r#"{"algorithm":"sliding_window","limit":2,"period_ns":1000000000,"offset_ns":0}"#,
    ),
    (
        "sliding_grid 2/s; cells=4; strict=true; offset=250ms",
        r#"{"algorithm":"sliding_grid","limit":2,"period_ns":1000000000,"cells":4,"strict":true,"offset_ns":250000000}"#,
    ),
    (
        "sliding_log 3/min",
        r#"{"algorithm":"sliding_log","limit":3,"period_ns":60000000000}"#,
    ),
    (
        "warm_up 2/s; warm_up=4s; cold_factor=2; queue=3",
        r#"{"algorithm":"warm_up","limit":2,"period_ns":1000000000,"warm_up_ns":4000000000,"cold_factor":2,"queue":3}"#,
    ),
    (
        "lockout 2/min; block=10s; max_block=20s; forget=1d; on_success=clear",
        r#"{"algorithm":"lockout","limit":2,"period_ns":60000000000,"block_ns":10000000000,"max_block_ns":20000000000,"forget_ns":86400000000000,"on_success":"clear"}"#,
    ),
    (
        "token_bucket 2/s + fixed_window 3/h",
        r#"{"algorithm":"all","parts":[{"algorithm":"token_bucket","limit":2,"period_ns":1000000000},{"algorithm":"fixed_window","limit":3,"period_ns":3600000000000}]}"#,
    ),
];

#[test]
fn a_policy_as_text_decides_as_the_object_does() {
    for (text, object) in POLICIES {
        let expected = answers(object);
        assert_eq!(answers(text), expected, "{text}");
        let quoted = format!("{{\"policy\": \"{text}\", \"_meta\": {{}}}}");
        assert_eq!(answers(&quoted), expected, "{quoted}");
        let other = text.replace(" 2/", " 1/").replace(" 3/", " 1/");
        assert_ne!(answers(&other), expected, "{text}");
    }
}

#[test]
fn a_fault_in_the_text_names_what_is_allowed() {
    for (policy, expected) in [
        (
            "token_buket 1/s",
            "line 1: policy: \"token_buket 1/s\" cannot be parsed; expected an algorithm",
        ),
        ("token_bucket 0/s", "line 1: limit: 0 is not allowed"),
        (
            "concurrency 20",
            "line 1: concurrency: a replay does not know when a request ends",
        ),
        (
            r#"{"policy":"10/s"}"#,
            "line 1: policy: \"10/s\" cannot be parsed",
        ),
        (
            r#"{"policy":"fixed_window 1/s","limit":3}"#,
            "line 1: unknown field \"limit\": a policy as text has policy",
        ),
        (
            r#"{"policy":7}"#,
            "line 1: policy: expected a string, found 7",
        ),
    ] {
        let fault = fault(&["-"], policy);
        assert!(fault.starts_with(expected), "{policy}\n{fault}");
    }
}
