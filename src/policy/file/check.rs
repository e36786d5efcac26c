//! Rules about fields: each one has an effect, and what one names is there.

use std::collections::BTreeSet;

use http::Method;

use super::model::{Content, FileLimit, Override, Requests};
use super::problem::not_defined;
use super::values::{KeySource, Number, Several, check_name, check_value};
use crate::key::Networks;
use crate::layer::OnStoreError;
use crate::quota::Plan;

/// The path of a field below the one that is checked, and what is wrong with it.
pub(super) type FieldMistake = (String, String);

/// Refuses a field if `is_wrong`.
fn refuse(is_wrong: bool, field: &str, message: impl Into<String>) -> Result<(), FieldMistake> {
    let mistake = || (field.to_owned(), message.into());
    (!is_wrong).then_some(()).ok_or_else(mistake)
}

/// Refuses a field for what a check of its value says.
fn valid(field: &str, check: Result<(), String>) -> Result<(), FieldMistake> {
    check.map_err(|message| (field.to_owned(), message))
}

fn check_method(text: &str) -> Result<(), String> {
    let is_method = Method::from_bytes(text.as_bytes()).is_ok() && text == text.to_uppercase();
    let mistake = || format!("{text:?} is not allowed; give a method, such as GET");
    is_method.then_some(()).ok_or_else(mistake)
}

impl Requests {
    fn check(requests: Option<&Self>) -> Result<(), FieldMistake> {
        let Some(requests) = requests else {
            return Ok(());
        };
        for method in requests.methods.iter() {
            valid("match.methods", check_method(method))?;
        }
        let message = "it has no effect without path, methods or headers: leave it out";
        refuse(*requests == Self::default(), "match", message)
    }
}

impl FileLimit {
    /// The limit, if nothing is wrong with it alone. Fields that say the same become equal.
    pub(super) fn checked(mut self) -> Result<Self, FieldMistake> {
        valid("name", check_name(&self.name))?;
        valid("store", self.store.as_deref().map_or(Ok(()), check_name))?;
        self.store = self.store.filter(|store| store != "memory");
        Requests::check(self.requests.as_ref())?;
        self.check_effects()?;
        if self.failure.is_empty() && self.spec.is_lockout() {
            self.failure = Several(vec![Number(401), Number(403)]);
        }
        for (at, one) in self.overrides.iter().enumerate() {
            let checked = one.check(&self, &self.overrides[..at]);
            checked.map_err(|(field, message)| (format!("override[{at}].{field}"), message))?;
        }
        Ok(self)
    }

    /// Each field has an effect.
    fn check_effects(&self) -> Result<(), FieldMistake> {
        let (spec, keys) = (&self.spec, &self.keys);
        let in_memory = self.store.is_none();
        let in_flight = spec.concurrency().is_some();
        let is_global = **keys == [KeySource::Global];
        let twice = spec.repeated().unwrap_or_default();
        let message = format!("{twice} is there twice");
        refuse(!twice.is_empty(), "limit", message)?;
        for (at, key) in keys.iter().enumerate() {
            let message = format!("{} is there twice", String::from(key.clone()));
            refuse(keys[..at].contains(key), "key", message)?;
        }
        let is_beside = keys.len() > 1 && keys.contains(&KeySource::Global);
        refuse(is_beside, "key", "global has no effect beside another key")?;
        let message = "give one of blocked and unlimited";
        refuse(self.blocked && self.unlimited, "unlimited", message)?;
        let message = "it has no effect: every request has the key global";
        refuse(self.missing.is_some() && is_global, "missing", message)?;
        let denies = self.on_store_error == OnStoreError::Deny;
        let message = "it has no effect: a store in memory does not fail";
        refuse(denies && in_memory, "on_store_error", message)?;
        let why = match () {
            () if !in_memory => "only the store memory has a capacity",
            () if in_flight => "a limit in flight keeps keys only while they have requests",
            () if is_global => "there is one key",
            () => "",
        };
        let has_none = self.capacity.is_some() && !why.is_empty();
        refuse(has_none, "capacity", format!("it has no effect: {why}"))?;
        let message = "concurrency counts the requests of this process; leave the store out";
        refuse(in_flight && !in_memory, "store", message)?;
        let message = "it has no effect: a permit is returned whatever the status";
        refuse(in_flight && !self.failure.is_empty(), "failure", message)?;
        let other = spec.beside_lockout().unwrap_or_default();
        let message = format!(
            "this field is missing: it is about lockout and {other} alike. Write failure = [401, 403] \
             to count failures only, or give {other} a limit of its own to count every request"
        );
        let is_open = !other.is_empty() && self.failure.is_empty();
        refuse(is_open, "failure", message)?;
        let message = "on_success=clear needs methods, such as methods = \"POST\": each success of a request \
                       that matches would clear the failures, such as a GET of the form";
        let methods = self.requests.as_ref().map_or(0, |it| it.methods.len());
        let clears = spec.to_string().contains("on_success=clear");
        refuse(clears && methods == 0, "match", message)
    }
}

impl Override {
    /// Checks an override of `limit`, which has those `before` it.
    fn check(&self, limit: &FileLimit, before: &[Self]) -> Result<(), FieldMistake> {
        valid("name", check_name(&self.name))?;
        for (field, text) in [("key", &self.key), ("prefix", &self.prefix)] {
            valid(field, text.as_deref().map_or(Ok(()), check_value))?;
        }
        let is_one = |given: [bool; 3]| given.iter().filter(|is_given| **is_given).count() == 1;
        let given = is_one([
            self.key.is_some(),
            self.prefix.is_some(),
            self.headers.is_some(),
        ]);
        refuse(!given, "key", "give one of key, prefix and headers")?;
        let given = is_one([self.limit.is_some(), self.blocked, self.unlimited]);
        let message = "give one of limit, blocked = true and unlimited = true";
        refuse(!given, "limit", message)?;
        if let Some(other) = &self.limit {
            let kind = limit.spec.kind();
            let message = format!("expected {kind} with other numbers");
            refuse(other.kind() != kind, "limit", message)?;
            let is_same = *other == limit.spec && limit.plan() == Plan::Default;
            let message = "it has no effect: the limit has the same numbers";
            refuse(is_same, "limit", message)?;
        } else {
            let is_same = (self.blocked, self.unlimited) == (limit.blocked, limit.unlimited);
            refuse(is_same, "limit", "it has no effect: so is the limit")?;
        }
        let is_for = |one: &Self| {
            (&one.key, &one.prefix, &one.headers) == (&self.key, &self.prefix, &self.headers)
        };
        let message = "an override before is for the same requests";
        refuse(before.iter().any(is_for), "key", message)?;
        let is_text = |key: &KeySource| !matches!(key, KeySource::Global | KeySource::ClientIp(_));
        let by_text = matches!(&limit.keys[..], [key] if is_text(key));
        let message = "only a limit by one key that is a text has overrides by key: header:NAME, bearer, \
                       matched_path or extension:NAME";
        refuse(self.headers.is_none() && !by_text, "key", message)
    }
}

impl Content {
    /// Refuses what is wrong with several parts of the file together.
    pub(super) fn check(&self) -> Result<(), FieldMistake> {
        for (at, deny) in self.denies.iter().enumerate() {
            let in_deny = |(field, message)| (format!("deny[{at}].{field}"), message);
            Requests::check(deny.requests.as_ref()).map_err(in_deny)?;
        }
        self.check_lists()?;
        for (name, store) in &self.stores {
            let path = format!("stores.{name}");
            valid(&path, check_name(name))?;
            let message = "memory is the name of the store in this process; give another name";
            refuse(name == "memory", &path, message)?;
            let mut limits = self.limits.iter();
            let is_used = limits.any(|limit| limit.store.as_ref() == Some(name));
            refuse(!is_used, &path, "no limit uses this store")?;
            let is_one = store.redis.is_some() != store.postgres.is_some();
            refuse(!is_one, &path, "give one of redis and postgres")?;
        }
        let mut names = BTreeSet::new();
        for (at, limit) in self.limits.iter().enumerate() {
            let path = format!("limit[{at}]");
            let overrides = limit.overrides.iter().enumerate();
            let overrides =
                overrides.map(|(at, one)| (format!("{path}.override[{at}]"), &one.name));
            for (path, name) in std::iter::once((path.clone(), &limit.name)).chain(overrides) {
                let message = format!("the name {name:?} is there twice");
                refuse(!names.insert(name), &format!("{path}.name"), message)?;
            }
        }
        Ok(())
    }

    fn check_lists(&self) -> Result<(), FieldMistake> {
        let limits = self.limits.iter().enumerate();
        let excepts = limits.filter_map(|(at, limit)| {
            Some((format!("limit[{at}].except"), limit.except.as_ref()?))
        });
        let denies = self.denies.iter().enumerate();
        let denies = denies.map(|(at, deny)| (format!("deny[{at}].list"), &deny.list));
        let used: Vec<_> = excepts.chain(denies).collect();
        for (path, name) in &used {
            let message = format!("the list {}", not_defined(name, self.lists.keys()));
            refuse(!self.lists.contains_key(*name), path, message)?;
        }
        for (name, list) in &self.lists {
            let path = format!("lists.{name}");
            valid(&path, check_name(name))?;
            let is_used = used.iter().any(|(_, used)| *used == name);
            refuse(!is_used, &path, "no limit and no deny uses this list")?;
            let is_one = list.cidrs.is_empty() != list.file.is_none();
            refuse(!is_one, &path, "give one of cidrs and file")?;
            for (at, network) in list.cidrs.iter().enumerate() {
                // `!` begins an exception.
                let network = network.strip_prefix('!').unwrap_or(network);
                let read = Networks::parse(network, network).map_err(|error| error.to_string());
                valid(&format!("{path}.cidrs[{at}]"), read.map(drop))?;
            }
        }
        Ok(())
    }
}
