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

/// What is in the folders of `src` and `tests`, and what the table names, if they differ.
fn check(page: &str) -> Result<(), String> {
    let rows = page.lines().filter(|line| line.contains(" | `--test "));
    let column = |at: usize| {
        let cells = rows.clone().filter_map(move |row| row.split(" | ").nth(at));
        let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        names.collect::<BTreeSet<_>>()
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
        let is_named = |test: &&str| test.split('/').nth(1) == Some(&name);
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
    let mut named = parts.chain(tests.iter().map(|test| (*test).to_owned()));
    named
        .find(is_missing)
        .map_or(Ok(()), |path| Err(format!("there is no {path}")))
}

#[test]
fn the_table_of_tests_has_every_part_of_the_source_and_every_test() {
    let page = read("CONTRIBUTING.md");
    assert_eq!(check(&page), Ok(()));
    assert!(check(&page.replace("queue", "cue")).is_err());
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
    let packages =
        ["observe", "playground"].map(|name| read(format!("examples/{name}/Cargo.toml")));
    let is_there = |name: &String| {
        let files = [
            "tests/NAME.rs",
            "tests/NAME/main.rs",
            "tests/models/tests/NAME.rs",
        ];
        let is_file = files
            .iter()
            .any(|file| root().join(file.replace("NAME", name)).exists());
        let target = format!("[[test]]\nname = \"{name}\"");
        is_file || packages.iter().any(|package| package.contains(&target))
    };
    assert!(named.len() > 12, "{named:?}");
    assert_eq!(named.iter().find(|name| !is_there(name)), None);
}
