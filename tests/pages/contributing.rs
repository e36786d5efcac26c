//! The table of CONTRIBUTING.md that says which tests belong to which part of `src`.

use std::{collections::BTreeSet, fs};

use crate::{read, root};

/// Parts of `src`, where their tests are, and the command that runs the nearest ones.
const PARTS: &[(&[&str], &str, &str)] = &[
    (
        &["algorithm"],
        "`tests/algorithms`, `tests/laws`",
        "--test algorithms",
    ),
    (&["limiter", "acquire"], "`tests/limiter`", "--test limiter"),
    (
        &[
            "quota", "decision", "receipt", "error", "clock", "sync", "varint",
        ],
        "`tests/integration/vocabulary`, `tests/shipped`, `tests/models`",
        "--test integration vocabulary",
    ),
    (&["key"], "`tests/http`", "--test http"),
    (&["respond"], "`tests/http`", "--test http"),
    (
        &["layer"],
        "`tests/layer`, `tests/faults`, `tests/hostile.rs`, `tests/building.rs`",
        "--test layer",
    ),
    (&["queue"], "`tests/queue`", "--test queue"),
    (
        &["concurrency"],
        "`tests/concurrency`",
        "--test concurrency",
    ),
    (&["policy"], "`tests/policies`", "--test policies"),
    (
        &["client"],
        "`tests/pacer`, `tests/integration/client`",
        "--test pacer",
    ),
    (&["stream"], "`tests/stream`", "--test stream"),
    (&["accept"], "`tests/accept`", "--test accept"),
    (
        &["testkit"],
        "`tests/algorithms`, `tests/cas`",
        "--test algorithms planted",
    ),
    (
        &["backend", "saved", "store", "store/local", "store/quotas"],
        "`tests/stores`",
        "--test stores",
    ),
    (
        &["store/cas", "store/remote"],
        "`tests/cas`, `tests/postgres`, `tests/cassandra`, `tests/conformance`",
        "--test cas",
    ),
    (
        &["store/redis"],
        "`tests/redis`, `tests/conformance`, `tests/tls`",
        "--test redis",
    ),
    (
        &["store/fleet"],
        "`tests/fleet`, `tests/conformance`",
        "--test fleet",
    ),
    (
        &["store/events"],
        "`tests/integration/operator`, `tests/observing.rs`",
        "--test integration operator",
    ),
    (
        &["guide", "picture"],
        "`tests/pages`, `tests/guide`, `tests/examples`, `tests/integration/readme`",
        "--test pages",
    ),
];

/// Tests of no part alone.
const OF_ALL: &[&str] = &["arrows.rs", "integration", "packaged.rs", "promises.rs"];
/// What holds no tests.
const NO_TESTS: &[&str] = &[
    "common",
    "compile_fail",
    "support",
    "vectors",
    "mutants.md",
    "run",
    "surface",
];
/// What has no tests of its own.
const NO_PARTS: &[&str] = &["lib"];

/// The files and folders of a folder.
fn entries(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(folder)).expect("a folder");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let names = entries.map(|entry| name(entry).into_string().expect("a name"));
    names.collect()
}

fn table() -> String {
    let mut table = "| `src/` | tests | nearest, after `cargo test` |\n|---|---|---|\n".to_owned();
    for (parts, tests, command) in PARTS {
        let parts: Vec<_> = parts.iter().map(|part| format!("`{part}`")).collect();
        table.extend([
            "| ",
            &parts.join(", "),
            " | ",
            tests,
            " | `",
            command,
            "` |\n",
        ]);
    }
    table
}

/// `PAGES=write cargo test --test pages` writes the table.
#[test]
fn the_table_of_tests_has_every_part_of_the_source_and_every_test() {
    let named: BTreeSet<_> = PARTS.iter().flat_map(|(parts, ..)| *parts).collect();
    let stores = entries("src/store");
    let stores = stores.into_iter().filter(|name| !name.contains('.'));
    let stores = stores.map(|name| format!("store/{name}"));
    for name in entries("src").into_iter().chain(stores) {
        let part = name.strip_suffix(".rs").unwrap_or(&name);
        let is_named = named.contains(&part) || NO_PARTS.contains(&part);
        assert!(is_named, "src/{name} is in no row of PARTS");
    }
    for part in named {
        let is_there = ["", ".rs"]
            .iter()
            .any(|end| root().join(format!("src/{part}{end}")).exists());
        assert!(is_there, "there is no src/{part}");
    }
    let table = table();
    for name in entries("tests") {
        let is_named = table.contains(&format!("`tests/{name}")) || OF_ALL.contains(&&*name);
        assert!(
            is_named || NO_TESTS.contains(&&*name),
            "tests/{name} is in no row of PARTS"
        );
    }
    let page = read("CONTRIBUTING.md");
    let (before, rest) = page.split_once("| `src/` |").expect("the table");
    let (_, after) = rest
        .split_once("\n\n")
        .expect("an empty line after the table");
    let written = format!("{before}{table}\n{after}");
    if std::env::var("PAGES").is_ok_and(|pages| pages == "write") {
        fs::write(root().join("CONTRIBUTING.md"), &written).expect("a writable page");
    } else {
        assert!(page == written, "PAGES=write cargo test --test pages");
    }
}
