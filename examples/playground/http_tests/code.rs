//! The code that the page offers: `tests/snippets.rs` compiles it.

use std::{fs, path::PathBuf};

use tower_throttle::policy::PolicyFile;

use crate::{policy::Policy, snippet};

/// Each policy, and the file with its code.
const SNIPPETS: [(&str, &str); 11] = [
    (
        "token_bucket",
        "token_bucket 10/s; burst=50; initial=5; queue=20; max_wait=1500ms",
    ),
    ("leaky_bucket", "leaky_bucket 10/s; burst=50"),
    (
        "leaky_bucket_queue",
        "leaky_bucket 10/s; burst=1; queue=20; max_wait=2s",
    ),
    ("fixed_window", "fixed_window 10000/d; offset=1h"),
    ("fixed_window_anchored", "fixed_window 5/10s; anchored=true"),
    ("sliding_window", "sliding_window 1000/h; offset=15min"),
    (
        "sliding_grid",
        "sliding_grid 100/min; cells=20; strict=true",
    ),
    ("sliding_log", "sliding_log 5/min"),
    (
        "warm_up",
        "warm_up 10/s; warm_up=90s; cold_factor=5; queue=7",
    ),
    (
        "lockout",
        "lockout 5/15min; block=5min; max_block=1h; forget=1d; on_success=clear",
    ),
    (
        "several",
        "token_bucket 10/s; burst=50 + fixed_window 10000/d",
    ),
];

/// The file of each policy holds its code; `UPDATE=1` writes it.
#[test]
fn the_committed_code_is_the_code_of_the_page() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snippets");
    for (name, text) in SNIPPETS {
        let policy: Policy = text.parse().unwrap();
        assert_eq!(policy.line(), text);
        let code = snippet::rust(policy.line());
        let file = folder.join(name).with_extension("rs");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&file, &code).unwrap();
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(code, committed, "{name}: run with UPDATE=1");
    }
}

/// A file of policies with this text has the limit, under the address of the client.
#[test]
fn the_toml_of_the_page_is_read_as_the_same_limit() {
    for (name, text) in SNIPPETS {
        let file = PolicyFile::from_toml(&snippet::toml(text));
        let file = file.unwrap_or_else(|problems| panic!("{name}: {problems}"));
        let written = serde_json::to_value(&file).unwrap();
        assert_eq!(written["limit"][0]["limit"], text);
        assert_eq!(written["limit"][0]["key"][0], "client_ip");
    }
}
