//! What a policy file holds.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::lines::Lines;
use super::problem::Problem;
use super::values::{
    AllowOrDeny, HeaderForm, HeaderValues, KeySource, Number, Several, WithoutKey,
};
use crate::layer::OnStoreError;
use crate::policy::{pattern::PathPattern, spec::Spec};
use crate::quota::Plan;

/// The limits of a program, read from a file and checked.
///
/// It is read from TOML by [`from_toml`](Self::from_toml), whose problems name their lines, or from any
/// format by [`serde`]: JSON, YAML and others. Two files that say the same are equal.
///
/// ```
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
/// assert_eq!(format!("{file:?}"), "PolicyFile [\"api\"]");
/// # Ok::<(), tower_throttle::policy::Problems>(())
/// ```
///
/// `docs/policy_reference.md` lists all fields.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PolicyFile {
    pub(crate) content: Content,
    #[serde(skip)]
    pub(super) lines: Lines,
}

/// What a file says.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(
    test,
    derive(schemars::JsonSchema),
    schemars(title = "A policy file of tower-throttle")
)]
pub(crate) struct Content {
    /// The schema, for editors.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub(super) schema: Option<String>,
    /// The version of this format: 1.
    #[serde(deserialize_with = "super::values::version")]
    #[cfg_attr(test, schemars(extend("const" = 1)))]
    version: u64,
    /// Lists of networks.
    #[serde(default)]
    pub(crate) lists: BTreeMap<String, ListSource>,
    /// Stores that servers share.
    #[serde(default)]
    pub(crate) stores: BTreeMap<String, StoreSource>,
    /// The limits. All that match a request apply.
    #[serde(default, rename = "limit")]
    pub(crate) limits: Vec<FileLimit>,
    /// Clients that are denied.
    #[serde(default, rename = "deny")]
    pub(crate) denies: Vec<Deny>,
}

/// One limit.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FileLimit {
    /// The name in headers, logs, metrics and reports. No two limits share one.
    #[cfg_attr(test, schemars(regex(pattern = super::tests::NAME)))]
    pub(crate) name: String,
    /// `ALGORITHM LIMIT/PERIOD; OPTION=VALUE; ..`, such as `token_bucket 10/s; burst=50`.
    #[serde(rename = "limit")]
    pub(crate) spec: Spec,
    /// What requests are counted by. Several are counted by all of them together.
    #[serde(rename = "key")]
    pub(crate) keys: Several<KeySource>,
    /// What happens to requests without the key: they share one limit, are not limited, or are rejected with this
    /// status.
    pub(crate) missing: Option<WithoutKey>,
    /// The requests that the limit applies to; all unless set.
    #[serde(rename = "match")]
    pub(crate) requests: Option<Requests>,
    /// Clients in this list are not limited.
    pub(crate) except: Option<String>,
    /// Decide and report, and let every request pass.
    #[serde(default)]
    pub(crate) shadow: bool,
    /// Response headers that state the limit; none unless set.
    #[serde(default)]
    pub(crate) headers: HeaderForm,
    /// Where usage is stored: memory, a store of this file, or one of the program.
    #[cfg_attr(test, schemars(regex(pattern = super::tests::NAME)))]
    pub(crate) store: Option<String>,
    /// What happens to requests while the store cannot decide.
    #[serde(default, with = "AllowOrDeny")]
    #[cfg_attr(test, schemars(with = "AllowOrDeny"))]
    pub(crate) on_store_error: OnStoreError,
    /// Only responses with these statuses count. 401 and 403 for a lockout unless set.
    #[serde(default, skip_serializing_if = "Several::is_empty")]
    pub(crate) failure: Several<Number<100, 599>>,
    /// How many keys the table in memory holds.
    pub(crate) capacity: Option<Number<1, 100_000_000>>,
    /// Each request is denied, and none is counted.
    #[serde(default)]
    pub(crate) blocked: bool,
    /// Each request passes, and none is counted.
    #[serde(default)]
    pub(crate) unlimited: bool,
    /// Other numbers for some keys, or for requests with some headers.
    #[serde(default, rename = "override")]
    pub(crate) overrides: Vec<Override>,
}

/// Another limit instead of the one around it, for some requests.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Override {
    /// A name of its own, as of a limit.
    #[cfg_attr(test, schemars(regex(pattern = super::tests::NAME)))]
    pub(crate) name: String,
    /// The requests whose key is this text.
    pub(crate) key: Option<String>,
    /// The requests whose key begins with this text.
    pub(crate) prefix: Option<String>,
    /// The requests that have one of these values in each of these headers.
    pub(crate) headers: Option<HeaderValues>,
    /// The same algorithms with other numbers.
    pub(crate) limit: Option<Spec>,
    /// Each request is denied, and none is counted.
    #[serde(default)]
    pub(crate) blocked: bool,
    /// Each request passes, and none is counted.
    #[serde(default)]
    pub(crate) unlimited: bool,
}

/// The requests that something applies to.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Requests {
    /// Paths as in axum's routes: /users/{id}, /api/{*rest}. The limit applies if one matches.
    #[serde(default, rename = "path", skip_serializing_if = "Several::is_empty")]
    pub(crate) paths: Several<PathPattern>,
    /// The limit applies to these methods only.
    #[serde(default, skip_serializing_if = "Several::is_empty")]
    #[cfg_attr(test, schemars(with = "Several<super::tests::Method>"))]
    pub(crate) methods: Several<String>,
    /// The limit applies to requests that have one of these values in each of these headers.
    pub(crate) headers: Option<HeaderValues>,
}

/// Clients that are denied.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Deny {
    /// Clients in this list get status 403.
    pub(crate) list: String,
    /// The requests that are denied; all unless set.
    #[serde(rename = "match")]
    pub(crate) requests: Option<Requests>,
}

/// Where the networks of a list come from.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ListSource {
    /// Networks; ! begins an exception.
    #[serde(default, skip_serializing_if = "Several::is_empty")]
    #[cfg_attr(test, schemars(with = "Several<super::tests::Network>"))]
    pub(crate) cidrs: Several<String>,
    /// A file with one network per line. # begins a comment.
    pub(crate) file: Option<String>,
}

/// A server that stores usage.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct StoreSource {
    /// The URL of a Redis server.
    pub(crate) redis: Option<String>,
    /// The URL of a PostgreSQL server.
    pub(crate) postgres: Option<String>,
    /// How many milliseconds a call may take; 100 unless set.
    #[serde(default)]
    pub(crate) deadline_ms: Option<Number<1, 60_000>>,
}

impl PolicyFile {
    /// A problem of the field at `path`.
    pub(crate) fn problem(&self, path: &str, message: impl Into<String>) -> Problem {
        Problem::new(path, self.lines.of(path), message)
    }
}

impl FileLimit {
    /// What holds in place of the numbers; never a quota.
    pub(crate) const fn plan(&self) -> Plan {
        match (self.blocked, self.unlimited) {
            (true, _) => Plan::Blocked,
            (false, true) => Plan::Unlimited,
            (false, false) => Plan::Default,
        }
    }

    /// The limit that `one` of its overrides puts in its place.
    pub(crate) fn with(&self, one: &Override) -> Self {
        let is_table = self.store.is_none() && self.spec.concurrency().is_none();
        let one_key = one.key.as_ref().filter(|_| is_table);
        Self {
            name: one.name.clone(),
            spec: one.limit.as_ref().unwrap_or(&self.spec).clone(),
            blocked: one.blocked,
            unlimited: one.unlimited,
            capacity: one_key.map_or(self.capacity, |_| Some(Number(1))),
            overrides: Vec::new(),
            ..self.clone()
        }
    }
}

impl StoreSource {
    /// The name of its field, the URL, and how long a call may take.
    pub(crate) fn parts(&self) -> (&'static str, &str, Duration) {
        let deadline = Duration::from_millis(self.deadline_ms.map_or(100, |ms| ms.0));
        match (&self.redis, &self.postgres) {
            (Some(url), _) => ("redis", url, deadline),
            (None, url) => ("postgres", url.as_deref().unwrap_or_default(), deadline),
        }
    }

    /// The URL without the password, which may change while the usage is the same. A password
    /// elsewhere, such as in the query, stays.
    pub(crate) fn address(&self) -> String {
        let (_, url, _) = self.parts();
        let Some((scheme, rest)) = url.split_once("://") else {
            return url.to_owned();
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let Some((user, host)) = authority.rsplit_once('@') else {
            return url.to_owned();
        };
        let name = user.split(':').next().unwrap_or_default();
        format!("{scheme}://{name}@{host}{path}")
    }
}

/// Manual impl: keys and URLs must not be logged.
impl fmt::Debug for PolicyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PolicyFile ")?;
        let names = self.content.limits.iter().map(|limit| &limit.name);
        f.debug_list().entries(names).finish()
    }
}
