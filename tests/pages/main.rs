//! The pages: every link leads somewhere, and those of the guide are as rustdoc shows them.

mod arrows;
mod contributing;
mod links;
mod markdown;
mod promises;
mod rendered;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folders with pages, relative to the root.
const FOLDERS: [&str; 3] = ["", "docs", "examples"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The paths of all pages, relative to the root.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for folder in FOLDERS {
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let name = PathBuf::from(entry.expect("an entry").file_name());
            if name.extension().is_some_and(|extension| extension == "md") {
                pages.push(Path::new(folder).join(name));
            }
        }
    }
    pages.sort();
    assert!(pages.len() > 15, "{pages:?}");
    pages
}

/// Fails with all faults.
#[track_caller]
fn expect_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n\n{}\n", faults.join("\n"));
}
