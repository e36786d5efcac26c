//! Rules about several fields.

use std::collections::BTreeSet;

use super::model::{HeaderValues, Limit, Override, OverrideFor};
use super::problem::Problem;
use super::shape::joined;
use super::tree::Node;
use super::values::KeySource;
use crate::policy::nearest::did_you_mean;
use crate::quota::Plan;

/// Rules about lists and stores: each one is used, and each one that is used is there.
pub(super) fn file(node: &Node, problems: &mut Vec<Problem>) {
    let entries = |name| node.get(name).map_or(&[][..], Node::entries);
    let used_lists: Vec<_> = node
        .tables("limit")
        .filter_map(|(path, node)| {
            let list = node.get("except")?.get("list")?;
            Some((format!("{path}.except.list"), list))
        })
        .chain(
            node.tables("deny")
                .filter_map(|(path, node)| Some((format!("{path}.list"), node.get("list")?))),
        )
        .collect();
    let lists = entries("lists");
    for (path, used) in &used_lists {
        let Some(name) = used.text() else { continue };
        if lists.iter().all(|list| list.name != name) {
            let near = did_you_mean(name, lists.iter().map(|list| &*list.name));
            let message = format!("the list {name:?} is not defined{near}");
            problems.push(Problem::new(&**path, used.line, message));
        }
    }
    for list in lists {
        let path = joined("lists", &list.name);
        if used_lists
            .iter()
            .all(|(_, used)| used.text() != Some(&list.name))
        {
            let message = "no limit and no deny uses this list";
            problems.push(Problem::new(&*path, list.line, message));
        }
        one_of(&list.node, &path, ["cidrs", "file"], problems);
    }
    for store in entries("stores") {
        let path = joined("stores", &store.name);
        let is_used = node
            .tables("limit")
            .any(|(_, limit)| limit.get("store").and_then(Node::text) == Some(&*store.name));
        if store.name == "memory" {
            let message = "memory is the name of the store in this process; give another name";
            problems.push(Problem::new(&*path, store.line, message));
        } else if !is_used {
            let message = "no limit uses this store";
            problems.push(Problem::new(&*path, store.line, message));
        }
        one_of(&store.node, &path, ["redis", "postgres"], problems);
    }
    let matches = node.tables("limit").chain(node.tables("deny"));
    for (path, node) in matches {
        if let Some(matched) = node.get("match") {
            let headers = matched.get("headers");
            if let Some(headers) = headers.filter(|headers| headers.entries().is_empty()) {
                let message = "it has no effect without a header: leave it out";
                problems.push(Problem::new(
                    format!("{path}.match.headers"),
                    headers.line,
                    message,
                ));
            }
            if matched.entries().is_empty() {
                let message = "it has no effect without path, methods or headers: leave it out";
                problems.push(Problem::new(format!("{path}.match"), matched.line, message));
            }
        }
    }
}

/// Exactly one of two fields is there.
fn one_of(node: &Node, path: &str, fields: [&str; 2], problems: &mut Vec<Problem>) {
    let given = fields.iter().filter(|field| node.get(field).is_some());
    if given.count() != 1 {
        let message = format!("give one of {} and {}", fields[0], fields[1]);
        problems.push(Problem::new(path, node.line, message));
    }
}

/// Rules about the fields of one limit: each one has an effect.
pub(super) fn limit(limit: &Limit, node: &Node, problems: &mut Vec<Problem>) {
    let mut report = |field: &str, message: String| {
        problems.push(limit.place.problem(field, message));
    };
    let is_given = |field: &str| node.get(field).is_some();
    let in_memory = limit.store.is_none();
    let in_flight = limit.spec.concurrency().is_some();
    let is_global = limit.keys == [KeySource::Global];

    if node
        .get("limit")
        .is_some_and(|node| node.elements().len() > 1)
        && limit.spec.to_string().contains("concurrency")
    {
        let message = "concurrency has to be a limit of its own, with its own name";
        report("limit", message.to_owned());
    }
    if let Some(term) = limit.spec.repeated() {
        report("limit", format!("{term} is there twice"));
    }
    for (at, key) in limit.keys.iter().enumerate() {
        if limit.keys[..at].contains(key) {
            report("key", format!("{key} is there twice"));
        }
    }
    if limit.keys.len() > 1 && limit.keys.contains(&KeySource::Global) {
        let message = "global has no effect beside another key";
        report("key", message.to_owned());
    }
    if limit.place.has("blocked") && limit.place.has("unlimited") {
        report("unlimited", "give one of blocked and unlimited".to_owned());
    }
    if is_given("missing") && is_global {
        let message = "it has no effect: every request has the key global";
        report("missing", message.to_owned());
    }
    if is_given("on_store_error") && in_memory {
        let message = "it has no effect: a store in memory does not fail";
        report("on_store_error", message.to_owned());
    }
    if is_given("capacity") && !in_memory {
        let message = "it has no effect: only the store memory has a capacity";
        report("capacity", message.to_owned());
    }
    if is_given("capacity") && in_memory && (is_global || in_flight) {
        let why = if in_flight {
            "a limit in flight keeps keys only while they have requests"
        } else {
            "there is one key"
        };
        report("capacity", format!("it has no effect: {why}"));
    }
    if in_flight && !in_memory {
        let message = "concurrency counts the requests of this process; leave the store out";
        report("store", message.to_owned());
    }
    if let Some(other) = limit.spec.beside_lockout().filter(|_| !is_given("failure")) {
        let message = format!(
            "this field is missing: it is about lockout and {other} alike. Write failure = [401, 403] \
             to count failures only, or give {other} a limit of its own to count every request"
        );
        report("failure", message);
    }
    if limit.requests.methods.is_empty() && limit.spec.to_string().contains("on_success=clear") {
        let message = "on_success=clear needs methods, such as methods = \"POST\": each success of a request \
                       that matches would clear the failures, such as a GET of the form";
        report("match", message.to_owned());
    }
    if in_flight && is_given("failure") {
        let message = "it has no effect: a permit is returned whatever the status";
        report("failure", message.to_owned());
    }
    for (at, one) in limit.overrides.iter().enumerate() {
        one_override(limit, at, one, problems);
    }
}

/// Rules about the override at `at` of a limit.
fn one_override(
    limit: &Limit,
    at: usize,
    Override {
        requests,
        limit: other,
    }: &Override,
    problems: &mut Vec<Problem>,
) {
    let mut report = |field: &str, message: &str| {
        problems.push(other.place.problem(field, message));
    };
    let given = ["key", "prefix", "headers"];
    let given = given.iter().filter(|field| other.place.has(field));
    if given.count() != 1 || *requests == OverrideFor::Headers(HeaderValues::default()) {
        report("key", "give one of key, prefix and headers");
    }
    let given = ["limit", "blocked", "unlimited"];
    let given = given.iter().filter(|field| other.place.has(field));
    let has_plan = other.plan != Plan::Default;
    if given.count() != 1 || has_plan == other.place.has("limit") {
        report(
            "limit",
            "give one of limit, blocked = true and unlimited = true",
        );
    } else if has_plan {
        if other.plan == limit.plan {
            report("limit", "it has no effect: so is the limit");
        }
    } else if other.spec.kind() != limit.spec.kind() {
        report(
            "limit",
            &format!("expected {} with other numbers", limit.spec.kind()),
        );
    } else if other.spec == limit.spec && limit.plan == Plan::Default {
        report("limit", "it has no effect: the limit has the same numbers");
    }
    if limit.overrides[..at]
        .iter()
        .any(|before| before.requests == *requests)
    {
        report("key", "an override before is for the same requests");
    }
    let is_text = |key: &KeySource| !matches!(key, KeySource::Global | KeySource::ClientIp(_));
    let by_key = !matches!(requests, OverrideFor::Headers(_));
    if by_key && !matches!(&limit.keys[..], [key] if is_text(key)) {
        let message = "only a limit by one key that is a text has overrides by key: header:NAME, bearer, \
                       matched_path or extension:NAME";
        report("key", message);
    }
}

/// Rules about all limits together.
pub(super) fn limits(limits: &[Limit], problems: &mut Vec<Problem>) {
    let mut names = BTreeSet::new();
    for (at, limit) in limits.iter().enumerate() {
        let before = problems.len();
        for one in limit.with_overrides() {
            if !names.insert(&*one.name) {
                let message = format!("the name {:?} is there twice", one.name);
                problems.push(one.place.problem("name", message));
            }
        }
        if problems.len() > before {
            continue;
        }
        let same = limits[..at].iter().find(|other| {
            other.spec == limit.spec
                && other.plan == limit.plan
                && other.keys == limit.keys
                && other.requests == limit.requests
                && other.except == limit.except
                && other.failure == limit.failure
        });
        if let Some(other) = same {
            let message = format!("{:?} is the same limit for the same requests", other.name);
            problems.push(limit.place.problem("limit", message));
        }
    }
}
