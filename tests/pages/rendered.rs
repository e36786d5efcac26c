//! The pages in `docs` are those in `src/guide`, which rustdoc reads, as a forge shows them.

use std::fs;

use crate::{expect_none, markdown, read, root};

/// The page without what only rustdoc understands: hidden lines of examples, and links by paths of items.
fn rendered(page: &str) -> String {
    let mut out = String::new();
    let mut prose = String::new();
    let mut lines = page.lines();
    let labels = labels(page);
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            out.push_str(&without_links(&std::mem::take(&mut prose), &labels));
            let is_rust = is_rust(language);
            let code: Vec<_> = lines
                .by_ref()
                .take_while(|line| *line != "```")
                .filter(|line| !is_rust || !is_hidden(line))
                .collect();
            let language = if is_rust { "rust" } else { language };
            out.extend(["```", language, "\n", &tidy(&code), "\n```\n"]);
        } else if definition(line).is_none() {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    out.push_str(&without_links(&prose, &labels));
    out.trim_end().to_owned() + "\n"
}

fn is_rust(language: &str) -> bool {
    language
        .split(',')
        .all(|word| ["", "rust", "no_run", "compile_fail"].contains(&word))
}

/// A line of an example that rustdoc compiles and does not show.
fn is_hidden(line: &str) -> bool {
    let line = line.trim_start();
    line == "#" || line.starts_with("# ")
}

/// The lines without empty ones at both ends and in a row.
fn tidy(code: &[&str]) -> String {
    let mut text = code.join("\n");
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    text.trim_matches('\n').to_owned()
}

/// The label of a definition `[label]: crate::item`.
fn definition(line: &str) -> Option<&str> {
    let (label, target) = line.strip_prefix('[')?.split_once("]: ")?;
    target.starts_with("crate::").then_some(label)
}

/// What such definitions define, and where it is.
fn labels(page: &str) -> Vec<(String, String)> {
    let lines = page.lines();
    lines
        .filter_map(|line| Some((definition(line)?, line.split_once("]: ")?.1)))
        .map(|(label, target)| (format!("[{label}]"), address(target)))
        .collect()
}

/// The file of a page of the guide, with the heading.
fn in_guide(target: &str) -> Option<String> {
    let page = match target.strip_prefix("crate::store::redis") {
        // `redis.md` is a part of the page of this module.
        Some(heading) if !heading.starts_with(':') => format!("redis{heading}"),
        _ => target.strip_prefix("crate::guide::")?.to_owned(),
    };
    Some(match page.split_once('#') {
        Some((page, heading)) => format!("{page}.md#{heading}"),
        None => format!("{page}.md"),
    })
}

/// The file of a page of the guide, or where the published documentation has an item: it finds the name itself.
fn address(target: &str) -> String {
    const PUBLISHED: &str = "https://docs.rs/tower-throttle/latest/tower_throttle/";

    if let Some(file) = in_guide(target) {
        return file;
    }
    let path = target.strip_prefix("crate::").expect("a path");
    let module = format!("src/{}", path.replace("::", "/"));
    if root().join(&module).is_dir() || root().join(module + ".rs").exists() {
        return format!("{PUBLISHED}{}/index.html", path.replace("::", "/"));
    }
    // A type with its member, or a function, without the modules before it.
    let item = path.find(char::is_uppercase);
    let item = item.or_else(|| path.rfind("::").map(|at| at + 2));
    let name = &path[item.unwrap_or(0)..];
    format!("{PUBLISHED}?go_to_first=true&search={name}")
}

/// Links to pages lead to their files, and links to items to the published documentation.
fn without_links(prose: &str, labels: &[(String, String)]) -> String {
    let mut out = String::new();
    let mut rest = prose;
    while let Some(at) = rest.find("](crate::") {
        let start = opening(&rest[..at]);
        let (target, after) = rest[at + 2..].split_once(')').expect("the end of a link");
        let text = &rest[start + 1..at];
        out.push_str(&rest[..start]);
        out.extend(["[", text, "](", &address(target), ")"]);
        rest = after;
    }
    out.push_str(rest);
    for (label, file) in labels {
        out = out.replace(&format!("]{label}"), &format!("]({file})"));
        let mut parts = out.split(&**label);
        let first = parts.next().unwrap_or_default().to_owned();
        out = parts.fold(first, |text, after| match after.strip_prefix('(') {
            // A link with a target of its own.
            Some(_) => text + label + after,
            None => text + label + "(" + file + ")" + after,
        });
    }
    out
}

/// Where the bracket is that the end of `text` is in.
fn opening(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices().rev() {
        match c {
            ']' => depth += 1,
            '[' if depth == 0 => return at,
            '[' => depth -= 1,
            _ => {}
        }
    }
    panic!("a link without a beginning: {text}")
}

/// `PAGES=write cargo test --test pages` writes them.
#[test]
fn the_pages_in_docs_are_those_of_the_guide() {
    let mut faults = Vec::new();
    let mut pages = 0;
    for entry in fs::read_dir(root().join("src/guide")).expect("a folder") {
        let name = entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("a name");
        let source = read(format!("src/guide/{name}"));
        let page = rendered(&source);
        let path = root().join("docs").join(&name);
        if std::env::var("PAGES").is_ok_and(|pages| pages == "write") {
            fs::write(&path, &page).expect("a writable page");
        }
        if fs::read_to_string(&path).ok().as_ref() != Some(&page) {
            faults.push(format!(
                "docs/{name} differs: PAGES=write cargo test --test pages"
            ));
        }
        if markdown::prose(&page).contains("``") {
            faults.push(format!("docs/{name} has doubled backquotes"));
        }
        if !source.starts_with("# ") {
            faults.push(format!("src/guide/{name} has no title"));
        }
        pages += 1;
    }
    assert!(pages > 15, "{pages}");
    expect_none(&faults);
}
