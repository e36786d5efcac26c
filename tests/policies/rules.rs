//! Rules about fields, and which mistakes are reported.

use std::fmt::Write;

use tower_throttle::{
    Local,
    policy::{PolicyFile, PolicyLayer},
};

use crate::support::{App, environment, file, limit, problems};

/// What is said, and the file; lines of dashes are between two of them. A limit has the fields of [`DEFAULTS`] unless
/// it is written in full.
const REFUSED: &str = r#"
line 6: limit[0].except: the list "ofice" is not defined; did you mean office?
except = "ofice"
[lists]
office = { file = "a" }
---
lists.a.cidrs[0]: networks: 10.1.2.3/16 is not allowed; give 10.1.0.0/16
except = "a"
[lists]
a = { cidrs = ["10.1.2.3/16"] }
---
limit[0].missing: it has no effect
key = "global"
missing = "skip"
---
limit[0].capacity: it has no effect: there is one key
key = "global"
capacity = 9
---
limit[0].capacity: it has no effect: only
store = "s"
capacity = 9
---
limit[0].capacity: it has no effect: a limit in flight
limit = "concurrency 1"
capacity = 9
---
limit[0].capacity: 100000001 is not allowed; give a number from 1 to 100000000
capacity = 100000001
---
limit[0].capacity: -1 is not allowed; give a number from 1 to
capacity = -1
---
limit[0].on_store_error: it has no effect
on_store_error = "deny"
---
limit[0].store: concurrency counts
limit = "concurrency 1"
store = "s"
---
limit[0].store: invalid type: integer `3`, expected a string
store = 3
---
limit[0].failure: it has no effect
limit = "concurrency 1"
failure = 401
---
limit[0].failure: an empty list has no effect
failure = []
---
limit[0].failure[1]: 99 is not allowed; give a number from 100 to 599
failure = [401, 99]
---
limit[0].failure: this field is missing: it is about lockout and fixed_window alike
limit = "lockout 5/min + fixed_window 100/h"
---
limit[0].match: it has no effect
match = {}
---
limit[0].match: on_success=clear needs methods
limit = "lockout 5/h; on_success=clear"
---
limit[0].match.headers: it has no effect
match = { headers = {} }
---
limit[0].match.path: "api" is not allowed; a path begins with /
match = { path = "api" }
---
limit[0].match.path: "/login?next=/" is not allowed; a path ends before ?: leave out what follows
match = { path = "/login?next=/" }
---
write ' ' percent-encoded, as clients send it
match = { path = "/my files" }
---
limit[0].match.methods: "get" is not allowed; give a method, such as GET
match = { methods = ["get"] }
---
give a method, such as GET
match = { methods = "G ET" }
---
limit[0].shadow: invalid type: string "yes", expected a boolean
shadow = "yes"
---
limit[0].headers: unknown variant `draft-12`, expected one of `none`, `draft-11`, `draft-6`, `x-ratelimit`, `x-ratelimit-epoch`; did you mean draft-11?
headers = "draft-12"
---
limit[0].missing: expected shared, skip or a number from 400 to 499
missing = 200
---
limit[0].name: "a b" is not allowed; give 1 to 64 letters
name = "a b"
---
give 1 to 64 letters
name = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
---
limit[0].key: global has no effect
key = ["global", "client_ip"]
---
limit[0].key: bearer is there twice
key = ["bearer", "bearer"]
---
limit[0].key: an empty list has no effect
key = []
---
found "client_ipp"; did you mean client_ip?
key = "client_ipp"
---
client_ip/129 is not allowed; give client_ip/BITS with 1 to 128 bits
key = "client_ip/129"
---
client_ip/+64 is not allowed
key = "client_ip/+64"
---
"a b" is not the name of a header
key = "header:a b"
---
line 2: limit[0]: missing field `key`
[[limit]]
name = "a"
limit = "token_bucket 1/s"
---
limit[0].limit: token_bucket 1/s is there twice
limit = "token_bucket 1/s + token_bucket 1/s"
---
concurrency alone: it has to be a limit of its own
limit = "concurrency 1 + token_bucket 1/s"
---
limit[0].unlimited: give one of blocked and unlimited
blocked = true
unlimited = true
---
lists.a: no limit and no deny uses this list
[lists]
a = { file = "x" }
---
lists.a b: "a b" is not allowed
[lists]
"a b" = { file = "x" }
---
deny[0].match.methods: "get" is not allowed
[[deny]]
list = "a"
match = { methods = "get" }
---
lists.a: give one of cidrs and file
[[deny]]
list = "a"
[lists]
a = {}
---
lists.a.cidrs: an empty list has no effect
[[deny]]
list = "a"
[lists]
a = { cidrs = [] }
---
stores.a: no limit uses this store
[stores]
a = { redis = "redis://x" }
---
stores.s: give one of redis and postgres
store = "s"
[stores]
s = {}
---
stores.memory: memory is the name
[stores]
memory = { redis = "redis://x" }
---
limit[1].name: the name "a" is there twice
[[limit]]
name = "a"
limit = "token_bucket 1/s"
key = "global"
[[limit]]
name = "a"
limit = "token_bucket 2/s"
key = "global"
---
limit[0].override[0].key: give one of key, prefix and headers
[[limit.override]]
name = "b"
key = "a"
prefix = "b"
limit = "token_bucket 2/s"
---
limit[0].override[0].name: "b c" is not allowed
[[limit.override]]
name = "b c"
---
limit[0].override[0].key: give one of key, prefix and headers
[[limit.override]]
name = "b"
limit = "token_bucket 2/s"
---
limit[0].override[0].limit: give one of limit, blocked = true and unlimited
[[limit.override]]
name = "b"
key = "a"
blocked = false
---
limit[0].override[0].limit: give one of limit, blocked = true and unlimited
[[limit.override]]
name = "b"
key = "a"
limit = "token_bucket 2/s"
blocked = true
---
limit[0].override[0].limit: it has no effect: so is the limit
blocked = true
[[limit.override]]
name = "b"
key = "a"
blocked = true
---
limit[0].override[0].limit: expected token_bucket with other numbers
[[limit.override]]
name = "b"
key = "a"
limit = "fixed_window 2/s"
---
limit[0].override[0].limit: it has no effect
[[limit.override]]
name = "b"
key = "a"
limit = "token_bucket 1/s"
---
limit[0].override[0].key: only a limit by one key that is a text
key = "client_ip"
[[limit.override]]
name = "b"
key = "a"
limit = "token_bucket 2/s"
---
limit[0].override[0].key: only a limit by one key that is a text
key = ["bearer", "client_ip"]
[[limit.override]]
name = "b"
prefix = "a"
limit = "token_bucket 2/s"
---
limit[0].override[0].prefix: expected a text that a header can have
[[limit.override]]
name = "b"
prefix = ""
limit = "token_bucket 2/s"
---
limit[0].override[0].key: expected a text that a header can have
[[limit.override]]
name = "b"
key = " a"
limit = "token_bucket 2/s"
---
limit[0].override[0].key: expected a text that a header can have
[[limit.override]]
name = "b"
key = "\u0007"
limit = "token_bucket 2/s"
---
limit[0].override[1].key: an override before is for the same requests
[[limit.override]]
name = "b"
headers = { x-plan = "a" }
limit = "token_bucket 2/s"
[[limit.override]]
name = "c"
headers = { X-Plan = "a" }
limit = "token_bucket 3/s"
---
limit[1].name: the name "b" is there twice
[[limit.override]]
name = "b"
key = "a"
limit = "token_bucket 2/s"
[[limit]]
name = "b"
limit = "token_bucket 1/s"
key = "bearer"
"#;

const DEFAULTS: [(&str, &str); 3] = [
    ("name", "a"),
    ("limit", "token_bucket 1/s"),
    ("key", "bearer"),
];

/// Shows promise 221.
#[test]
fn each_mistake_names_its_field_and_what_is_allowed() {
    for case in REFUSED.split("---\n") {
        let (expected, text) = case.trim_start().split_once('\n').unwrap();
        let own = format!("\n{text}");
        let own = own.split("\n[").next().unwrap();
        let is_limit = !own.is_empty() || text.starts_with("[[limit.override]]");
        let mut whole = String::new();
        if is_limit {
            whole += "[[limit]]\n";
            for (field, value) in DEFAULTS {
                if !own.contains(&format!("\n{field} =")) {
                    writeln!(whole, "{field} = \"{value}\"").unwrap();
                }
            }
        }
        let text = whole + text;
        let problems = problems(&text);
        assert!(problems.contains(expected), "{text}\n{problems}");
    }
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
    let problems = problems.to_string();
    let found: Vec<_> = problems.lines().collect();
    let expected = [
        "line 4: limit[0].kye: unknown field `kye`",
        "line 10: limit[1].key: ",
        "line 15: limit[2].missing: ",
        "line 22: limit[3].override[0].keys: ",
        "line 24: stores.g: ",
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}");
    }
    assert!(found[0].ends_with("did you mean key?"), "{}", found[0]);
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
    let taken = environment().store("s", |_, algorithm| Ok(Local::new(algorithm)));
    let both = limit("a", bucket, "\"client_ip\"", "store = \"s\"");
    let both = file(&format!("{both}[stores]\ns = {{ redis = \"redis://x\" }}"));
    let error = PolicyLayer::new(both, taken).unwrap_err().to_string();
    assert!(
        error.contains("the program has a store of this name"),
        "{error}"
    );
    if cfg!(not(feature = "redis")) {
        let redis = limit("a", bucket, "\"client_ip\"", "store = \"s\"");
        let redis = build(&format!("{redis}[stores]\ns = {{ redis = \"redis://x\" }}"));
        assert!(
            redis.ends_with("it needs the feature `redis` of tower-throttle"),
            "{redis}"
        );
    } else {
        let line = "fixed_window 1/s; queue=2";
        let window = limit("a", line, "\"client_ip\"", "store = \"s\"");
        let window = build(&format!(
            "{window}[stores]\ns = {{ redis = \"redis://x\" }}"
        ));
        assert!(window.contains("books no turns"), "{window}");
    }
}

#[test]
fn a_file_of_another_version_is_refused_and_one_without_limits_warns() {
    let next = PolicyFile::from_toml("version = 2").unwrap_err();
    let next = next.to_string();
    assert!(next.contains("version: 2 is not allowed; this version of the library reads 1 only"));
    // As some editors begin a file.
    assert!(PolicyFile::from_toml("\u{feff}version = 1").is_ok());
    let error = PolicyFile::from_toml("version =\n").unwrap_err();
    assert!(error.to_string().starts_with("line 1: "), "{error}");
    let denies = "[lists]\na = { cidrs = [\"10.0.0.0/8\"] }\n[[deny]]\nlist = \"a\"";
    for one in [denies, &limit("a", "token_bucket 1/s", "\"global\"", "")] {
        assert_eq!(App::new(one).handle.warnings(), [""; 0]);
    }
    let warnings = App::new("").handle.warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("every request passes"));
}
