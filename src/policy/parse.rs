//! Reads the text of a limit.

use std::fmt::Display;

use super::kinds::{AlgorithmKind, Make};
use super::term::{Term, Units};
use crate::algorithm::{Setting, Takes, zone_number};
use crate::error::ConfigError;
use crate::quota::{MAX_PERIOD_NS, unit_ns};

/// `TERM + TERM`.
pub(super) fn terms(text: &str) -> Result<Vec<Term>, ConfigError> {
    let mut texts: Vec<String> = Vec::new();
    for part in text.split('+') {
        match texts.last_mut() {
            // A time zone, such as `Etc/GMT+5`.
            Some(last) if last.ends_with("/GMT") => last.extend(["+", part]),
            _ => texts.push(part.to_owned()),
        }
    }
    let terms = texts.iter().map(|text| term(text));
    let terms = terms.collect::<Result<Vec<_>, _>>()?;
    let alone = |term: &Term| matches!(term.amount, Units::Count(_));
    if terms.len() > 1 && terms.iter().any(alone) {
        let expected = "concurrency alone: it has to be a limit of its own, with its own name";
        return Err(wrong(text, expected));
    }
    if terms
        .iter()
        .filter(|term| term.value("queue").is_some())
        .count()
        > 1
    {
        return Err(wrong(
            text,
            "queue once: requests wait for all of the limits together",
        ));
    }
    Ok(terms)
}

/// `ALGORITHM AMOUNT; NAME=VALUE; ...`.
fn term(text: &str) -> Result<Term, ConfigError> {
    let mut all = text.split(';').map(str::trim);
    let (head, parts) = (all.next().unwrap_or_default(), || all.clone());
    let (name, amount) = head.split_once(char::is_whitespace).unwrap_or((head, ""));
    let Some(kind) = AlgorithmKind::named(name) else {
        return Err(unknown_algorithm(text, name));
    };
    let amount = amount_of(kind, text, amount.trim())?;
    let given = parts().map(|part| part.split('=').next().unwrap_or_default().trim());
    let name_of_text = kind.name;
    let kind = AlgorithmKind::of(name, amount.period(), given).unwrap_or(kind);
    let known = kind.options()?;
    let mut seen = Vec::new();
    let mut options = Vec::new();
    for part in parts() {
        let Some((name, value)) = part.split_once('=') else {
            return Err(wrong(text, format!("OPTION=VALUE, found {part:?}")));
        };
        let (option, value) = (option_of(kind, &known, text, name.trim())?, value.trim());
        if seen.contains(&option.name) {
            let expected = format!("{} once, it is given twice", option.name);
            return Err(wrong(text, expected));
        }
        seen.push(option.name);
        if let Some(value) = value_of(option, text, value)? {
            options.push((option, value));
        }
    }
    let mut missing = known
        .iter()
        .filter(|one| one.is_required && !seen.contains(&one.name));
    if let Some(Setting { name, .. }) = missing.next() {
        return Err(wrong(text, format!("{name}=TIME: {} needs it", kind.name)));
    }
    options.sort_by_key(|(option, _)| known.iter().position(|known| known == option));
    let term = Term {
        kind: name_of_text,
        amount,
        options,
    };
    term.check()?;
    Ok(term)
}

fn amount_of(kind: &AlgorithmKind, text: &str, amount: &str) -> Result<Units, ConfigError> {
    let form = match kind.make {
        Make::Algorithm(_) if amount.contains('/') => return amount.parse().map(Units::Rate),
        Make::Concurrency if is_number(amount) => {
            let count = amount.parse().ok().filter(|count| *count > 0);
            return count.map(Units::Count).ok_or_else(|| {
                ConfigError::out_of_range("limit", amount, "a number from 1 to 4294967295")
            });
        }
        Make::Algorithm(_) => "LIMIT/PERIOD, such as 10/s or 100/min",
        Make::Concurrency => "a number of requests, such as 20",
    };
    Err(wrong(text, format!("{form} after {}", kind.name)))
}

fn option_of(
    kind: &AlgorithmKind,
    known: &[&'static Setting],
    text: &str,
    name: &str,
) -> Result<&'static Setting, ConfigError> {
    if let Some(option) = known.iter().find(|option| option.name == name) {
        return Ok(option);
    }
    let names: Vec<_> = known.iter().map(|option| option.name).collect();
    let allowed = Some(names.join(", ")).filter(|_| !names.is_empty());
    let allowed = allowed.unwrap_or_else(|| "no options".to_owned());
    let near = did_you_mean(name, names);
    let expected = format!("{allowed}: {} has no {name}{near}", kind.name);
    Err(wrong(text, expected))
}

/// The value, or `None` if it is the default.
fn value_of(option: &Setting, text: &str, value: &str) -> Result<Option<u64>, ConfigError> {
    let name = option.name;
    let words: &[&str] = match option.takes {
        Takes::Count if is_number(value) => {
            let allowed = "a number up to 9007199254740991";
            let number = value.parse().map(Some);
            return number.map_err(|_| ConfigError::out_of_range(name, value, allowed));
        }
        Takes::Count => &[],
        Takes::Time => return time(name, text, value).map(Some),
        Takes::Zone => return zone_number(value).map(Some),
        Takes::OneOf(words) => words,
    };
    let Some(place) = words.iter().position(|word| *word == value) else {
        let near = did_you_mean(value, words.iter().copied());
        let words = Some(words.join(" or ")).filter(|words| !words.is_empty());
        let expected = words.unwrap_or_else(|| "a whole number".to_owned());
        return Err(wrong(
            text,
            format!("{expected} for {name}, found {value:?}{near}"),
        ));
    };
    Ok((place > 0).then_some(1))
}

/// `NUMBER UNIT`.
fn time(name: &'static str, text: &str, value: &str) -> Result<u64, ConfigError> {
    let digits = value.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = value.split_at(digits.unwrap_or(value.len()));
    if !number.is_empty() && unit.trim().is_empty() {
        let expected =
            format!("a time for {name}: {value} needs a unit, as in {value}s or {value}ms");
        return Err(wrong(text, expected));
    }
    let Some(unit) = unit_ns(unit.trim()).filter(|_| !number.is_empty()) else {
        let expected = format!("a time for {name}, such as 500ms, 2s or 15min, found {value:?}");
        return Err(wrong(text, expected));
    };
    let ns = number
        .parse()
        .ok()
        .and_then(|number: u64| number.checked_mul(unit));
    ns.filter(|ns| *ns <= MAX_PERIOD_NS)
        .ok_or_else(|| ConfigError::out_of_range(name, value, "a time up to 10 years"))
}

fn unknown_algorithm(text: &str, name: &str) -> ConfigError {
    let names = AlgorithmKind::names().collect::<Vec<_>>().join(", ");
    let found = if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        "there is none".to_owned()
    } else {
        format!(
            "found {name:?}{}",
            did_you_mean(name, AlgorithmKind::names())
        )
    };
    wrong(text, format!("an algorithm ({names}) first, {found}"))
}

/// `; did you mean NAME?`, with the name that `text` probably means: at most a third of its letters differ.
pub(super) fn did_you_mean<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let text = text.to_lowercase().replace('-', "_");
    // A longer text is no misspelt name, and comparing it would take long.
    let names = names.into_iter().filter(|_| text.len() <= 64);
    let nearest = names
        .map(|name| (strsim::osa_distance(&text, name), name))
        .min();
    let near = nearest.filter(|(distance, name)| *distance <= name.len().div_ceil(3));
    near.map_or_else(String::new, |(_, name)| format!("; did you mean {name}?"))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn wrong(text: &str, expected: impl Display) -> ConfigError {
    ConfigError::syntax("policy", text.trim(), expected)
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;
