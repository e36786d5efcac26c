//! Items and methods that pages name between backquotes exist in the source.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use crate::{expect_none, markdown, pages, read, root};

/// Types of std and of other crates, and their methods.
const FOREIGN: [&str; 6] = [
    "BoxError",
    "Instant",
    "RandomState",
    "Router",
    "SystemTime",
    "map_err",
];

/// Pages whose tables begin with what other crates call it.
const OF_OTHERS: [&str; 3] = ["migrating.md", "other_languages.md", "tower_governor.md"];

/// The items that the source declares.
#[derive(Default)]
struct Declared {
    /// The methods, constants and variants of each type.
    of_types: BTreeMap<String, BTreeSet<String>>,
    functions: BTreeSet<String>,
}

impl Declared {
    /// Adds what a file declares. Whatever belongs to a type is indented once, between a line that names
    /// the type and a brace.
    fn read(&mut self, source: &str) {
        let mut owner = None;
        for line in source.lines() {
            if let Some(name) = owner_of(line) {
                self.of_types.entry(name.clone()).or_default();
                owner = Some(name);
            } else if line.starts_with('}') {
                owner = None;
            }
            let name = declared(line.trim_start());
            self.functions.extend(name.clone());
            let is_member = line.starts_with("    ") && !line.starts_with("     ");
            if let (Some(owner), true) = (&owner, is_member) {
                let member = name.or_else(|| part(line.trim_start()));
                self.of_types
                    .entry(owner.clone())
                    .or_default()
                    .extend(member);
            }
        }
    }

    /// What `span` names and the source does not have.
    fn missing(&self, span: &str) -> Vec<String> {
        let mut missing = Vec::new();
        for (at, _) in span.match_indices("::") {
            let (owner, member) = (last_word(&span[..at]), first_word(&span[at + 2..]));
            if let Some(members) = self.of_types.get(owner) {
                if !member.is_empty() && !members.contains(member) {
                    missing.push(format!("{owner}::{member}"));
                }
            } else if owner.starts_with(char::is_uppercase) && !FOREIGN.contains(&owner) {
                missing.push(owner.to_owned());
            }
        }
        for (at, _) in span.match_indices('.') {
            let method = first_word(&span[at + 1..]);
            let is_call = span[at + 1 + method.len()..].starts_with('(');
            if is_call && !self.functions.contains(method) && !FOREIGN.contains(&method) {
                missing.push(format!(".{method}("));
            }
        }
        missing
    }
}

/// The type to which the lines after this one belong.
fn owner_of(line: &str) -> Option<String> {
    let rest = line.strip_prefix("pub ").unwrap_or(line);
    for kind in ["struct ", "enum ", "trait ", "type "] {
        if let Some(rest) = rest.strip_prefix(kind) {
            return Some(first_word(rest).to_owned());
        }
    }
    let rest = line.strip_prefix("impl")?;
    let named = match rest.split_once(" for ") {
        Some((_, named)) => named,
        None => without_parameters(rest),
    };
    let path = named.split(['<', ' ']).next().unwrap_or_default();
    Some(last_word(path).to_owned())
}

/// What follows the parameters of a block.
fn without_parameters(rest: &str) -> &str {
    let mut open = 0_usize;
    let end = rest.find(|c| {
        match c {
            '<' => open += 1,
            '>' => open = open.saturating_sub(1),
            _ => {}
        }
        open == 0 && c == ' '
    });
    end.map_or("", |end| rest[end..].trim_start())
}

/// The function or the constant that a line declares.
fn declared(line: &str) -> Option<String> {
    let (before, rest) = line
        .split_once("fn ")
        .or_else(|| line.split_once("const "))?;
    let words = ["pub", "const", "async", "pub(crate)", "pub(super)"];
    let is_declaration = before.split_whitespace().all(|word| words.contains(&word));
    is_declaration.then(|| first_word(rest).to_owned())
}

/// The variant or the public field that a line declares.
fn part(line: &str) -> Option<String> {
    if let Some(field) = line.strip_prefix("pub ") {
        return Some(first_word(field).to_owned());
    }
    let name = first_word(line);
    let is_variant = name.starts_with(char::is_uppercase)
        && [",", "(", " {", " ="]
            .iter()
            .any(|end| line[name.len()..].starts_with(end));
    is_variant.then(|| name.to_owned())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn first_word(text: &str) -> &str {
    text.split(|c| !is_word(c)).next().unwrap_or_default()
}

fn last_word(text: &str) -> &str {
    text.rsplit(|c| !is_word(c)).next().unwrap_or_default()
}

/// The page without what other crates are called: the first cells of its tables.
fn ours(page: &str) -> String {
    let lines = page.lines().map(|line| match line.strip_prefix('|') {
        Some(row) => row.split_once(" | ").map_or("", |(_, rest)| rest),
        None => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_item_that_a_page_names_exists() {
    let mut declared = Declared::default();
    let mut folders = vec![PathBuf::from("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder") {
            let path = folder.join(entry.expect("an entry").file_name());
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                declared.read(&read(&path));
            }
        }
    }
    let mut faults = Vec::new();
    let mut names = 0;
    for path in pages() {
        let page = read(&path);
        let page = if OF_OTHERS.iter().any(|page| path.ends_with(page)) {
            ours(&page)
        } else {
            page
        };
        for span in markdown::spans(&page) {
            names += span.matches("::").count();
            let missing = declared.missing(&span);
            faults.extend(
                missing
                    .iter()
                    .map(|name| format!("{}: `{span}`: there is no {name}", path.display())),
            );
        }
    }
    assert!(names > 100, "{names}");
    expect_none(&faults);
}

#[test]
fn names_that_do_not_exist_are_found() {
    let mut declared = Declared::default();
    declared.read(
        r"pub enum Headers {
    #[default]
    Draft6,
    Other(u8),
}

impl<T: Into<u8>> From<T> for Headers {
    fn from(_: T) -> Self {
        Self::Legacy
    }
}

impl Headers {
    pub const fn standard() -> Self {
        let within = 1;
    }
}
",
    );
    for right in [
        "Headers::Draft6",
        "Headers::Other(..)",
        "x.standard(Headers::standard())",
        "Headers::from",
        "a.rs::b",
        "1.5",
    ] {
        assert_eq!(declared.missing(right), [""; 0], "{right}");
    }
    for (wrong, missing) in [
        ("Headers::Legacy", "Headers::Legacy"),
        ("Header::Draft6", "Header"),
        ("layer.legacy()", ".legacy("),
        ("Headers::within", "Headers::within"),
    ] {
        assert_eq!(declared.missing(wrong), [missing]);
    }
    let page = "| theirs | here |\n|---|---|\n| `A::b` | `C::d` |\n`E::f`";
    assert_eq!(markdown::spans(&ours(page)), ["C::d", "E::f"]);
}
