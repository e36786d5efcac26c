//! Lists in pages that have to be complete.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{expect_none, markdown, pages, read, root};

/// Pages that are not part of the guide: about the development of the crate, or part of another module.
const OTHER_PAGES: [&str; 2] = ["promises", "redis"];

/// The examples of all packages: name and file, relative to the folder `examples`.
fn examples() -> BTreeSet<(String, String)> {
    let mut examples = BTreeSet::new();
    for entry in fs::read_dir(root().join("examples")).expect("a folder") {
        let folder = entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("a name");
        let Ok(manifest) =
            fs::read_to_string(root().join("examples").join(&folder).join("Cargo.toml"))
        else {
            continue;
        };
        // `quickstart` is a `[[bin]]`, so that the name of its package is enough to run it.
        let manifest = manifest.replace("[[bin]]", "[[example]]");
        for example in manifest.split("[[example]]").skip(1) {
            let value = |key: &str| {
                let line = example.lines().find_map(|line| line.strip_prefix(key));
                line.unwrap_or_else(|| panic!("{folder}: no {key}"))
                    .trim_matches('"')
                    .to_owned()
            };
            examples.insert((value("name = "), format!("{folder}/{}", value("path = "))));
        }
    }
    assert!(examples.len() > 15, "{examples:?}");
    examples
}

#[test]
fn the_map_of_examples_lists_each_of_them_with_its_command() {
    let map = read("examples/README.md");
    let rows = map.lines().filter_map(|line| line.strip_prefix("| ["));
    let mut listed = BTreeSet::new();
    let mut faults = Vec::new();
    for row in rows {
        let (name, rest) = row.split_once("](").expect("a link");
        let (file, rest) = rest.split_once(')').expect("a link");
        listed.insert((name.to_owned(), file.to_owned()));
        let commands = [format!("--example {name}"), format!("run -p {name}`")];
        if !commands.iter().any(|command| rest.contains(command)) {
            faults.push(format!("{name}: its row has another command"));
        }
    }
    let examples = examples();
    for (name, file) in examples.symmetric_difference(&listed) {
        faults.push(format!(
            "{name} ({file}) is in one of examples/README.md and the manifests"
        ));
    }
    expect_none(&faults);
}

/// The pages that a reader of the README finds by following links.
fn found_from_the_readme(read: &impl Fn(&Path) -> String) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::from([PathBuf::from("README.md")]);
    let mut open: Vec<_> = found.iter().cloned().collect();
    while let Some(page) = open.pop() {
        for target in markdown::targets(&read(&page)) {
            let file = target.split('#').next().unwrap_or_default();
            let is_page =
                !file.contains("://") && Path::new(file).extension().is_some_and(|ext| ext == "md");
            // Of the links between folders only those of the README count.
            if is_page && !file.starts_with("..") {
                let path = page.with_file_name(file);
                if found.insert(path.clone()) {
                    open.push(path);
                }
            }
        }
    }
    found
}

#[test]
fn pages_are_found_by_links() {
    let read = |path: &Path| match path.to_str() {
        Some("README.md") => "[a](docs/a.md#b), [c](https://x.org/c.md), [d](d.svg)".to_owned(),
        Some("docs/a.md") => "[e](e.md), [a](a.md)".to_owned(),
        _ => String::new(),
    };
    let found = found_from_the_readme(&read);
    let expected = ["README.md", "docs/a.md", "docs/e.md"].map(PathBuf::from);
    assert_eq!(found, BTreeSet::from(expected));
}

/// The modules of `src/guide.rs`, their rows in its table, the pages, and the links that lead to them.
#[test]
fn every_page_is_in_the_guide_and_found_from_the_readme() {
    let guide = read("src/guide.rs");
    let found = found_from_the_readme(&|path| read(path));
    let mut faults = Vec::new();
    for page in pages().iter().filter(|page| page.starts_with("docs")) {
        let name = page
            .file_stem()
            .and_then(|name| name.to_str())
            .expect("a name");
        if !found.contains(page) {
            faults.push(format!("README.md: no links lead to docs/{name}.md"));
        }
        if OTHER_PAGES.contains(&name) {
            continue;
        }
        for part in [
            format!("#[doc = include_str!(\"guide/{name}.md\")]\n"),
            format!("pub mod {name} {{}}\n"),
            format!("//! | [`{name}`] |"),
        ] {
            if !guide.contains(&part) {
                faults.push(format!("src/guide.rs: no {part}"));
            }
        }
    }
    expect_none(&faults);
}

/// The words between backquotes that a reader finds in a response or a log.
fn is_message(span: &str) -> bool {
    let words = span.split_whitespace().count();
    words >= 4
        && span
            .chars()
            .all(|c| c.is_alphanumeric() || " .,:;'()-".contains(c))
}

/// The words of a string over several lines stay together.
fn without_line_ends(source: &str) -> String {
    source
        .replace("\\\n", "")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn messages_that_the_guide_quotes_are_in_the_source() {
    let mut source = String::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                source.push_str(&without_line_ends(
                    &fs::read_to_string(path).expect("a file"),
                ));
            }
        }
    }
    let mut faults = Vec::new();
    let mut messages = 0;
    for path in pages().iter().filter(|path| path.starts_with("docs")) {
        // `tests/redis` provokes the messages of this page.
        if path.ends_with("redis.md") {
            continue;
        }
        for span in markdown::spans(&read(path)) {
            if is_message(&span) && !span.starts_with("cargo ") {
                messages += 1;
                if !source.contains(&span) {
                    faults.push(format!("{}: no source has `{span}`", path.display()));
                }
            }
        }
    }
    assert!(messages >= 5, "{messages}");
    expect_none(&faults);
    assert!(!source.contains("a message that nothing writes"));
    assert!(is_message("a message that nothing writes"));
    assert_eq!(without_line_ends("\"one \\\n      two\""), "\"one two\"");
}

#[test]
fn the_start_page_lists_every_feature() {
    let manifest = read("Cargo.toml");
    let features = manifest.split("[features]\n").nth(1).expect("features");
    let features = features.split("\n\n").next().expect("features");
    let start = read("src/lib.rs").replace("//! ", "");
    let table = start.split("# Features\n").nth(1).expect("a table");
    let table = markdown::spans(table.split("\n# ").next().expect("a table"));
    let mut found = 0;
    for line in features.lines() {
        let name = line.split(" = ").next().unwrap_or_default();
        if line.starts_with('#') || name.starts_with('_') || name == "default" {
            continue;
        }
        found += 1;
        assert!(table.iter().any(|span| span == name), "{name}");
    }
    assert!(found > 10, "{found}");
}

/// This crate is compared with these versions, which the lock file holds too.
#[test]
fn the_versions_of_other_crates_are_those_that_were_tried() {
    let page = read("docs/comparison.md");
    let lock = read("Cargo.lock");
    let headers = page
        .lines()
        .filter(|line| line.starts_with("| | tower-throttle |"));
    let cells = headers.flat_map(|header| header.split('|').skip(3));
    let mut crates = 0;
    for cell in cells.map(str::trim).filter(|cell| !cell.is_empty()) {
        let (name, rest) = cell
            .trim_start_matches('`')
            .split_once("` ")
            .expect("a name");
        let version = rest.split(',').next().unwrap_or_default();
        let entry = format!("name = \"{name}\"\nversion = \"{version}\"");
        assert!(
            lock.contains(&entry),
            "{cell}: Cargo.lock has another version"
        );
        crates += 1;
    }
    assert_eq!(crates, 5);
}
