//! The crate as it would be published: the files in it, and new packages that depend on it. `tests/run package` runs
//! these tests: they ask the registry for versions.

use std::{
    collections::BTreeSet,
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command},
    thread,
};

use test_support::cargo;

/// What the command prints.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:#?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Runs these commands of cargo in a new package with this code, and then uses its program.
fn in_new_package(name: &str, code: &str, commands: &[&str], use_it: impl FnOnce(&Path)) {
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
    use_it(&target.join("debug").join(name));
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

/// A program, which is stopped at the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().expect("it still runs");
        self.0.wait().expect("it ends");
    }
}

/// Starts a program that listens on this port, and waits until it does.
fn start(command: &mut Command, port: u16) -> Running {
    let mut running = Running(command.spawn().expect("it starts"));
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let ended = running.0.try_wait().expect("its status");
        assert!(ended.is_none(), "{command:?} has ended: {ended:?}");
        thread::yield_now();
    }
    running
}

fn free_port() -> u16 {
    let bound = TcpListener::bind("127.0.0.1:0").expect("a free port");
    bound.local_addr().expect("its address").port()
}

/// The programs of the README, made and started as it says, answer the command below them as it says.
#[test]
fn the_programs_of_the_readme_answer_in_a_new_package_as_it_says() {
    let redis = free_port();
    let arguments = ["--save", "", "--port", &redis.to_string()];
    let _redis = start(Command::new("redis-server").args(arguments), redis);
    for (number, language) in ["rust,no_run", "rust,ignore"].into_iter().enumerate() {
        let port = free_port();
        let code = block(language, 0)
            .replace(":3000", &format!(":{port}"))
            .replace("redis://127.0.0.1", &format!("redis://127.0.0.1:{redis}"));
        let commands = block("sh", number).replace(
            "cargo add tower-throttle",
            "cargo add tower-throttle --path PATH",
        );
        assert!(
            commands.contains("--path"),
            "{commands} does not begin with the crate"
        );
        let commands = commands
            .lines()
            .map(|line| line.strip_prefix("cargo ").expect("cargo"));
        let name = format!("readme-{number}");
        in_new_package(
            &name,
            &code,
            &commands.chain(["build"]).collect::<Vec<_>>(),
            |program| {
                let _service = start(&mut Command::new(program), port);
                answers_as_it_says(block("text", number), port);
            },
        );
    }
}

/// Runs the command of the first line. The other lines are the end of what it prints, but for the time of day.
fn answers_as_it_says(text: &str, port: u16) {
    let without_time = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with("date: "));
        lines.map(|line| line.trim_end().to_owned()).collect()
    };
    let (command, expected) = text.split_once('\n').expect("a command and what it prints");
    let command = command
        .strip_prefix("$ ")
        .expect("a command")
        .replace(":3000", &format!(":{port}"));
    let printed = run(Command::new("sh").args(["-c", &command]));
    assert_eq!(
        without_time(printed.trim_end()),
        without_time(expected.trim_end()),
        "{command}"
    );
}

/// Not with axum, tonic or redis: the oldest versions of what they depend on do not compile.
#[test]
fn the_oldest_versions_of_the_dependencies_compile() {
    let add = "add tower-throttle --path PATH --features governor,metrics,serde,tracing";
    in_new_package(
        "oldest",
        "fn main() {}",
        &[add, "update -Z minimal-versions", "check"],
        |_| (),
    );
}

/// Tests and models, and what stands in `docs` for readers of the repository: no program needs them.
fn is_left_out(file: &str) -> bool {
    let ends = ["/tests.rs", "/exhaustive.rs", ".txt"];
    let folders = [
        "/tests/",
        "/loom_models",
        "/fleet/simulation/",
        "/redis/differential/",
    ];
    let is_embedded = file.ends_with(".svg") || file.ends_with(".schema.json");
    file.starts_with("docs/") && !is_embedded
        || ends.iter().any(|end| file.ends_with(end))
        || folders.iter().any(|part| file.contains(part))
}

/// What is missing from the list of files, and what does not belong in it.
fn faults<'a>(packed: &BTreeSet<&'a str>, needed: &BTreeSet<&'a str>) -> Vec<&'a str> {
    let may_be_packed = |file: &str| {
        file.starts_with("src/")
            || file.starts_with("docs/")
            || file == ".cargo_vcs_info.json"
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
}

#[test]
fn the_package_has_at_most_700_kilobytes() {
    let target = std::env::temp_dir().join(format!("packed-{}", std::process::id()));
    run(cargo::cargo()
        .args([
            "package",
            "-p",
            "tower-throttle",
            "--no-verify",
            "--allow-dirty",
            "--target-dir",
        ])
        .arg(&target));
    let file = format!("package/tower-throttle-{}.crate", env!("CARGO_PKG_VERSION"));
    let packed = fs::metadata(target.join(file)).expect("the package").len();
    assert!((100_000..=700_000).contains(&packed), "{packed} bytes");
    fs::remove_dir_all(target).expect("the folder");
}
