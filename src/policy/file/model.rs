//! What a policy file holds.

use std::{collections::BTreeMap, fmt};

use http::{HeaderMap, HeaderName, Method};

use super::problem::Problem;
use super::tree::{Node, Value};
use super::values::KeySource;
use crate::key::Missing;
use crate::policy::{pattern::PathPattern, spec::Spec};
use crate::quota::Plan;
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
    /// How long a call may take.
    pub(in crate::policy) deadline_ms: u64,
    pub(in crate::policy) place: Place,
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Limit {
    pub(in crate::policy) name: String,
    pub(in crate::policy) spec: Spec,
    /// What holds in place of the numbers; never a quota.
    pub(in crate::policy) plan: Plan,
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
    pub(in crate::policy) overrides: Vec<Override>,
    pub(in crate::policy) place: Place,
}

/// Another limit instead of this one, for some requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Override {
    pub(in crate::policy) requests: OverrideFor,
    /// As the limit that it replaces, but for its name and its numbers.
    pub(in crate::policy) limit: Limit,
}

/// Which requests have another limit.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::policy) enum OverrideFor {
    /// Those whose key is this text.
    Key(String),
    /// Those whose key begins so.
    Prefix(String),
    Headers(HeaderValues),
}

/// Headers, each with the values of which a request has to have one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct HeaderValues(pub(in crate::policy) Vec<(HeaderName, Vec<String>)>);

/// The requests that something applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct Requests {
    pub(in crate::policy) paths: Vec<PathPattern>,
    pub(in crate::policy) methods: Vec<Method>,
    pub(in crate::policy) headers: HeaderValues,
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
        let given = node.entries().iter();
        let given = given.filter(|entry| !matches!(entry.node.value, Value::Null));
        let lines = given.map(|entry| (entry.name.clone(), entry.node.line));
        Self {
            path: path.to_owned(),
            lines: lines.collect(),
            line: node.line,
        }
    }

    /// Whether a field is given.
    pub(super) fn has(&self, field: &str) -> bool {
        self.lines.iter().any(|(name, _)| name == field)
    }

    /// A problem of one of its fields.
    pub(in crate::policy) fn problem(&self, field: &str, message: impl Into<String>) -> Problem {
        let path = format!("{}.{field}", self.path);
        let mut lines = self.lines.iter();
        let known = lines.find(|(name, _)| name == field);
        Problem::new(path, known.map_or(self.line, |(_, line)| *line), message)
    }
}

impl HeaderValues {
    /// Whether each header has one of its values. A client that repeats a header does not get past a limit.
    pub(in crate::policy) fn are_in(&self, headers: &HeaderMap) -> bool {
        self.0.iter().all(|(name, values)| {
            let mut sent = headers.get_all(name).iter();
            sent.any(|sent| {
                values
                    .iter()
                    .any(|value| value.as_bytes() == sent.as_bytes())
            })
        })
    }
}

impl Limit {
    /// It, and those that replace it for some requests.
    pub(in crate::policy) fn with_overrides(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.overrides.iter().map(|one| &one.limit))
    }
}

impl PolicyFile {
    /// The names of the limits, and of their overrides.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let limits = self.limits.iter().flat_map(Limit::with_overrides);
        limits.map(|limit| &*limit.name)
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

/// Manual impl: keys must not be logged.
impl fmt::Debug for OverrideFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(_) => f.write_str("Key(..)"),
            Self::Prefix(_) => f.write_str("Prefix(..)"),
            Self::Headers(headers) => f.debug_tuple("Headers").field(headers).finish(),
        }
    }
}

/// Manual impl: the URL may hold a password.
impl fmt::Debug for StoreSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSource")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl StoreSource {
    pub(in crate::policy) const DEADLINE_MS: u64 = 100;

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
