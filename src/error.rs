//! Errors of a configuration, of one request and of a store.

use std::{borrow::Cow, error::Error, fmt, sync::Arc, time::Duration};

use http::StatusCode;

use crate::decision::{Decision, ceil_seconds};

/// An invalid setting.
///
/// The message contains the field, the value that was given and the values that are allowed.
///
/// ```
/// use tower_throttle::Quota;
///
/// let error = "0/s".parse::<Quota>().unwrap_err();
/// assert_eq!(error.to_string(), "limit: 0 is not allowed; give a number from 1 to 9007199254740991");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl ConfigError {
    /// A number or a duration outside its range.
    pub(crate) fn out_of_range(
        field: &str,
        value: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> Self {
        Self(format!("{field}: {value} is not allowed; give {allowed}"))
    }

    /// Text that cannot be parsed.
    pub(crate) fn syntax(field: &str, text: &str, expected: impl fmt::Display) -> Self {
        Self(format!(
            "{field}: {text:?} cannot be parsed; expected {expected}"
        ))
    }

    /// A change that the limiter does not support.
    pub(crate) fn unsupported(what: &str, instead: &str) -> Self {
        Self(format!("{what} is not possible; {instead}"))
    }
}

/// Returns the value, or panics with the error at the caller's line.
#[track_caller]
pub(crate) fn expect_valid<T>(result: Result<T, ConfigError>) -> T {
    // No closure: a panic in a closure would report the line of the closure.
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ConfigError {}

/// Why a limiter could not decide.
///
/// A limiter in this process always decides. A limiter that uses a server may fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    message: String,
    kind: ErrorKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorKind {
    Transient,
    /// Transient: the call was not sent, because others failed or too many are queued.
    #[cfg(feature = "cas")]
    NotSent,
    /// Transient, and of one key: the server has replied.
    #[cfg(feature = "cas")]
    OfKey,
    Permanent,
}

impl StoreError {
    /// Creates an error. A `transient` error goes away by itself (a timeout, a server that
    /// restarts). Any other has to be fixed by an operator (wrong credentials, a key of another
    /// type).
    ///
    /// ```
    /// use tower_throttle::StoreError;
    ///
    /// let error = StoreError::new("no response within 50ms", true);
    /// assert!(error.is_transient());
    /// assert_eq!(error.to_string(), "no response within 50ms");
    /// ```
    pub fn new(message: impl Into<String>, transient: bool) -> Self {
        Self {
            message: message.into(),
            kind: if transient {
                ErrorKind::Transient
            } else {
                ErrorKind::Permanent
            },
        }
    }

    /// The error of a call that was not sent.
    #[cfg(feature = "cas")]
    pub(crate) const fn not_sent(message: String) -> Self {
        Self {
            message,
            kind: ErrorKind::NotSent,
        }
    }

    /// A transient error of one key, as others hold it: no reason not to ask for other keys.
    #[cfg(any(feature = "cassandra", feature = "postgres"))]
    pub(crate) const fn of_key(message: String) -> Self {
        Self {
            message,
            kind: ErrorKind::OfKey,
        }
    }

    #[cfg(feature = "cas")]
    pub(crate) fn is_of_key(&self) -> bool {
        self.kind == ErrorKind::OfKey
    }

    /// Whether the call was not sent.
    #[cfg(feature = "cas")]
    pub(crate) fn is_not_sent(&self) -> bool {
        self.kind == ErrorKind::NotSent
    }

    /// Whether a later retry may succeed without an operator fixing anything.
    pub const fn is_transient(&self) -> bool {
        !matches!(self.kind, ErrorKind::Permanent)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for StoreError {}

/// Why a request has no key, with the status and message of the response to the client.
///
/// This is the error type of a key closure that returns a `Result`. Convert custom errors to it by
/// implementing `From`.
///
/// ```
/// use http::StatusCode;
/// use tower_throttle::key::Rejection;
///
/// struct NoTenant;
///
/// impl From<NoTenant> for Rejection {
///     fn from(_: NoTenant) -> Self {
///         Self::new(StatusCode::BAD_REQUEST, "name your tenant")
///     }
/// }
///
/// let rejection = Rejection::from(NoTenant);
/// assert_eq!(rejection.to_string(), "name your tenant");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    status: StatusCode,
    message: Cow<'static, str>,
}

impl Rejection {
    /// Creates a rejection from an HTTP status and a message for the client. Protocols other than
    /// HTTP use the closest equivalent of the status.
    pub fn new(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    /// The status of the response.
    pub const fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<StatusCode> for Rejection {
    fn from(status: StatusCode) -> Self {
        Self::new(
            status,
            status.canonical_reason().unwrap_or("request refused"),
        )
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Rejection {}

/// Why a request did not reach the inner service.
///
/// For HTTP it is in the extensions of the response, so that an outer layer or a test can read it.
/// Other services return it as their error, through `From<RateLimited>`.
///
/// ```
/// use tower_throttle::{Limiter, Quota, RateLimited, TokenBucket};
///
/// #[derive(Debug)]
/// enum MyError {
///     Busy { seconds: u64 },
/// }
///
/// impl From<RateLimited> for MyError {
///     fn from(limited: RateLimited) -> Self {
///         MyError::Busy { seconds: limited.retry_after_secs().unwrap_or(1) }
///     }
/// }
///
/// let limiter = Limiter::new(TokenBucket::new(Quota::per_hour(1)));
/// limiter.check(1);
/// let MyError::Busy { seconds } = RateLimited::new(limiter.check(1)).into();
/// assert_eq!(seconds, 3600);
/// ```
#[derive(Clone, Debug)]
pub struct RateLimited {
    cause: Cause,
    policy: Option<Arc<str>>,
}

#[derive(Clone, Debug)]
enum Cause {
    Limited(Decision, Of),
    Rejected(Rejection),
    Unavailable(StoreError),
}

/// What a limit is about.
#[derive(Clone, Copy, Debug)]
enum Of {
    Rate,
    /// What one client has in flight.
    InFlight,
    /// What the server has in flight.
    Overload,
}

impl RateLimited {
    /// Creates the error of a denied request, for tests of custom responses.
    pub const fn new(decision: Decision) -> Self {
        Self::from_cause(Cause::Limited(decision, Of::Rate))
    }

    pub(crate) const fn unavailable(error: StoreError) -> Self {
        Self::from_cause(Cause::Unavailable(error))
    }

    /// Denied by a limit on concurrency.
    pub(crate) const fn concurrent(decision: Decision, is_overload: bool) -> Self {
        let of = if is_overload {
            Of::Overload
        } else {
            Of::InFlight
        };
        Self::from_cause(Cause::Limited(decision, of))
    }

    pub(crate) fn by(self, policy: Arc<str>) -> Self {
        Self {
            policy: Some(policy),
            ..self
        }
    }

    #[must_use]
    pub(crate) fn map_decision(mut self, change: impl FnOnce(&mut Decision)) -> Self {
        match &mut self.cause {
            Cause::Limited(decision, _) => change(decision),
            Cause::Rejected(_) | Cause::Unavailable(_) => {}
        }
        self
    }

    const fn from_cause(cause: Cause) -> Self {
        Self {
            cause,
            policy: None,
        }
    }

    /// The limiter's decision, if the request was denied by a limit.
    pub const fn decision(&self) -> Option<&Decision> {
        match &self.cause {
            Cause::Limited(decision, _) => Some(decision),
            _ => None,
        }
    }

    /// After how long the same request would be admitted, provided that no other request arrives.
    /// `None` if it never would, or if the request was not denied by a limit.
    ///
    /// A limit on [concurrency](crate::concurrency) does not know when a request ends: there it is
    /// the time that the layer was told to state.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.decision() {
            Some(decision) => decision.retry_after,
            None => None,
        }
    }

    /// [`retry_after`](Self::retry_after) in whole seconds, rounded up: the value of the header `Retry-After`.
    /// From 1 to `i32::MAX`, as many clients read 32 bits.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, Quota, RateLimited, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Quota::per_second(2)));
    /// let denied = RateLimited::new(limiter.check(2)); // admitted
    /// assert_eq!(denied.retry_after_secs(), None);
    /// let denied = RateLimited::new(limiter.check(1));
    /// assert!(denied.retry_after() <= Some(Duration::from_millis(500)));
    /// assert_eq!(denied.retry_after_secs(), Some(1));
    /// ```
    pub fn retry_after_secs(&self) -> Option<u64> {
        let seconds = |wait| ceil_seconds(wait).clamp(1, i32::MAX as u64);
        self.retry_after().map(seconds)
    }

    /// Whether the request costs more than is ever granted at once, so that retrying is useless.
    pub(crate) const fn is_permanent(&self) -> bool {
        match self.decision() {
            Some(decision) => decision.retry_after.is_none(),
            None => false,
        }
    }

    /// The name of the limit that denied the request.
    pub fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// The rejection, if the request had no key.
    pub const fn rejection(&self) -> Option<&Rejection> {
        match &self.cause {
            Cause::Rejected(rejection) => Some(rejection),
            _ => None,
        }
    }

    /// The error of the limiter, if it could not decide.
    pub const fn store_error(&self) -> Option<&StoreError> {
        match &self.cause {
            Cause::Unavailable(error) => Some(error),
            _ => None,
        }
    }

    /// The HTTP status: 429 if a limit denied the request, 503 if the limiter could not decide, and
    /// the status of the rejection if the request had no key. A limit on
    /// [concurrency](crate::concurrency) has 429 or 503.
    pub const fn status(&self) -> StatusCode {
        match &self.cause {
            Cause::Limited(_, Of::Rate | Of::InFlight) => StatusCode::TOO_MANY_REQUESTS,
            Cause::Rejected(rejection) => rejection.status,
            Cause::Limited(..) | Cause::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl From<Rejection> for RateLimited {
    fn from(rejection: Rejection) -> Self {
        Self::from_cause(Cause::Rejected(rejection))
    }
}

/// Contains neither the key nor details of the store, because this text is sent to clients.
impl fmt::Display for RateLimited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Limited(_, Of::Rate) => match self.retry_after_secs() {
                Some(seconds) => write!(f, "rate limit exceeded, retry in {seconds} s"),
                None => f.write_str("the request costs more than the rate limit ever grants"),
            },
            Cause::Limited(..) => match self.retry_after_secs() {
                Some(seconds) => write!(f, "too many requests at once, retry in {seconds} s"),
                None => f.write_str("the request costs more than may ever be in flight"),
            },
            Cause::Rejected(rejection) => rejection.fmt(f),
            Cause::Unavailable(_) => f.write_str("the rate limit cannot be checked at present"),
        }
    }
}

impl Error for RateLimited {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Cause::Limited(..) => None,
            Cause::Rejected(rejection) => Some(rejection),
            Cause::Unavailable(error) => Some(error),
        }
    }
}
