//! Reads the text of a limit.

use super::kinds::{Amount, Kind, OptionName, Takes};
use super::nearest::did_you_mean;
use super::term::{Term, Units, Value};
use crate::error::ConfigError;
use crate::quota::{Quota, unit_ns};

/// The longest time: as the longest period, 146 years.
const MAX_NS: u64 = 1 << 62;

/// `TERM + TERM`.
pub(super) fn terms(text: &str) -> Result<Vec<Term>, ConfigError> {
    let terms = text.split('+').map(term);
    let terms = terms.collect::<Result<Vec<_>, _>>()?;
    let alone = |term: &Term| term.kind.takes == Amount::Count;
    if terms.len() > 1 && terms.iter().any(alone) {
        return Err(wrong(
            text,
            "concurrency alone: it has a limit of its own in a policy file",
        ));
    }
    Ok(terms)
}

/// `ALGORITHM AMOUNT; NAME=VALUE; ...`.
fn term(text: &str) -> Result<Term, ConfigError> {
    let mut parts = text.split(';').map(str::trim);
    let head = parts.next().unwrap_or_default();
    let (name, amount) = head.split_once(char::is_whitespace).unwrap_or((head, ""));
    let Some(kind) = Kind::named(name) else {
        return Err(unknown_algorithm(text, name));
    };
    let mut term = Term {
        kind,
        amount: amount_of(kind, text, amount.trim())?,
        options: Vec::new(),
    };
    let mut seen = Vec::new();
    for part in parts {
        let Some((name, value)) = part.split_once('=') else {
            return Err(wrong(text, format!("OPTION=VALUE, found {part:?}")));
        };
        let (option, value) = (option_of(kind, text, name.trim())?, value.trim());
        if seen.contains(&option.name) {
            return Err(wrong(
                text,
                format!("{} once, it is given twice", option.name),
            ));
        }
        seen.push(option.name);
        if let Some(value) = value_of(option, text, value)? {
            term.options.push((option, value));
        }
    }
    check_effect(kind, text, &seen, &term)?;
    let position = |name| kind.option_names().position(|known| known == name);
    term.options
        .sort_by_key(|(option, _)| position(option.name));
    Ok(term)
}

fn amount_of(kind: &'static Kind, text: &str, amount: &str) -> Result<Units, ConfigError> {
    match kind.takes {
        Amount::Rate if amount.contains('/') => amount.parse::<Quota>().map(Units::Rate),
        Amount::Count if is_number(amount) => match amount.parse() {
            Ok(count) if count > 0 => Ok(Units::Count(count)),
            _ => Err(ConfigError::out_of_range(
                "limit",
                amount,
                "a number from 1 to 4294967295",
            )),
        },
        _ => Err(wrong(
            text,
            format!("{} after {}", kind.amount_form(), kind.name),
        )),
    }
}

fn option_of(
    kind: &'static Kind,
    text: &str,
    name: &str,
) -> Result<&'static OptionName, ConfigError> {
    if let Some(option) = kind.options.iter().find(|option| option.name == name) {
        return Ok(option);
    }
    let allowed = if kind.options.is_empty() {
        "no options".to_owned()
    } else {
        kind.option_names().collect::<Vec<_>>().join(", ")
    };
    let near = did_you_mean(name, kind.option_names());
    let expected = format!("{allowed}: {} has no {name}{near}", kind.name);
    Err(wrong(text, expected))
}

/// The value, or `None` if it is the default.
fn value_of(
    option: &'static OptionName,
    text: &str,
    value: &str,
) -> Result<Option<Value>, ConfigError> {
    let name = option.name;
    match option.takes {
        Takes::Count if is_number(value) => match value.parse() {
            Ok(count) => Ok(Some(Value::Count(count))),
            Err(_) => Err(ConfigError::out_of_range(
                name,
                value,
                "a number up to 9223372036854775807",
            )),
        },
        Takes::Count => Err(wrong(
            text,
            format!("a whole number for {name}, found {value:?}"),
        )),
        Takes::Time => time(value)
            .map(|ns| Some(Value::Time(ns)))
            .map_err(|fault| fault.of(name, text, value)),
        Takes::Flag => match value {
            "true" => Ok(Some(Value::Flag)),
            "false" => Ok(None),
            _ => Err(wrong(
                text,
                format!("true or false for {name}, found {value:?}"),
            )),
        },
        Takes::OneOf(words) => match words.iter().position(|word| *word == value) {
            Some(0) => Ok(None),
            Some(at) => Ok(Some(Value::Word(words[at]))),
            None => {
                let near = did_you_mean(value, words.iter().copied());
                let words = words.join(" or ");
                Err(wrong(
                    text,
                    format!("{words} for {name}, found {value:?}{near}"),
                ))
            }
        },
    }
}

/// Why a text is no time.
pub(super) enum TimeFault {
    NoUnit,
    NoTime,
    TooLong,
}

impl TimeFault {
    fn of(self, name: &'static str, text: &str, value: &str) -> ConfigError {
        match self {
            Self::NoUnit => wrong(
                text,
                format!("a time for {name}: {value} needs a unit, as in {value}s or {value}ms"),
            ),
            Self::NoTime => wrong(
                text,
                format!("a time for {name}, such as 500ms, 2s or 15min, found {value:?}"),
            ),
            Self::TooLong => ConfigError::out_of_range(name, value, "a time up to 146 years"),
        }
    }
}

/// `NUMBER UNIT`.
fn time(text: &str) -> Result<u64, TimeFault> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(TimeFault::NoTime);
    }
    if unit.trim().is_empty() {
        return Err(TimeFault::NoUnit);
    }
    let unit = unit_ns(unit.trim()).ok_or(TimeFault::NoTime)?;
    let number: u64 = number.parse().map_err(|_| TimeFault::TooLong)?;
    let ns = number.checked_mul(unit).filter(|ns| *ns <= MAX_NS);
    ns.ok_or(TimeFault::TooLong)
}

/// Refuses options that have no effect.
fn check_effect(kind: &Kind, text: &str, seen: &[&str], term: &Term) -> Result<(), ConfigError> {
    for option in kind.options.iter().filter(|one| seen.contains(&one.name)) {
        let name = option.name;
        if let Some(needed) = option.needs.filter(|needed| !seen.contains(needed)) {
            let expected = format!("{needed} too: {name} has no effect without it");
            return Err(wrong(text, expected));
        }
        let other = option.not_with.filter(|other| term.value(other).is_some());
        if let Some(other) = other {
            let expected = format!("{name} or {other}: {name} has no effect beside {other}");
            return Err(wrong(text, expected));
        }
    }
    // A leaky bucket with a queue of 0 releases requests at their distance, so that is a setting. A
    // queue of 0 of the others is none.
    if kind.name != "leaky_bucket" && term.value("queue") == Some(&Value::Count(0)) {
        return Err(ConfigError::out_of_range(
            "queue",
            0,
            "a number from 1, or leave it out",
        ));
    }
    Ok(())
}

fn unknown_algorithm(text: &str, name: &str) -> ConfigError {
    let names = Kind::names().collect::<Vec<_>>().join(", ");
    let found = if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        "there is none".to_owned()
    } else {
        format!("found {name:?}{}", did_you_mean(name, Kind::names()))
    };
    wrong(text, format!("an algorithm ({names}) first, {found}"))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn wrong(text: &str, expected: impl Into<String>) -> ConfigError {
    ConfigError::Syntax {
        field: "policy",
        text: text.trim().to_owned(),
        expected: expected.into(),
    }
}

#[cfg(test)]
mod tests;
