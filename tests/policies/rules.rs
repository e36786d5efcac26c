//! Rules about fields, and which mistakes are reported.

use tower_throttle::policy::{PolicyFile, PolicyLayer};

use crate::support::{environment, file, limit};

/// The problems of a file with these limits.
fn problems(text: &str) -> String {
    match PolicyFile::from_toml(&format!("version = 1\n{text}")) {
        Ok(file) => panic!("read as {file:?}"),
        Err(problems) => problems.to_string(),
    }
}

/// Shows promise 221.
#[test]
fn a_field_without_an_effect_is_refused() {
    let bucket = "token_bucket 1/s";
    for (text, expected) in [
        (
            limit("a", bucket, "\"global\"", "missing = \"skip\""),
            "limit[0].missing: it has no effect",
        ),
        (
            limit("a", bucket, "\"global\"", "capacity = 9"),
            "limit[0].capacity: it has no effect: there is one key",
        ),
        (
            limit("a", bucket, "\"client_ip\"", "store = \"s\"\ncapacity = 9"),
            "limit[0].capacity: it has no effect: only",
        ),
        (
            limit("a", bucket, "\"client_ip\"", "on_store_error = \"deny\""),
            "limit[0].on_store_error: it has no effect",
        ),
        (
            limit("a", "concurrency 1", "\"client_ip\"", "capacity = 9"),
            "limit[0].capacity: it has no effect: a limit in flight",
        ),
        (
            limit("a", "concurrency 1", "\"client_ip\"", "store = \"s\""),
            "limit[0].store: concurrency counts",
        ),
        (
            limit("a", "concurrency 1", "\"client_ip\"", "failure = 401"),
            "limit[0].failure: it has no effect",
        ),
        (
            limit("a", bucket, "\"client_ip\"", "match = {}"),
            "limit[0].match: it has no effect",
        ),
        (
            limit("a", bucket, "\"client_ip\"", "failure = []"),
            "limit[0].failure: an empty list has no effect",
        ),
        (
            limit("a", bucket, "[\"global\", \"client_ip\"]", ""),
            "limit[0].key: global has no effect",
        ),
        (
            limit("a", bucket, "[\"bearer\", \"bearer\"]", ""),
            "limit[0].key: bearer is there twice",
        ),
        (
            limit(
                "a",
                "token_bucket 1/s + token_bucket 1/s",
                "\"client_ip\"",
                "",
            ),
            "limit[0].limit: token_bucket 1/s is there twice",
        ),
        (
            limit("a", "lockout 5/h; on_success=clear", "\"client_ip\"", ""),
            "limit[0].match: on_success=clear needs methods",
        ),
        (
            "[lists]\na = { file = \"x\" }".to_owned(),
            "lists.a: no limit and no deny uses this list",
        ),
        (
            "[stores]\na = { redis = \"redis://x\" }".to_owned(),
            "stores.a: no limit uses this store",
        ),
        (
            limit("a", bucket, "\"global\"", "") + "[stores]\nmemory = { redis = \"redis://x\" }",
            "stores.memory: memory is the name",
        ),
        (
            "[[deny]]\nlist = \"a\"\n[lists]\na = {}".to_owned(),
            "lists.a: give one of cidrs and file",
        ),
    ] {
        let problems = problems(&text);
        assert!(problems.contains(expected), "{text}\n{problems}");
    }
}

/// A limit with an override `b` that has these fields.
fn with_override(key: &str, more: &str) -> String {
    limit("a", "token_bucket 1/s", key, "") + &format!("[[limit.override]]\nname = \"b\"\n{more}\n")
}

/// Reading `text` says so.
fn refuses(text: &str, expected: &str) {
    let problems = problems(text);
    assert!(problems.contains(expected), "{text}\n{problems}");
}

/// Shows promise 221.
#[test]
fn an_override_that_is_wrong_is_refused() {
    let bucket = "token_bucket 1/s";
    let one_plan = "limit[0].override[0].limit: give one of limit, blocked = true and unlimited";
    let of_keys = "limit[0].override[0].key: give one of key, prefix and headers";
    for (text, expected) in [
        (
            limit("a", bucket, "\"bearer\"", "match = { headers = {} }"),
            "limit[0].match.headers: it has no effect",
        ),
        (
            with_override(
                "\"bearer\"",
                "key = \"a\"\nprefix = \"b\"\nlimit = \"token_bucket 2/s\"",
            ),
            of_keys,
        ),
        (
            with_override("\"bearer\"", "limit = \"token_bucket 2/s\""),
            of_keys,
        ),
        (with_override("\"bearer\"", "key = \"a\""), one_plan),
        (
            with_override("\"bearer\"", "key = \"a\"\nblocked = false"),
            one_plan,
        ),
        (
            with_override(
                "\"bearer\"",
                "key = \"a\"\nblocked = true\nunlimited = true",
            ),
            one_plan,
        ),
        (
            with_override(
                "\"bearer\"",
                "key = \"a\"\nlimit = \"token_bucket 2/s\"\nblocked = true",
            ),
            one_plan,
        ),
        (
            limit("a", bucket, "\"bearer\"", "blocked = true")
                + "[[limit.override]]\nname = \"b\"\nkey = \"a\"\nblocked = true",
            "limit[0].override[0].limit: it has no effect: so is the limit",
        ),
        (
            limit(
                "a",
                bucket,
                "\"bearer\"",
                "blocked = true\nunlimited = true",
            ),
            "limit[0].unlimited: give one of blocked and unlimited",
        ),
    ] {
        refuses(&text, expected);
    }
}

/// Shows promise 221.
#[test]
fn an_override_of_another_kind_or_for_other_keys_is_refused() {
    for (text, expected) in [
        (
            with_override("\"bearer\"", "key = \"a\"\nlimit = \"fixed_window 2/s\""),
            "limit[0].override[0].limit: expected token_bucket with other numbers",
        ),
        (
            with_override("\"bearer\"", "key = \"a\"\nlimit = \"token_bucket 1/s\""),
            "limit[0].override[0].limit: it has no effect",
        ),
        (
            with_override("\"client_ip\"", "key = \"a\"\nlimit = \"token_bucket 2/s\""),
            "limit[0].override[0].key: only a limit by one key that is a text",
        ),
        (
            with_override(
                "[\"bearer\", \"client_ip\"]",
                "prefix = \"a\"\nlimit = \"token_bucket 2/s\"",
            ),
            "limit[0].override[0].key: only a limit by one key that is a text",
        ),
        (
            with_override("\"bearer\"", "prefix = \"\"\nlimit = \"token_bucket 2/s\""),
            "limit[0].override[0].prefix: expected a text that a header can have",
        ),
        (
            with_override("\"bearer\"", "key = \" a\"\nlimit = \"token_bucket 2/s\""),
            "limit[0].override[0].key: expected a text that a header can have",
        ),
        (
            with_override(
                "\"bearer\"",
                "key = \"\\u0007\"\nlimit = \"token_bucket 2/s\"",
            ),
            "limit[0].override[0].key: expected a text that a header can have",
        ),
        (
            with_override(
                "\"bearer\"",
                "headers = { x-plan = \"a\" }\nlimit = \"token_bucket 2/s\"",
            ) + "[[limit.override]]\nname = \"c\"\nheaders = { X-Plan = \"a\" }\nlimit = \"token_bucket 3/s\"",
            "limit[0].override[1].key: an override before is for the same requests",
        ),
        (
            with_override("\"bearer\"", "key = \"a\"\nlimit = \"token_bucket 2/s\"")
                + &limit("b", "token_bucket 1/s", "\"bearer\"", ""),
            "limit[1].name: the name \"b\" is there twice",
        ),
    ] {
        refuses(&text, expected);
    }
}

#[test]
fn a_value_of_another_type_is_refused() {
    for (more, expected) in [
        (
            "shadow = \"yes\"",
            "limit[0].shadow: invalid type: string \"yes\", expected a boolean",
        ),
        (
            "capacity = -1",
            "limit[0].capacity: -1 is not allowed; give a number from 1 to",
        ),
        (
            "capacity = 1.5",
            "limit[0].capacity: invalid type: floating point `1.5`, expected",
        ),
        (
            "headers = \"draft-12\"",
            "limit[0].headers: unknown variant `draft-12`, expected one of `none`, `draft-11`, ",
        ),
        ("headers = \"draft-12\"", "; did you mean draft-11?"),
        (
            "missing = 200",
            "limit[0].missing: expected shared, skip or a number from 400 to 499",
        ),
        (
            "missing = \"share\"",
            "limit[0].missing: expected shared, skip or a number from 400 to 499",
        ),
        (
            "store = 3",
            "limit[0].store: invalid type: integer `3`, expected a string",
        ),
        (
            "match = { path = \"api\" }",
            "limit[0].match.path: \"api\" is not allowed; a path begins with /",
        ),
        (
            "match = { methods = [\"get\"] }",
            "limit[0].match.methods: \"get\" is not allowed; did you mean GET?",
        ),
        (
            "match = \"office\"",
            "limit[0].match: invalid type: string \"office\", expected struct Requests",
        ),
        (
            "failure = [401, 99]",
            "limit[0].failure[1]: 99 is not allowed; give a number from 100 to 599",
        ),
    ] {
        let problems = problems(&limit("a", "token_bucket 1/s", "\"client_ip\"", more));
        assert!(problems.contains(expected), "{more}\n{problems}");
    }
    let keys = |key: &str| problems(&limit("a", "token_bucket 1/s", key, ""));
    assert!(keys("\"client_ipp\"").contains("found \"client_ipp\"; did you mean client_ip?"));
    assert!(keys("\"client_ip/129\"").contains("give client_ip/BITS with 1 to 128 bits"));
    assert!(keys("\"header:a b\"").contains("\"a b\" is not the name of a header"));
    assert!(keys("[]").contains("an empty list has no effect"));
    let twice = limit("a", "token_bucket 1/s", "\"global\"", "");
    let twice = problems(&format!("{twice}{twice}"));
    assert_eq!(twice.matches("limit[1]").count(), 1, "{twice}");
    let both = limit("a", "concurrency 1 + token_bucket 1/s", "\"global\"", "");
    assert!(problems(&both).contains("concurrency alone: it has to be a limit of its own"));
    let named = problems(&limit("a b", "token_bucket 1/s", "\"global\"", ""));
    assert!(named.contains("limit[0].name: \"a b\" is not allowed; give 1 to 64 letters"));
    let missing = problems("[[limit]]\nname = \"a\"\nlimit = \"token_bucket 1/s\"");
    assert_eq!(missing, "line 2: limit[0]: missing field `key`");
}

/// Shows promise 221.
#[test]
fn one_mistake_of_each_limit_is_reported_in_the_order_of_the_lines() {
    let text = "version = 1\n[[limit]]\nname = \"a\"\nkye = \"global\"\nlimit = \"10/s\"\nshadow = 1\n\
                [[limit]]\nname = \"b\"\nlimit = \"token_bucket 1/s\"\nkey = \"cookie\"\n\
                [[limit]]\nname = \"c\"\nlimit = \"token_bucket 1/s\"\nkey = \"global\"\nmissing = 401\n\
                [[limit]]\nname = \"d\"\nlimit = \"token_bucket 1/s\"\nkey = \"bearer\"\n\
                [[limit.override]]\nname = \"e\"\nkeys = \"f\"\n[stores]\ng = 3\n";
    let problems = PolicyFile::from_toml(text).unwrap_err();
    let found = problems.list().iter().map(|one| (one.line(), one.path()));
    let expected = [
        (Some(4), "limit[0].kye"),
        (Some(10), "limit[1].key"),
        (Some(15), "limit[2].missing"),
        (Some(22), "limit[3].override[0].keys"),
        (Some(24), "stores.g"),
    ];
    assert_eq!(found.collect::<Vec<_>>(), expected);
    let kye = problems.list()[0].message();
    assert!(
        kye.contains("unknown field `kye`") && kye.ends_with("did you mean key?"),
        "{kye}"
    );
}

#[test]
fn text_that_is_no_toml_names_its_line() {
    let problems = PolicyFile::from_toml("version = 1\nlimit = [").unwrap_err();
    assert!(problems.to_string().starts_with("line 2: "), "{problems}");
    let twice = PolicyFile::from_toml("version = 1\nversion = 1").unwrap_err();
    assert!(twice.to_string().starts_with("line 2: "), "{twice}");
}

#[test]
fn a_field_that_json_has_twice_is_refused() {
    let error = serde_json::from_str::<PolicyFile>("{\"version\": 1, \"version\": 1}").unwrap_err();
    assert!(
        error.to_string().contains("duplicate field `version`"),
        "{error}"
    );
}

#[test]
fn what_the_program_lacks_is_a_problem_with_a_line() {
    let build = |text: &str| {
        let problems = PolicyLayer::new(file(text), environment()).unwrap_err();
        problems.to_string()
    };
    let bucket = "token_bucket 1/s";
    let store = build(&limit("a", bucket, "\"client_ip\"", "store = \"shard\""));
    assert_eq!(
        store,
        "line 6: limit[0].store: the store \"shard\" is not defined; there is: memory"
    );
    let extension = build(&limit("a", bucket, "\"extension:acount\"", ""));
    assert!(
        extension.contains("the extension \"acount\" is not defined; did you mean account?"),
        "{extension}"
    );
    let list = build("[lists]\na = { file = \"no/such/file\" }\n[[deny]]\nlist = \"a\"");
    assert!(
        list.starts_with("line 3: lists.a.file: no/such/file: "),
        "{list}"
    );
    if cfg!(not(feature = "redis")) {
        let redis = limit("a", bucket, "\"client_ip\"", "store = \"s\"");
        let redis = build(&format!("{redis}[stores]\ns = {{ redis = \"redis://x\" }}"));
        assert!(
            redis.ends_with("it needs the feature `redis` of tower-throttle"),
            "{redis}"
        );
    }
}
