//! What a program gives to its policy file.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use http::Extensions;

use super::key::{PolicyKey, PolicyLimiter};
use crate::algorithm::AnyAlgorithm;
use crate::backend::{Backend, IntoBackend};
use crate::error::ConfigError;
use crate::key::ClientIp;
use crate::layer::Rate;
use crate::policy::file::StoreSource;
use crate::store::any;
#[cfg(any(feature = "postgres", feature = "redis"))]
use crate::store::cas::Cas;
#[cfg(feature = "postgres")]
use crate::store::cas::postgres::PostgreSql;
#[cfg(feature = "redis")]
use crate::store::redis::Redis;

pub(super) type FindExtension = Arc<dyn Fn(&Extensions) -> Option<String> + Send + Sync>;
pub(super) type MakeLimiter =
    Arc<dyn Fn(&str, AnyAlgorithm) -> Result<Rate<PolicyLimiter>, ConfigError> + Send + Sync>;

/// What a policy file cannot say: how clients are found, what extensions mean, which stores the
/// program has.
///
/// ```
/// use http::Extensions;
/// use tower_throttle::{ClientIp, policy::Environment};
///
/// #[derive(Clone)]
/// struct Account(u64); // authentication inserts it
///
/// let environment = Environment::new()
///     .client_ip(ClientIp::x_forwarded_for().trusting(["10.0.0.0/8"]))
///     .extension("account", |extensions: &Extensions| {
///         Some(extensions.get::<Account>()?.0.to_string())
///     });
/// # drop(environment);
/// ```
#[derive(Clone)]
pub struct Environment {
    pub(super) clients: ClientIp,
    pub(super) extensions: BTreeMap<String, FindExtension>,
    pub(super) stores: BTreeMap<String, MakeLimiter>,
    pub(super) folder: PathBuf,
}

impl Environment {
    /// Clients are the peers of the connections; there are no extensions and no stores.
    pub fn new() -> Self {
        Self {
            clients: ClientIp::peer(),
            extensions: BTreeMap::new(),
            stores: BTreeMap::new(),
            folder: PathBuf::new(),
        }
    }

    /// How the address of a client is found, for the key `client_ip` and for lists.
    #[must_use]
    pub fn client_ip(mut self, clients: ClientIp) -> Self {
        self.clients = clients;
        self
    }

    /// Lets limits use the key `extension:NAME`, which `find` reads from the extensions of a request. A
    /// request for which it returns `None` has no key.
    #[must_use]
    pub fn extension(
        mut self,
        name: &str,
        find: impl Fn(&Extensions) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.extensions.insert(name.to_owned(), Arc::new(find));
        self
    }

    /// Lets limits use the store `name`. `limiter` makes the limiter of a limit, given its name.
    ///
    /// ```
    /// use tower_throttle::{Local, policy::Environment};
    ///
    /// // A store of the program: here, a table in this process.
    /// let environment = Environment::new()
    ///     .store("table", |_name: &str, algorithm| Ok(Local::new(algorithm).capacity(1_000)));
    /// # drop(environment);
    /// ```
    ///
    /// With a Redis of the program, it is
    /// `.store("shared", move |name, algorithm| Cas::new(redis.clone(), name, algorithm))`.
    #[must_use]
    pub fn store<F, L>(mut self, name: &str, limiter: F) -> Self
    where
        F: Fn(&str, AnyAlgorithm) -> Result<L, ConfigError> + Send + Sync + 'static,
        L: IntoBackend<Backend: Backend<PolicyKey>>,
    {
        let make = move |name: &str, algorithm| {
            let limiter = limiter(name, algorithm)?.into_backend();
            let at_once = L::decides_at_once(&limiter);
            Ok(Rate::of(
                at_once,
                at_once || L::queues(&limiter),
                any(limiter),
            ))
        };
        self.stores.insert(name.to_owned(), Arc::new(make));
        self
    }

    /// The folder in which files of lists are looked for; the current one unless set.
    ///
    /// ```
    /// use std::path::Path;
    /// use tower_throttle::policy::Environment;
    ///
    /// // The folder of the policy file.
    /// let file = Path::new("/etc/shop/policies.toml");
    /// let environment = Environment::new().folder(file.parent().unwrap());
    /// # drop(environment);
    /// ```
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = folder.into();
        self
    }

    /// Adds a store of a file. Connections are opened with the first request.
    pub(super) fn store_of(self, source: &StoreSource, name: &str) -> Result<Self, String> {
        match source.parts() {
            #[cfg(feature = "redis")]
            ("redis", url, deadline) => {
                let redis = Redis::open(url).map_err(|error| error.to_string())?;
                let redis = redis.deadline(deadline);
                Ok(self.store(name, move |name, algorithm| {
                    Cas::new(redis.clone(), name, algorithm)
                }))
            }
            // The table is that of `PostgreSql::create_table`.
            #[cfg(feature = "postgres")]
            ("postgres", url, deadline) => {
                let store = PostgreSql::open(url).map_err(|error| error.to_string())?;
                Ok(self.store(name, move |name, algorithm| {
                    Ok(Cas::new(store.clone(), name, algorithm)?.deadline(deadline))
                }))
            }
            (feature, ..) => {
                drop(self);
                Err(format!(
                    "{name} needs the feature `{feature}` of tower-throttle"
                ))
            }
        }
    }
}

impl Default for Environment {
    fn default() -> Self {
        Self::new()
    }
}

/// Manual impl: closures are not `Debug`.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("clients", &self.clients)
            .finish_non_exhaustive()
    }
}
