//! What a limit adds to a program: bytes of a stripped release build, and crates to compile.
//!
//! The sources of small axum servers are written into the target directory and built there: one
//! without a limit, and servers with one, two and three layers of different types, of this crate
//! and of tower_governor. All are built with cargo's default profile, and with fat LTO in one
//! codegen unit. Each figure is the difference to the server with one layer less.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::row::Effort;

const MOST_LAYERS: usize = 3;

/// The two build profiles, and the most kilobytes that the first layer and each further one may add.
const BUILDS: [Build; 2] = [
    Build {
        profile: "release",
        name: "default",
        goals: Some([400, 150]),
    },
    Build {
        profile: "fat",
        name: "fat LTO",
        goals: None,
    },
];

struct Build {
    profile: &'static str,
    name: &'static str,
    goals: Option<[u64; 2]>,
}

/// A limiter, and the lines that add its layers to `app`, each of another type.
struct Subject {
    name: &'static str,
    feature: &'static str,
    layers: [&'static str; MOST_LAYERS],
}

const OURS: Subject = Subject {
    name: "tower-throttle",
    feature: "throttle",
    layers: [
        "use tower_throttle::{ClientIp, Quota, RateLimitLayer, TokenBucket};
         let limit = TokenBucket::new(Quota::per_second(10).burst(50));
         let app = app.layer(RateLimitLayer::new(ClientIp::peer(), limit));",
        "use tower_throttle::{HeaderKey, SlidingWindow};
         let limit = SlidingWindow::new(Quota::per_minute(100));
         let app = app.layer(RateLimitLayer::new(HeaderKey::new(\"x-api-key\"), limit));",
        "use tower_throttle::FixedWindow;
         let path = |req: &axum::extract::Request| req.uri().path().to_owned();
         let limits = (TokenBucket::new(Quota::per_second(2)), FixedWindow::new(Quota::per_day(9)));
         let app = app.layer(RateLimitLayer::new(path, limits));",
    ],
};

const THEIRS: Subject = Subject {
    name: "tower_governor",
    feature: "governor",
    layers: [
        "use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};
         let limit = GovernorConfigBuilder::default().per_second(1).burst_size(50).finish();
         let app = app.layer(GovernorLayer::new(limit.unwrap()));",
        "use tower_governor::key_extractor::SmartIpKeyExtractor;
         let limit = GovernorConfigBuilder::default().key_extractor(SmartIpKeyExtractor).finish();
         let app = app.layer(GovernorLayer::new(limit.unwrap()));",
        "#[derive(Clone, Debug)]
         struct ByPath;
         impl tower_governor::key_extractor::KeyExtractor for ByPath {
             type Key = String;
             fn extract<T>(
                 &self,
                 req: &axum::http::Request<T>,
             ) -> Result<String, tower_governor::GovernorError> {
                 Ok(req.uri().path().to_owned())
             }
         }
         let limit = GovernorConfigBuilder::default().key_extractor(ByPath).finish();
         let app = app.layer(GovernorLayer::new(limit.unwrap()));",
    ],
};

pub(crate) fn run(effort: &Effort) {
    if let Err(error) = compare(effort) {
        eprintln!("size: {error}");
        std::process::exit(1);
    }
}

fn compare(effort: &Effort) -> io::Result<()> {
    let apps = Apps::write()?;
    for build in &BUILDS {
        if !effort.wants(build.name) {
            continue;
        }
        apps.build(build.profile)?;
        let plain = apps.size(build.profile, "plain")?;
        for (subject, is_ours) in [(&OURS, true), (&THEIRS, false)] {
            let mut before = plain;
            for layers in 1..=MOST_LAYERS {
                let size = apps.size(build.profile, &binary(subject, layers))?;
                let added = size.saturating_sub(before);
                before = size;
                let goals = build.goals.filter(|_| is_ours);
                let goal = goals.map(|goals| goals[usize::from(layers > 1)] * 1_000);
                print(effort, build.name, subject.name, layers, added, goal);
            }
        }
    }
    let without = apps.crates(&[])?;
    for subject in [&OURS, &THEIRS] {
        let with = apps.crates(&[subject.feature])?;
        let added = with.difference(&without).count();
        if effort.json {
            println!("{{\"crates\":\"{}\",\"added\":{added}}}", subject.name);
        } else {
            println!("{:<16} crates added {added:>4}", subject.name);
        }
    }
    Ok(())
}

fn print(
    effort: &Effort,
    build: &str,
    subject: &str,
    layers: usize,
    added: u64,
    goal: Option<u64>,
) {
    if effort.json {
        let goal = goal.map_or("null".to_owned(), |goal| goal.to_string());
        println!(
            "{{\"build\":\"{build}\",\"limiter\":\"{subject}\",\"layer\":{layers},\
             \"bytes\":{added},\"goal\":{goal}}}"
        );
        return;
    }
    let verdict = goal.map_or(String::new(), |goal| {
        let met = if added <= goal { "met" } else { "NOT MET" };
        format!("goal <= {} kB {met}", goal / 1_000)
    });
    let kilobytes = added as f64 / 1e3;
    println!("{subject:<16} {build:<8} layer {layers} adds {kilobytes:>7.1} kB  {verdict}");
}

fn binary(subject: &Subject, layers: usize) -> String {
    format!("{}-{layers}", subject.feature)
}

/// The package that contains all servers.
struct Apps {
    folder: PathBuf,
}

impl Apps {
    fn write() -> io::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .canonicalize()?;
        let folder = root.join("target/size");
        let sources = folder.join("src/bin");
        fs::create_dir_all(&sources)?;
        // The same versions as the other comparisons, which are downloaded already.
        fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
        fs::write(folder.join("Cargo.toml"), manifest(&root))?;
        fs::write(sources.join("plain.rs"), server(&[]))?;
        for subject in [&OURS, &THEIRS] {
            for layers in 1..=MOST_LAYERS {
                let path = sources.join(binary(subject, layers)).with_extension("rs");
                fs::write(path, server(&subject.layers[..layers]))?;
            }
        }
        Ok(Self { folder })
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(arguments).current_dir(&self.folder);
        command
    }

    fn build(&self, profile: &str) -> io::Result<()> {
        let all = format!("{},{}", OURS.feature, THEIRS.feature);
        let status = self
            .cargo(&["build", "--bins", "--profile", profile, "--features", &all])
            .arg("--target-dir")
            .arg(self.folder.join("target"))
            .status()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("cargo build: {status}")))
        }
    }

    fn size(&self, profile: &str, binary: &str) -> io::Result<u64> {
        let path = self.folder.join("target").join(profile).join(binary);
        fs::metadata(path).map(|file| file.len())
    }

    /// The crates that a build with these features compiles, by name and version.
    fn crates(&self, features: &[&str]) -> io::Result<BTreeSet<String>> {
        let output = self
            .cargo(&[
                "tree",
                "--edges",
                "normal,build",
                "--prefix",
                "none",
                "--features",
            ])
            .arg(features.join(","))
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!("cargo tree: {}", output.status)));
        }
        let tree = String::from_utf8_lossy(&output.stdout);
        let lines = tree.lines().filter(|line| !line.is_empty());
        // The version is followed by the folder and by marks of repetition.
        let names = lines.map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "));
        Ok(names.collect())
    }
}

fn manifest(root: &Path) -> String {
    let bins = [&OURS, &THEIRS].map(|subject| {
        (1..=MOST_LAYERS)
            .map(|layers| {
                let (name, feature) = (binary(subject, layers), subject.feature);
                format!("[[bin]]\nname = \"{name}\"\nrequired-features = [\"{feature}\"]\n\n")
            })
            .collect::<String>()
    });
    format!(
        r#"[package]
name = "size"
version = "0.0.0"
edition = "2024"
publish = false

[workspace]

[features]
{ours} = ["dep:tower-throttle"]
{theirs} = ["dep:tower_governor"]

[dependencies]
axum = "0.8"
tokio = {{ version = "1", features = ["full"] }}
tower_governor = {{ version = "0.8", optional = true }}

[dependencies.tower-throttle]
path = "{root}"
features = ["axum"]
optional = true

{bins}[profile.release]
strip = true

[profile.fat]
inherits = "release"
lto = "fat"
codegen-units = 1
"#,
        ours = OURS.feature,
        theirs = THEIRS.feature,
        root = root.display(),
        bins = bins.concat(),
    )
}

fn server(layers: &[&str]) -> String {
    format!(
        r#"#![allow(unused_imports)]

use std::net::SocketAddr;

use axum::{{Router, routing::get}};

#[tokio::main]
async fn main() {{
    let app: Router = Router::new().route("/", get(async || "found"));
    {}
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await.unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await.unwrap();
}}
"#,
        layers.join("\n    ")
    )
}
