//! What can go wrong: with a configuration, with one request, with the place where states live.

use std::{borrow::Cow, error::Error, fmt, sync::Arc, time::Duration};

use http::StatusCode;

use crate::decision::Decision;

/// A value that no policy can be built from.
///
/// The message names the field, the value it was given and what is allowed instead.
///
/// ```
/// use tower_throttle::Quota;
///
/// let error = "0/s".parse::<Quota>().unwrap_err();
/// assert_eq!(error.to_string(), "limit: 0 is not allowed; give a number from 1 to 9223372036854775807");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number or a duration outside its range.
    OutOfRange {
        /// The field that was set.
        field: &'static str,
        /// The value it was given.
        value: String,
        /// What it may be.
        allowed: Cow<'static, str>,
    },
    /// A text that cannot be parsed.
    Syntax {
        /// What the text was parsed as, such as `"quota"` or `"Redis URL"`.
        field: &'static str,
        /// The text that was given.
        text: String,
        /// What was expected, and where.
        expected: String,
    },
    /// A change that this limiter cannot make.
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
}

impl ConfigError {
    pub(crate) fn out_of_range(
        field: &'static str,
        value: impl fmt::Display,
        allowed: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::OutOfRange {
            field,
            value: format!("{value}"),
            allowed: allowed.into(),
        }
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
        match self {
            Self::OutOfRange {
                field,
                value,
                allowed,
            } => write!(f, "{field}: {value} is not allowed; give {allowed}"),
            Self::Syntax {
                field,
                text,
                expected,
            } => write!(f, "{field}: {text:?} cannot be parsed; expected {expected}"),
            Self::Unsupported { what, instead } => write!(f, "{what} is not possible; {instead}"),
        }
    }
}

impl Error for ConfigError {}

/// Why a limiter could not decide.
///
/// A limiter in this process always decides; one that asks a server may fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    message: String,
    transient: bool,
}

impl StoreError {
    /// An error that passes by itself (`transient`: a timeout, a server that restarts), or one that
    /// somebody has to mend (wrong credentials, a key of another type).
    ///
    /// ```
    /// use tower_throttle::StoreError;
    ///
    /// let error = StoreError::new("no answer within 50ms", true);
    /// assert!(error.is_transient());
    /// assert_eq!(error.to_string(), "no answer within 50ms");
    /// ```
    pub fn new(message: impl Into<String>, transient: bool) -> Self {
        Self {
            message: message.into(),
            transient,
        }
    }

    /// Whether trying again later may succeed without anybody mending anything.
    pub const fn is_transient(&self) -> bool {
        self.transient
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for StoreError {}

/// Why a request has no key, and what its sender is told.
///
/// A key closure that returns `Result` answers with it; errors of your own become one through
/// `From`.
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
    /// A rejection with its HTTP status, or what comes closest to it elsewhere, and a message for
    /// the sender of the request.
    pub fn new(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    /// The status of the answer.
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

/// A request that did not reach the service, and why.
///
/// For HTTP it stands in the extensions of the answer, where an outer layer or a test finds it.
/// Other services get it as their error, through `From<RateLimited>`.
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
///         let wait = limited.retry_after().unwrap_or_default();
///         MyError::Busy { seconds: wait.as_secs() + 1 }
///     }
/// }
///
/// let limiter = Limiter::new(TokenBucket::new(Quota::per_hour(1)));
/// limiter.check();
/// let MyError::Busy { seconds } = RateLimited::new(limiter.check()).into();
/// assert_eq!(seconds, 3600);
/// ```
#[derive(Clone, Debug)]
pub struct RateLimited {
    cause: Cause,
    policy: Option<Arc<str>>,
}

#[derive(Clone, Debug)]
enum Cause {
    Limited(Decision),
    Rejected(Rejection),
    Unavailable(StoreError),
}

impl RateLimited {
    /// What a denial becomes; for tests of your own answers.
    pub const fn new(decision: Decision) -> Self {
        Self::because(Cause::Limited(decision))
    }

    pub(crate) const fn unavailable(error: StoreError) -> Self {
        Self::because(Cause::Unavailable(error))
    }

    pub(crate) fn by(self, policy: Arc<str>) -> Self {
        Self {
            policy: Some(policy),
            ..self
        }
    }

    const fn because(cause: Cause) -> Self {
        Self {
            cause,
            policy: None,
        }
    }

    /// The limiter's decision, if it was a limit that turned the request away.
    pub const fn decision(&self) -> Option<&Decision> {
        match &self.cause {
            Cause::Limited(decision) => Some(decision),
            _ => None,
        }
    }

    /// When the same request passes if nothing else comes; `None` if it never will, or if no
    /// limit turned it away.
    pub const fn retry_after(&self) -> Option<Duration> {
        match &self.cause {
            Cause::Limited(decision) => decision.retry_after,
            _ => None,
        }
    }

    /// Whether the request costs more than is ever granted at once, so that no retry helps.
    pub const fn is_permanent(&self) -> bool {
        matches!(&self.cause, Cause::Limited(decision) if decision.retry_after.is_none())
    }

    /// The name of the limit that turned the request away.
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

    /// The status that says it in HTTP: 429 for a limit, 503 where no decision could be had, and
    /// what the rejection says where there was no key.
    pub const fn status(&self) -> StatusCode {
        match &self.cause {
            Cause::Limited(_) => StatusCode::TOO_MANY_REQUESTS,
            Cause::Rejected(rejection) => rejection.status,
            Cause::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl From<Rejection> for RateLimited {
    fn from(rejection: Rejection) -> Self {
        Self::because(Cause::Rejected(rejection))
    }
}

/// Never the key, and no details of the store: this text is what strangers are sent.
impl fmt::Display for RateLimited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Limited(decision) => match decision.retry_after {
                Some(wait) => {
                    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                    write!(f, "rate limit exceeded, retry in {seconds} s")
                }
                None => f.write_str("the request costs more than the rate limit ever grants"),
            },
            Cause::Rejected(rejection) => rejection.fmt(f),
            Cause::Unavailable(_) => f.write_str("the rate limit cannot be checked at present"),
        }
    }
}

impl Error for RateLimited {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Cause::Limited(_) => None,
            Cause::Rejected(rejection) => Some(rejection),
            Cause::Unavailable(error) => Some(error),
        }
    }
}
