//! Links to files, to headings and to pages of the guide. rustdoc checks links to items.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{expect_none, markdown, pages, read, root};

/// The address of the guide in its published form, as messages of the library name it.
const PUBLISHED: &str = "https://docs.rs/tower-throttle/latest/tower_throttle/guide/";

/// The page of a module of the guide.
fn page_of(module: &str) -> String {
    format!("docs/{module}.md")
}

/// What is wrong with a link in the page at `path`.
fn fault(path: &Path, target: &str) -> Option<String> {
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    };
    let file = if let Some(module) = guide_module(file) {
        PathBuf::from(page_of(module))
    } else if file.contains("://") || file.contains("::") || !file.contains(['.', '/', '#']) {
        // An address, or an item, which rustdoc checks.
        if !file.is_empty() {
            return None;
        }
        path.to_owned()
    } else {
        path.with_file_name(file)
    };
    let Some(text) = contents(&file) else {
        return Some(format!(
            "{}: {target}: there is no such file",
            path.display()
        ));
    };
    let anchor = anchor?;
    let known = markdown::anchors(&text).iter().any(|known| known == anchor);
    (!known).then(|| format!("{}: {target}: there is no such heading", path.display()))
}

/// The name of the page in `crate::guide::NAME` and in its published address.
fn guide_module(target: &str) -> Option<&str> {
    let published = target.strip_prefix(PUBLISHED);
    let published = published.and_then(|rest| rest.strip_suffix("/index.html"));
    published.or_else(|| target.strip_prefix("crate::guide::"))
}

/// The text of a file, or of a folder nothing.
fn contents(path: &Path) -> Option<String> {
    let path = root().join(path);
    match fs::read(&path) {
        Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Err(_) => path.is_dir().then(String::new),
    }
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
    let mut faults = Vec::new();
    let mut links = 0;
    for path in pages() {
        for target in markdown::targets(&read(&path)) {
            links += 1;
            faults.extend(fault(&path, &target));
        }
    }
    assert!(links > 100, "{links}");
    expect_none(&faults);
}

/// The addresses and paths of the guide in the source: in messages and in rustdoc.
#[test]
fn every_link_of_the_source_to_the_guide_leads_to_a_page_and_a_heading() {
    let mut faults = Vec::new();
    let mut folders = vec![PathBuf::from("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder") {
            let path = folder.join(entry.expect("an entry").file_name());
            if root().join(&path).is_dir() {
                folders.push(path);
                continue;
            }
            let text = contents(&path).unwrap_or_default();
            for start in [PUBLISHED, "crate::guide::"] {
                for (at, _) in text.match_indices(start) {
                    let end = |c: char| !(c.is_alphanumeric() || "_-#:/.".contains(c));
                    let target = text[at..].split(end).next().unwrap_or_default();
                    let target = target.trim_end_matches('.');
                    faults.extend(fault(&path, target));
                }
            }
        }
    }
    expect_none(&faults);
}
