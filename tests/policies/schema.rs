//! The JSON schema.

use std::{collections::BTreeSet, env, fs};

use serde_json::Value;

const PATH: &str = "docs/policies.schema.json";

/// `POLICY_SCHEMA=write cargo test --features toml --test policies schema` writes it anew.
#[test]
fn the_committed_schema_is_the_generated_one() {
    let generated = tower_throttle::policy::schema();
    if env::var_os("POLICY_SCHEMA").is_some() {
        fs::write(PATH, &generated).unwrap();
    }
    let committed = fs::read_to_string(PATH).unwrap();
    assert!(
        committed == generated,
        "the schema has changed; see the comment of this test"
    );
}

/// A validator of the keywords that the schema uses. It refuses other keywords.
fn is_valid(schema: &Value, value: &Value) -> bool {
    let fields = schema.as_object().unwrap();
    fields.iter().all(|(keyword, rule)| match &**keyword {
        "$schema" | "title" | "description" => true,
        "type" => match rule.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_u64() || value.is_i64(),
            other => panic!("type {other}"),
        },
        "const" => value == rule,
        "enum" => rule.as_array().unwrap().contains(value),
        "minimum" => value
            .as_u64()
            .is_some_and(|number| number >= rule.as_u64().unwrap()),
        "maximum" => value
            .as_u64()
            .is_some_and(|number| number <= rule.as_u64().unwrap()),
        "minItems" => value.as_array().is_none_or(|list| !list.is_empty()),
        "items" => value
            .as_array()
            .is_none_or(|list| list.iter().all(|one| is_valid(rule, one))),
        "anyOf" => rule
            .as_array()
            .unwrap()
            .iter()
            .any(|one| is_valid(one, value)),
        "required" => value.as_object().is_none_or(|object| {
            let mut names = rule.as_array().unwrap().iter();
            names.all(|name| object.contains_key(name.as_str().unwrap()))
        }),
        "properties" => value.as_object().is_none_or(|object| {
            let known = rule.as_object().unwrap();
            object
                .iter()
                .all(|(name, value)| known.get(name).is_none_or(|rule| is_valid(rule, value)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|object| {
            let empty = serde_json::Map::new();
            let known = fields
                .get("properties")
                .map_or(&empty, |known| known.as_object().unwrap());
            object
                .iter()
                .filter(|(name, _)| !known.contains_key(*name))
                .all(|(_, value)| rule.is_object() && is_valid(rule, value))
        }),
        // The patterns are not for this test: texts are checked when a file is read.
        "pattern" => rule.is_string(),
        other => panic!("keyword {other}"),
    })
}

#[test]
fn the_schema_accepts_each_file_of_the_documentation_and_no_unknown_field() {
    let schema: Value = serde_json::from_str(&tower_throttle::policy::schema()).unwrap();
    let mut fields = BTreeSet::new();
    for text in crate::docs::files() {
        let value: Value = toml::from_str(&text).unwrap();
        assert!(is_valid(&schema, &value), "{text}");
        for limit in value
            .get("limit")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            fields.extend(limit.as_object().unwrap().keys().cloned());
        }
        let mut other = value.clone();
        other["limits"] = Value::Bool(true);
        assert!(!is_valid(&schema, &other));
    }
    // The documentation shows every field of a limit.
    let known = schema["properties"]["limit"]["items"]["properties"]
        .as_object()
        .unwrap();
    let known: BTreeSet<_> = known.keys().cloned().collect();
    assert_eq!(fields, known);
}

#[test]
fn the_schema_knows_every_algorithm() {
    let schema = tower_throttle::policy::schema();
    for name in [
        "token_bucket",
        "leaky_bucket",
        "fixed_window",
        "sliding_window",
        "sliding_grid",
        "sliding_log",
        "warm_up",
        "lockout",
        "gcra",
        "concurrency",
    ] {
        assert!(schema.contains(name), "{name}");
    }
}
