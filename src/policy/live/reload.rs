//! Builds the limits of a file, and takes over what those of the file before have counted.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use super::active::{Active, ActiveDeny, ActiveGate, Identity, Overrides};
use super::backend::PolicyBackend;
use super::environment::{Environment, MakeLimiter};
use super::generation::Generation;
use super::key::PolicyKey;
use super::keys::PolicyKeys;
use super::report::Reloaded;
use super::stores;
use crate::algorithm::AnyAlgorithm;
use crate::backend::IntoBackend;
use crate::concurrency::{InFlight, IntoLimit};
use crate::error::ConfigError;
use crate::key::{Networks, Watched, Within};
use crate::layer::{Handle, Limiting, OnStoreError, Rate};
use crate::policy::{
    file::{AllowOrDeny, Limit, ListSource, PolicyFile, Problem, Problems, StoreSource},
    parse::did_you_mean,
    spec::Concurrency,
};
use crate::quota::{Plan, Quota};
use crate::store::local::Local;

/// The stores that were opened. Connections outlive a reload.
pub(super) type OpenStores = BTreeMap<StoreSource, MakeLimiter>;

/// A change of a limit that keeps its usage, to be made when the whole file is known to be right.
enum Change {
    /// With the quota, if nothing else changes.
    Algorithm(AnyAlgorithm, Option<Quota>),
    InFlight(u32),
}

/// Builds the limits of `file` with its lists. Nothing changes if there is an error.
pub(super) fn build(
    file: &PolicyFile,
    lists: Lists<'_>,
    environment: &Environment,
    open: &mut OpenStores,
    before: &Generation,
) -> Result<(Generation, Reloaded), Problems> {
    let mut builder = Builder {
        file,
        environment,
        lists: lists.networks,
        stores: BTreeMap::new(),
        problems: lists.problems,
        warnings: lists.warnings,
    };
    builder.open_stores(open);
    let mut built = Vec::new();
    for (at, limit) in file.content.limits.iter().enumerate() {
        let path = format!("limit[{at}]");
        let overrides = limit.overrides.iter().enumerate();
        let overrides =
            overrides.map(|(at, one)| (format!("{path}.override[{at}]"), limit.with(one)));
        let overrides: Vec<_> = overrides.collect();
        let all =
            std::iter::once((&path, limit)).chain(overrides.iter().map(|(path, one)| (path, one)));
        for (behind, (path, limit)) in all.enumerate() {
            let mut limits = before.limits.iter();
            let old = limits.find(|old| old.limit.name == limit.name);
            built.extend(builder.limit(path, limit, old, behind > 0));
        }
    }
    let denies = builder.denies();
    if !builder.problems.is_empty() {
        return Err(Problems::of(builder.problems));
    }
    // From here on nothing fails.
    open.retain(|store, _| file.content.stores.values().any(|used| used == store));
    let mut report = Reloaded::default();
    let mut limits = Vec::new();
    for Built { mut active, origin } in built {
        let name = active.limit.name.clone();
        match origin {
            Origin::Fresh(reason) => report.fresh.push((name, reason)),
            Origin::Kept => report.kept.push(name),
            Origin::ChangedInStore => report.changed.push(name),
            Origin::Changed(change) => match active.change(change) {
                Ok(()) => report.changed.push(name),
                Err(error) => report.fresh.push((name, error.to_string())),
            },
        }
        limits.push(active);
    }
    let is_gone = |old: &&Active| file.names().all(|name| name != old.limit.name);
    let gone = before.limits.iter().filter(is_gone);
    report.removed = gone.map(|old| old.limit.name.clone()).collect();
    let lists = builder.lists.into_iter();
    let generation = Generation {
        limits,
        denies,
        denied: file.content.denies.clone(),
        lists: lists.map(|(name, list)| (name.to_owned(), list)).collect(),
        warnings: builder.warnings,
    };
    report.compare(before, &generation);
    Ok((generation, report))
}

/// A limit that is ready, unless another part of the file is wrong.
struct Built {
    active: Active,
    origin: Origin,
}

enum Origin {
    Fresh(String),
    Kept,
    /// The store takes over the usage.
    ChangedInStore,
    Changed(Change),
}

impl Origin {
    fn new() -> Self {
        Self::Fresh("as it is new".to_owned())
    }
}

struct Builder<'a> {
    file: &'a PolicyFile,
    environment: &'a Environment,
    lists: BTreeMap<&'a str, Watched<Networks>>,
    stores: BTreeMap<&'a str, MakeLimiter>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

/// The lists of a file. Reading them may take long, so nothing is locked meanwhile.
pub(super) struct Lists<'a> {
    networks: BTreeMap<&'a str, Watched<Networks>>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl<'a> Lists<'a> {
    pub(super) fn read(file: &'a PolicyFile, environment: &Environment) -> Self {
        let mut lists = Self {
            networks: BTreeMap::new(),
            problems: Vec::new(),
            warnings: file.warnings(),
        };
        for (name, source) in &file.content.lists {
            let field = source.file.as_ref().map_or("cidrs", |_| "file");
            let path = format!("lists.{name}.{field}");
            match networks(source, &environment.folder) {
                Ok(networks) => {
                    if networks.is_empty() {
                        let message = "the list has no networks, so it contains no client";
                        lists.warnings.push(file.problem(&path, message));
                    }
                    lists.networks.insert(name, Watched::new(networks));
                }
                Err(message) => lists.problems.push(file.problem(&path, message)),
            }
        }
        lists
    }
}

impl<'a> Builder<'a> {
    fn open_stores(&mut self, open: &mut OpenStores) {
        let file = self.file;
        for (name, source) in &file.content.stores {
            let path = format!("stores.{name}.{}", source.url().0);
            if self.environment.stores.contains_key(name) {
                let message = "the program has a store of this name; give another name";
                self.problems.push(file.problem(&path, message));
                continue;
            }
            let limiter = match open.get(source) {
                Some(limiter) => Ok(Arc::clone(limiter)),
                None => stores::open(source),
            };
            match limiter {
                Ok(limiter) => {
                    open.insert(source.clone(), Arc::clone(&limiter));
                    self.stores.insert(name, limiter);
                }
                Err(message) => self.problems.push(file.problem(&path, message)),
            }
        }
    }

    fn within(&self, list: &str) -> Option<Within> {
        let networks = self.lists.get(list)?;
        Some(self.environment.clients.within(networks))
    }

    fn denies(&self) -> Vec<ActiveDeny> {
        let denies = self.file.content.denies.iter().filter_map(|deny| {
            Some(ActiveDeny {
                requests: deny.requests.clone(),
                list: self.within(&deny.list)?,
            })
        });
        denies.collect()
    }

    /// The limit with what `old`, the one of the same name, has counted if it is the same limit.
    fn limit(
        &mut self,
        path: &str,
        limit: &Limit,
        old: Option<&Active>,
        is_override: bool,
    ) -> Option<Built> {
        let keys = match PolicyKeys::of(limit, self.environment) {
            Ok(keys) => keys,
            Err(message) => {
                self.problems
                    .push(self.file.problem(&format!("{path}.key"), message));
                return None;
            }
        };
        let identity = self.identity(limit);
        let same = old.filter(|old| old.identity == identity);
        let (gate, origin) = match (
            PolicyBackend::fixed(limit.plan()),
            limit.limit.0.concurrency(),
        ) {
            (Some(fixed), in_flight) => {
                if in_flight.is_none() {
                    self.or_report(path, "limit", limit.limit.0.algorithm())?;
                }
                if let Some(store) = &limit.store {
                    self.limiter(store, path)?;
                }
                match same {
                    Some(same) => (same.gate.clone(), Origin::Kept),
                    None => (ActiveGate::Rate(fresh(limit, fixed)), Origin::new()),
                }
            }
            (None, Some(spec)) => in_flight(limit, spec, same),
            (None, None) => self.rate(path, limit, &keys, same)?,
        };
        let origin = match (origin, same, old) {
            (Origin::Fresh(_), None, Some(old)) => Origin::Fresh(format!(
                "as its {} has changed",
                identity.difference(&old.identity)
            )),
            (origin, ..) => origin,
        };
        Some(Built {
            active: Active {
                limit: limit.clone(),
                identity,
                source: self.source(limit).cloned(),
                except: limit
                    .except
                    .as_ref()
                    .and_then(|except| self.within(&except.list)),
                keys,
                gate,
                is_override,
                overrides: Overrides::of(limit),
            },
            origin,
        })
    }

    /// The store of the file that the limit names.
    fn source(&self, limit: &Limit) -> Option<&'a StoreSource> {
        self.file.content.stores.get(limit.store.as_ref()?)
    }

    fn identity(&self, limit: &Limit) -> Identity {
        let keys: Vec<_> = limit.keys.iter().cloned().map(String::from).collect();
        let url = self.source(limit).map(StoreSource::address);
        Identity {
            key: keys.join(", "),
            algorithm: match limit.plan() {
                Plan::Blocked => "blocked".to_owned(),
                Plan::Unlimited => "unlimited".to_owned(),
                Plan::Default | Plan::Quota(_) => limit.limit.0.kind(),
            },
            store: (limit.store.clone(), url),
            capacity: limit.capacity.map(|keys| keys.0),
        }
    }

    fn rate(
        &mut self,
        path: &str,
        limit: &Limit,
        keys: &PolicyKeys,
        same: Option<&Active>,
    ) -> Option<(ActiveGate, Origin)> {
        let old = same.and_then(|same| match &same.gate {
            ActiveGate::Rate(gate) => Some((gate, &same.limit.limit.0)),
            ActiveGate::InFlight(_) => None,
        });
        let algorithm = limit.limit.0.algorithm();
        let algorithm = self.or_report(path, "limit", algorithm)?;
        // Another password needs new connections.
        let is_same_server = same.is_none_or(|same| same.source.as_ref() == self.source(limit));
        let (gate, origin) = match (&limit.store, old) {
            (_, Some((gate, spec))) if *spec == limit.limit.0 && is_same_server => {
                (gate.clone(), Origin::Kept)
            }
            (None, Some((gate, spec))) => {
                let change = Change::Algorithm(algorithm, spec.changed_quota(&limit.limit.0));
                (gate.clone(), Origin::Changed(change))
            }
            (None, None) => {
                let field = limit.capacity.map_or("limit", |_| "capacity");
                let backend = self.or_report(path, field, memory(limit, keys, algorithm))?;
                (fresh(limit, backend), Origin::new())
            }
            (Some(store), old) => {
                let limiter = self.limiter(store, path)?;
                let backend = self.or_report(path, "limit", limiter(&limit.name, algorithm))?;
                // The store keeps the usage, and the new limiter takes it over there.
                let origin = old.map_or_else(Origin::new, |_| Origin::ChangedInStore);
                (fresh(limit, backend), origin)
            }
        };
        Some((ActiveGate::Rate(with_options(gate, limit)), origin))
    }

    /// Reports an error in a field of a limit.
    fn or_report<T>(&mut self, path: &str, field: &str, made: Result<T, ConfigError>) -> Option<T> {
        let report = |error: ConfigError| {
            let path = format!("{path}.{field}");
            self.problems
                .push(self.file.problem(&path, error.to_string()));
        };
        made.map_err(report).ok()
    }

    /// What makes limiters of a store.
    fn limiter(&mut self, store: &str, path: &str) -> Option<MakeLimiter> {
        let of_file = self.stores.get(store);
        if let Some(limiter) = of_file.or_else(|| self.environment.stores.get(store)) {
            return Some(Arc::clone(limiter));
        }
        // A store of the file that cannot be opened is reported there.
        if !self.file.content.stores.contains_key(store) {
            let known = self
                .environment
                .stores
                .keys()
                .chain(self.file.content.stores.keys());
            let known: Vec<&str> = known.map(String::as_str).chain(["memory"]).collect();
            let near = did_you_mean(store, known.iter().copied());
            let known = known.join(", ");
            let message = format!("the store {store:?} is not defined{near}; there is: {known}");
            self.problems
                .push(self.file.problem(&format!("{path}.store"), message));
        }
        None
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

impl Identity {
    /// What is not the same, in the words of the file.
    fn difference(&self, other: &Self) -> &'static str {
        match () {
            () if self.key != other.key => "key",
            () if self.algorithm != other.algorithm => "algorithm",
            () if self.store != other.store => "store",
            () => "capacity",
        }
    }
}

impl Active {
    /// Changes the numbers of a limit whose usage is kept. If that is not possible, the limit begins
    /// anew.
    fn change(&mut self, change: Change) -> Result<(), ConfigError> {
        match (&mut self.gate, change) {
            (ActiveGate::InFlight(gate), Change::InFlight(limit)) => {
                Handle::<PolicyKey, _>::new(gate.state()).set_limit(limit)
            }
            (ActiveGate::Rate(gate), Change::Algorithm(algorithm, quota)) => {
                let handle = Handle::<PolicyKey, _>::new(gate.state());
                let Some(local) = handle.backend().memory() else {
                    return Ok(());
                };
                let limit = handle.of_same::<PolicyKey, _>(Arc::new(local.clone()));
                let changed = limit.replace_algorithm(algorithm, quota);
                if changed.is_err() {
                    let algorithm = self.limit.limit.0.algorithm()?;
                    let backend = memory(&self.limit, &self.keys, algorithm)?;
                    *gate = with_options(fresh(&self.limit, backend), &self.limit);
                }
                changed
            }
            _ => Ok(()),
        }
    }
}

fn memory(
    limit: &Limit,
    keys: &PolicyKeys,
    algorithm: AnyAlgorithm,
) -> Result<PolicyBackend, ConfigError> {
    let local = Local::new(algorithm);
    let local = match limit.capacity {
        Some(keys) => local.try_capacity(usize::try_from(keys.0).unwrap_or(usize::MAX))?,
        None if keys.is_global() => local.try_capacity(1)?,
        None => local,
    };
    Ok(PolicyBackend::in_memory(local))
}

fn fresh(limit: &Limit, backend: PolicyBackend) -> Rate<PolicyBackend> {
    let mut gate = Rate::new(backend.into_backend());
    gate.rename(Some(&limit.name), &mut 0);
    gate
}

fn with_options(mut gate: Rate<PolicyBackend>, limit: &Limit) -> Rate<PolicyBackend> {
    gate.on_store_error = match limit.on_store_error {
        AllowOrDeny::Allow => OnStoreError::Allow,
        AllowOrDeny::Deny => OnStoreError::Deny,
    };
    gate
}

fn in_flight(limit: &Limit, spec: Concurrency, same: Option<&Active>) -> (ActiveGate, Origin) {
    let old = same.and_then(|same| match &same.gate {
        ActiveGate::InFlight(gate) => Some((gate.clone(), &same.limit.limit.0)),
        ActiveGate::Rate(_) => None,
    });
    let (mut gate, origin) = match old {
        None => {
            let (permits, source) = spec.limit.into_limit();
            let mut gate = InFlight::new(permits, source, false);
            gate.rename(Some(&limit.name), &mut 0);
            (gate, Origin::new())
        }
        Some((gate, old)) if *old == limit.limit.0 => (gate, Origin::Kept),
        Some((gate, _)) => (gate, Origin::Changed(Change::InFlight(spec.limit))),
    };
    gate.options.queue = spec.queue;
    gate.options.max_wait = spec.max_wait.unwrap_or(Duration::from_secs(1));
    (ActiveGate::InFlight(gate), origin)
}
