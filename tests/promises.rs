//! `docs/promises.md` names tests that exist and that ran.
//!
//! A promise begins with a heading `### NUMBER. TITLE`. The lines of its list that begin with a
//! backquote name what shows it: `FILE::TEST`, a fuzz target `fuzz/fuzz_targets/NAME.rs`, or a stage
//! `tests/run STAGE`. `SECURITY.md` names tests in the same way.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
};

const PAGES: [&str; 2] = ["docs/promises.md", "SECURITY.md"];

/// A promise: its number, and what shows it.
#[derive(Debug, Default)]
struct Promise {
    number: u32,
    shown_by: Vec<String>,
}

fn promises(page: &str) -> Vec<Promise> {
    let mut promises = Vec::<Promise>::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            let number = heading.split_once(". ").map_or("", |(number, _)| number);
            promises.push(Promise {
                number: number.parse().unwrap_or_default(),
                shown_by: Vec::new(),
            });
        } else if let (Some(name), Some(promise)) = (shown_by(line), promises.last_mut()) {
            promise.shown_by.push(name.to_owned());
        }
    }
    promises
}

/// What a line of a list names.
fn shown_by(line: &str) -> Option<&str> {
    line.strip_prefix("- `")?.strip_suffix('`')
}

/// What is wrong with the page, given the text of a file of the tree.
fn faults(page: &str, read: &impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut numbers = BTreeSet::new();
    for Promise { number, shown_by } in promises(page) {
        if number == 0 {
            faults.push("a heading of level three has no number".to_owned());
        } else if !numbers.insert(number) {
            faults.push(format!("number {number} is used twice"));
        }
        if shown_by.is_empty() {
            faults.push(format!("promise {number} names no test"));
        }
    }
    for line in page.lines() {
        if line.starts_with("- `") && shown_by(line).is_none() {
            faults.push(format!("{line}: more than a name"));
        }
    }
    for name in page.lines().filter_map(shown_by) {
        if !exists(name, read) {
            faults.push(format!("`{name}` is no test, fuzz target or stage"));
        }
    }
    faults
}

fn exists(name: &str, read: &impl Fn(&str) -> Option<String>) -> bool {
    if let Some(stage) = name.strip_prefix("tests/run ") {
        let script = read("tests/run").unwrap_or_default();
        return script.contains(&format!("\nstage_{stage}() {{"));
    }
    match name.split_once("::") {
        Some((file, test)) => read(file).is_some_and(|source| has_test(&source, test)),
        None => name.starts_with("fuzz/fuzz_targets/") && read(name).is_some(),
    }
}

/// Whether `source` has a function of this name below a `#[test]` or `#[tokio::test]`.
fn has_test(source: &str, name: &str) -> bool {
    let mut is_test = false;
    for line in source.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((before, after)) = line.split_once("fn ") {
            let signature = ["", "async ", "pub ", "pub async "].contains(&before);
            if signature && is_test && after.split(['(', '<']).next() == Some(name) {
                return true;
            }
            is_test = false;
        }
    }
    false
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
            Some((binary, "suite/mod")) => format!("tests/{binary}/main.rs::"),
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

fn read(path: &str) -> Option<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).ok()
}

fn page(path: &str) -> String {
    read(path).unwrap_or_else(|| panic!("{path} cannot be read"))
}

#[test]
fn every_promise_has_a_number_and_names_tests_that_exist() {
    for path in PAGES {
        let faults = faults(&page(path), &read);
        assert!(faults.is_empty(), "{path}:\n{}", faults.join("\n"));
    }
    let promises = promises(&page(PAGES[0]));
    assert!(promises.len() > 50, "{} promises", promises.len());
}

#[test]
#[ignore = "tests/run runs it after all stages with tests"]
fn every_named_test_ran() {
    let log = env::var("TESTS_RAN").expect("the file with what `cargo test` printed");
    let passed = passed(&fs::read_to_string(log).expect("a readable log"));
    let missing: Vec<String> = PAGES
        .into_iter()
        .flat_map(|path| {
            let page = page(path);
            let names: Vec<_> = page.lines().filter_map(shown_by).collect();
            let missing = names.into_iter().filter(|name| !ran(name, &passed));
            missing
                .map(|name| format!("{path}: {name}"))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(
        missing.is_empty(),
        "these tests did not run:\n{}",
        missing.join("\n")
    );
}

#[test]
fn a_wrong_name_a_repeated_number_and_a_missing_test_are_found() {
    let files = BTreeMap::from([
        ("tests/a.rs", "#[test]\nfn right() {}\n\nfn helper() {}\n"),
        ("tests/run", "\nstage_msrv() {\n"),
    ]);
    let read = |path: &str| files.get(path).map(|&text| text.to_owned());
    let right = "### 1. One\n- `tests/a.rs::right`\n- `tests/run msrv`\n";
    assert_eq!(faults(right, &read), [""; 0]);
    for (wrong, fault) in [
        (
            "### 1. One\n- `tests/a.rs::wrong`",
            "`tests/a.rs::wrong` is no test",
        ),
        (
            "### 1. One\n- `tests/a.rs::helper`",
            "`tests/a.rs::helper` is no test",
        ),
        (
            "### 1. One\n- `tests/b.rs::right`",
            "`tests/b.rs::right` is no test",
        ),
        (
            "### 1. One\n- `tests/run wasm`",
            "`tests/run wasm` is no test",
        ),
        (
            "### 1. One\n- `fuzz/fuzz_targets/x.rs`",
            "`fuzz/fuzz_targets/x.rs` is no",
        ),
        (
            "### 1. One\n- `tests/a.rs::right`\n- `tests/a.rs::right`, and",
            "more than a name",
        ),
        ("### 1. One\n\ntext", "promise 1 names no test"),
        ("### One\n- `tests/a.rs::right`", "has no number"),
        (
            "### 1. One\n- `tests/a.rs::right`\n### 1. Two\n- `tests/a.rs::right`",
            "number 1 is used twice",
        ),
    ] {
        let found = faults(wrong, &read);
        assert_eq!(found.len(), 1, "{wrong}: {found:?}");
        assert!(found[0].contains(fault), "{wrong}: {found:?}");
    }
}

#[test]
fn a_test_that_did_not_run_is_found() {
    let log = "\
     Running unittests src/lib.rs (target/debug/deps/tower_throttle-1)
test store::local::hash::tests::one ... ok
     Running tests/stores/main.rs (target/debug/deps/stores-2)
test flood::two ... ok
test three ... ok
test flood::ignored ... ignored
test flood::failed ... FAILED
     Running tests/gcra.rs (target/debug/deps/gcra-3)
test four ... ok
     Running unittests ../../src/lib.rs (target/loom/release/deps/tower_throttle-4)
test queue::loom_models::loom_five ... ok
";
    let passed = passed(log);
    for name in [
        "src/store/local/hash.rs::one",
        "tests/stores/flood.rs::two",
        "tests/stores/main.rs::three",
        "tests/gcra.rs::four",
        "src/queue/loom_models.rs::loom_five",
        "fuzz/fuzz_targets/ops.rs",
    ] {
        assert!(ran(name, &passed), "{name}");
    }
    for name in [
        "src/store/local/hash.rs::two",
        "src/store/local/spill.rs::one",
        "tests/stores/flood.rs::three",
        "tests/stores/flood.rs::ignored",
        "tests/stores/flood.rs::failed",
        "tests/queue/flood.rs::two",
        "tests/gcra.rs::two",
    ] {
        assert!(!ran(name, &passed), "{name}");
    }
}

#[test]
fn a_test_that_ran_is_found_by_its_file() {
    let passed = passed(
        "     Running unittests lib.rs (target/a)\n\
         test chart::tests::depth ... ok\n\
         \x20    Running unittests src/lib.rs (target/b)\n\
         test queue::line::tests::order ... ok\n\
         \x20    Running tests/layer/main.rs (target/c)\n\
         test keys::one ... ok\n\
         test keys::two ... FAILED\n\
         \x20    Running tests/conformance/main.rs (target/d)\n\
         test redis::tls::decides ... ok\n",
    );
    let named = |name: &str| ran(name, &passed);
    assert!(named("examples/replay/chart.rs::depth"));
    assert!(named("src/queue/line/tests.rs::order"));
    assert!(named("tests/layer/keys.rs::one"));
    assert!(named("tests/conformance/suite/mod.rs::decides"));
    for other in [
        "examples/replay/draw.rs::depth",
        "tests/layer/keys.rs::two",
        "tests/queue/keys.rs::one",
        "tests/conformance/suite/mod.rs::tls",
    ] {
        assert!(!named(other), "{other}");
    }
}
