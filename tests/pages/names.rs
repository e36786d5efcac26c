//! Each public name is used in a page or an example, or is in the signature of something that is.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{expect_none, pages, read, root};

/// Names that users meet only in signatures: of methods that return them, or as the bound of what they give.
const IN_SIGNATURES: &[&str] = &[
    // What layers, extractors and responders are made of.
    "AndKeys",
    "BodyLimit",
    "BodyLimitFuture",
    "HeldBody",
    "Http",
    "InFlight",
    "KeepAll",
    "KeepPermits",
    "KeyPair",
    "KeyUpdate",
    "NoRetry",
    "OnDenied",
    "Pacer",
    "PermitBody",
    "Priorities",
    "ResponseFuture",
    "Route",
    "SettleByResponse",
    "SettleByResult",
    "SettleWhen",
    "Silent",
    "Standard",
    "TierFuture",
    "Unwatched",
    "UntilHead",
    "UntilResponse",
    // Bounds, with a message of the compiler for what does not meet them.
    "Bans",
    "CloneService",
    "DenialError",
    "FindKey",
    "Hold",
    "IntoAlgorithm",
    "IntoKey",
    "KeyRef",
    "Mode",
    "ProxiesAreTrusted",
    "ResponseHooks",
    "Setting",
    "TierLimit",
    // States, futures and figures.
    "CalendarWindowState",
    "DenialLockoutState",
    "ExactNanos",
    "FixedWindowState",
    "LockoutState",
    "FallbackFuture",
    "FleetFuture",
    "GcraState",
    "ManualSleep",
    "MonotonicSleep",
    "SlidingGridState",
    "SlidingLogState",
    "SlidingWindowState",
    "WarmUpState",
    // What algorithms count, hidden.
    "Cells",
    "Division",
    "Kernel",
    // Policy files at work.
    "Concurrency",
    "AsInFile",
    "MatchedLimits",
    "PolicyLimiter",
    "PolicyLimits",
    "PolicyService",
    "Problem",
    // Stores.
    "Ahead",
    "BreakerCounts",
    "CasCounts",
    "FleetCounts",
    "Granted",
    "InTable",
    "PerKeyDecision",
    "PerKeyFuture",
    "PooledClient",
    "Replies",
    "Seeded",
    "SeededHasher",
    "Shape",
    "Statements",
    "Sweeps",
];

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

fn is_name(word: &str) -> bool {
    word.starts_with(char::is_uppercase)
}

/// Adds what the module in `file` exports, and its public modules.
fn exported(file: &Path, names: &mut BTreeSet<String>) {
    let source = read(file);
    for list in source.split("\npub use ").skip(1) {
        let list = list.split(';').next().unwrap_or_default();
        names.extend(words(list).filter(|word| is_name(word)).map(str::to_owned));
    }
    for line in source.lines() {
        let kinds = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
        if let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) {
            names.extend(words(rest).next().map(str::to_owned));
        }
        let Some(module) = line
            .strip_prefix("pub mod ")
            .and_then(|rest| rest.strip_suffix(';'))
        else {
            continue;
        };
        let folder = match file.file_stem().and_then(|stem| stem.to_str()) {
            Some("mod" | "lib") => file.parent().expect("a folder").to_owned(),
            _ => file.with_extension(""),
        };
        let [one, many] = [format!("{module}.rs"), format!("{module}/mod.rs")];
        let place = [folder.join(one), folder.join(many)];
        let place = place.iter().find(|place| root().join(place).exists());
        exported(place.expect("the file of a module"), names);
    }
}

/// Adds all sources below `folder`.
fn sources(folder: PathBuf, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The pages of modules and the examples in the documentation.
fn documentation(source: &str) -> String {
    let mut shown = String::new();
    let mut is_code = false;
    for line in source.lines().map(str::trim_start) {
        if let Some(line) = line.strip_prefix("//!") {
            shown += line;
        } else if let Some(line) = line.strip_prefix("///") {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            } else if is_code {
                shown += line;
            }
        }
        shown.push('\n');
    }
    shown
}

#[test]
fn each_public_name_is_shown_or_in_a_signature() {
    let mut names = BTreeSet::new();
    exported(Path::new("src/lib.rs"), &mut names);
    assert!(names.len() > 150, "{names:?}");
    let mut text: String = pages().iter().map(read).collect();
    let mut files = Vec::new();
    sources(root().join("examples"), &mut files);
    text.extend(files.drain(..).map(|file| read(file) + "\n"));
    sources(root().join("src"), &mut files);
    text.extend(files.drain(..).map(|file| documentation(&read(file))));
    let shown: BTreeSet<&str> = words(&text).filter(|word| is_name(word)).collect();

    let mut faults = Vec::new();
    for name in &names {
        match (shown.contains(&**name), IN_SIGNATURES.contains(&&**name)) {
            (false, false) => {
                faults.push(format!("{name} is public, and no page or example shows it"));
            }
            (true, true) => faults.push(format!("{name} is shown: remove it from the list here")),
            _ => {}
        }
    }
    for name in IN_SIGNATURES {
        if !names.contains(*name) {
            faults.push(format!(
                "{name} is not public: remove it from the list here"
            ));
        }
    }
    expect_none(&faults);
}

#[test]
fn an_example_and_the_page_of_a_module_show_names_and_a_comment_does_not() {
    let source = "//! Page\n/// Text\n/// ```\n/// Example\n/// ```\n/// After\npub struct Item;";
    let shown = documentation(source);
    let shown: Vec<_> = words(&shown).filter(|word| is_name(word)).collect();
    assert_eq!(shown, ["Page", "Example"]);
}
