//! Reads TOML, with the lines of all values.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::problem::{Problem, Problems};
use super::tree::{Entry, Node, Value};

/// The value of a whole file.
pub(super) fn parse(text: &str) -> Result<Node, Problems> {
    let lines = Lines::of(text);
    match DeTable::parse(text) {
        Ok(table) => Ok(Node {
            line: Some(1),
            value: lines.table(table.into_inner()),
        }),
        Err(error) => Err(Problems::of(vec![Problem::new(
            "",
            error.span().map(|span| lines.at(&span)),
            error.message().to_owned(),
        )])),
    }
}

/// Where each line ends.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// The line of the beginning of a span, from 1.
    fn at(&self, span: &Range<usize>) -> u32 {
        let before = self.0.partition_point(|end| *end < span.start);
        u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1)
    }

    fn table(&self, table: DeTable<'_>) -> Value {
        let mut entries: Vec<(usize, Entry)> = Vec::new();
        for (name, node) in table {
            let span = name.span();
            let entry = Entry {
                line: Some(self.at(&span)),
                name: name.into_inner().into_owned(),
                node: self.node(node),
            };
            entries.push((span.start, entry));
        }
        // The parser sorts by name; problems are listed in the order of the file.
        entries.sort_by_key(|(start, _)| *start);
        Value::Table(entries.into_iter().map(|(_, entry)| entry).collect())
    }

    fn node(&self, node: Spanned<DeValue<'_>>) -> Node {
        let line = Some(self.at(&node.span()));
        let value = match node.into_inner() {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Boolean(value) => Value::Bool(value),
            DeValue::Integer(integer) => {
                let text = integer.as_str().replace('_', "");
                match i128::from_str_radix(&text, integer.radix()) {
                    Ok(integer) => Value::Integer(integer),
                    Err(_) => Value::Other(text),
                }
            }
            DeValue::Float(float) => Value::Other(float.as_str().to_owned()),
            DeValue::Datetime(moment) => Value::Other(moment.to_string()),
            DeValue::Array(list) => {
                Value::List(list.into_iter().map(|node| self.node(node)).collect())
            }
            DeValue::Table(table) => self.table(table),
        };
        Node { line, value }
    }
}
