//! The fields of one JSON object. Each is taken once, so that unknown fields are found.

use std::time::Duration;

use serde_json::{Map, Value};

/// A JSON object whose fields are taken one by one.
pub(crate) struct Fields {
    left: Map<String, Value>,
    /// Spans are multiplied by this.
    pub(crate) unit: u32,
    /// The names that were looked up, for the error message about an unknown field.
    known: Vec<&'static str>,
}

/// What is wrong with a text: the line within it, and a message.
pub(crate) type Fault = (usize, String);

impl Fields {
    /// Parses one object.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Fault> {
        let value: Value = serde_json::from_slice(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let message = error.to_string();
            let place = format!(" at line {line} column {column}");
            let message = message.strip_suffix(&place).unwrap_or(&message);
            (
                line,
                format!("expected a JSON object: {message} at column {column}"),
            )
        })?;
        // The map keeps only the last of two fields with the same name.
        if members(&value) != colons(text) {
            return Err((1, "expected each field once, found one twice".into()));
        }
        Self::of(value).map_err(|fault| (1, fault))
    }

    pub(crate) fn of(value: Value) -> Result<Self, String> {
        match value {
            Value::Object(left) => Ok(Self {
                left,
                unit: 1,
                known: Vec::with_capacity(8),
            }),
            other => Err(format!("expected a JSON object, found {other}")),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.left.contains_key(name)
    }

    /// Whether a flag is set, without taking it.
    #[cfg(feature = "redis")]
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.left.get(name) == Some(&Value::Bool(true))
    }

    /// A field of any type.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.left.remove(name)
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<String>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(name, "a string", &other)),
        }
    }

    pub(crate) fn number(&mut self, name: &'static str) -> Result<Option<u64>, String> {
        let found = self.take(name);
        match found.as_ref().map(|value| (value, value.as_u64())) {
            None => Ok(None),
            Some((_, Some(number))) => Ok(Some(number)),
            Some((other, None)) => Err(wrong(name, "a whole number from 0 to 2^64 - 1", other)),
        }
    }

    /// A number of nanoseconds.
    pub(crate) fn span(&mut self, name: &'static str) -> Result<Option<Duration>, String> {
        let span = self.number(name)?.map(Duration::from_nanos);
        Ok(span.map(|span| span.saturating_mul(self.unit)))
    }

    pub(crate) fn flag(&mut self, name: &'static str) -> Result<Option<bool>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(wrong(name, "true or false", &other)),
        }
    }

    /// The fields not yet taken, each as `; name=value`.
    pub(crate) fn rest(&self) -> String {
        self.left.iter().fold(String::new(), |text, (name, value)| {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            text + "; " + name + "=" + &value
        })
    }

    /// Refuses fields that were not taken. `whose` is the kind of object, for the message.
    pub(crate) fn end(self, whose: &str) -> Result<(), String> {
        match self.left.keys().next() {
            None => Ok(()),
            Some(unknown) => Err(format!(
                "unknown field {unknown:?}: {whose} has {}",
                self.known.join(", ")
            )),
        }
    }
}

/// The value of a field that must be there.
pub(crate) fn required<T>(name: &str, value: Option<T>) -> Result<T, String> {
    value.ok_or_else(|| format!("{name}: expected this field, it is missing"))
}

pub(crate) fn wrong(name: &str, expected: &str, found: &Value) -> String {
    format!("{name}: expected {expected}, found {found}")
}

/// The number of fields of all objects in `value`.
fn members(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.len() + map.values().map(members).sum::<usize>(),
        Value::Array(list) => list.iter().map(members).sum(),
        _ => 0,
    }
}

/// The number of fields in the text: its colons outside of strings.
fn colons(text: &[u8]) -> usize {
    let (mut count, mut in_string, mut escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            b':' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}
