//! What a policy file holds.

use std::{collections::BTreeMap, fmt};

use http::Method;

use super::problem::Problem;
use super::tree::Node;
use super::values::KeySource;
use crate::policy::{pattern::PathPattern, spec::Spec};
use crate::respond::Headers;

/// The limits of a program, read from a file and checked.
///
/// It is read from TOML by [`from_toml`](Self::from_toml), whose problems name their lines, or from any
/// format by [`serde`]: JSON, YAML and others. Two files that say the same are equal.
///
/// ```
/// # #[cfg(feature = "toml")] {
/// use tower_throttle::policy::PolicyFile;
///
/// let file = PolicyFile::from_toml(r#"
///     version = 1
///
///     [[limit]]
///     name = "api"
///     limit = "token_bucket 10/s; burst=50"
///     key = "client_ip"
/// "#)?;
/// assert_eq!(file.names().collect::<Vec<_>>(), ["api"]);
/// # }
/// # Ok::<(), tower_throttle::policy::Problems>(())
/// ```
///
/// `docs/policy_reference.md` lists all fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFile {
    pub(in crate::policy) lists: BTreeMap<String, ListSource>,
    pub(in crate::policy) stores: BTreeMap<String, StoreSource>,
    pub(in crate::policy) limits: Vec<Limit>,
    pub(in crate::policy) denies: Vec<Deny>,
}

/// Where the networks of a list come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct ListSource {
    pub(in crate::policy) networks: NetworksSource,
    pub(in crate::policy) place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) enum NetworksSource {
    Cidrs(Vec<String>),
    File(String),
}

/// A server that stores usage.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::policy) struct StoreSource {
    /// `redis` or `postgres`.
    pub(in crate::policy) kind: &'static str,
    pub(in crate::policy) url: String,
    pub(in crate::policy) place: Place,
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Limit {
    pub(in crate::policy) name: String,
    pub(in crate::policy) spec: Spec,
    pub(in crate::policy) keys: Vec<KeySource>,
    pub(in crate::policy) missing: Option<Missing>,
    pub(in crate::policy) requests: Requests,
    pub(in crate::policy) except: Option<String>,
    pub(in crate::policy) is_shadow: bool,
    pub(in crate::policy) headers: Option<Headers>,
    /// `None` is the memory of this process.
    pub(in crate::policy) store: Option<String>,
    pub(in crate::policy) denies_on_store_error: bool,
    pub(in crate::policy) failure: Vec<u16>,
    pub(in crate::policy) capacity: Option<u64>,
    pub(in crate::policy) place: Place,
}

/// What happens to a request without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) enum Missing {
    Shared,
    Skip,
    Reject(u16),
}

/// The requests that something applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct Requests {
    pub(in crate::policy) paths: Vec<PathPattern>,
    pub(in crate::policy) methods: Vec<Method>,
}

/// Clients that are denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Deny {
    pub(in crate::policy) list: String,
    pub(in crate::policy) requests: Requests,
}

/// Where something was written, for problems that are found later.
#[derive(Clone, Debug, Default)]
pub(in crate::policy) struct Place {
    path: String,
    lines: Vec<(String, Option<u32>)>,
    line: Option<u32>,
}

impl Place {
    pub(super) fn of(path: &str, node: &Node) -> Self {
        let lines = node.entries().iter();
        let lines = lines.map(|entry| (entry.name.clone(), entry.node.line));
        Self {
            path: path.to_owned(),
            lines: lines.collect(),
            line: node.line,
        }
    }

    /// A problem of one of its fields.
    pub(in crate::policy) fn problem(&self, field: &str, message: impl Into<String>) -> Problem {
        let path = format!("{}.{field}", self.path);
        let mut lines = self.lines.iter();
        let known = lines.find(|(name, _)| name == field);
        Problem::new(path, known.map_or(self.line, |(_, line)| *line), message)
    }
}

impl PolicyFile {
    /// The names of the limits.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.limits.iter().map(|limit| &*limit.name)
    }

    /// What is allowed and yet probably a mistake: a file without a limit.
    ///
    /// ```
    /// # #[cfg(feature = "toml")] {
    /// use tower_throttle::policy::PolicyFile;
    ///
    /// let file = PolicyFile::from_toml("version = 1").unwrap();
    /// let warning = file.warnings()[0].to_string();
    /// assert_eq!(warning, "limit: the file has no limit: every request passes");
    /// # }
    /// ```
    pub fn warnings(&self) -> Vec<Problem> {
        if self.limits.is_empty() && self.denies.is_empty() {
            let message = "the file has no limit: every request passes";
            return vec![Problem::new("limit", None, message)];
        }
        Vec::new()
    }
}

/// Manual impl: what is written elsewhere is equal.
impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Place {}

/// Manual impl: the URL may hold a password.
impl fmt::Debug for StoreSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSource")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl StoreSource {
    /// The URL without the password, which may change while the usage is the same. A password
    /// elsewhere, such as in the query, stays.
    pub(in crate::policy) fn address(&self) -> String {
        let whole = || self.url.clone();
        let Some((scheme, rest)) = self.url.split_once("://") else {
            return whole();
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        match authority.rsplit_once('@') {
            Some((user, host)) => {
                let name = user.split(':').next().unwrap_or_default();
                format!("{scheme}://{name}@{host}{path}")
            }
            None => whole(),
        }
    }
}
