//! Builds the limits of a file. Those of the file before that are the same keep their gates.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use super::active::{Active, ActiveDeny, Generation, LimitGate, Listed, Overrides};
use super::environment::{Environment, MakeLimiter};
use super::erased::{Fixed, erased};
use super::keys::PolicyKeys;
use super::stores;
use crate::backend::Op;
use crate::concurrency::{InFlight, IntoLimit};
use crate::error::ConfigError;
use crate::key::{Networks, Watched};
use crate::layer::{Limiting, OnStoreError, Rate};
use crate::policy::{
    file::{AllowOrDeny, KeySource, Limit, ListSource, PolicyFile, Problem, Problems, StoreSource},
    parse::did_you_mean,
};
use crate::store::local::Local;

/// The stores that were opened. Connections outlive a reload.
pub(super) type OpenStores = BTreeMap<StoreSource, MakeLimiter>;

/// The lists of a file by their names. Reading them may take long, so nothing is locked meanwhile.
pub(super) struct Lists {
    lists: BTreeMap<String, Listed>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

/// A field of a limit, and what is wrong with it.
type Mistake = (&'static str, String);

impl Lists {
    pub(super) fn read(file: &PolicyFile, environment: &Environment) -> Self {
        let (mut lists, mut problems) = (BTreeMap::new(), Vec::new());
        let mut warnings = file.warnings();
        for (name, source) in &file.content.lists {
            let field = source.file.as_ref().map_or("cidrs", |_| "file");
            let problem = |message: String| file.problem(&format!("lists.{name}.{field}"), message);
            match networks(source, &environment.folder) {
                Ok(networks) => {
                    if networks.is_empty() {
                        let message = "the list has no networks, so it contains no client";
                        warnings.push(problem(message.to_owned()));
                    }
                    let watched = Watched::new(networks);
                    let listed = Listed {
                        networks: watched.get(),
                        clients: environment.clients.within(watched),
                    };
                    lists.insert(name.clone(), listed);
                }
                Err(message) => problems.push(problem(message)),
            }
        }
        Self {
            lists,
            problems,
            warnings,
        }
    }
}

/// The networks of a list, one per line of a file.
fn networks(source: &ListSource, folder: &Path) -> Result<Networks, String> {
    let text = match (&source.cidrs, &source.file) {
        (Some(networks), _) => networks.join("\n"),
        (None, file) => {
            let path = folder.join(file.as_deref().unwrap_or_default());
            let read = fs::read_to_string(&path);
            read.map_err(|error| format!("{}: {error}", path.display()))?
        }
    };
    text.parse().map_err(|error: ConfigError| error.to_string())
}

/// Builds the limits of `file` with its lists. Nothing changes if there is an error.
pub(super) fn build(
    file: &PolicyFile,
    lists: Lists,
    environment: &Environment,
    open: &mut OpenStores,
    before: &Generation,
) -> Result<Generation, Problems> {
    let Lists {
        lists,
        mut problems,
        warnings,
    } = lists;
    let mut stores = environment.stores.clone();
    for (name, source) in &file.content.stores {
        let opened = match (environment.stores.get(name), open.get(source)) {
            (Some(_), _) => {
                Err("the program has a store of this name; give another name".to_owned())
            }
            (None, Some(limiter)) => Ok(Arc::clone(limiter)),
            (None, None) => stores::open(source),
        };
        match opened {
            Ok(limiter) => {
                open.insert(source.clone(), Arc::clone(&limiter));
                stores.insert(name.clone(), limiter);
            }
            Err(message) => {
                let path = format!("stores.{name}.{}", source.url().0);
                problems.push(file.problem(&path, message));
            }
        }
    }
    if !problems.is_empty() {
        return Err(Problems::of(problems));
    }
    let builder = Builder {
        file,
        environment,
        lists,
        stores,
        before,
    };
    let mut limits = Vec::new();
    for (at, limit) in file.content.limits.iter().enumerate() {
        let path = format!("limit[{at}]");
        let built = builder.limit(limit.clone(), false);
        let overrides = limit.overrides.iter().enumerate().map(|(at, one)| {
            let path = format!("{path}.override[{at}]");
            (path, builder.limit(limit.with(one), true))
        });
        let overrides: Vec<_> = overrides.collect();
        for (path, built) in std::iter::once((path, built)).chain(overrides) {
            match built {
                Ok(active) => limits.push(active),
                Err((field, message)) => {
                    problems.push(file.problem(&format!("{path}.{field}"), message));
                }
            }
        }
    }
    let denies = file.content.denies.iter().filter_map(|deny| {
        let clients = builder.lists.get(&deny.list)?.clone();
        let deny = deny.clone();
        Some(ActiveDeny { deny, clients })
    });
    let denies = denies.collect();
    if !problems.is_empty() {
        return Err(Problems::of(problems));
    }
    // From here on nothing fails.
    open.retain(|source, _| file.content.stores.values().any(|used| used == source));
    for active in &limits {
        if let Some(old) = before.same(active) {
            active.set_numbers(&old.limit);
        }
    }
    Ok(Generation {
        limits,
        denies,
        warnings,
    })
}

struct Builder<'a> {
    file: &'a PolicyFile,
    environment: &'a Environment,
    lists: BTreeMap<String, Listed>,
    stores: BTreeMap<String, MakeLimiter>,
    before: &'a Generation,
}

impl Builder<'_> {
    /// The limit, with the gate that it has in the file before if it is the same.
    fn limit(&self, mut limit: Limit, is_override: bool) -> Result<Active, Mistake> {
        let keys = PolicyKeys::of(&limit, self.environment).map_err(|message| ("key", message))?;
        let overrides = Overrides::of(&limit);
        limit.overrides.clear();
        let store = limit.store.as_ref();
        let source = store.and_then(|store| self.file.content.stores.get(store).cloned());
        let except = limit.except.as_ref();
        Ok(Active {
            except: except.and_then(|except| self.lists.get(&except.list).cloned()),
            gate: self.gate(&limit, source.as_ref())?,
            limit,
            source,
            keys,
            is_override,
            overrides,
        })
    }

    fn gate(&self, limit: &Limit, source: Option<&StoreSource>) -> Result<LimitGate, Mistake> {
        let store = limit.store.as_deref();
        let store = store.map(|store| self.store(store)).transpose()?;
        // A store keeps the usage, and a limiter with other numbers takes it over there.
        let is_kept = |old: &&Active| {
            store.is_none() || (old.source.as_ref() == source && old.limit.limit == limit.limit)
        };
        let mut gate = match self.before.same_as(limit, source).filter(is_kept) {
            Some(old) => old.gate.clone(),
            None => new_gate(limit, store).map_err(|error| ("limit", error.to_string()))?,
        };
        match (&mut gate, limit.limit.0.concurrency()) {
            (LimitGate::InFlight(gate), Some(spec)) => {
                gate.options.queue = spec.queue;
                gate.options.max_wait = spec.max_wait.unwrap_or(Duration::from_secs(1));
            }
            (LimitGate::Rate(gate, _), _) if limit.on_store_error == AllowOrDeny::Deny => {
                gate.on_store_error = OnStoreError::Deny;
            }
            (LimitGate::Rate(gate, _), _) => gate.on_store_error = OnStoreError::Allow,
            (LimitGate::InFlight(_), None) => {}
        }
        Ok(gate)
    }

    /// What makes limiters of a store.
    fn store(&self, store: &str) -> Result<&MakeLimiter, Mistake> {
        self.stores.get(store).ok_or_else(|| {
            let known = self.stores.keys().map(String::as_str);
            let known: Vec<&str> = known.chain(["memory"]).collect();
            let near = did_you_mean(store, known.iter().copied());
            let known = known.join(", ");
            let message = format!("the store {store:?} is not defined{near}; there is: {known}");
            ("store", message)
        })
    }
}

fn new_gate(limit: &Limit, store: Option<&MakeLimiter>) -> Result<LimitGate, ConfigError> {
    let spec = &limit.limit.0;
    let fixed = limit.plan().decide(Op::Peek(0));
    if let (None, Some(spec)) = (fixed, spec.concurrency()) {
        let (permits, source) = spec.limit.into_limit();
        let mut gate = InFlight::new(permits, source, false);
        gate.rename(Some(&limit.name), &mut 0);
        return Ok(LimitGate::InFlight(gate));
    }
    let (limiter, local) = match (fixed, store) {
        (Some(decision), _) => (erased(Fixed(limit.plan(), decision)), None),
        (None, Some(store)) => (store(&limit.name, spec.algorithm()?)?, None),
        (None, None) => {
            let local = Local::new(spec.algorithm()?);
            let local = match limit.capacity {
                Some(keys) => local.try_capacity(usize::try_from(keys.0).unwrap_or(usize::MAX))?,
                None if *limit.keys == [KeySource::Global] => local.try_capacity(1)?,
                None => local,
            };
            local.allocate();
            (erased(local.clone()), Some(local))
        }
    };
    let mut gate = Rate::new(limiter);
    gate.rename(Some(&limit.name), &mut 0);
    Ok(LimitGate::Rate(gate, local))
}
