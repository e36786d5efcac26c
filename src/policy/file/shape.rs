//! The fields of a policy file and the values that they take. The check of a file and the schema are
//! made from these tables.

use super::problem::Problem;
use super::tree::{Node, Value};
use super::values;
use crate::policy::{nearest::did_you_mean, spec::Spec};

/// The values that a field takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Number { from: u64, to: u64 },
    /// The number of this version of the format.
    Version,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// The text of a limit.
    Line,
    /// A text that a function checks. The pattern is for editors: it accepts what the function does, and
    /// more.
    Text {
        pattern: &'static str,
        check: fn(&str) -> Result<(), String>,
    },
    /// One value or a list of at least one.
    Several(&'static Self),
    /// A list.
    List(&'static Self),
    /// A table with these fields.
    Table(&'static [Field]),
    /// A table from names to values.
    Named(&'static Self),
    /// The first shape, unless the value is a number.
    OrNumber(&'static Self, &'static Self),
}

/// A field of a table.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) is_required: bool,
    /// For the schema.
    pub(super) about: &'static str,
}

const fn optional(name: &'static str, shape: Shape, about: &'static str) -> Field {
    Field {
        name,
        shape,
        is_required: false,
        about,
    }
}

const fn required(name: &'static str, shape: Shape, about: &'static str) -> Field {
    Field {
        is_required: true,
        ..optional(name, shape, about)
    }
}

const TEXT: Shape = Shape::Text {
    pattern: "",
    check: |_| Ok(()),
};
const NAME: Shape = Shape::Text {
    pattern: "^[A-Za-z0-9._-]{1,64}$",
    check: values::check_name,
};
const KEY: Shape = Shape::Text {
    pattern: "^(global|client_ip(/[0-9]+)?|header:.+|bearer|matched_path|extension:.+)$",
    check: values::check_key,
};
const NETWORK: Shape = Shape::Text {
    pattern: "^!?[0-9A-Fa-f:.]+(/[0-9]+)?$",
    check: values::check_network,
};
const PATH: Shape = Shape::Text {
    pattern: "^/",
    check: values::check_path,
};
const METHOD: Shape = Shape::Text {
    pattern: "^[A-Z0-9!#$%&'*+.^_`|~-]+$",
    check: values::check_method,
};
const HEADER_VALUE: Shape = Shape::Text {
    pattern: ".",
    check: values::check_value,
};
const STATUS: Shape = Shape::Number { from: 400, to: 499 };
const REMOTE: Shape = Shape::Text {
    pattern: "[:=]",
    check: |_| Ok(()),
};

const MATCH: Shape = Shape::Table(&[
    optional(
        "path",
        Shape::Several(&PATH),
        "Paths as in axum's routes: /users/{id}, /api/{*rest}. The limit applies if one matches.",
    ),
    optional(
        "methods",
        Shape::Several(&METHOD),
        "The limit applies to these methods only.",
    ),
    optional(
        "headers",
        HEADER_VALUES,
        "The limit applies to requests that have one of these values in each of these headers.",
    ),
]);

const HEADER_VALUES: Shape = Shape::Named(&Shape::Several(&HEADER_VALUE));

const OVERRIDE: &[Field] = &[
    required("name", NAME, "A name of its own, as of a limit."),
    optional("key", HEADER_VALUE, "The requests whose key is this text."),
    optional(
        "prefix",
        HEADER_VALUE,
        "The requests whose key begins with this text.",
    ),
    optional(
        "headers",
        HEADER_VALUES,
        "The requests that have one of these values in each of these headers.",
    ),
    optional(
        "limit",
        Shape::Several(&Shape::Line),
        "The same algorithms with other numbers.",
    ),
    BLOCKED,
    UNLIMITED,
];

const BLOCKED: Field = optional(
    "blocked",
    Shape::Bool,
    "Each request is denied, and none is counted.",
);
const UNLIMITED: Field = optional(
    "unlimited",
    Shape::Bool,
    "Each request passes, and none is counted.",
);

pub(super) const MISSING: &[&str] = &["shared", "skip"];
pub(super) const ALLOW_OR_DENY: &[&str] = &["allow", "deny"];
pub(super) const HEADERS: &[&str] = &[
    "none",
    "draft-11",
    "draft-6",
    "x-ratelimit",
    "x-ratelimit-epoch",
];

const LIMIT: &[Field] = &[
    required(
        "name",
        NAME,
        "The name in headers, logs, metrics and reports. No two limits share one.",
    ),
    required(
        "limit",
        Shape::Several(&Shape::Line),
        "ALGORITHM LIMIT/PERIOD; OPTION=VALUE; .., such as token_bucket 10/s; burst=50.",
    ),
    required(
        "key",
        Shape::Several(&KEY),
        "What requests are counted by. Several are counted by all of them together.",
    ),
    optional(
        "missing",
        Shape::OrNumber(&Shape::OneOf(MISSING), &STATUS),
        "What happens to requests without the key: they share one limit, are not limited, or are rejected with this status.",
    ),
    optional(
        "match",
        MATCH,
        "The requests that the limit applies to; all unless set.",
    ),
    optional(
        "except",
        Shape::Table(&[required(
            "list",
            NAME,
            "Clients in this list are not limited.",
        )]),
        "Clients that are not limited.",
    ),
    optional(
        "shadow",
        Shape::Bool,
        "Decide and report, and let every request pass.",
    ),
    optional(
        "headers",
        Shape::OneOf(HEADERS),
        "Response headers that state the limit; none unless set.",
    ),
    optional(
        "store",
        NAME,
        "Where usage is stored: memory, a store of this file, or one of the program.",
    ),
    optional(
        "on_store_error",
        Shape::OneOf(ALLOW_OR_DENY),
        "What happens to requests while the store cannot decide.",
    ),
    optional(
        "failure",
        Shape::Several(&Shape::Number { from: 100, to: 599 }),
        "Only responses with these statuses count. 401 and 403 for a lockout unless set.",
    ),
    optional(
        "capacity",
        Shape::Number {
            from: 1,
            to: 100_000_000,
        },
        "How many keys the table in memory holds.",
    ),
    BLOCKED,
    UNLIMITED,
    optional(
        "override",
        Shape::List(&Shape::Table(OVERRIDE)),
        "Other numbers for some keys, or for requests with some headers.",
    ),
];

const DENY: &[Field] = &[
    required("list", NAME, "Clients in this list get status 403."),
    optional(
        "match",
        MATCH,
        "The requests that are denied; all unless set.",
    ),
];

const LIST: &[Field] = &[
    optional(
        "cidrs",
        Shape::Several(&NETWORK),
        "Networks; ! begins an exception.",
    ),
    optional(
        "file",
        TEXT,
        "A file with one network per line. # begins a comment.",
    ),
];

const STORE: &[Field] = &[
    optional("redis", REMOTE, "The URL of a Redis server."),
    optional("postgres", REMOTE, "The URL of a PostgreSQL server."),
    optional(
        "deadline_ms",
        Shape::Number {
            from: 1,
            to: 60_000,
        },
        "How many milliseconds a call may take; 100 unless set.",
    ),
];

/// The whole file.
pub(super) const FILE: &[Field] = &[
    optional("$schema", TEXT, "The schema, for editors."),
    required("version", Shape::Version, "The version of this format: 1."),
    optional(
        "lists",
        Shape::Named(&Shape::Table(LIST)),
        "Lists of networks.",
    ),
    optional(
        "stores",
        Shape::Named(&Shape::Table(STORE)),
        "Stores that servers share.",
    ),
    optional(
        "limit",
        Shape::List(&Shape::Table(LIMIT)),
        "The limits. All that match a request apply.",
    ),
    optional(
        "deny",
        Shape::List(&Shape::Table(DENY)),
        "Clients that are denied.",
    ),
];

/// Reports everything in `node` that does not have this shape.
pub(super) fn check(node: &Node, shape: Shape, path: &str, problems: &mut Vec<Problem>) {
    let mut report = |message| problems.push(Problem::new(path, node.line, message));
    let found = |expected: &str| match &node.value {
        // A connection string of any form may hold a password.
        Value::Text(_) if path.starts_with("stores") => {
            format!("expected {expected}, found a text")
        }
        value => format!("expected {expected}, found {value}"),
    };
    match (shape, &node.value) {
        (Shape::Bool, Value::Bool(_)) | (Shape::Version, Value::Integer(1)) => {}
        (Shape::Bool, _) => report(found("true or false")),
        (Shape::Version, value) => report(format!(
            "{value} is not allowed; this version of the library reads 1 only"
        )),
        (Shape::Number { from, to }, Value::Integer(number))
            if (i128::from(from)..=i128::from(to)).contains(number) => {}
        (Shape::Number { from, to }, value) => report(format!(
            "{value} is not allowed; give a number from {from} to {to}"
        )),
        (Shape::OneOf(words), Value::Text(text)) if words.contains(&&**text) => {}
        (Shape::OneOf(words), value) => {
            let near = did_you_mean(node.text().unwrap_or_default(), words.iter().copied());
            report(format!(
                "expected {}, found {value}{near}",
                words.join(", ")
            ));
        }
        (Shape::Text { check, .. }, Value::Text(text)) => {
            if let Err(message) = check(text) {
                report(message);
            }
        }
        (Shape::Line, Value::Text(text)) => {
            if let Err(error) = text.parse::<Spec>() {
                report(error.to_string());
            }
        }
        (Shape::Text { .. } | Shape::Line, _) => report(found("a text")),
        (Shape::Several(_), Value::List(list)) if list.is_empty() => {
            report("an empty list has no effect: leave the field out".to_owned());
        }
        (Shape::Several(one) | Shape::List(one), Value::List(list)) => {
            for (at, node) in list.iter().enumerate() {
                check(node, *one, &format!("{path}[{at}]"), problems);
            }
        }
        (Shape::Several(one), _) => check(node, *one, path, problems),
        (Shape::List(_), _) => report(found("a list")),
        (Shape::Table(fields), Value::Table(_)) => check_fields(node, fields, path, problems),
        (Shape::Named(one), Value::Table(entries)) => {
            check_repeated(node, path, problems);
            for entry in entries {
                let path = joined(path, &entry.name);
                if let Err(message) = values::check_name(&entry.name) {
                    problems.push(Problem::new(&*path, entry.line, message));
                }
                check(&entry.node, *one, &path, problems);
            }
        }
        (Shape::Table(_) | Shape::Named(_), _) => report(found("a table")),
        (Shape::OrNumber(_, number), Value::Integer(_)) => check(node, *number, path, problems),
        (Shape::OrNumber(other, Shape::Number { from, to }), value) => match other {
            Shape::OneOf(words) if !node.text().is_some_and(|text| words.contains(&text)) => {
                let near = did_you_mean(node.text().unwrap_or_default(), words.iter().copied());
                let words = words.join(", ");
                report(format!(
                    "expected {words} or a number from {from} to {to}, found {value}{near}"
                ));
            }
            _ => check(node, *other, path, problems),
        },
        (Shape::OrNumber(other, _), _) => check(node, *other, path, problems),
    }
}

fn check_fields(node: &Node, fields: &[Field], path: &str, problems: &mut Vec<Problem>) {
    check_repeated(node, path, problems);
    let names = || fields.iter().map(|field| field.name);
    for entry in node.entries() {
        let path = joined(path, &entry.name);
        if let Some(field) = fields.iter().find(|field| field.name == entry.name) {
            if !matches!(entry.node.value, Value::Null) {
                check(&entry.node, field.shape, &path, problems);
            }
            continue;
        }
        let near = did_you_mean(&entry.name, names());
        let separator = if near.is_empty() { "; " } else { " " };
        let known = names().collect::<Vec<_>>().join(", ");
        let message = format!("unknown field{near}{separator}Known are {known}");
        problems.push(Problem::new(path, entry.line, message));
    }
    for field in fields.iter().filter(|field| field.is_required) {
        if node.get(field.name).is_none() {
            let path = joined(path, field.name);
            let message = format!("this field is missing. {}", field.about);
            problems.push(Problem::new(path, node.line, message));
        }
    }
}

/// Formats such as JSON allow a field twice.
fn check_repeated(node: &Node, path: &str, problems: &mut Vec<Problem>) {
    let entries = node.entries();
    for (at, entry) in entries.iter().enumerate() {
        if entries[..at].iter().any(|before| before.name == entry.name) {
            let path = joined(path, &entry.name);
            problems.push(Problem::new(path, entry.line, "this field is given twice"));
        }
    }
}

pub(super) fn joined(path: &str, name: &str) -> String {
    // A name that is a URL may hold a password.
    let name = if name.contains("://") {
        "(a URL)"
    } else {
        name
    };
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
