//! The layer of a policy file, and its handle.

use std::io::{self, Read, Write};

use super::active::{Active, LimitGate, MatchedLimits};
use super::environment::Environment;
use super::key::{PolicyKey, PolicyLimiter};
use super::limits::PolicyLimits;
use super::report::Reloaded;
use super::respond::AsInFile;
use crate::algorithm::AnyAlgorithm;
use crate::concurrency::Permits;
use crate::layer::{AllOf, Counts, Handle, LimitLayer, Limiting};
use crate::policy::file::{PolicyFile, Problems};
use crate::respond::{Responder, Standard};
use crate::saved::{SaveState, load_named, save_named};
use crate::store::local::Local;

/// Applies the limits of a policy file to an HTTP service, and can be reloaded.
///
/// # When a request passes
/// 1. A request of a client in a `[[deny]]` list gets status 403, or 500 if its client is not known.
/// 2. All limits whose `match` contains the request apply, unless its client is in their `except` list.
/// 3. It passes if all of them admit it. If one of them denies it, no other one counts it: before
///    anything is counted, each limit in memory is asked whether it would deny the request. What a
///    limit has counted for a request that a later one denies, in a store or at the same moment, is
///    given back.
///
/// [`AllOf`] says in which order they are asked.
///
/// It has the settings of every layer: [`respond`](LimitLayer::respond), [`skip`](LimitLayer::skip),
/// [`cost`](LimitLayer::cost), [`shadow`](LimitLayer::shadow) and so on are about all limits of the file,
/// and [`and`](LimitLayer::and) adds one that the file cannot say. [`headers`](LimitLayer::headers) and
/// [`settle`](LimitLayer::settle) replace what the file says.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use axum::{Router, body::Body, extract::Request, routing::get};
/// use tower::ServiceExt;
/// use tower_throttle::policy::{Environment, PolicyFile, PolicyLayer};
///
/// let file = |limit: &str| {
///     PolicyFile::from_toml(&format!(
///         "version = 1\n[[limit]]\nname = \"all\"\nlimit = \"{limit}\"\nkey = \"global\""
///     ))
/// };
/// let policy = PolicyLayer::new(file("fixed_window 1/h")?, Environment::new())?;
/// let handle = policy.handle();
/// let app: Router = Router::new().route("/", get(async || "done")).layer(policy);
/// let status = async || {
///     let request = Request::new(Body::empty());
///     app.clone().oneshot(request).await.unwrap().status().as_u16()
/// };
/// assert_eq!((status().await, status().await), (200, 429));
///
/// // The one request stays used.
/// let reloaded = handle.reload(file("fixed_window 2/h")?)?;
/// assert_eq!(reloaded.changed, ["all"]);
/// assert_eq!((status().await, status().await), (200, 429));
/// # Ok(())
/// # }
/// ```
pub type PolicyLayer<R = PolicyResponder> = LimitLayer<PolicyLimits, AllOf<PolicyLimits>, R>;

/// Reloads and reads the limits of a [`PolicyLayer`]. A [`Handle`] of all of them together.
pub type PolicyHandle = Handle<MatchedLimits, PolicyLimits>;

type PolicyResponder = Responder<Standard, AsInFile, AsInFile>;

impl PolicyLayer {
    /// Builds the limits of `file`.
    ///
    /// # Errors
    /// If the environment lacks what the file names, such as a store or an extension, or a list cannot
    /// be read.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a file that is loaded has no other use"
    )]
    pub fn new(file: PolicyFile, environment: Environment) -> Result<Self, Problems> {
        let limits = PolicyLimits::new(environment);
        limits.reload(&file)?;
        let layer = LimitLayer::of(limits.clone(), AllOf::new(limits));
        let layer = layer.headers(AsInFile);
        Ok(layer.map_respond(|_, deny, tell, (), watch| (deny, tell, AsInFile, watch)))
    }
}

impl PolicyHandle {
    /// Replaces all limits by those of `file`, or none if there is an error.
    ///
    /// A limit is the same if its name, key, algorithm, store and capacity are. What it has counted
    /// stays counted: if its numbers change, units that a key has used stay used, and blocks of a
    /// lockout last on. Requests that wait for a new quota go at its pace. Everything else
    /// of a limit, such as `match`, `except`, `headers` and `shadow`, and all lists, are replaced at
    /// once. Any other limit begins with no usage, and the report says that it was added.
    ///
    /// To read the same file again and again never admits more than to read it once. Files of lists are
    /// read anew.
    ///
    /// # Errors
    /// See [`PolicyLayer::new`]. The limits stay as they were.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a file that is loaded has no other use"
    )]
    pub fn reload(&self, file: PolicyFile) -> Result<Reloaded, Problems> {
        self.backend().reload(&file)
    }

    /// The rate limit `name`, to read it and to change its keys: peek, reset, charge and
    /// refund. `None` if there is no rate limit of this name.
    ///
    /// The handle is that of the limit as it is now. If a reload begins the limit anew, ask again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tower_throttle::{ClientIp, policy::{Environment, PolicyFile, PolicyLayer}};
    ///
    /// let file = PolicyFile::from_toml(
    ///     "version = 1\n[[limit]]\nname = \"login\"\nlimit = \"lockout 5/h\"\nkey = \"client_ip\"\nfailure = 401",
    /// )?;
    /// let policy = PolicyLayer::new(file, Environment::new())?;
    /// let logins = policy.handle().limit("login").expect("the limit is in the file");
    /// let client = ClientIp::peer().key([203, 0, 113, 9].into()).into();
    /// logins.charge(&client, 5).await?;
    /// assert!(logins.peek(&client, 1).await?.is_denied());
    /// logins.reset(&client).await?;
    /// assert!(logins.peek(&client, 1).await?.is_admitted());
    /// # Ok(())
    /// # }
    /// ```
    pub fn limit(&self, name: &str) -> Option<Handle<PolicyKey, PolicyLimiter>> {
        self.with(name, |active| match &active.gate {
            LimitGate::Rate(gate, _) => Some(Handle::new(gate.state())),
            LimitGate::InFlight(_) => None,
        })?
    }

    /// The limit on requests in flight `name`. `None` if there is no such limit of this name.
    pub fn in_flight(&self, name: &str) -> Option<Handle<PolicyKey, Permits>> {
        self.with(name, |active| match &active.gate {
            LimitGate::Rate(..) => None,
            LimitGate::InFlight(gate) => Some(Handle::new(gate.state())),
        })?
    }

    /// How many requests the limit `name` has admitted, denied, queued, and so on, so far; `None` if there
    /// is no limit of this name. [`counts`](Handle::counts) is about all limits together.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use axum::{Router, body::Body, extract::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_throttle::policy::{Environment, PolicyFile, PolicyLayer};
    ///
    /// let file = PolicyFile::from_toml(
    ///     "version = 1\n[[limit]]\nname = \"all\"\nlimit = \"fixed_window 1/h\"\nkey = \"global\"",
    /// )?;
    /// let policy = PolicyLayer::new(file, Environment::new())?;
    /// let handle = policy.handle();
    /// let app: Router = Router::new().route("/", get(async || "done")).layer(policy);
    /// for _ in 0..3 {
    ///     let _ = app.clone().oneshot(Request::new(Body::empty())).await;
    /// }
    /// let counts = handle.counts_of("all").expect("the limit is in the file");
    /// assert_eq!((counts.admitted, counts.denied), (1, 2));
    /// assert!(handle.counts_of("other").is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn counts_of(&self, name: &str) -> Option<Counts> {
        self.with(name, Active::counts)
    }

    /// The rate limits in memory.
    fn in_memory(&self) -> Vec<(String, Local<AnyAlgorithm>)> {
        let generation = self.backend().current();
        let limits = generation.limits.iter();
        let in_memory = limits.filter_map(|active| match &active.gate {
            LimitGate::Rate(_, Some(local)) => Some((active.limit.name.clone(), local.clone())),
            _ => None,
        });
        in_memory.collect()
    }

    /// Calls `read` with the limit `name`.
    fn with<T>(&self, name: &str, read: impl FnOnce(&Active) -> T) -> Option<T> {
        let generation = self.backend().current();
        let mut limits = generation.limits.iter();
        limits.find(|active| active.limit.name == name).map(read)
    }

    /// What is allowed and yet probably a mistake: a file without a limit, or a list without networks.
    /// Lists in files were read when the file was loaded.
    ///
    /// ```
    /// use tower_throttle::policy::{Environment, PolicyFile, PolicyLayer};
    ///
    /// let file = PolicyFile::from_toml("version = 1").unwrap();
    /// let handle = PolicyLayer::new(file, Environment::new()).unwrap().handle();
    /// assert_eq!(handle.warnings()[0], "limit: the file has no limit: every request passes");
    /// ```
    pub fn warnings(&self) -> Vec<String> {
        let current = self.backend().current();
        current.warnings.iter().map(ToString::to_string).collect()
    }
}

/// What stores hold is not saved. A limit that was not saved begins afresh, and so does one whose state does not fit: the others
/// are loaded, and the error says why.
impl SaveState for PolicyHandle {
    fn save(&self, writer: &mut dyn Write) -> io::Result<()> {
        let limits = self.in_memory();
        save_named(limits.iter().map(named), writer)
    }

    fn load(&self, reader: &mut dyn Read) -> io::Result<()> {
        let limits = self.in_memory();
        load_named(limits.iter().map(named), reader)
    }
}

fn named((name, limit): &(String, Local<AnyAlgorithm>)) -> (&str, &dyn SaveState) {
    (name, limit)
}
