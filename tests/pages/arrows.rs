//! Which module of `src/` may import which, checked by reading the source.
//!
//! A module here is a file or a folder directly under `src/`. Every `crate::module` has to be in
//! the table. Test modules obey it too; `lib.rs` is exempt. Inside a folder no two files import
//! each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

const VOCABULARY: &[&str] = &[
    "quota",
    "decision",
    "receipt",
    "clock",
    "error",
    "sync",
    "telemetry",
];
const PORTS: &[&str] = &["backend", "key", "respond"];

/// Some modules, and the modules each of them may import beside itself.
const ARROWS: &[(&[&str], &[&[&str]])] = &[
    (VOCABULARY, &[VOCABULARY]),
    (&["backend", "key"], &[VOCABULARY]),
    (&["respond"], &[VOCABULARY, &["key"]]),
    (&["client"], &[VOCABULARY, &["key", "respond"]]),
    (&["picture"], &[]),
    (&["algorithm"], &[VOCABULARY, &["picture"]]),
    (
        &["acquire", "denied", "saved"],
        &[VOCABULARY, &["algorithm"]],
    ),
    (
        &["limiter"],
        &[VOCABULARY, &["acquire", "algorithm", "denied", "saved"]],
    ),
    (
        &["store"],
        &[
            VOCABULARY,
            PORTS,
            &["acquire", "algorithm", "denied", "saved"],
        ],
    ),
    (&["queue"], &[VOCABULARY, &["key"]]),
    (
        &["layer"],
        &[VOCABULARY, PORTS, &["algorithm", "saved", "store", "queue"]],
    ),
    (
        &["concurrency"],
        &[VOCABULARY, PORTS, &["store", "queue", "layer"]],
    ),
    (
        &["policy"],
        &[
            VOCABULARY,
            PORTS,
            &["algorithm", "concurrency", "layer", "saved", "store"],
        ],
    ),
    (
        &["accept"],
        &[VOCABULARY, &["key", "algorithm", "concurrency", "store"]],
    ),
    (
        &["stream"],
        &[VOCABULARY, PORTS, &["algorithm", "limiter", "layer"]],
    ),
    (&["testkit"], &[VOCABULARY, PORTS, &["algorithm", "store"]]),
    // Documentation only.
    (&["guide"], &[&["picture"]]),
];

/// A longer file is split by idea.
const MAX_LINES: usize = 600;

/// What is wrong with one file, given its path below `src/`.
fn faults(path: &str, source: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if source.lines().count() > MAX_LINES {
        faults.push(format!("src/{path}: more than {MAX_LINES} lines"));
    }
    if path == "lib.rs" {
        return faults;
    }
    let modules = module_path(path);
    let module = modules[0].as_str();
    let Some((_, allowed)) = ARROWS.iter().find(|(some, _)| some.contains(&module)) else {
        faults.push(format!(
            "src/{path}: the module `{module}` is not in the table"
        ));
        return faults;
    };

    let mut inline = Vec::new(); // the indentation of each inline module around this line
    for (number, line) in (1..).zip(source.lines()) {
        let code = line.split("//").next().unwrap_or_default().trim_end();
        let indent = code.len() - code.trim_start().len();
        if code.ends_with('{') && format!(" {code}").contains(" mod ") {
            inline.push(indent);
        } else if code.trim_start() == "}" && inline.last() == Some(&indent) {
            inline.pop();
        }
        let depth = modules.len() + inline.len();
        if code.contains(&"super::".repeat(depth)) {
            faults.push(format!("src/{path}:{number}: `super::` leaves the module"));
        }
        for (at, found) in code.match_indices("crate::") {
            if code[..at].ends_with(is_name) {
                continue; // a path of another crate, `my_crate::`
            }
            let rest = &code[at + found.len()..];
            let to = rest.split(|c| !is_name(c)).next().unwrap_or_default();
            if to.is_empty() {
                faults.push(format!("src/{path}:{number}: one module per `use`"));
            } else if to != module && !allowed.iter().any(|some| some.contains(&to)) {
                faults.push(format!(
                    "src/{path}:{number}: `{module}` may not import `{to}`"
                ));
            }
        }
    }
    faults
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `store/local/mod.rs` is `store::local`.
fn module_path(path: &str) -> Vec<String> {
    let parts = path.trim_end_matches(".rs").split('/');
    let parts = parts.filter(|part| *part != "mod" && *part != "lib");
    parts.map(str::to_owned).collect()
}

/// The paths in the tree of a `use`, written out.
fn paths(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, list)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![path.trim().to_owned()];
    };
    let list = list.trim_end().trim_end_matches('}');
    let (mut found, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices().chain([(list.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.extend(Some(list[start..at].trim()).filter(|item| !item.is_empty()));
                start = at + 1;
            }
            _ => {}
        }
    }
    let items = found.into_iter().flat_map(paths);
    items
        .map(|path| format!("{}{path}", prefix.trim()))
        .collect()
}

/// The statements that begin with `keyword use`, as absolute paths below the crate.
fn uses(module: &[String], source: &str, public: bool) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for statement in source.split(';') {
        // Attributes and comments may stand before the statement.
        let Some(at) = statement.rfind("use ") else {
            continue;
        };
        let line = statement[..at].lines().last().unwrap_or_default();
        let is_pub = line.trim_start().starts_with("pub");
        // Only the file itself: an inline test module is indented.
        if is_pub != public || !(line.is_empty() || is_pub) {
            continue;
        }
        for path in paths(&statement[at + 4..]) {
            let mut parts: Vec<_> = path.split("::").map(str::to_owned).collect();
            let mut base = module.to_vec();
            match parts[0].as_str() {
                "crate" => base.clear(),
                "self" => {}
                "super" => drop(base.pop()),
                _ => continue,
            }
            parts.remove(0);
            base.extend(parts);
            found.push(base);
        }
    }
    found
}

/// The files that import each other, in pairs.
fn mutual(files: &[(String, String)]) -> Vec<String> {
    let modules: BTreeMap<Vec<String>, &String> = files
        .iter()
        .map(|(path, _)| (module_path(path), path))
        .collect();
    let mut exports = BTreeMap::new(); // a re-exported name, and where it comes from
    for (path, source) in files {
        let module = module_path(path);
        for from in uses(&module, source, true) {
            let name = from.last().expect("a name").clone();
            exports.insert([module.clone(), vec![name]].concat(), from);
        }
    }
    let mut edges = BTreeSet::new();
    for (path, source) in files {
        for mut to in uses(&module_path(path), source, false) {
            while let Some(from) = exports.get(&to) {
                to.clone_from(from);
            }
            while !to.is_empty() && !modules.contains_key(&to) {
                to.pop();
            }
            if let Some(file) = modules.get(&to).filter(|file| **file != path) {
                edges.insert((path, *file));
            }
        }
    }
    let both = edges
        .iter()
        .filter(|(a, b)| a < b && edges.contains(&(b, a)));
    both.map(|(a, b)| format!("src/{a} and src/{b} import each other"))
        .collect()
}

/// Every Rust file below `folder`, as its path below `src/` and its text.
fn files(folder: &Path, below: &str, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry of that folder").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if path.is_dir() {
            files(&path, &format!("{below}{name}/"), found);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).expect("a readable source");
            found.push((format!("{below}{name}"), text));
        }
    }
}

fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    files(&src, "", &mut found);
    assert!(found.iter().any(|(path, _)| path == "lib.rs"));
    found.sort();
    found
}

#[test]
fn modules_import_only_what_they_may() {
    let all: Vec<_> = sources()
        .iter()
        .flat_map(|(path, text)| faults(path, text))
        .collect();
    assert!(all.is_empty(), "\n{}\n", all.join("\n"));
}

#[test]
fn no_two_files_import_each_other() {
    let mut files = sources();
    files.retain(|(path, _)| path != "lib.rs");
    let pairs = mutual(&files);
    assert!(pairs.is_empty(), "\n{}\n", pairs.join("\n"));
}
