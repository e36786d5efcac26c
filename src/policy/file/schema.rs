//! The JSON schema of a policy file, from the tables by which files are checked.

use std::fmt::Write;

use super::shape::{FILE, Field, Shape};
use super::tree::{Node, Value, list, node, table, text};
use crate::policy::kinds::Kind;

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
    let mut members = vec![
        (
            "$schema",
            text("https://json-schema.org/draft/2020-12/schema"),
        ),
        ("title", text("A policy file of tower-throttle")),
    ];
    members.extend(of_table(FILE, false));
    let mut json = String::new();
    print(&mut json, &object(members), 0);
    json.push('\n');
    json
}

type Members = Vec<(&'static str, Node)>;

fn object(members: Members) -> Node {
    table(members.into_iter().map(|(name, node)| (name, Some(node))))
}

fn kind(name: &str, is_nullable: bool) -> Node {
    if is_nullable {
        list([text(name), text("null")])
    } else {
        text(name)
    }
}

fn of_table(fields: &[Field], is_nullable: bool) -> Members {
    let required = fields.iter().filter(|field| field.is_required);
    let required: Vec<_> = required.map(|field| text(field.name)).collect();
    let properties = fields.iter().map(|field| {
        let mut members = vec![("description", text(field.about))];
        // A field that is null is as if it were left out.
        members.extend(of_shape(field.shape, !field.is_required));
        (field.name, object(members))
    });
    let mut members = vec![
        ("type", kind("object", is_nullable)),
        ("additionalProperties", node(Value::Bool(false))),
    ];
    if !required.is_empty() {
        members.push(("required", list(required)));
    }
    members.push(("properties", object(properties.collect())));
    members
}

fn of_shape(shape: Shape, is_nullable: bool) -> Members {
    let alone = |shape: &Shape| object(of_shape(*shape, false));
    let number = |number: u64| node(Value::Integer(number.into()));
    let any_of = |forms: [Node; 2]| {
        let null = is_nullable.then(|| object(vec![("type", text("null"))]));
        vec![("anyOf", list(forms.into_iter().chain(null)))]
    };
    let of_text = |pattern: String| {
        let mut members = vec![("type", kind("string", is_nullable))];
        members.extend((!pattern.is_empty()).then(|| ("pattern", text(pattern))));
        members
    };
    match shape {
        Shape::Bool => vec![("type", kind("boolean", is_nullable))],
        Shape::Number { from, to } => vec![
            ("type", kind("integer", is_nullable)),
            ("minimum", number(from)),
            ("maximum", number(to)),
        ],
        Shape::Version => vec![("const", number(1))],
        Shape::OneOf(words) => {
            let null = is_nullable.then(|| node(Value::Null));
            vec![("enum", list(words.iter().map(text).chain(null)))]
        }
        Shape::Line => {
            let names: Vec<_> = Kind::names().collect();
            of_text(format!("^\\s*({})\\s+[0-9]", names.join("|")))
        }
        Shape::Text { pattern, .. } => of_text(pattern.to_owned()),
        Shape::Several(one) => any_of([
            alone(one),
            object(vec![
                ("type", text("array")),
                ("minItems", number(1)),
                ("items", alone(one)),
            ]),
        ]),
        Shape::List(one) => vec![("type", kind("array", is_nullable)), ("items", alone(one))],
        Shape::Table(fields) => of_table(fields, is_nullable),
        Shape::Named(one) => vec![
            ("type", kind("object", is_nullable)),
            ("additionalProperties", alone(one)),
        ],
        Shape::OrNumber(one, other) => any_of([alone(one), alone(other)]),
    }
}

/// Lists of tables, and tables, have one line per element. The texts here have no control characters.
fn print(json: &mut String, node: &Node, depth: usize) {
    let line = |json: &mut String, depth: usize| {
        json.push('\n');
        json.extend((0..depth).map(|_| "  "));
    };
    let quoted = |text: &str| {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{escaped}\"")
    };
    match &node.value {
        Value::Null => json.push_str("null"),
        Value::Text(text) => json.push_str(&quoted(text)),
        Value::List(nodes) => {
            let is_inline = nodes.iter().all(|node| node.entries().is_empty());
            json.push('[');
            for (at, node) in nodes.iter().enumerate() {
                json.push_str(match at {
                    0 => "",
                    _ if is_inline => ", ",
                    _ => ",",
                });
                if !is_inline {
                    line(json, depth + 1);
                }
                print(json, node, depth + 1);
            }
            if !is_inline {
                line(json, depth);
            }
            json.push(']');
        }
        Value::Table(entries) => {
            json.push('{');
            for (at, entry) in entries.iter().enumerate() {
                json.push_str(if at > 0 { "," } else { "" });
                line(json, depth + 1);
                let _ = write!(json, "{}: ", quoted(&entry.name));
                print(json, &entry.node, depth + 1);
            }
            line(json, depth);
            json.push('}');
        }
        value => {
            let _ = write!(json, "{value}");
        }
    }
}
