//! Who may import whom: the arrows between the rooms of `src/`, held by reading the source.
//!
//! A room is a file or a folder directly under `src/`. Every `crate::room` must be in the table, so
//! each `use` names one path. Test modules obey too; `lib.rs`, the front door, is exempt. That a
//! line holds one statement, and an inline module closes at its own indentation, is rustfmt's work.

use std::{fs, path::Path};

const VOCABULARY: &[&str] = &["quota", "decision", "clock", "error", "sync"];
const PORTS: &[&str] = &["limiter", "key", "respond"];
const FLOORS: &[&str] = &["algorithm", "lone", "store", "queue", "layer", "http"];

/// Some rooms, and the rooms each of them may import beside itself.
const ARROWS: &[(&[&str], &[&[&str]])] = &[
    (VOCABULARY, &[VOCABULARY]),
    (PORTS, &[VOCABULARY]),
    (&["algorithm"], &[VOCABULARY]),
    (&["lone"], &[VOCABULARY, &["algorithm"]]),
    (&["store"], &[VOCABULARY, PORTS, &["algorithm"]]),
    (&["queue"], &[VOCABULARY]),
    (&["layer"], &[VOCABULARY, PORTS, &["queue"]]),
    (&["http"], &[VOCABULARY, PORTS]),
    (&["handle", "observe"], &[VOCABULARY, PORTS, FLOORS]),
];

/// At this many lines a file is split by idea.
const WALL: usize = 600;

/// The faults of one file, given its path below `src/`.
fn faults(path: &str, source: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if source.lines().count() > WALL {
        faults.push(format!("src/{path}: more than {WALL} lines"));
    }
    if path == "lib.rs" {
        return faults;
    }
    let modules = path.trim_end_matches(".rs").split('/');
    let modules: Vec<_> = modules.filter(|module| *module != "mod").collect();
    let room = modules[0];
    let Some((_, allowed)) = ARROWS.iter().find(|(rooms, _)| rooms.contains(&room)) else {
        faults.push(format!("src/{path}: the room `{room}` is not in the table"));
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
            faults.push(format!("src/{path}:{number}: `super::` leaves the room"));
        }
        for (at, found) in code.match_indices("crate::") {
            if code[..at].ends_with(is_name) {
                continue; // a path of another crate, `my_crate::`
            }
            let rest = &code[at + found.len()..];
            let to = rest.split(|c| !is_name(c)).next().unwrap_or_default();
            if to.is_empty() {
                faults.push(format!(
                    "src/{path}:{number}: one path a `use`, so that each arrow is visible"
                ));
            } else if to != room && !allowed.iter().any(|rooms| rooms.contains(&to)) {
                faults.push(format!(
                    "src/{path}:{number}: `{room}` may not import `{to}`"
                ));
            }
        }
    }
    faults
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
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

#[test]
fn rooms_import_only_what_they_may() {
    let mut found = Vec::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    files(&src, "", &mut found);
    assert!(found.iter().any(|(path, _)| path == "lib.rs"));
    found.sort();
    let all: Vec<_> = found
        .iter()
        .flat_map(|(path, text)| faults(path, text))
        .collect();
    assert!(all.is_empty(), "\n{}\n", all.join("\n"));
}

#[test]
fn a_forbidden_import_is_reported_with_its_line() {
    let wrong = "use crate::quota::Quota;\nuse crate::store::Local;\n";
    let expected = ["src/layer/future.rs:2: `layer` may not import `store`"];
    assert_eq!(faults("layer/future.rs", wrong), expected);
    assert!(faults("handle.rs", wrong).is_empty());
    assert!(faults("store/local/table.rs", wrong).is_empty());
    assert!(faults("lib.rs", wrong).is_empty());
}

#[test]
fn an_import_inside_a_body_or_a_test_module_is_reported() {
    let body = "fn f() {\n    let x = crate::http::g(crate::quota::h());\n}\n";
    let expected = ["src/queue/line.rs:2: `queue` may not import `http`"];
    assert_eq!(faults("queue/line.rs", body), expected);
    let tests = "#[cfg(test)]\nmod tests {\n    use crate::layer::X;\n}\n";
    let expected = ["src/key.rs:3: `key` may not import `layer`"];
    assert_eq!(faults("key.rs", tests), expected);
}

#[test]
fn a_name_re_exported_by_the_front_door_is_not_a_way_around() {
    let wrong = "use crate::TokenBucket;\n";
    let expected = ["src/layer/mod.rs:1: `layer` may not import `TokenBucket`"];
    assert_eq!(faults("layer/mod.rs", wrong), expected);
}

#[test]
fn a_grouped_or_glob_import_is_refused() {
    let expected = ["src/store/mod.rs:1: one path a `use`, so that each arrow is visible"];
    for wrong in ["use crate::{quota, clock};\n", "use crate::*;\n"] {
        assert_eq!(faults("store/mod.rs", wrong), expected);
    }
}

#[test]
fn super_may_not_climb_out_of_the_room() {
    let up = "use super::slot::Slot;\n";
    assert_eq!(
        faults("quota.rs", up),
        ["src/quota.rs:1: `super::` leaves the room"]
    );
    assert_eq!(faults("store/mod.rs", up).len(), 1);
    assert!(faults("store/cell.rs", up).is_empty());
    let tests = "mod tests {\n    use super::*;\n    use super::super::x;\n}\nuse super::y;\n";
    let lines: Vec<_> = faults("quota.rs", tests);
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("src/quota.rs:3") && lines[1].starts_with("src/quota.rs:5"));
}

#[test]
fn comments_and_other_crates_are_no_imports() {
    let right = "//! See [`crate::layer`].\nfn f() {} // not crate::http\nuse my_crate::x;\n";
    assert!(faults("quota.rs", right).is_empty());
}

#[test]
fn a_room_that_is_not_in_the_table_is_refused() {
    let expected = ["src/util.rs: the room `util` is not in the table"];
    assert_eq!(faults("util.rs", ""), expected);
}

#[test]
fn a_file_behind_the_wall_is_refused() {
    assert!(faults("quota.rs", &"\n".repeat(WALL)).is_empty());
    assert_eq!(
        faults("quota.rs", &"\n".repeat(WALL + 1)),
        ["src/quota.rs: more than 600 lines"]
    );
}
