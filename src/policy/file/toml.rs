//! Reads TOML, with the lines of all fields.

use std::mem;

use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue, Deserializer, ValueDeserializer},
};

use super::lines::Lines;
use super::model::PolicyFile;
use super::problem::{Problem, Problems};
use super::read::{checked, read};

impl PolicyFile {
    /// Reads TOML. A problem names its line. A byte order mark is ignored.
    ///
    /// # Errors
    /// The first mistake of each limit, or else those about several parts of the file.
    pub fn from_toml(text: &str) -> Result<Self, Problems> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let ends: Vec<_> = text.match_indices('\n').map(|(end, _)| end).collect();
        let mut file = DeTable::parse(text).map_err(|error| {
            let line = error.span().map(|span| line(&ends, span.start));
            Problem::new("", line, error.message())
        })?;
        let mut lines = Lines::default();
        lines.0.insert(String::new(), 1);
        for (name, value) in file.get_ref() {
            add(
                &mut lines,
                name.get_ref(),
                name.span().start,
                value.get_ref(),
                &ends,
            );
        }
        let limits = match file.get_mut().get_mut("limit").map(Spanned::get_mut) {
            Some(DeValue::Array(limits)) => mem::replace(limits, DeArray::new()),
            _ => DeArray::new(),
        };
        let limits = limits.into_iter().enumerate().map(|(at, limit)| {
            let limit = ValueDeserializer::from(limit);
            read(limit, &format!("limit[{at}]"), &lines)
        });
        let limits = limits.collect();
        let rest = read(Deserializer::from(file), "", &lines);
        checked(rest, limits, lines)
    }
}

/// The line, from 1, of a position in a text whose lines have these ends.
fn line(ends: &[usize], at: usize) -> u32 {
    let before = ends.partition_point(|end| *end < at);
    u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1)
}

/// Adds the value at `path` that begins at `at`, and all in it.
fn add(lines: &mut Lines, path: &str, at: usize, value: &DeValue<'_>, ends: &[usize]) {
    lines.0.insert(path.to_owned(), line(ends, at));
    match value {
        DeValue::Table(table) => {
            for (name, value) in table {
                let below = format!("{path}.{}", name.get_ref());
                add(lines, &below, name.span().start, value.get_ref(), ends);
            }
        }
        DeValue::Array(list) => {
            for (number, value) in list.iter().enumerate() {
                let below = format!("{path}[{number}]");
                add(lines, &below, value.span().start, value.get_ref(), ends);
            }
        }
        _ => {}
    }
}
