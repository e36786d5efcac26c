//! What it takes to add an algorithm: a user's own, or one of this crate.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tower_throttle::Quota;
use tower_throttle::testkit::{Promise, check_algorithm};

#[path = "../../examples/tower/own_algorithm.rs"]
mod own_algorithm;

/// Shows promise 18.
#[test]
fn a_custom_algorithm_works_in_a_limiter_a_table_and_a_layer() {
    own_algorithm::main();
}

/// Shows promise 370.
#[test]
fn a_custom_algorithm_keeps_the_laws() {
    let checked = check_algorithm(|quota| {
        let pause = Quota::per(1, quota.period());
        let promise = Promise::AtMostIn(u64::try_from(pause.period().as_nanos()).expect("short"));
        (own_algorithm::Cooldown(pause), promise)
    });
    assert_eq!(checked, Ok(()));
}

#[test]
fn a_custom_algorithm_takes_less_than_60_lines() {
    let source = include_str!("../../examples/tower/own_algorithm.rs");
    let lines = source
        .lines()
        .skip_while(|line| *line != "#[derive(Clone, Debug)]");
    let lines = lines.take_while(|line| !line.starts_with("#[tokio::main"));
    assert!((30..60).contains(&lines.count()));
}

/// All files below `folder`.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The files that name `algorithm` in code that is no test, without those of stores that decide on a server,
/// which need a script or budgets for it.
fn places(algorithm: &str, sources: &[(String, String)]) -> Vec<String> {
    let is_named = |line: &str| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let line = line.trim_start();
        // A comment, or a message to users.
        !line.starts_with("//")
            && !line.starts_with("message = ")
            && !line.starts_with("note = ")
            && !line.starts_with("instead: ")
            && line.split(|c| !is_part(c)).any(|word| word == algorithm)
    };
    let names = |source: &str| {
        let code = source.lines().take_while(|line| {
            !line.starts_with("#[cfg(test)]") && !line.starts_with("#[cfg(all(test")
        });
        code.into_iter().any(is_named)
    };
    let of_stores = ["store/redis/", "store/fleet/shaped.rs"];
    let is_counted = |path: &str| {
        !of_stores.iter().any(|place| path.starts_with(place))
            && !path.ends_with("tests.rs")
            && !path.ends_with("_models.rs")
            && !path.starts_with("guide/")
    };
    let found = sources
        .iter()
        .filter(|(path, source)| is_counted(path) && names(source));
    found.map(|(path, _)| path.clone()).collect()
}

#[test]
fn an_algorithm_is_named_in_five_places() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    files(&src, &mut paths);
    let relative = |path: &PathBuf| {
        let path = path.strip_prefix(&src).expect("below src");
        path.to_string_lossy().replace('\\', "/")
    };
    let mut sources: Vec<_> = paths
        .iter()
        .filter_map(|path| Some((relative(path), fs::read_to_string(path).ok()?)))
        .collect();
    sources.sort();
    for (algorithm, file) in [
        ("FixedWindow", "algorithm/fixed_window.rs"),
        ("CalendarWindow", "algorithm/calendar_window.rs"),
        ("SlidingLog", "algorithm/sliding_log.rs"),
        ("SlidingWindow", "algorithm/sliding_window.rs"),
        ("SlidingGrid", "algorithm/sliding_grid.rs"),
        ("LeakyBucket", "algorithm/leaky_bucket/mod.rs"),
        ("WarmUp", "algorithm/warm_up/mod.rs"),
    ] {
        let rest = [
            "algorithm/any.rs",
            "algorithm/mod.rs",
            "lib.rs",
            "policy/kinds.rs",
        ];
        let mut expected = vec![file];
        expected.extend(rest);
        expected.sort_unstable();
        assert_eq!(places(algorithm, &sources), expected, "{algorithm}");
    }
    // A sixth place is found.
    sources.push((
        "layer/keyed.rs".into(),
        "let bucket = WarmUp::new(quota, span);".into(),
    ));
    assert_eq!(places("WarmUp", &sources).len(), 6);
    sources.push((
        "layer/rate.rs".into(),
        "/// As `WarmUp`.\nlet warm_up = WarmUpState;".into(),
    ));
    assert_eq!(
        places("WarmUp", &sources).len(),
        6,
        "neither a comment nor another name"
    );
}
