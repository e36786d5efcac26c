//! What a file holds before it is checked: values with their lines.

use std::fmt::{self, Display};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A value, and the line where it begins if the format reports that.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) line: Option<u32>,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    /// A number that is not whole, a date: allowed nowhere, as text for the message.
    Other(String),
    Text(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// A field of a table.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    /// The line of the name.
    pub(super) line: Option<u32>,
    pub(super) node: Node,
}

impl Node {
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The fields of a table; none of another value.
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The field `name`, if it is there and not null.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let mut entries = self.entries().iter();
        let found = entries.find(|entry| entry.name == name)?;
        Some(&found.node).filter(|node| !matches!(node.value, Value::Null))
    }

    /// The elements of the list `name`, with their paths.
    pub(super) fn tables<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (String, &'a Self)> {
        let list = match self.get(name).map(|node| &node.value) {
            Some(Value::List(list)) => &list[..],
            _ => &[],
        };
        let list = list.iter().enumerate();
        list.map(move |(at, node)| (format!("{name}[{at}]"), node))
    }

    /// The elements of a list, or the value itself.
    pub(super) fn elements(&self) -> &[Self] {
        match &self.value {
            Value::List(nodes) => nodes,
            _ => std::slice::from_ref(self),
        }
    }
}

pub(super) const fn node(value: Value) -> Node {
    Node { line: None, value }
}

pub(super) fn text(value: impl Display) -> Node {
    node(Value::Text(value.to_string()))
}

/// A table of the fields that are there.
pub(super) fn table<'a>(fields: impl IntoIterator<Item = (&'a str, Option<Node>)>) -> Node {
    let fields = fields.into_iter().filter_map(|(name, node)| {
        Some(Entry {
            name: name.to_owned(),
            line: None,
            node: node?,
        })
    });
    node(Value::Table(fields.collect()))
}

pub(super) fn list(nodes: impl IntoIterator<Item = Node>) -> Node {
    node(Value::List(nodes.into_iter().collect()))
}

/// The text as an error message shows it. A URL may hold a password.
pub(super) fn shown(text: &str) -> String {
    if text.contains("://") {
        return "a URL".to_owned();
    }
    format!("{text:?}")
}

/// The value as an error message shows it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("nothing"),
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Other(value) => f.write_str(value),
            Self::Text(text) => f.write_str(&shown(text)),
            Self::List(_) => f.write_str("a list"),
            Self::Table(_) => f.write_str("a table"),
        }
    }
}

/// Reads any value of any format. A field that is there twice is kept twice, for the check.
impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(ValueVisitor)
            .map(|value| Self { line: None, value })
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Other(value.to_string()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<Value, D::Error> {
        Ok(Node::deserialize(value)?.value)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<Value, D::Error> {
        Ok(Node::deserialize(value)?.value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element()? {
            nodes.push(node);
        }
        Ok(Value::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((name, node)) = map.next_entry()? {
            entries.push(Entry {
                name,
                line: None,
                node,
            });
        }
        Ok(Value::Table(entries))
    }
}
