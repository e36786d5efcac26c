//! Reads a policy file from any format of serde, and writes it.

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::Error,
    ser::{SerializeMap, SerializeSeq},
};

use super::model::{
    Deny, HeaderValues, Limit, ListSource, NetworksSource, Override, OverrideFor, PolicyFile,
    Requests, StoreSource,
};
use super::read::{self, headers_name};
use super::tree::{Node, Value, list, node, table, text};
use crate::key::Missing;
use crate::quota::Plan;

/// All problems are in the message, without lines unless the format adds them.
impl<'de> Deserialize<'de> for PolicyFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(deserializer)?;
        read::file(&node).map_err(D::Error::custom)
    }
}

/// Fields that have their defaults are left out.
impl Serialize for PolicyFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let lists = self.lists.iter();
        let lists = table(lists.map(|(name, list)| (&**name, Some(list_node(list)))));
        let stores = self.stores.iter();
        let stores = table(stores.map(|(name, store)| {
            let deadline = Some(store.deadline_ms).filter(|ms| *ms != StoreSource::DEADLINE_MS);
            let deadline = deadline.map(|ms| node(Value::Integer(ms.into())));
            let fields = [
                (store.kind, Some(text(&store.url))),
                ("deadline_ms", deadline),
            ];
            (&**name, Some(table(fields)))
        }));
        let is_filled = |node: &Node| !node.entries().is_empty();
        table([
            ("version", Some(node(Value::Integer(1)))),
            ("lists", Some(lists).filter(is_filled)),
            ("stores", Some(stores).filter(is_filled)),
            (
                "limit",
                several(self.limits.iter().map(limit_node).collect()),
            ),
            ("deny", several(self.denies.iter().map(deny_node).collect())),
        ])
        .serialize(serializer)
    }
}

fn flag(is_set: bool) -> Option<Node> {
    is_set.then(|| node(Value::Bool(true)))
}

fn several(nodes: Vec<Node>) -> Option<Node> {
    (!nodes.is_empty()).then(|| list(nodes))
}

/// One value alone, several as a list.
fn one_or_list(mut nodes: Vec<Node>) -> Option<Node> {
    match nodes.len() {
        0 => None,
        1 => nodes.pop(),
        _ => Some(list(nodes)),
    }
}

fn list_node(source: &ListSource) -> Node {
    match &source.networks {
        NetworksSource::File(file) => table([("file", Some(text(file)))]),
        NetworksSource::Cidrs(networks) => {
            table([("cidrs", Some(list(networks.iter().map(text))))])
        }
    }
}

fn match_node(requests: &Requests) -> Option<Node> {
    let matched = table([
        (
            "path",
            one_or_list(requests.paths.iter().map(text).collect()),
        ),
        (
            "methods",
            one_or_list(requests.methods.iter().map(text).collect()),
        ),
        ("headers", headers_node(&requests.headers)),
    ]);
    Some(matched).filter(|node| !node.entries().is_empty())
}

fn headers_node(HeaderValues(headers): &HeaderValues) -> Option<Node> {
    let headers = headers.iter().map(|(name, values)| {
        (
            name.as_str(),
            one_or_list(values.iter().map(text).collect()),
        )
    });
    Some(table(headers)).filter(|node| !node.entries().is_empty())
}

fn override_node(Override { requests, limit }: &Override) -> Node {
    let requests = match requests {
        OverrideFor::Key(key) => ("key", Some(text(key))),
        OverrideFor::Prefix(prefix) => ("prefix", Some(text(prefix))),
        OverrideFor::Headers(headers) => ("headers", headers_node(headers)),
    };
    table([
        ("name", Some(text(&limit.name))),
        requests,
        (
            "limit",
            (limit.plan == Plan::Default).then(|| text(&limit.spec)),
        ),
        ("blocked", flag(limit.plan == Plan::Blocked)),
        ("unlimited", flag(limit.plan == Plan::Unlimited)),
    ])
}

fn deny_node(deny: &Deny) -> Node {
    table([
        ("list", Some(text(&deny.list))),
        ("match", match_node(&deny.requests)),
    ])
}

fn limit_node(limit: &Limit) -> Node {
    let number = |number: i128| node(Value::Integer(number));
    let is_default = limit.spec.is_lockout() && limit.failure == [401, 403];
    let failure = limit.failure.iter().filter(|_| !is_default);
    let except = |list| table([("list", Some(text(list)))]);
    table([
        ("name", Some(text(&limit.name))),
        ("limit", Some(text(&limit.spec))),
        ("key", one_or_list(limit.keys.iter().map(text).collect())),
        (
            "missing",
            limit.missing.map(|missing| match missing {
                Missing::Shared => text("shared"),
                Missing::Skip => text("skip"),
                Missing::Reject(status) => number(status.as_u16().into()),
            }),
        ),
        ("match", match_node(&limit.requests)),
        ("except", limit.except.as_ref().map(except)),
        ("shadow", flag(limit.is_shadow)),
        (
            "headers",
            limit.headers.map(|form| text(headers_name(form))),
        ),
        ("store", limit.store.as_ref().map(text)),
        (
            "on_store_error",
            limit.denies_on_store_error.then(|| text("deny")),
        ),
        (
            "failure",
            one_or_list(failure.map(|status| number((*status).into())).collect()),
        ),
        ("capacity", limit.capacity.map(|keys| number(keys.into()))),
        ("blocked", flag(limit.plan == Plan::Blocked)),
        ("unlimited", flag(limit.plan == Plan::Unlimited)),
        (
            "override",
            several(limit.overrides.iter().map(override_node).collect()),
        ),
    ])
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Integer(number) => match u64::try_from(*number) {
                Ok(number) => serializer.serialize_u64(number),
                Err(_) => serializer.serialize_i128(*number),
            },
            Value::Other(text) | Value::Text(text) => serializer.serialize_str(text),
            Value::List(nodes) => {
                let mut list = serializer.serialize_seq(Some(nodes.len()))?;
                for node in nodes {
                    list.serialize_element(node)?;
                }
                list.end()
            }
            Value::Table(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for entry in entries {
                    map.serialize_entry(&entry.name, &entry.node)?;
                }
                map.end()
            }
        }
    }
}
