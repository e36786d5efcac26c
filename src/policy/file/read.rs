//! Makes the model of a file from its values.

use std::str::FromStr;

use http::{HeaderName, Method, StatusCode};

use super::check;
use super::model::{
    Deny, HeaderValues, Limit, ListSource, NetworksSource, Override, OverrideFor, Place,
    PolicyFile, Requests, StoreSource,
};
use super::problem::{Problem, Problems};
use super::shape::{self, FILE, HEADERS, Shape};
use super::tree::{Node, Value};
use super::values::KeySource;
use crate::key::Missing;
use crate::policy::{pattern::PathPattern, spec::Spec};
use crate::quota::Plan;
use crate::respond::Headers;

impl PolicyFile {
    /// Reads TOML. A problem names its line. A byte order mark is ignored.
    ///
    /// # Errors
    /// All that is wrong with the text.
    #[cfg(feature = "toml")]
    pub fn from_toml(text: &str) -> Result<Self, Problems> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        file(&super::toml::parse(text)?)
    }
}

/// Never implemented: it gives the compiler something to say about `text.parse::<PolicyFile>()`.
#[diagnostic::on_unimplemented(
    message = "a policy file has several formats: write `PolicyFile::from_toml(text)`, or `serde_json::from_str(text)`",
    label = "which format?"
)]
#[expect(unnameable_types, reason = "never implemented")]
pub trait FormatIsNamed<'a> {}

impl FromStr for PolicyFile
where
    for<'a> Self: FormatIsNamed<'a>,
{
    type Err = Problems;

    fn from_str(_: &str) -> Result<Self, Problems> {
        Err(Problems::of(Vec::new()))
    }
}

/// Checks everything, so that a file with several mistakes is corrected once.
pub(super) fn file(node: &Node) -> Result<PolicyFile, Problems> {
    let mut problems = Vec::new();
    shape::check(node, Shape::Table(FILE), "", &mut problems);
    check::file(node, &mut problems);
    let file = model(node, &mut problems);
    if problems.is_empty() {
        return Ok(file);
    }
    Err(Problems::of(problems))
}

/// The parts that have the right shape. The other ones are reported already.
fn model(node: &Node, problems: &mut Vec<Problem>) -> PolicyFile {
    let mut limits = Vec::new();
    for (path, node) in node.tables("limit") {
        if let Some(limit) = limit(&path, node) {
            check::limit(&limit, node, problems);
            limits.push(limit);
        }
    }
    check::limits(&limits, problems);
    let named = |name: &str| {
        let node = node.get(name);
        let entries = node.map_or(&[][..], Node::entries);
        entries.iter().map(|entry| (&entry.name, &entry.node))
    };
    let lists = named("lists")
        .filter_map(|(name, node)| Some((name.clone(), list(&format!("lists.{name}"), node)?)));
    let stores = named("stores")
        .filter_map(|(name, node)| Some((name.clone(), store(&format!("stores.{name}"), node)?)));
    let denies = node.tables("deny").filter_map(|(_, node)| {
        Some(Deny {
            list: node.get("list")?.text()?.to_owned(),
            requests: requests(node),
        })
    });
    PolicyFile {
        lists: lists.collect(),
        stores: stores.collect(),
        denies: denies.collect(),
        limits,
    }
}

/// All elements of a field as what they parse to; `None` if one of them does not.
fn parsed<T>(node: &Node, name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let elements = node.get(name).map_or(&[][..], Node::elements);
    elements.iter().map(|one| parse(one.text()?)).collect()
}

fn spec(node: &Node) -> Option<Spec> {
    let specs = parsed(node, "limit", |text| text.parse::<Spec>().ok())?;
    let mut specs = specs.into_iter();
    let mut spec = specs.next()?;
    specs.for_each(|other| spec.extend(other));
    Some(spec)
}

fn limit(path: &str, node: &Node) -> Option<Limit> {
    let text = |name: &str| node.get(name).and_then(Node::text);
    let spec = spec(node)?;
    let keys = parsed(node, "key", |text| KeySource::parse(text).ok())?;
    let statuses = node.get("failure").map_or(&[][..], Node::elements);
    let failure: Vec<u16> = statuses.iter().filter_map(number).collect();
    let headers = text("headers").and_then(|text| {
        let at = HEADERS.iter().position(|known| *known == text)?;
        FORMS.get(at.checked_sub(1)?).copied()
    });
    let mut limit = Limit {
        name: text("name")?.to_owned(),
        keys,
        missing: node.get("missing").and_then(|node| match &node.value {
            Value::Text(text) if text == "shared" => Some(Missing::Shared),
            Value::Text(text) if text == "skip" => Some(Missing::Skip),
            _ => number::<u16>(node)
                .and_then(|status| StatusCode::from_u16(status).ok())
                .map(Missing::Reject),
        }),
        requests: requests(node),
        except: node
            .get("except")
            .and_then(|except| except.get("list")?.text())
            .map(str::to_owned),
        is_shadow: is_true(node, "shadow"),
        plan: plan(node),
        headers,
        store: text("store")
            .filter(|store| *store != "memory")
            .map(str::to_owned),
        denies_on_store_error: text("on_store_error") == Some("deny"),
        failure: if failure.is_empty() && spec.is_lockout() {
            vec![401, 403]
        } else {
            failure
        },
        capacity: node.get("capacity").and_then(number),
        overrides: Vec::new(),
        place: Place::of(path, node),
        spec,
    };
    let overrides = node.tables("override");
    let overrides =
        overrides.filter_map(|(at, node)| one_override(&format!("{path}.{at}"), node, &limit));
    limit.overrides = overrides.collect();
    Some(limit)
}

fn is_true(node: &Node, name: &str) -> bool {
    matches!(
        node.get(name).map(|node| &node.value),
        Some(Value::Bool(true))
    )
}

fn plan(node: &Node) -> Plan {
    if is_true(node, "blocked") {
        Plan::Blocked
    } else if is_true(node, "unlimited") {
        Plan::Unlimited
    } else {
        Plan::Default
    }
}

fn one_override(path: &str, node: &Node, limit: &Limit) -> Option<Override> {
    let text = |name: &str| node.get(name).and_then(Node::text).map(str::to_owned);
    let requests = match (text("key"), text("prefix")) {
        (Some(key), _) => OverrideFor::Key(key),
        (None, Some(prefix)) => OverrideFor::Prefix(prefix),
        (None, None) => OverrideFor::Headers(header_values(node).unwrap_or_default()),
    };
    let is_one_key = matches!(requests, OverrideFor::Key(_));
    let is_table = limit.store.is_none() && limit.spec.concurrency().is_none();
    Some(Override {
        requests,
        limit: Limit {
            name: text("name")?,
            spec: match node.get("limit") {
                Some(_) => spec(node)?,
                None => limit.spec.clone(),
            },
            plan: plan(node),
            capacity: if is_one_key && is_table {
                Some(1)
            } else {
                limit.capacity
            },
            place: Place::of(path, node),
            ..limit.clone()
        },
    })
}

/// The field `headers`, if it has the right shape.
fn header_values(node: &Node) -> Option<HeaderValues> {
    let fields = node.get("headers")?.entries().iter();
    let values = fields.map(|field| {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let values = field.node.elements().iter();
        let values = values.map(|value| value.text().map(str::to_owned));
        Some((name, values.collect::<Option<_>>()?))
    });
    values.collect::<Option<_>>().map(HeaderValues)
}

/// The forms of headers, in the order of [`HEADERS`] after `none`.
const FORMS: [Headers; 4] = [
    Headers::Draft11,
    Headers::Draft6,
    Headers::XRateLimitDelta,
    Headers::XRateLimitEpoch,
];

/// The name of a form of headers.
pub(super) fn headers_name(headers: Headers) -> &'static str {
    let place = FORMS.iter().position(|form| *form == headers);
    HEADERS[place.map_or(0, |place| place + 1)]
}

fn number<T: TryFrom<i128>>(node: &Node) -> Option<T> {
    match node.value {
        Value::Integer(number) => T::try_from(number).ok(),
        _ => None,
    }
}

fn requests(node: &Node) -> Requests {
    let Some(node) = node.get("match") else {
        return Requests::default();
    };
    let path = |text: &str| PathPattern::parse(text).ok();
    let method = |text: &str| Method::from_bytes(text.as_bytes()).ok();
    Requests {
        paths: parsed(node, "path", path).unwrap_or_default(),
        methods: parsed(node, "methods", method).unwrap_or_default(),
        headers: header_values(node).unwrap_or_default(),
    }
}

fn list(path: &str, node: &Node) -> Option<ListSource> {
    let networks = match node.get("file").and_then(Node::text) {
        Some(file) => NetworksSource::File(file.to_owned()),
        None => NetworksSource::Cidrs(parsed(node, "cidrs", |text| Some(text.to_owned()))?),
    };
    let place = Place::of(path, node);
    Some(ListSource { networks, place })
}

fn store(path: &str, node: &Node) -> Option<StoreSource> {
    let mut kinds = ["redis", "postgres"].into_iter();
    let kind = kinds.find(|kind| node.get(kind).is_some())?;
    Some(StoreSource {
        kind,
        url: node.get(kind)?.text()?.to_owned(),
        deadline_ms: node
            .get("deadline_ms")
            .and_then(number)
            .unwrap_or(StoreSource::DEADLINE_MS),
        place: Place::of(path, node),
    })
}
