//! What the pages about policy files show is read.

use tower_throttle::policy::{PolicyFile, Spec};

const PAGE: &str = concat!(
    include_str!("../../docs/policies.md"),
    include_str!("../../docs/policy_reference.md")
);

/// The blocks of a language, with the line before each.
fn blocks(language: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut before = String::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        if line.strip_prefix("```") == Some(language) {
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((before.clone(), block.join("\n")));
        }
        if !line.trim().is_empty() {
            line.clone_into(&mut before);
        }
    }
    blocks
}

/// The whole files of the page. A part of a file gets the version.
pub(crate) fn files() -> Vec<String> {
    let blocks = blocks("toml").into_iter().map(|(_, text)| text);
    let whole = blocks.map(|text| {
        if text.contains("version =") {
            text
        } else {
            format!("version = 1\n{text}")
        }
    });
    whole.collect()
}

/// Shows promise 221.
#[test]
fn each_file_of_the_page_is_read() {
    let files = files();
    assert!(files.len() >= 7, "{}", files.len());
    for text in files {
        PolicyFile::from_toml(&text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    }
}

#[test]
fn each_line_of_the_page_is_read() {
    let blocks = blocks("text");
    let lines: Vec<_> = blocks
        .iter()
        .filter(|(before, _)| !before.contains("prints"))
        .flat_map(|(_, text)| text.lines())
        .collect();
    assert!(lines.len() >= 10, "{}", lines.len());
    for line in lines {
        match line.parse::<Spec>() {
            Ok(spec) => assert_eq!(spec.to_string(), line),
            Err(error) => assert!(line.starts_with("gcra"), "{error}"),
        }
    }
}

/// A block that the page says a wrong file prints.
#[test]
fn the_problems_of_the_page_are_those_of_its_wrong_file() {
    let wrong = blocks("toml-wrong");
    let printed = blocks("text");
    let mut printed = printed
        .iter()
        .filter(|(before, _)| before.contains("prints"));
    assert!(!wrong.is_empty());
    for (_, text) in wrong {
        let problems = PolicyFile::from_toml(&text).unwrap_err().to_string();
        assert_eq!(problems, printed.next().unwrap().1);
    }
}
