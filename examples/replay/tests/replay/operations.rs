//! What each step does and prints.

use serde_json::Value;

use crate::harness::{QUEUE, TOKENS, WINDOW, decisions, printed, short};

#[test]
fn each_step_prints_one_line_with_all_fields_in_order() {
    let answers = printed(
        &[],
        &[
            TOKENS,
            r#"{"t_ns":0,"n":2,"expect":{"anything":["goes"]}}"#,
            r#"{"t_ns":30,"key":"a \"b\"","op":"check"}"#,
            "",
            r#"{"t_ns":50}"#,
            r#"{"t_ns":50,"n":3}"#,
            r#"{"t_ns":100,"op":"take_up_to","n":9}"#,
        ],
    );
    let expected = [
        r#"{"t_ns":0,"key":"","op":"check","verdict":"admit","wait_ns":0,"limit":2,"remaining":0,"retry_after_ns":null,"reset_after_ns":200}"#,
        r#"{"t_ns":30,"key":"a \"b\"","op":"check","verdict":"admit","wait_ns":0,"limit":2,"remaining":1,"retry_after_ns":null,"reset_after_ns":100}"#,
        r#"{"t_ns":50,"key":"","op":"check","verdict":"deny","wait_ns":0,"limit":2,"remaining":0,"retry_after_ns":50,"reset_after_ns":150}"#,
        r#"{"t_ns":50,"key":"","op":"check","verdict":"deny","wait_ns":0,"limit":2,"remaining":0,"retry_after_ns":null,"reset_after_ns":150}"#,
        r#"{"t_ns":100,"key":"","op":"take_up_to","verdict":"admit","wait_ns":0,"limit":2,"remaining":0,"retry_after_ns":null,"reset_after_ns":200,"taken":1}"#,
    ];
    assert_eq!(answers.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn time_never_runs_backwards_over_all_keys() {
    let answers = decisions(&[
        TOKENS,
        r#"{"t_ns":0,"key":"a","n":2}"#,
        r#"{"t_ns":60,"key":"b"}"#,
        r#"{"t_ns":10,"key":"a"}"#,
    ]);
    assert_eq!(answers[2]["t_ns"], 10);
    assert_eq!(
        answers[2]["retry_after_ns"], 40,
        "from 60 on, the newest time"
    );
}

#[test]
fn the_largest_numbers_are_accepted() {
    let answers = decisions(&[
        r#"{"algorithm":"fixed_window","limit":9007199254740991,"period_ns":1000}"#,
        r#"{"t_ns":0,"n":9007199254740991}"#,
        r#"{"t_ns":18446744073709551615,"n":18446744073709551615}"#,
    ]);
    assert_eq!(answers[0]["verdict"], "admit");
    assert_eq!(answers[1]["t_ns"], u64::MAX);
    assert_eq!(answers[1]["verdict"], "deny");
}

#[test]
fn peek_consumes_nothing() {
    let peek = r#"{"t_ns":0,"op":"peek","n":2}"#;
    let answers = short(&[TOKENS, peek, peek, r#"{"t_ns":0,"n":2}"#, peek]);
    assert_eq!(answers, ["admit 0 2", "admit 0 2", "admit 0 0", "deny 0 0"]);
}

#[test]
fn peek_shows_the_wait_of_acquire_if_a_leaky_bucket_is_a_queue_for_it() {
    let policy = r#"{"algorithm":"leaky_bucket","limit":1,"period_ns":100,"max_wait_ns":150}"#;
    let acquire = r#"{"t_ns":0,"op":"acquire"}"#;
    let peek = r#"{"t_ns":0,"op":"peek"}"#;
    let answers = short(&[policy, acquire, peek, peek, acquire, peek]);
    let expected = [
        "admit 0 0",
        "admit 100 0",
        "admit 100 0",
        "wait 100 0",
        "deny 0 0",
    ];
    assert_eq!(answers, expected);
}

#[test]
fn acquire_waits_at_most_as_long_as_the_step_or_the_policy_allows() {
    let take = r#"{"t_ns":0,"n":2}"#;
    let acquire = r#"{"t_ns":0,"op":"acquire"}"#;
    let short_of = r#"{"t_ns":0,"op":"acquire","max_wait_ns":99}"#;
    let answers = short(&[TOKENS, take, short_of, acquire, acquire]);
    assert_eq!(
        answers,
        ["admit 0 0", "deny 0 0", "wait 100 0", "wait 200 0"]
    );

    let policy = r#"{"algorithm":"token_bucket","limit":1,"period_ns":100,"max_wait_ns":100}"#;
    let longer = r#"{"t_ns":0,"op":"acquire","max_wait_ns":200}"#;
    let answers = decisions(&[policy, acquire, acquire, acquire, longer]);
    let verdicts: Vec<_> = answers.iter().map(|one| &one["verdict"]).collect();
    assert_eq!(verdicts, ["admit", "wait", "deny", "wait"]);
    assert_eq!(answers[2]["retry_after_ns"], 100);
}

#[test]
fn check_waits_if_the_policy_has_a_queue() {
    let check = r#"{"t_ns":0}"#;
    let answers = short(&[QUEUE, check, check, check, check, check]);
    let expected = [
        "admit 0 0",
        "wait 100 0",
        "wait 200 0",
        "wait 300 0",
        "deny 0 0",
    ];
    assert_eq!(answers, expected);
}

#[test]
fn take_up_to_reports_the_units_taken() {
    let take = |n: u64| format!(r#"{{"t_ns":0,"op":"take_up_to","n":{n}}}"#);
    let answers = decisions(&[TOKENS, &take(9), &take(9), &take(0)]);
    assert_eq!(
        (&answers[0]["taken"], &answers[0]["verdict"]),
        (&2.into(), &"admit".into())
    );
    assert_eq!(
        (&answers[1]["taken"], &answers[1]["verdict"]),
        (&0.into(), &"deny".into())
    );
    assert_eq!(answers[1]["retry_after_ns"], 100);
    assert_eq!(
        (&answers[2]["taken"], &answers[2]["verdict"]),
        (&0.into(), &"admit".into())
    );
    // Half of the window is left, and all of the bucket, which is less.
    let window = r#"{"algorithm":"fixed_window","limit":8,"period_ns":1000000}"#;
    let set = format!(r#"{{"algorithm":"all","parts":[{window},{TOKENS}]}}"#);
    let later = r#"{"t_ns":1000,"op":"take_up_to","n":9}"#;
    let answers = decisions(&[&set, &take(2), &later.replace("1000", "500"), later]);
    for answer in answers {
        assert_eq!(
            (&answer["taken"], &answer["verdict"]),
            (&2.into(), &"admit".into())
        );
    }
}

#[test]
fn refund_stops_at_full_and_absorb_may_go_into_debt() {
    let absorb = r#"{"t_ns":0,"op":"absorb","n":5}"#;
    let refund = r#"{"t_ns":0,"op":"refund","n":4}"#;
    let answers = short(&[TOKENS, absorb, refund, refund]);
    assert_eq!(answers, ["done 300 0", "done 0 1", "done 0 2"]);
}

#[test]
fn cancel_moves_up_the_requests_behind() {
    let join = |id: &str| format!(r#"{{"t_ns":0,"id":"{id}"}}"#);
    let leave = |t: u64, id: &str| format!(r#"{{"t_ns":{t},"op":"cancel","of":"{id}"}}"#);
    let resets = |steps: &[String]| -> Vec<u64> {
        let lines: Vec<&str> = [QUEUE]
            .into_iter()
            .chain(steps.iter().map(|one| &**one))
            .collect();
        let cancels = decisions(&lines)
            .into_iter()
            .filter(|one| one["op"] == "cancel");
        cancels
            .map(|one| one["reset_after_ns"].as_u64().expect("a time"))
            .collect()
    };
    let line = ["a", "b", "c", "d"].map(join); // turns at 0, 100, 200, 300
    let with = |cancels: &[String]| resets(&[&line[..], cancels].concat());

    assert_eq!(with(&[leave(50, "c")]), [250], "the line was free at 400");
    assert_eq!(
        with(&[leave(50, "c"), leave(50, "c")]),
        [250, 250],
        "only once"
    );
    assert_eq!(with(&[leave(50, "a")]), [350], "gone at once");
    assert_eq!(with(&[leave(100, "b")]), [300], "gone at its turn");
    // Without b, d is released at 200: it is still queued at 199.
    assert_eq!(with(&[leave(0, "b"), leave(199, "d")]), [300, 1]);
    assert_eq!(with(&[leave(0, "b"), leave(200, "d")]), [300, 100]);
    // A cancellation after a reset moves no request.
    let reset = r#"{"t_ns":0,"op":"reset"}"#.to_owned();
    assert_eq!(with(&[reset, join("e"), leave(0, "d")]), [100]);
}

#[test]
fn cancel_reports_the_key_of_its_request() {
    let answers = decisions(&[
        QUEUE,
        r#"{"t_ns":0,"key":"k"}"#,
        r#"{"t_ns":0,"key":"k","op":"acquire","id":"x"}"#,
        r#"{"t_ns":0,"op":"cancel","of":"x"}"#,
    ]);
    assert_eq!(
        (&answers[2]["key"], &answers[2]["reset_after_ns"]),
        (&"k".into(), &100.into())
    );
}

#[test]
fn reset_makes_the_key_new() {
    let policy = r#"{"algorithm":"token_bucket","limit":1,"period_ns":100,"burst":9,"initial":3}"#;
    let answers = short(&[
        policy,
        r#"{"t_ns":0,"n":2}"#,
        r#"{"t_ns":500,"op":"reset"}"#,
    ]);
    assert_eq!(answers, ["admit 0 1", "done 0 3"]);
}

#[test]
fn set_quota_changes_the_policy_of_all_keys_and_keeps_an_explicit_burst() {
    let change = |fields: &str| format!(r#"{{"t_ns":0,"op":"set_quota",{fields}}}"#);
    let peek = r#"{"t_ns":0,"op":"peek","key":"b"}"#;
    let last = |policy: &str, change: &str| {
        let seen = r#"{"t_ns":0,"key":"b"}"#;
        decisions(&[policy, seen, change, peek]).remove(2)
    };
    let both = |answer: &Value| (answer["limit"].as_u64(), answer["remaining"].as_u64());

    let faster = change(r#""limit":7"#);
    assert_eq!(
        both(&last(TOKENS, &faster)),
        (Some(2), Some(1)),
        "the burst stays 2"
    );
    let implicit = r#"{"algorithm":"token_bucket","limit":2,"period_ns":100}"#;
    assert_eq!(
        both(&last(implicit, &faster)),
        (Some(7), Some(6)),
        "what is used stays used"
    );
    let additive = change(r#""burst":7,"inherit":"additive""#);
    assert_eq!(both(&last(TOKENS, &additive)), (Some(7), Some(6)));
    assert_eq!(
        both(&last(WINDOW, &change(r#""limit":9"#))),
        (Some(9), Some(8))
    );

    let only = format!(r#"{{"algorithm":"all","parts":[{TOKENS}]}}"#);
    assert_eq!(
        both(&last(&only, &additive)),
        (Some(7), Some(6)),
        "a set of one"
    );
}

/// Shows promise 101.
#[test]
fn every_algorithm_takes_its_options() {
    let quota = r#""limit":2,"period_ns":100"#;
    for options in [
        r#""fixed_window","anchored":true,"_meta":{}"#,
        r#""fixed_window","anchored":false,"offset_ns":50"#,
        r#""sliding_log""#,
        r#""sliding_window","offset_ns":50"#,
        r#""sliding_grid","cells":5,"strict":true,"offset_ns":50"#,
        r#""token_bucket","burst":2,"initial":2,"queue":1,"max_wait_ns":10"#,
        r#""leaky_bucket","burst":2,"max_wait_ns":10"#,
        r#""leaky_bucket","queue":3,"max_wait_ns":500"#,
        r#""warm_up","warm_up_ns":400,"cold_factor":2,"queue":2,"max_wait_ns":500"#,
        r#""gcra","burst":2"#,
    ] {
        let policy = format!(r#"{{"algorithm":{options},{quota}}}"#);
        let answers = decisions(&[&policy, r#"{"t_ns":0}"#]);
        assert_ne!(answers[0]["verdict"], "deny", "{policy}");
    }
    let windows = format!(r#"{{"algorithm":"all","parts":[{TOKENS},{WINDOW}]}}"#);
    let check = r#"{"t_ns":0}"#;
    assert_eq!(short(&[&windows, check, check, check])[2], "deny 0 0");
}
