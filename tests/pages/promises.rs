//! Each promise of `docs/promises.md` is shown by tests, which exist and ran.
//!
//! A promise is a row `| NUMBER | PROMISE | .. |`, and a row without a number an exception to it. A test names what it shows in its documentation,
//! `/// Shows promises 1, 2.`, a fuzz target in that of its file, and a stage of `tests/run` in a comment.
//! `SECURITY.md` refers to promises by their numbers.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
};

/// What shows a promise, as `FILE::TEST`, as the file of a fuzz target, or as `tests/run STAGE`.
type ShownBy = BTreeMap<u32, BTreeSet<String>>;

/// The numbers of the promises, and what is wrong with the rows.
fn numbers(page: &str) -> (BTreeSet<u32>, Vec<String>) {
    let (mut numbers, mut faults) = (BTreeSet::new(), Vec::new());
    let (_, tables) = page.split_once("\n## ").unwrap_or_default();
    for row in tables.lines().filter_map(|line| line.strip_prefix("| ")) {
        let number = row.split(" |").next().unwrap_or_default();
        if number == "no." || row.starts_with("| ") {
            continue;
        }
        match number.parse() {
            Err(_) => faults.push(format!("{row}: no number")),
            Ok(number) if !numbers.insert(number) => {
                faults.push(format!("number {number} is used twice"));
            }
            Ok(_) => {}
        }
    }
    (numbers, faults)
}

/// The numbers in `Shows promises 1, 2.`; `None` if the line says nothing of that kind.
fn tag(line: &str) -> Option<Result<Vec<u32>, String>> {
    let comment = ["/// ", "//! ", "# "];
    let text = comment
        .iter()
        .find_map(|start| line.trim_start().strip_prefix(start))?;
    let list = text
        .strip_prefix("Shows promises ")
        .or_else(|| text.strip_prefix("Shows promise "))?;
    let numbers = list.strip_suffix('.').unwrap_or("no full stop").split(", ");
    let numbers: Result<_, _> = numbers.map(str::parse).collect();
    Some(numbers.map_err(|_| line.trim().to_owned()))
}

/// Adds what the file `path` shows. Returns the faults of its tags.
fn collect(path: &str, text: &str, shown: &mut ShownBy) -> Vec<String> {
    let mut faults = Vec::new();
    let mut open = Vec::new();
    let mut is_test = false;
    for line in text.lines() {
        let name = match tag(line) {
            Some(Err(wrong)) => {
                faults.push(format!("{path}: {wrong}"));
                continue;
            }
            Some(Ok(numbers)) => {
                open = numbers;
                if !line.starts_with("//! ") {
                    continue;
                }
                Some(path.to_owned())
            }
            None => match named(path, line.trim_start(), &mut is_test) {
                None => continue,
                name => name,
            },
        };
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            if !open.is_empty() {
                faults.push(format!("{path}: promises {open:?} above no test"));
                open.clear();
            }
            continue;
        };
        for number in open.drain(..) {
            shown.entry(number).or_default().insert(name.clone());
        }
    }
    if !open.is_empty() {
        faults.push(format!("{path}: promises {open:?} above nothing"));
    }
    faults
}

/// The name of the test, or of the stage, that begins in this line: empty if it is another function.
fn named(path: &str, line: &str, is_test: &mut bool) -> Option<String> {
    if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
        *is_test = true;
    }
    if let Some((stage, _)) = line
        .strip_prefix("stage_")
        .and_then(|line| line.split_once("()"))
    {
        return Some(format!("{path} {stage}"));
    }
    let (before, after) = line.split_once("fn ")?;
    if !["", "async ", "pub ", "pub async "].contains(&before) {
        return None;
    }
    let name = after.split(['(', '<']).next().unwrap_or_default();
    let is_test = std::mem::take(is_test);
    Some(if is_test {
        format!("{path}::{name}")
    } else {
        String::new()
    })
}

/// What is wrong with the page, and with the tags of these files; and what shows each promise.
fn check<'a>(
    page: &str,
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> (Vec<String>, ShownBy) {
    let (numbers, mut faults) = numbers(page);
    let mut shown = ShownBy::new();
    for (path, text) in files {
        faults.extend(collect(path, text, &mut shown));
    }
    let missing = numbers.iter().filter(|number| !shown.contains_key(number));
    faults.extend(missing.map(|number| format!("promise {number} is shown by no test")));
    let unknown = shown.iter().filter(|(number, _)| !numbers.contains(number));
    faults.extend(
        unknown.map(|(number, names)| format!("no promise {number}, which {names:?} show")),
    );
    (faults, shown)
}

/// The tests that a log of `cargo test` says passed: `FILE::PATH`, where the file is the root of the
/// test binary.
fn passed(log: &str) -> BTreeSet<String> {
    let mut binary = "";
    let mut passed = BTreeSet::new();
    for line in log.lines() {
        if let Some(running) = line.trim_start().strip_prefix("Running ") {
            let path = running.strip_prefix("unittests ").unwrap_or(running);
            // The package `models` builds the library by this path.
            let path = path.split(" (").next().unwrap_or_default();
            binary = path.trim_start_matches("../");
        } else if let Some(result) = line.strip_prefix("test ") {
            if let Some(name) = result.strip_suffix(" ... ok") {
                let path = name.strip_suffix(" - should panic").unwrap_or(name);
                passed.insert(format!("{binary}::{path}"));
            }
        }
    }
    passed
}

/// Whether the test `FILE::TEST` is among those that passed.
fn ran(name: &str, passed: &BTreeSet<String>) -> bool {
    let Some((file, test)) = name.split_once("::") else {
        return true; // a fuzz target or a stage; the stages that ran have passed
    };
    let file = file.strip_suffix(".rs").unwrap_or(file);
    let starts = if let Some(modules) = file.strip_prefix("src/") {
        vec![format!("src/lib.rs::{}", module_path(modules))]
    } else if let Some((_, name)) = file
        .strip_prefix("examples/")
        .and_then(|at| at.split_once('/'))
        .filter(|(_, name)| !name.contains('/'))
    {
        // The package of an example names its tests by a path of its own: a test target, or a module of
        // its library.
        vec![format!("{name}.rs::"), format!("lib.rs::{name}::")]
    } else {
        let at = file.rfind("tests/").unwrap_or_default();
        vec![match file[at + "tests/".len()..].split_once('/') {
            // A macro puts the tests of the suite into the module of each store.
            Some((binary, modules)) if modules.starts_with("suite/") => {
                format!("tests/{binary}/main.rs::")
            }
            Some((binary, modules)) => {
                format!("tests/{binary}/main.rs::{}", module_path(modules))
            }
            None => format!("{}.rs::", &file[at..]),
        }]
    };
    let after = |passed: &String| {
        let rest = starts.iter().find_map(|start| passed.strip_prefix(start));
        rest.is_some_and(|rest| rest == test || rest.ends_with(&format!("::{test}")))
    };
    passed.iter().any(after)
}

/// The path of the module in a file, with `::` at its end if it is not the root.
fn module_path(file: &str) -> String {
    let file = file.strip_suffix("main").unwrap_or(file);
    let file = file.strip_suffix("/mod").unwrap_or(file);
    if file.is_empty() {
        return String::new();
    }
    file.replace('/', "::") + "::"
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files that may show a promise: all of Rust but this one, and the script of the stages.
fn files() -> Vec<(String, String)> {
    let mut files = vec![("tests/run".to_owned(), page("tests/run"))];
    let folders = ["src", "tests", "examples", "fuzz/fuzz_targets"];
    let mut folders = folders.map(str::to_owned).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.file_type().expect("a type").is_dir() {
                if !path.ends_with("/target") {
                    folders.push(path);
                }
            } else if path
                .strip_suffix(".rs")
                .is_some_and(|path| path != "tests/pages/promises")
            {
                let text = page(&path);
                files.push((path, text));
            }
        }
    }
    files
}

fn checked() -> (Vec<String>, ShownBy) {
    let files = files();
    let files = files.iter().map(|(path, text)| (&path[..], &text[..]));
    check(&page("docs/promises.md"), files)
}

#[test]
fn every_promise_is_shown_by_a_test_and_every_test_shows_one_that_exists() {
    let (faults, shown) = checked();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(shown.len() > 100, "{} promises", shown.len());
}

#[test]
fn the_page_on_security_refers_to_promises_that_exist() {
    let (numbers, _) = numbers(&page("docs/promises.md"));
    let security = page("SECURITY.md");
    let lines = security.lines().filter(|line| line.starts_with("Promise"));
    let mut count = 0;
    for line in lines {
        let words = line.split(|letter: char| !letter.is_ascii_digit());
        for number in words.filter_map(|word| word.parse().ok()) {
            assert!(numbers.contains(&number), "{line}");
            count += 1;
        }
    }
    assert!(count > 25, "{count} promises");
}

#[test]
#[ignore = "tests/run runs it after all stages with tests"]
fn every_named_test_ran() {
    let log = env::var("TESTS_RAN").expect("the file with what `cargo test` printed");
    let passed = passed(&fs::read_to_string(log).expect("a readable log"));
    let (_, shown) = checked();
    let missing: BTreeSet<_> = shown
        .into_values()
        .flatten()
        .filter(|name| !ran(name, &passed))
        .collect();
    assert!(missing.is_empty(), "these tests did not run: {missing:#?}");
}
