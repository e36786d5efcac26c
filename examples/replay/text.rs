//! A policy as text, `token_bucket 10/s; burst=50`.

use serde_json::{Map, Value, json};
use tower_throttle::{Quota, policy::Spec};

/// The text, if it is a policy as text and no object.
pub(crate) fn policy(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?.trim();
    text.starts_with(|c: char| c.is_ascii_lowercase())
        .then_some(text)
}

/// The policy in the form of an object, whose durations are in nanoseconds.
pub(crate) fn object(text: &str) -> Result<Value, String> {
    let spec: Spec = text.parse().map_err(|error| fault(&error))?;
    if spec.concurrency().is_some() {
        return Err("concurrency: a replay does not know when a request ends".into());
    }
    let printed = spec.to_string();
    let parts = printed.split(" + ").map(part);
    let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
    Ok(if parts.len() == 1 {
        parts.remove(0)
    } else {
        json!({"algorithm": "all", "parts": parts})
    })
}

/// `ALGORITHM QUOTA; OPTION=VALUE; ..`, as it is printed.
fn part(text: &str) -> Result<Value, String> {
    let (head, options) = text.split_once("; ").unwrap_or((text, ""));
    let (name, rate) = head.split_once(' ').unwrap_or((head, ""));
    let quota: Quota = rate.parse().map_err(|error| fault(&error))?;
    let mut fields = Map::new();
    fields.insert("algorithm".into(), name.into());
    fields.insert("limit".into(), quota.limit().into());
    fields.insert("period_ns".into(), nanoseconds(rate)?.into());
    for option in options.split("; ").filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let begins_with_digit = value.starts_with(|c: char| c.is_ascii_digit());
        match value.parse::<u64>() {
            Ok(count) => fields.insert(name.into(), count.into()),
            Err(_) if value == "true" => fields.insert(name.into(), true.into()),
            Err(_) if begins_with_digit => {
                let ns = nanoseconds(&format!("1/{value}"))?;
                fields.insert(format!("{name}_ns"), ns.into())
            }
            Err(_) => fields.insert(name.into(), value.into()),
        };
    }
    Ok(Value::Object(fields))
}

/// The period of a quota, or zero.
fn nanoseconds(quota: &str) -> Result<u64, String> {
    if quota == "1/0ns" {
        return Ok(0);
    }
    let quota: Quota = quota.parse().map_err(|error| fault(&error))?;
    u64::try_from(quota.period().as_nanos()).map_err(|error| fault(&error))
}

fn fault(error: &impl ToString) -> String {
    error.to_string()
}
