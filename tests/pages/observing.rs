//! `docs/observing.md` lists every metric and every event, the dashboard shows every metric, and both
//! name no other.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The source files below a folder, without their tests.
fn sources(folder: &Path) -> Vec<String> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a file").path();
        if path.is_dir() {
            sources.extend(sources_of(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            sources.push(fs::read_to_string(path).expect("text"));
        }
    }
    sources
}

fn sources_of(folder: &Path) -> Vec<String> {
    let name = folder.file_name().expect("a name");
    if name == "tests" {
        Vec::new()
    } else {
        sources(folder)
    }
}

fn source() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    sources(&folder)
}

/// The arguments of each call of these macros: the text up to the parenthesis that closes it.
fn calls<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let starts = source.match_indices(name);
    let starts = starts.map(|(at, _)| &source[at + name.len()..]);
    let calls = starts.filter_map(|rest| {
        let (mut depth, mut in_string) = (1, false);
        for (at, byte) in rest.bytes().enumerate() {
            match byte {
                b'"' if !rest[..at].ends_with('\\') => in_string = !in_string,
                b'(' if !in_string => depth += 1,
                b')' if !in_string => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(&rest[..at]);
            }
        }
        None
    });
    calls.collect()
}

/// The texts in quotes.
fn quoted(code: &str) -> Vec<String> {
    let code = code.replace("\\\"", "'");
    let parts = code.split('"').skip(1).step_by(2);
    // A string that goes on in the next line.
    let joined = parts.map(|text| {
        let lines = text.split("\\\n");
        lines.map(str::trim_start).collect::<String>()
    });
    joined.collect()
}

/// Metrics as (name, labels).
fn metrics() -> Vec<(String, Vec<String>)> {
    let mut metrics = Vec::new();
    for source in source() {
        for name in ["counter!(", "gauge!(", "histogram!("] {
            for call in calls(&source, &format!("metrics::{name}")) {
                let mut parts = call.split('"');
                let name = parts.nth(1).expect("a name").to_owned();
                let labels = call.split(" => ").filter_map(|before| {
                    let label = before.strip_suffix('"')?.rsplit('"').next()?;
                    Some(label.to_owned())
                });
                metrics.push((name, labels.collect()));
            }
        }
    }
    assert!(metrics.len() >= 10, "{metrics:?}");
    metrics
}

/// Names of metrics in a text, without the ends that Prometheus gives to histograms.
fn named(text: &str) -> BTreeSet<String> {
    let rest = text.split("tower_throttle_").skip(1);
    let names = rest.map(|rest| {
        let end = rest.find(|c: char| c != '_' && !c.is_ascii_lowercase());
        let name = &rest[..end.unwrap_or(rest.len())];
        let name = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name);
        format!("tower_throttle_{name}")
    });
    names.collect()
}

/// Shows promise 241.
#[test]
fn the_page_lists_every_metric_with_its_labels_and_no_other() {
    let page = read("docs/observing.md");
    let metrics = metrics();
    for (name, labels) in &metrics {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/observing.md has no row for {name}"));
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let listed: Vec<&str> = cells[3]
            .split(", ")
            .map(|one| one.trim_matches('`'))
            .collect();
        assert_eq!(&listed, labels, "the labels of {name}");
    }
    let known: BTreeSet<String> = metrics.into_iter().map(|(name, _)| name).collect();
    assert_eq!(named(&page), known);
}

/// Shows promise 241.
#[test]
fn the_page_lists_every_value_of_a_label() {
    let page = read("docs/observing.md");
    let files = [
        "src/accept/signals/mod.rs",
        "src/layer/signals/mod.rs",
        "src/layer/signals/metrics.rs",
        "src/store/events/measured.rs",
    ];
    let mut values = BTreeSet::new();
    for file in files {
        let code = read(file);
        let code: String = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .filter(|line| !line.contains("reason = ") && !line.contains("feature = "))
            .fold(String::new(), |code, line| code + line + "\n");
        values.extend(quoted(&code));
    }
    let is_value = |text: &&String| {
        text.bytes()
            .all(|byte| byte == b'_' || byte.is_ascii_lowercase())
            && !text.starts_with("tower_throttle_")
    };
    let values: Vec<&String> = values.iter().filter(is_value).collect();
    assert!(values.len() > 15, "{values:?}");
    for value in values {
        assert!(
            page.contains(&format!("`{value}`")),
            "docs/observing.md lacks `{value}`"
        );
    }
}

/// Shows promise 241.
#[test]
fn the_page_lists_every_event_with_its_level() {
    let page = read("docs/observing.md");
    let mut events = 0;
    for source in source() {
        for level in ["error", "warn", "info", "debug", "trace"] {
            for call in calls(&source, &format!("tracing::{level}!(")) {
                let texts = quoted(call);
                assert!(texts.iter().any(|text| text == "tower_throttle"), "{call}");
                let message = texts.last().expect("a message");
                // What stands between placeholders, up to the first full clause.
                let fixed = message.split(['{', '}']).step_by(2);
                let fixed = fixed.map(|part| part.trim_start_matches(": ").trim());
                let fixed = fixed.map(|part| part.split(" (").next().unwrap_or_default());
                let fixed = fixed.max_by_key(|part| part.len()).unwrap_or_default();
                let words: Vec<&str> = fixed.split(' ').take(8).collect();
                let start = words.join(" ");
                let start = start.trim_end_matches([',', ';', ':', '.']);
                let row = page.lines().find(|line| {
                    line.starts_with(&format!("| `{}` |", level.to_uppercase()))
                        && line.contains(start)
                });
                assert!(
                    row.is_some(),
                    "docs/observing.md lacks the {level} event {start:?}"
                );
                events += 1;
            }
        }
    }
    assert!(events > 12, "{events}");
    let rows = page.lines().filter(|line| {
        ["ERROR", "WARN", "INFO", "DEBUG"]
            .iter()
            .any(|level| line.starts_with(&format!("| `{level}` |")))
    });
    assert_eq!(
        rows.count(),
        events,
        "an event of the page is not in the source"
    );
}

/// Shows promise 241.
#[test]
fn the_dashboard_and_the_alerts_name_every_metric_and_no_other() {
    let known: BTreeSet<String> = metrics().into_iter().map(|(name, _)| name).collect();
    let dashboard: Value = serde_json::from_str(&read("docs/grafana.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut shown = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(
            ids.insert(panel["id"].as_u64()),
            "an id is used twice: {panel}"
        );
        for target in panel["targets"].as_array().into_iter().flatten() {
            shown.extend(named(target["expr"].as_str().expect("a query")));
            assert!(
                panel["description"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty())
            );
        }
    }
    assert_eq!(shown, known);

    let page = read("docs/observing.md");
    let alerts = read("docs/alerts.yml");
    assert!(named(&alerts).is_subset(&known));
    let names = |text: &str, start: &str| -> BTreeSet<String> {
        let lines = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix(start));
        lines
            .filter_map(|rest| rest.split(['`', ' ']).next())
            .filter(|name| name.starts_with("Throttle") || start.contains("alert"))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(names(&page, "| `"), names(&alerts, "- alert: "));
}
