//! The JSON schema.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

/// One type, or a list of them.
fn kinds(rule: &Value) -> impl Iterator<Item = &str> {
    let list = rule
        .as_array()
        .map_or_else(|| std::slice::from_ref(rule), |list| &list[..]);
    list.iter().map(|kind| kind.as_str().unwrap())
}

/// A validator of the keywords that the schema uses. It refuses other keywords.
fn is_valid(schema: &Value, value: &Value) -> bool {
    let fields = schema.as_object().unwrap();
    fields.iter().all(|(keyword, rule)| match &**keyword {
        "$schema" | "title" | "description" | "default" | "format" => true,
        "type" => kinds(rule).any(|kind| match kind {
            "null" => value.is_null(),
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_u64() || value.is_i64(),
            other => panic!("type {other}"),
        }),
        "const" => value == rule,
        "enum" => rule.as_array().unwrap().contains(value),
        "minimum" => value
            .as_u64()
            .is_none_or(|number| number >= rule.as_u64().unwrap()),
        "maximum" => value
            .as_u64()
            .is_none_or(|number| number <= rule.as_u64().unwrap()),
        "minItems" => value.as_array().is_none_or(|list| !list.is_empty()),
        "items" => value
            .as_array()
            .is_none_or(|list| list.iter().all(|one| is_valid(rule, one))),
        "minProperties" => value.as_object().is_none_or(|object| !object.is_empty()),
        "anyOf" | "oneOf" => rule
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
        "pattern" => {
            let pattern = Regex::new(rule.as_str().unwrap()).unwrap();
            value.as_str().is_none_or(|text| pattern.is_match(text))
        }
        other => panic!("keyword {other}"),
    })
}

#[test]
fn the_schema_accepts_each_file_of_the_documentation_and_no_unknown_field() {
    let schema: Value = serde_json::from_str(tower_throttle::policy::schema()).unwrap();
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
