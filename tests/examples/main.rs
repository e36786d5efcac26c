//! Every example of the workspace runs and exits without an error.
#![cfg(all(feature = "postgres", feature = "redis"))]

mod list;

use test_support::{postgres_server, redis_server};

use std::{fs, path::Path, time::Duration};

use tokio::{process::Command, time::timeout};

use crate::list::{EXAMPLES, STARTED_BY_TESTS};
use crate::postgres_server::PostgresServer;
use crate::redis_server::RedisServer;

/// What a run may take.
const LIMIT: Duration = Duration::from_secs(120);

const TRACE: &str = r#"{"algorithm": "token_bucket", "limit": 1, "period_ns": 1000000000, "burst": 2}
{"t_ns": 0}
{"t_ns": 0}
{"t_ns": 999999999}
{"t_ns": 1000000000, "op": "check", "n": 1}
"#;

/// Runs a program; `None` if it exits without an error.
async fn fault(program: &Path, arguments: &[String], limit: Duration) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).kill_on_drop(true);
    match timeout(limit, command.output()).await {
        Err(_) => Some(format!("it runs for longer than {limit:?}")),
        Ok(Err(error)) => Some(format!(
            "{error}; `cargo build --bins --examples` builds it"
        )),
        Ok(Ok(output)) => {
            (!output.status.success()).then(|| format!("{}: {output:#?}", output.status))
        }
    }
}

/// The examples in the manifest of a package that no line of `runs` begins with.
fn missing(manifest: &str, runs: &[&str]) -> Vec<String> {
    let sections = manifest.split("[[example]]\nname = \"").skip(1);
    let names = sections.filter_map(|section| section.split('"').next());
    let is_run = |name: &str| runs.iter().any(|run| run.split(' ').next() == Some(name));
    names
        .filter(|name| !is_run(name))
        .map(str::to_owned)
        .collect()
}

/// Shows promise 101.
#[tokio::test]
async fn every_run_exits_without_an_error() {
    let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
    let folder = format!("examples-{}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("trace.jsonl"), TRACE).expect("a file");
    let folder = folder.to_str().expect("UTF-8");
    // `cargo test` builds the examples together with this test.
    let test = std::env::current_exe().expect("the path of this test");
    let built = test.ancestors().nth(2).expect("target/PROFILE/deps/test");
    for run in EXAMPLES {
        let (cargo, arguments) = run.split_once(" -- ").unwrap_or((run, ""));
        let arguments: Vec<_> = arguments
            .split_whitespace()
            .map(|word| {
                word.replace("TMP", folder)
                    .replace("REDIS", &redis.url())
                    .replace("POSTGRES", &postgres.url())
            })
            .collect();
        let name = cargo.split(' ').next().unwrap_or_default();
        let folder = built.join(if name == "quickstart" { "" } else { "examples" });
        let fault = fault(&folder.join(name), &arguments, LIMIT).await;
        assert_eq!(fault, None, "{run}");
    }
}

#[test]
fn every_example_of_the_workspace_is_run() {
    let runs: Vec<_> = EXAMPLES.into_iter().chain(STARTED_BY_TESTS).collect();
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut found = 0;
    for package in fs::read_dir(packages).expect("a folder") {
        let manifest = package.expect("an entry").path().join("Cargo.toml");
        if let Ok(manifest) = fs::read_to_string(manifest) {
            let all = missing(&manifest, &[]).len();
            assert_eq!(all, manifest.matches("[[example]]").count());
            assert_eq!(missing(&manifest, &runs), [""; 0]);
            found += all;
        }
    }
    assert!(found > 20, "{found}");
}
