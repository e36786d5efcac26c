//! The table of CONTRIBUTING.md that says which tests belong to which part of `src`.

use std::{collections::BTreeSet, fs};

use crate::{read, root};

/// Parts of `src`; the folders of their tests; the command that runs the nearest ones.
const PARTS: &str = "\
algorithm | algorithms | --test algorithms
limiter acquire | algorithms/limiter | --test algorithms limiter
quota decision receipt error clock sync | integration/vocabulary shipped models | --test integration vocabulary
key respond | http | --test http
layer | layer faults | --test layer
queue | queue | --test queue
concurrency | concurrency | --test concurrency
policy | policies | --test policies
client | integration/pacer integration/client | --test integration pacer
stream | integration/stream | --test integration stream
accept | integration/accept | --test integration accept
testkit | algorithms stores/cas | --test algorithms planted
backend saved store store/local store/quotas | stores/local | --test stores local
store/cas store/remote | stores/cas servers/conformance servers/postgres servers/cassandra | --test stores cas
store/redis | servers/redis servers/conformance tls | --test servers redis
store/fleet | stores/fleet servers/conformance | --test stores fleet
telemetry store/events | integration/operator pages | --test integration operator
guide picture | pages guide examples integration/readme | --test pages";

/// Folders and files of `tests` that are of no part alone, or hold no tests.
const OTHERS: &str =
    "compile_fail integration packaged.rs servers stores support vectors mutants.md run surface";

/// The files and folders of a folder.
fn entries(folder: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(root().join(folder)).expect("a folder");
    entries.map(|entry| {
        entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("a name")
    })
}

/// What is in the folders of `src` and `tests`, and what the table names, if they differ.
fn check(table: &str) -> Result<(), String> {
    let column = |at: usize| {
        let cells = table
            .lines()
            .filter_map(move |row| row.split(" | ").nth(at));
        cells
            .flat_map(str::split_whitespace)
            .collect::<BTreeSet<_>>()
    };
    let (parts, tests) = (column(0), column(1));
    let inner = entries("src/store").filter(|name| !name.contains('.'));
    for name in entries("src").chain(inner.map(|name| format!("store/{name}"))) {
        let part = name.strip_suffix(".rs").unwrap_or(&name);
        if part != "lib" && !parts.contains(part) {
            return Err(format!("src/{name} is in no row"));
        }
    }
    for name in entries("tests") {
        let is_named = |test: &&str| test.split('/').next() == Some(&name);
        if !tests.iter().any(is_named) && !OTHERS.split(' ').any(|other| other == name) {
            return Err(format!("tests/{name} is in no row"));
        }
    }
    let is_missing = |path: &String| {
        !["", ".rs"]
            .iter()
            .any(|end| root().join(format!("{path}{end}")).exists())
    };
    let parts = parts.iter().map(|part| format!("src/{part}"));
    let mut named = parts.chain(tests.iter().map(|test| format!("tests/{test}")));
    named
        .find(is_missing)
        .map_or(Ok(()), |path| Err(format!("there is no {path}")))
}

/// `PAGES=write cargo test --test pages` writes the table.
#[test]
fn the_table_of_tests_has_every_part_of_the_source_and_every_test() {
    assert_eq!(check(PARTS), Ok(()));
    assert!(check(&PARTS.replace("queue", "cue")).is_err());
    let mut table = "| `src/` | tests | nearest, after `cargo test` |\n|---|---|---|\n".to_owned();
    for row in PARTS.lines() {
        let cells: Vec<_> = row.split(" | ").collect();
        let list = |cell: &str, folder| {
            let names = cell.split(' ').map(|name| format!("`{folder}{name}`"));
            names.collect::<Vec<_>>().join(", ")
        };
        let (parts, tests) = (list(cells[0], ""), list(cells[1], "tests/"));
        table.extend(["| ", &parts, " | ", &tests, " | `", cells[2], "` |\n"]);
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
