//! Mistakes that do not compile, and what the compiler says about them.
//!
//! The first line of each file in `compile_fail/` is `//~` and a text. The file must not compile,
//! and the text must be in the first ten lines of the output.
#![cfg(all(feature = "axum", feature = "redis"))]

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};
use test_support::cargo;

/// How much of an error is read before scrolling.
const LINES: usize = 10;

/// The files of the libraries that this test was built with, by name.
///
/// Cargo is asked, because the folder may hold several builds of one library. It builds none if the variable
/// `TEST_FLAGS` has the flags that this test was built with.
fn libraries() -> BTreeMap<String, PathBuf> {
    let flags =
        env::var("TEST_FLAGS").unwrap_or_else(|_| "-p tower-throttle --all-features".to_owned());
    let output = cargo::cargo()
        .args(["test", "--no-run", "--offline"])
        .args(flags.split_whitespace())
        .args(["--test", "integration", "--message-format=json"])
        .output()
        .expect("cargo can be started");
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    let mut libraries = BTreeMap::new();
    for line in text.lines() {
        let message: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        let is_lib = message["target"]["kind"] == serde_json::json!(["lib"]);
        if message["reason"] != "compiler-artifact" || !is_lib {
            continue;
        }
        let files = message["filenames"].as_array().into_iter().flatten();
        let mut paths = files.filter_map(|file| file.as_str()).map(Path::new);
        if let (Some(name), Some(rlib)) = (
            message["target"]["name"].as_str(),
            paths.find(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "rlib")
            }),
        ) {
            libraries.insert(name.replace('-', "_"), rlib.into());
        }
    }
    libraries
}

/// What the compiler prints about each of these files. They are modules of one crate, as each call of the compiler
/// reads all libraries.
fn errors(files: &[PathBuf]) -> BTreeMap<PathBuf, String> {
    let libraries = libraries();
    let folder = libraries["tower_throttle"].parent().expect("a folder");
    let modules = files.iter().zip(0..).map(|(file, number)| {
        let (allows, file) = ("#[allow(dead_code)]", file.display());
        format!("{allows} #[path = \"{file}\"] mod m{number};\n")
    });
    let main = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mistakes.rs");
    fs::write(
        &main,
        modules
            .chain(["fn main() {}".to_owned()])
            .collect::<String>(),
    )
    .expect("a writable folder");
    let mut rustc = Command::new(env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()));
    rustc
        .args(["--edition=2024", "--crate-type=bin", "--emit=metadata"])
        .args(["--cap-lints=allow", "--error-format=json", "--out-dir"])
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .arg("-L")
        .arg(format!("dependency={}", folder.display()))
        .arg("-L")
        .arg(format!("dependency={}", folder.join("deps").display()));
    for name in ["axum", "http", "hyper", "tonic", "tower", "tower_throttle"] {
        let library = libraries[name].display();
        rustc.arg("--extern").arg(format!("{name}={library}"));
    }
    let output = rustc.arg(main).output().expect("rustc can be started");
    let mut errors = BTreeMap::<_, String>::new();
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        let message: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        let spans = message["spans"].as_array().into_iter().flatten();
        let mut primary = spans.filter(|span| span["is_primary"] == true);
        let file = primary.find_map(|span| span["file_name"].as_str());
        if let (Some(file), Some(text)) = (file, message["rendered"].as_str()) {
            *errors.entry(file.into()).or_default() += text;
        }
    }
    for (file, number) in files.iter().zip(0..) {
        // As a file of its own names its types.
        if let Some(text) = errors.get_mut(file) {
            *text = text.replace(&format!("m{number}::"), "");
        }
    }
    errors
}

/// Types can be named, and the compiler explains common mistakes.
#[test]
fn the_first_lines_of_an_error_say_what_to_write() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile_fail");
    let entries = fs::read_dir(folder).expect("the folder of the mistakes");
    let files = entries.map(|entry| entry.expect("an entry of that folder").path());
    let files: Vec<_> = files.collect();
    let errors = errors(&files);
    let fault = |file: &PathBuf| {
        let source = fs::read_to_string(file).expect("a readable file");
        let first = source.lines().next().unwrap_or_default();
        let sentence = first.strip_prefix("//~ ").expect("`//~ ` and a text");
        let Some(error) = errors.get(file) else {
            return Some(format!("{} compiles", file.display()));
        };
        let head: Vec<_> = error.lines().take(LINES).collect();
        let head = head.join("\n");
        let is_right = head.contains(sentence);
        (!is_right).then(|| format!("{}: {sentence:?} is not in\n{head}", file.display()))
    };
    let faults: Vec<_> = files.iter().filter_map(fault).collect();
    assert!(!files.is_empty());
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n\n"));
}
