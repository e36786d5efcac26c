//! Commands in pages: a stage of `tests/run` runs each of them, or a test does.

use crate::{
    expect_none,
    list::{EXAMPLES, STARTED_BY_TESTS},
    markdown, pages, read, root,
};

/// Commands that no stage runs, and why.
const NOT_RUN: [(&str, &str); 7] = [
    ("cargo publish", "it publishes"),
    ("cargo deny", "a job of the workflow runs it"),
    (
        "cargo tree",
        "it prints what the versions of the day depend on",
    ),
    (
        "cargo doc --open",
        "it opens a browser; the stage `docs` builds the same",
    ),
    (
        "cargo +nightly fuzz run",
        "it has no end; the stage `fuzz` runs the same targets",
    ),
    (
        "cargo run -p axum-examples",
        "the test `examples` runs the same programs",
    ),
    (
        "cargo run -p quickstart",
        "the test `examples` runs the same program",
    ),
];

/// The lists of `tests/run` and of the test `examples`.
struct Lists {
    stages: Vec<String>,
    figures: Vec<String>,
    /// Lines of words.
    examples: Vec<Vec<String>>,
}

impl Lists {
    fn of(script: &str, examples: &[&str]) -> Self {
        let list = |name: &str| -> Vec<Vec<String>> {
            let start = format!("\n{name}='");
            let list = script.split(&start).nth(1).unwrap_or_default();
            let list = list.split('\'').next().unwrap_or_default();
            let lines = list.lines().filter(|line| !line.trim().is_empty());
            lines
                .map(|line| line.split_whitespace().map(str::to_owned).collect())
                .collect()
        };
        let first = |lines: Vec<Vec<String>>| -> Vec<String> {
            lines
                .into_iter()
                .map(|mut words| words.swap_remove(0))
                .collect()
        };
        Self {
            stages: first(list("STAGES")),
            figures: list("FIGURES").into_iter().flatten().collect(),
            examples: examples
                .iter()
                .map(|line| line.split_whitespace().map(str::to_owned).collect())
                .collect(),
        }
    }

    /// Whether a stage runs the command.
    fn contain(&self, page: &str, command: &str) -> bool {
        if NOT_RUN.iter().any(|(start, _)| command.starts_with(start)) {
            return true;
        }
        // `VARIABLE=value cargo ..`
        let words: Vec<&str> = command.split_whitespace().collect();
        let start = words
            .iter()
            .position(|word| *word == "cargo" || *word == "tests/run");
        let words = &words[start.unwrap_or(0)..];
        match words {
            ["tests/run", stages @ ..] => stages.iter().all(|stage| {
                ["--list", "--changed"].contains(stage)
                    || self.stages.iter().any(|known| known == stage)
            }),
            ["cargo", "run", rest @ ..] => self.run(rest),
            ["cargo", "test", rest @ ..] => tests_exist(rest),
            // The stage `package` runs the lines that install the crate.
            ["cargo", "add", ..] => page == "README.md",
            _ => false,
        }
    }

    /// `cargo run` with these words.
    fn run(&self, words: &[&str]) -> bool {
        if let ["--release", "-p", "compare", "--", group, ..] = words {
            return self.figures.iter().any(|known| known == group);
        }
        let Some(at) = words.iter().position(|word| *word == "--example") else {
            return false;
        };
        let Some(name) = words.get(at + 1) else {
            return false;
        };
        let started = STARTED_BY_TESTS
            .iter()
            .find(|(example, ..)| example == name);
        if let Some((_, file, start)) = started {
            return read(file).contains(start);
        }
        // Of the arguments of the program only the options: files and addresses differ.
        let rest = &words[at + 2..];
        let end = rest.iter().position(|word| *word == "--");
        let (features, arguments) = rest.split_at(end.unwrap_or(rest.len()));
        let options = arguments.iter().filter(|word| word.starts_with("--"));
        let needed: Vec<_> = features.iter().chain(options).collect();
        let runs = |line: &Vec<String>| {
            line[0] == *name
                && needed
                    .iter()
                    .all(|word| line.iter().any(|run| run == **word))
        };
        self.examples.iter().any(runs)
    }
}

/// Whether the test binaries that `cargo test` is given exist.
fn tests_exist(words: &[&str]) -> bool {
    let names = words.windows(2).filter(|pair| pair[0] == "--test");
    names.map(|pair| pair[1]).all(|name| {
        let folder = root().join("tests").join(name).join("main.rs");
        let file = root().join("tests").join(format!("{name}.rs"));
        let listed = read("Cargo.toml").contains(&format!("[[test]]\nname = \"{name}\""));
        folder.exists() || file.exists() || listed
    })
}

/// The commands of a page: lines of `sh` blocks, and texts between backquotes.
fn commands(page: &str) -> Vec<String> {
    let is_command = |text: &str| {
        let mut words = text.split_whitespace().skip_while(|word| {
            word.split('=').next().is_some_and(|name| {
                name.len() < word.len() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
            })
        });
        matches!(words.next(), Some("cargo")) && words.next().is_some()
            || text.split_whitespace().next() == Some("tests/run")
    };
    let lines = markdown::lines(page);
    let shell = lines.iter().filter(|line| line.code == Some("sh"));
    let shell = shell.map(|line| {
        line.text
            .split(" # ")
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    });
    let shell: Vec<_> = shell.filter(|line| !line.is_empty()).collect();
    let spans = markdown::spans(page)
        .into_iter()
        .filter(|span| is_command(span));
    shell.into_iter().chain(spans).collect()
}

#[test]
fn a_stage_or_a_test_runs_every_command() {
    let lists = Lists::of(&read("tests/run"), &EXAMPLES);
    let mut faults = Vec::new();
    let mut found = 0;
    for path in pages() {
        let page = path.to_str().expect("a name in ASCII");
        for command in commands(&read(&path)) {
            found += 1;
            if !lists.contain(page, &command) {
                faults.push(format!("{page}: no stage of tests/run runs `{command}`"));
            }
        }
    }
    assert!(found > 60, "{found}");
    expect_none(&faults);
}

#[test]
fn commands_that_no_stage_runs_are_found() {
    let script = "\nSTAGES='\nfmt - x\ntest cc y\n'\nFIGURES='table size'\n";
    let examples = [
        "queue",
        "redis --features redis -- REDIS",
        "replay -- --summary TMP/x",
    ];
    let lists = Lists::of(script, &examples);
    for right in [
        "tests/run",
        "tests/run fmt test",
        "tests/run --list",
        "cargo run --example queue",
        "cargo run --release --example queue",
        "cargo run --example redis --features redis -- redis://127.0.0.1:6379",
        "cargo run --release --example replay -- --summary trace.jsonl",
        "cargo run --release -p compare -- table",
        "cargo run --example playground",
        "cargo test --test arrows",
        "TRACES=5 cargo test --release --test algorithms",
        "cargo test",
    ] {
        assert!(lists.contain("docs/a.md", right), "{right}");
    }
    for wrong in [
        "tests/run lint",
        "cargo run --example que",
        "cargo run --example redis --features tonic",
        "cargo run --release --example replay -- --svg out.svg",
        "cargo run --release -p compare -- soak",
        "cargo test --test no_such_test",
        "cargo add tower-throttle",
        "cargo install tower-throttle",
        "make",
    ] {
        assert!(!lists.contain("docs/a.md", wrong), "{wrong}");
    }
    assert!(lists.contain("README.md", "cargo add tower-throttle"));
}

#[test]
fn commands_are_found_in_blocks_and_between_backquotes() {
    let page = "```sh\nmake x   # a remark\n\ncargo add a\n```\n\n`A_B=1 cargo test` and `cargo\nrun` and `cargo` and `x = 1`\n\n```rust\ncargo\n```\n";
    assert_eq!(
        commands(page),
        ["make x", "cargo add a", "A_B=1 cargo test", "cargo run"]
    );
}
