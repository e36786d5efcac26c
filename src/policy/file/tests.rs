//! The JSON schema is written from the types that are read.

use std::{borrow::Cow, env, fs};

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};

use super::model::Content;
use super::values::{HeaderValues, KeySource, Number, Several};
use crate::policy::{kinds::AlgorithmKind, pattern::PathPattern, spec::Spec};

pub(super) const NAME: &str = "^[A-Za-z0-9._-]{1,64}$";

/// Texts whose form a check knows.
pub(super) struct Method;
pub(super) struct Network;

/// A text. The pattern accepts what is read, and more.
fn text(pattern: &str) -> Schema {
    json_schema!({ "type": "string", "pattern": pattern })
}

impl JsonSchema for Method {
    fn schema_name() -> Cow<'static, str> {
        "Method".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        text("^[A-Z0-9!#$%&'*+.^_`|~-]+$")
    }
}

impl JsonSchema for Network {
    fn schema_name() -> Cow<'static, str> {
        "Network".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        text("^!?[0-9A-Fa-f:.]+(/[0-9]+)?$")
    }
}

impl JsonSchema for PathPattern {
    fn schema_name() -> Cow<'static, str> {
        "Path".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        text("^/")
    }
}

impl JsonSchema for KeySource {
    fn schema_name() -> Cow<'static, str> {
        "Key".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        text("^(global|client_ip(/[0-9]+)?|header:.+|bearer|matched_path|extension:.+)$")
    }
}

impl JsonSchema for Spec {
    fn schema_name() -> Cow<'static, str> {
        "Spec".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<_> = AlgorithmKind::names().collect();
        text(&format!("^\\s*({})\\s+[0-9]", names.join("|")))
    }
}

impl<T: JsonSchema> JsonSchema for Several<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("Several{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        one_or_list(&generator.subschema_for::<T>())
    }
}

impl JsonSchema for HeaderValues {
    fn schema_name() -> Cow<'static, str> {
        "HeaderValues".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let values = one_or_list(&text("."));
        json_schema!({ "type": "object", "minProperties": 1, "additionalProperties": values })
    }
}

fn one_or_list(one: &Schema) -> Schema {
    json_schema!({ "anyOf": [one, { "type": "array", "minItems": 1, "items": one }] })
}

impl<const FROM: u64, const TO: u64> JsonSchema for Number<FROM, TO> {
    fn schema_name() -> Cow<'static, str> {
        format!("From{FROM}To{TO}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": FROM, "maximum": TO })
    }
}

/// `POLICY_SCHEMA=write cargo test --features policies --lib schema` writes it anew.
///
/// Shows promise 221.
#[test]
fn the_committed_schema_is_the_generated_one() {
    let settings = SchemaSettings::draft2020_12();
    let settings = settings.with(|settings| settings.inline_subschemas = true);
    let generated = settings.into_generator().into_root_schema_for::<Content>();
    let generated = serde_json::to_string_pretty(&generated).expect("a schema is JSON") + "\n";
    if env::var_os("POLICY_SCHEMA").is_some() {
        fs::write("docs/policies.schema.json", &generated).expect("the page can be written");
        return;
    }
    let committed = include_str!("../../../docs/policies.schema.json");
    assert!(
        committed == generated,
        "the schema has changed; see the comment of this test"
    );
}
