//! Builds the limits of a file. Those of the file before that are the same keep their gates.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use super::active::{Active, Generation, LimitGate, Listed, identity};
use super::environment::{Environment, MakeLimiter};
use super::keys::PolicyKeys;
use crate::concurrency::{InFlight, IntoLimit};
use crate::error::ConfigError;
use crate::key::{Networks, Watched};
use crate::layer::{Limiting, Rate};
use crate::policy::file::{
    FileLimit, KeySource, ListSource, PolicyFile, Problem, Problems, StoreSource, not_defined,
};
use crate::store::{any, fixed, local::Local};

/// The stores that were opened. Connections outlive a reload.
pub(super) type OpenStores = BTreeMap<StoreSource, MakeLimiter>;

/// Builds the limits of `file`. Nothing changes if there is an error.
pub(super) fn build(
    file: &PolicyFile,
    environment: &Environment,
    open: &mut OpenStores,
    before: &Generation,
) -> Result<Generation, Problems> {
    let content = &file.content;
    let mut warnings = Vec::new();
    if content.limits.is_empty() && content.denies.is_empty() {
        let message = "the file has no limit: every request passes";
        warnings.push(Problem::new("limit", None, message));
    }
    let mut lists = BTreeMap::new();
    for (name, source) in &content.lists {
        let field = source.file.as_ref().map_or("cidrs", |_| "file");
        let problem = |message| file.problem(&format!("lists.{name}.{field}"), message);
        let networks = networks(source, &environment.folder).map_err(problem)?;
        if networks.is_empty() {
            let message = "the list has no networks, so it contains no client";
            warnings.push(problem(message.to_owned()));
        }
        let networks = Watched::new(networks);
        let clients = environment.clients.within(&networks);
        lists.insert(&**name, (networks.get(), clients));
    }
    let (mut environment, mut opened) = (environment.clone(), OpenStores::new());
    for (name, source) in &content.stores {
        let path = format!("stores.{name}.{}", source.parts().0);
        if environment.stores.contains_key(name) {
            let message = "the program has a store of this name; give another name";
            return Err(file.problem(&path, message).into());
        }
        if let Some(limiter) = open.get(source) {
            environment.stores.insert(name.clone(), limiter.clone());
        } else {
            let added = environment.store_of(source, name);
            environment = added.map_err(|message| file.problem(&path, message))?;
        }
        opened.insert(source.clone(), environment.stores[name].clone());
    }
    let builder = Builder {
        file,
        environment,
        lists,
        before,
    };
    let mut limits = Vec::new();
    for (at, limit) in content.limits.iter().enumerate() {
        let path = format!("limit[{at}]");
        limits.push(builder.limit(&path, limit.clone(), false)?);
        for (at, one) in limit.overrides.iter().enumerate() {
            let path = format!("{path}.override[{at}]");
            limits.push(builder.limit(&path, limit.with(one), true)?);
        }
    }
    // From here on nothing fails.
    *open = opened;
    for active in &limits {
        if let Some(old) = before.same(&active.limit.name, &active.identity) {
            active.set_numbers(&old.limit);
        }
    }
    let denies = content.denies.iter();
    let denies = denies.map(|deny| (deny.clone(), builder.lists[&*deny.list].clone()));
    Ok(Generation {
        limits,
        denies: denies.collect(),
        warnings,
    })
}

/// The networks of a list, one per line of a file.
fn networks(source: &ListSource, folder: &Path) -> Result<Networks, String> {
    let text = match &source.file {
        None => source.cidrs.join("\n"),
        Some(file) => {
            let path = folder.join(file);
            let read = fs::read_to_string(&path);
            read.map_err(|error| format!("{}: {error}", path.display()))?
        }
    };
    text.parse().map_err(|error: ConfigError| error.to_string())
}

struct Builder<'a> {
    file: &'a PolicyFile,
    /// With the stores of the file.
    environment: Environment,
    lists: BTreeMap<&'a str, Listed>,
    before: &'a Generation,
}

impl Builder<'_> {
    /// The limit, with the gate that it has in the file before if it is the same.
    fn limit(&self, path: &str, limit: FileLimit, is_override: bool) -> Result<Active, Problem> {
        let problem = |field, message| self.file.problem(&format!("{path}.{field}"), message);
        let keys = PolicyKeys::of(&limit, &self.environment);
        let keys = keys.map_err(|message| problem("key", message))?;
        let (stores, store) = (&self.environment.stores, limit.store.as_ref());
        let make = store.map(|store| {
            stores.get(store).ok_or_else(|| {
                let memory = "memory".to_owned();
                let known = stores.keys().chain([&memory]);
                problem("store", format!("the store {}", not_defined(store, known)))
            })
        });
        let make = make.transpose()?;
        let source = store.and_then(|store| self.file.content.stores.get(store).cloned());
        let identity = identity(&limit, source.as_ref());
        // A store keeps the usage, and a limiter with other numbers takes it over there.
        let kept = self
            .before
            .same(&limit.name, &identity)
            .filter(|old| make.is_none() || (old.source == source && old.limit.spec == limit.spec));
        let gate = kept.map_or_else(|| new_gate(&limit, make), |old| Ok(old.gate.clone()));
        let mut gate = gate.map_err(|error| problem("limit", error.to_string()))?;
        let (queue, max_wait) = limit.spec.queue().unwrap_or_default();
        match &mut gate {
            LimitGate::InFlight(gate) => {
                gate.options.queue = queue;
                gate.options.max_wait = max_wait.unwrap_or(Duration::from_secs(1));
            }
            LimitGate::Rate(gate, _) => {
                if queue > 0 && !gate.can_queue {
                    let message = "queue: it has no effect: in this store the limit books no turns";
                    return Err(problem("limit", message.to_owned()));
                }
                gate.on_store_error = limit.on_store_error;
                (gate.line.queue, gate.line.max_wait) = (queue, None);
                if let Some(wait) = max_wait {
                    gate.line.set_max_wait(wait);
                }
            }
        }
        let except = limit.except.as_ref();
        Ok(Active {
            except: except.map(|list| self.lists[&**list].clone()),
            keys,
            gate,
            limit,
            identity,
            source,
            is_override,
        })
    }
}

fn new_gate(limit: &FileLimit, store: Option<&MakeLimiter>) -> Result<LimitGate, ConfigError> {
    let spec = &limit.spec;
    let fixed = fixed(limit.plan(), None);
    if let (None, Some(most)) = (&fixed, spec.concurrency()) {
        let (permits, source) = most.into_limit();
        let mut gate = InFlight::new(permits, source, false);
        gate.rename(Some(&limit.name), &mut 0);
        return Ok(LimitGate::InFlight(gate));
    }
    let (mut gate, local) = match (fixed, store) {
        (Some(fixed), _) => (Rate::of(false, true, fixed), None),
        (None, Some(store)) => (store(&limit.name, spec.algorithm()?)?, None),
        (None, None) => {
            let local = Local::new(spec.algorithm()?);
            let local = match limit.capacity {
                Some(keys) => local.try_capacity(usize::try_from(keys.0).unwrap_or(usize::MAX))?,
                None if *limit.keys == [KeySource::Global] => local.try_capacity(1)?,
                None => local,
            };
            local.allocate();
            (Rate::of(true, true, any(local.clone())), Some(local))
        }
    };
    gate.rename(Some(&limit.name), &mut 0);
    Ok(LimitGate::Rate(gate, local))
}
