//! The crate as it would be published: the files in it, and new packages that depend on it. `tests/run package` runs
//! these tests: they ask the registry for versions.

use std::{collections::BTreeSet, fs, path::Path, process::Command};
use test_support::cargo;

/// What the command prints.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:#?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Runs these commands of cargo in a new package with this code.
fn in_new_package(name: &str, code: &str, commands: &[&str]) {
    let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    let test = std::env::current_exe().expect("the path of this test");
    let target = test.ancestors().nth(3).expect("target/PROFILE/deps/test");
    run(cargo::cargo()
        .args(["init", "--bin", "--vcs", "none", "--name", name])
        .arg(&folder));
    fs::write(folder.join("src/main.rs"), code).expect("a file");
    for command in commands {
        let words = command.split_whitespace().map(|word| match word {
            "PATH" => env!("CARGO_MANIFEST_DIR"),
            word => word,
        });
        // `-Z` needs a nightly toolchain, or the stable one told to accept it.
        let bootstrap = if command.contains("-Z") { "1" } else { "0" };
        let mut cargo = cargo::cargo();
        cargo
            .env("RUSTC_BOOTSTRAP", bootstrap)
            .env("CARGO_TARGET_DIR", target);
        run(cargo.args(words).current_dir(&folder));
    }
    fs::remove_dir_all(folder).expect("the folder of the package");
}

/// A block of code in this language in the README.
fn block(language: &str, number: usize) -> &'static str {
    let block = include_str!("../README.md")
        .split(&format!("```{language}\n"))
        .nth(number + 1);
    block
        .and_then(|rest| rest.split("```").next())
        .expect("a block")
}

/// The programs of the README, with a `main` each, and the commands above them.
#[test]
fn the_programs_of_the_readme_work_in_a_new_package() {
    for (number, language) in ["rust,no_run", "rust,ignore"].into_iter().enumerate() {
        works_in_a_new_package(block("sh", number), block(language, 0));
    }
}

fn works_in_a_new_package(commands: &str, code: &str) {
    let commands: Vec<_> = commands
        .lines()
        .map(|line| {
            let command = line.strip_prefix("cargo ").expect("a command of cargo");
            command.replace("add tower-throttle", "add tower-throttle --path PATH")
        })
        .collect();
    assert!(
        commands[0].contains("--path"),
        "{commands:?} do not begin with the crate"
    );
    let commands = commands.iter().map(String::as_str).chain(["check"]);
    in_new_package("readme", code, &commands.collect::<Vec<_>>());
}

/// Not with axum, tonic or redis: the oldest versions of what they depend on do not compile.
#[test]
fn the_oldest_versions_of_the_dependencies_compile() {
    let add = "add tower-throttle --path PATH --features metrics,serde,tracing";
    in_new_package(
        "oldest",
        "fn main() {}",
        &[add, "update -Z minimal-versions", "check"],
    );
}

/// Tests, models and photographs of pages, which no program needs.
fn is_left_out(file: &str) -> bool {
    let ends = ["/tests.rs", "/exhaustive.rs", "png"];
    let folders = [
        "/tests/",
        "/loom_models",
        "/fleet/simulation/",
        "/redis/differential/",
    ];
    ends.iter().any(|end| file.ends_with(end)) || folders.iter().any(|part| file.contains(part))
}

/// What is missing from the list of files, and what does not belong in it.
fn faults<'a>(packed: &BTreeSet<&'a str>, needed: &BTreeSet<&'a str>) -> Vec<&'a str> {
    let may_be_packed = |file: &str| {
        ["src/", "docs/"]
            .iter()
            .any(|folder| file.starts_with(folder))
            || ["benches/decide.rs", ".cargo_vcs_info.json"].contains(&file)
            || !file.contains('/') && file.starts_with(|first: char| first.is_ascii_uppercase())
    };
    let foreign = packed
        .iter()
        .filter(|file| is_left_out(file) || !may_be_packed(file));
    needed.difference(packed).chain(foreign).copied().collect()
}

#[test]
fn the_package_holds_the_right_files() {
    let list = ["package", "-p", "tower-throttle", "--list", "--allow-dirty"];
    let packed = run(cargo::cargo().args(list));
    let packed: BTreeSet<_> = packed.lines().collect();
    let mut git = Command::new("git");
    git.current_dir(env!("CARGO_MANIFEST_DIR"));
    let tracked = run(git.args(["ls-files", "src", "docs"]));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let needed = tracked
        .lines()
        .filter(|file| !is_left_out(file) && root.join(file).exists());
    let named = [
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "README.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "src/lib.rs",
    ];
    let needed: BTreeSet<_> = needed.chain(named).collect();
    assert_eq!(faults(&packed, &needed), [""; 0]);
    let (mut foreign, mut missing) = (packed.clone(), packed);
    foreign.extend(["src/key/tests.rs", "tests/run"]);
    assert_eq!(faults(&foreign, &needed), ["src/key/tests.rs", "tests/run"]);
    missing.remove("src/lib.rs");
    assert_eq!(faults(&missing, &needed), ["src/lib.rs"]);
}
