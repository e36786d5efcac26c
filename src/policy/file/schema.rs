//! The JSON schema of a policy file, from the tables by which files are checked.

use std::fmt::Write;

use super::shape::{FILE, Field, Shape};

/// The JSON schema (2020-12) of a policy file, for editors.
///
/// It knows the fields, their types and the form of each text. The rules about several fields, such as
/// that each list is used, are checked only when a file is read. The same text is in
/// `docs/policies.schema.json`.
///
/// ```
/// let schema: serde_json::Value = serde_json::from_str(&tower_throttle::policy::schema()).unwrap();
/// assert_eq!(schema["properties"]["version"]["const"], 1);
/// ```
pub fn schema() -> String {
    let mut writer = Writer {
        text: String::new(),
        depth: 0,
    };
    writer.open('{');
    writer.field("$schema", true);
    writer.string("https://json-schema.org/draft/2020-12/schema");
    writer.field("title", false);
    writer.string("A policy file of tower-throttle");
    writer.table(FILE, Null::Refused);
    writer.close('}');
    writer.text.push('\n');
    writer.text
}

/// Whether a field may be null, which is as if it were left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Null {
    Allowed,
    Refused,
}

struct Writer {
    text: String,
    depth: usize,
}

impl Writer {
    fn open(&mut self, bracket: char) {
        self.text.push(bracket);
        self.depth += 1;
    }

    fn close(&mut self, bracket: char) {
        self.depth -= 1;
        self.line();
        self.text.push(bracket);
    }

    fn line(&mut self) {
        self.text.push('\n');
        self.text.extend((0..self.depth).map(|_| "  "));
    }

    /// Begins a field, which is the `first` of its object or not.
    fn field(&mut self, name: &str, first: bool) {
        if !first {
            self.text.push(',');
        }
        self.line();
        self.string(name);
        self.text.push_str(": ");
    }

    /// The texts here have no control characters.
    fn string(&mut self, text: &str) {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = write!(self.text, "\"{escaped}\"");
    }

    fn strings<'a>(&mut self, texts: impl Iterator<Item = &'a str>) {
        self.text.push('[');
        for (at, text) in texts.enumerate() {
            if at > 0 {
                self.text.push_str(", ");
            }
            self.string(text);
        }
        self.text.push(']');
    }

    /// The fields of a table, in an object that has fields already.
    fn table(&mut self, fields: &[Field], null: Null) {
        self.kind("object", null);
        self.field("additionalProperties", false);
        self.text.push_str("false");
        let required = fields.iter().filter(|field| field.is_required);
        let required: Vec<_> = required.map(|field| field.name).collect();
        if !required.is_empty() {
            self.field("required", false);
            self.strings(required.into_iter());
        }
        self.field("properties", false);
        self.open('{');
        for (at, field) in fields.iter().enumerate() {
            self.field(field.name, at == 0);
            self.open('{');
            self.field("description", true);
            self.string(field.about);
            let null = if field.is_required {
                Null::Refused
            } else {
                Null::Allowed
            };
            self.shape(field.shape, null);
            self.close('}');
        }
        self.close('}');
    }

    /// An object of its own.
    fn alone(&mut self, shape: Shape) {
        let begin = self.text.len();
        self.open('{');
        let fields = self.text.len();
        self.shape(shape, Null::Refused);
        // `shape` writes fields that follow others.
        if self.text[fields..].starts_with(',') {
            self.text.remove(fields);
        }
        self.close('}');
        debug_assert!(self.text.len() > begin, "an object was written");
    }

    fn shape(&mut self, shape: Shape, null: Null) {
        match shape {
            Shape::Bool => self.kind("boolean", null),
            Shape::Number { from, to } => {
                self.kind("integer", null);
                for (name, bound) in [("minimum", from), ("maximum", to)] {
                    self.field(name, false);
                    let _ = write!(self.text, "{bound}");
                }
            }
            Shape::Version => {
                self.field("const", false);
                self.text.push('1');
            }
            Shape::OneOf(words) => {
                self.field("enum", false);
                self.strings(words.iter().copied());
                if null == Null::Allowed {
                    self.text.truncate(self.text.len() - "]".len());
                    self.text.push_str(", null]");
                }
            }
            Shape::Text { pattern, .. } => {
                self.kind("string", null);
                if !pattern.is_empty() {
                    self.field("pattern", false);
                    self.string(pattern);
                }
            }
            Shape::Several(one) => {
                self.begin_any_of(one);
                self.open('{');
                self.field("type", true);
                self.string("array");
                self.field("minItems", false);
                self.text.push('1');
                self.field("items", false);
                self.alone(*one);
                self.close('}');
                self.or_null(null);
                self.close(']');
            }
            Shape::List(one) => {
                self.kind("array", null);
                self.field("items", false);
                self.alone(*one);
            }
            Shape::Table(fields) => self.table(fields, null),
            Shape::Named(one) => {
                self.kind("object", null);
                self.field("additionalProperties", false);
                self.alone(*one);
            }
            Shape::OrNumber(one, other) => {
                self.begin_any_of(one);
                self.alone(*other);
                self.or_null(null);
                self.close(']');
            }
        }
    }

    /// The last of several forms.
    fn or_null(&mut self, null: Null) {
        if null == Null::Allowed {
            self.text.push(',');
            self.line();
            self.open('{');
            self.field("type", true);
            self.string("null");
            self.close('}');
        }
    }

    /// Begins a choice of forms, of which this is the first.
    fn begin_any_of(&mut self, first: &Shape) {
        self.field("anyOf", false);
        self.open('[');
        self.line();
        self.alone(*first);
        self.text.push(',');
        self.line();
    }

    fn kind(&mut self, kind: &str, null: Null) {
        self.field("type", false);
        match null {
            Null::Allowed => self.strings([kind, "null"].into_iter()),
            Null::Refused => self.string(kind),
        }
    }
}
