//! The table of CONTRIBUTING.md that says which tests belong to which part of `src`.

use std::{collections::BTreeSet, fs};

use crate::{read, root};

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

/// Parts of `src`, and the tests of each below `tests`, the nearest ones first.
const TESTS: [(&str, &str); 19] = [
    ("algorithm", "algorithms"),
    ("limiter acquire denied", "algorithms/limiter"),
    (
        "quota decision receipt error clock sync",
        "integration/vocabulary shipped models",
    ),
    ("key respond", "http"),
    ("layer", "layer faults"),
    ("queue", "queue"),
    ("concurrency", "concurrency"),
    ("policy", "policies"),
    ("client", "integration/pacer integration/client"),
    ("stream", "integration/stream"),
    ("accept", "integration/accept"),
    ("testkit", "algorithms/planted stores/cas"),
    ("backend saved store store/local", "stores/local"),
    ("store/quotas", "layer/quotas servers/key_quotas"),
    (
        "store/cas store/remote",
        "stores/cas servers/conformance servers/postgres servers/cassandra",
    ),
    ("store/redis", "servers/redis servers/conformance tls"),
    ("store/fleet", "stores/fleet servers/conformance"),
    ("telemetry store/events", "integration/operator pages"),
    ("guide picture", "pages guide examples"),
];

/// The table of the page.
fn table() -> String {
    let cell = |folder: &str, names: &str| {
        let names = names.split(' ').map(|name| format!("`{folder}{name}`"));
        names.collect::<Vec<_>>().join(", ")
    };
    let row = |(parts, tests): (&str, &str)| {
        let nearest = tests.split(' ').next().expect("a test").replace('/', " ");
        let (parts, tests) = (cell("", parts), cell("tests/", tests));
        format!("| {parts} | {tests} | `--test {nearest}` |\n")
    };
    let head = "| `src/` | tests | nearest, after `cargo test` |\n|---|---|---|\n";
    head.to_owned() + &TESTS.map(row).concat()
}

/// The first part of `src` or folder of `tests` that is not there, or in no row.
fn fault() -> Option<String> {
    let exists = |path: &String| {
        let paths = ["", ".rs"].map(|end| root().join(format!("{path}{end}")));
        paths.iter().any(|path| path.exists())
    };
    let all = |folder: &str, names: &str| -> Vec<_> {
        names
            .split(' ')
            .map(|name| format!("{folder}/{name}"))
            .collect()
    };
    let rows = TESTS
        .iter()
        .flat_map(|(parts, tests)| [all("src", parts), all("tests", tests)]);
    let named: BTreeSet<_> = rows.flatten().chain(all("tests", OTHERS)).collect();
    let inner = entries("src/store").filter(|name| !name.contains('.'));
    let parts = entries("src").filter(|name| name != "lib.rs");
    let parts = parts.chain(inner.map(|name| format!("store/{name}")));
    let parts = parts.map(|name| format!("src/{}", name.trim_end_matches(".rs")));
    let tests = entries("tests").map(|name| format!("tests/{name}"));
    let is_named = |path: &String| {
        let below = format!("{path}/");
        let mut named = named.iter();
        named.any(|one| one == path || (path.starts_with("tests/") && one.starts_with(&below)))
    };
    let mut missing = parts.chain(tests).filter(|path| !is_named(path));
    let gone = named.iter().find(|path| !exists(path));
    missing.next().or_else(|| gone.cloned())
}

/// `PAGES=write cargo test --test pages` writes it.
#[test]
fn the_table_of_tests_has_every_part_of_the_source_and_every_test() {
    assert_eq!(fault(), None);
    let page = read("CONTRIBUTING.md");
    let start = page.find("| `src/` |").expect("a table");
    let (_, after) = page[start..].split_once("\n\n").expect("text below it");
    let page = format!("{}{}\n{after}", &page[..start], table());
    if std::env::var("PAGES").is_ok_and(|pages| pages == "write") {
        fs::write(root().join("CONTRIBUTING.md"), &page).expect("a writable page");
    }
    let hint = "CONTRIBUTING.md differs: PAGES=write cargo test --test pages";
    assert!(read("CONTRIBUTING.md") == page, "{hint}");
}

#[test]
fn every_test_binary_that_a_command_names_exists() {
    let mut named = BTreeSet::new();
    let pages = entries("docs").map(|name| format!("docs/{name}"));
    let pages = pages.filter(|path| root().join(path).is_file());
    let others = ["CONTRIBUTING.md", "tests/run", ".github/workflows/ci.yml"];
    for page in pages.chain(others.map(str::to_owned)).map(read) {
        let words: Vec<_> = page
            .split(|c: char| c.is_whitespace() || c == '`')
            .collect();
        let names = words.windows(2).filter(|pair| pair[0] == "--test");
        named.extend(names.map(|pair| pair[1].to_owned()));
    }
    named.retain(|name| name.chars().all(|c| c.is_ascii_lowercase()));
    // The last ones are of other packages, and the stage `clippy` names them.
    let is_there = |name: &String| {
        let mut files = [format!("tests/{name}.rs"), format!("tests/{name}/main.rs")].into_iter();
        files.any(|file| root().join(file).exists()) || "threads observe chromium".contains(name)
    };
    assert!(named.len() > 12, "{named:?}");
    assert_eq!(named.iter().find(|name| !is_there(name)), None);
}
