//! A limit as text.

use std::{fmt, str::FromStr, time::Duration};

use super::parse;
use super::term::Term;
use crate::algorithm::{All, AnyAlgorithm};
use crate::error::ConfigError;

/// A limit as text: `token_bucket 10/s; burst=50`.
///
/// The form is `ALGORITHM LIMIT/PERIOD; OPTION=VALUE; ...`, in files, on command lines and in
/// [`AnyAlgorithm`]'s `FromStr`. Several limits are joined by `+`; a request passes if all of them
/// admit it. Options may have any order. The print has one, and reads back equal.
///
/// | algorithm | options |
/// |---|---|
/// | `token_bucket` | `burst`, `initial`, `debt`, `refill_every` |
/// | `leaky_bucket` | `burst`, `initial`, `debt`, `refill_every` |
/// | `fixed_window` | `anchored=true` or `offset`; or `zone`, `anchor` with the feature `calendar` |
/// | `sliding_window` | `offset` |
/// | `sliding_grid` | `cells`, `strict=true`, `offset` |
/// | `sliding_log` | none |
/// | `warm_up` | `warm_up`, which it needs; `cold_factor` |
/// | `lockout` | `block`, `max_block`, `forget`, `on_success=clear` |
/// | `gcra` | `burst`; needs the feature `governor` |
/// | `concurrency` | a number of requests in flight instead of a rate |
/// | all | `queue`, `max_wait`: how many requests of a key may wait, and how long |
///
/// Times have a unit: `500ms`, `2s`, `15min`, `1h`, `1d`.
///
/// A fixed window of a month, and one of a day or a week that has a `zone` or an `anchor`, is a
/// [`CalendarWindow`](crate::CalendarWindow): `fixed_window 1000/month; zone=Europe/Berlin; anchor=15`.
///
/// ```
/// use tower_throttle::policy::Spec;
///
/// let spec: Spec = "token_bucket 10/s; queue=20; burst=50".parse()?;
/// assert_eq!(spec.to_string(), "token_bucket 10/s; burst=50; queue=20");
/// assert_eq!(spec.to_string().parse::<Spec>()?, spec);
///
/// let error = "token_buket 1/s".parse::<Spec>().unwrap_err();
/// assert!(error.to_string().ends_with("did you mean token_bucket?"), "{error}");
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// At least one. A limit on requests in flight is alone.
    pub(super) terms: Vec<Term>,
}

impl Spec {
    /// The algorithm, or all of several as one, without the [queue](Self::queue).
    ///
    /// # Errors
    /// If the limit is one on requests in flight (`concurrency`), which is no algorithm.
    ///
    /// ```
    /// use tower_throttle::{Limiter, policy::Spec};
    ///
    /// let spec: Spec = "token_bucket 10/s + fixed_window 100/d".parse()?;
    /// assert_eq!(Limiter::new(spec.algorithm()?).check(1).remaining(), 9);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn algorithm(&self) -> Result<AnyAlgorithm, ConfigError> {
        if let [term] = &*self.terms {
            return term.algorithm();
        }
        let parts = self.terms.iter().map(Term::algorithm);
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        Ok(AnyAlgorithm::new(All::new(parts)))
    }

    /// How many requests of a key may wait, and how long, if that was set: for the `queue` and `max_wait` of a layer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::policy::Spec;
    ///
    /// let spec: Spec = "fixed_window 10/s; queue=5; max_wait=1s".parse()?;
    /// assert_eq!(spec.queue(), Some((5, Some(Duration::from_secs(1)))));
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn queue(&self) -> Option<(u32, Option<Duration>)> {
        self.terms.iter().find_map(|term| {
            let queue = u32::try_from(term.value("queue")?).unwrap_or(u32::MAX);
            Some((queue, term.value("max_wait").map(Duration::from_nanos)))
        })
    }

    /// How many requests of a key may be in flight, if it is a limit on that.
    ///
    /// ```
    /// use tower_throttle::policy::Spec;
    ///
    /// let spec: Spec = "concurrency 20; queue=5; max_wait=1s".parse()?;
    /// assert_eq!(spec.concurrency(), Some(20));
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn concurrency(&self) -> Option<u32> {
        match &*self.terms {
            [term] => term.amount.count(),
            _ => None,
        }
    }
}

/// What a policy file asks.
#[cfg(feature = "policies")]
impl Spec {
    /// The names of its algorithms, joined by `+`: `token_bucket`, `token_bucket+calendar_window`.
    ///
    /// Usage of a limit outlives a change of its settings as long as this stays the same.
    pub(super) fn kind(&self) -> String {
        let kinds = self.terms.iter().filter_map(Term::kind);
        let names: Vec<_> = kinds.map(|kind| kind.name).collect();
        names.join("+")
    }

    /// Whether it is a lockout, or several.
    pub(super) fn is_lockout(&self) -> bool {
        self.terms.iter().all(|term| term.kind == "lockout")
    }

    /// The first algorithm beside a lockout, if both are there.
    pub(super) fn beside_lockout(&self) -> Option<&'static str> {
        let kinds = || self.terms.iter().map(|term| term.kind);
        let other = kinds().find(|kind| *kind != "lockout");
        other.filter(|_| kinds().any(|kind| kind == "lockout"))
    }

    /// A limit that is there twice.
    pub(super) fn repeated(&self) -> Option<String> {
        let terms = self.terms.iter().enumerate();
        let mut twice = terms.filter(|(at, term)| self.terms[..*at].contains(term));
        twice.next().map(|(_, term)| term.to_string())
    }
}

impl FromStr for Spec {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        parse::terms(text).map(|terms| Self { terms })
    }
}

/// Reads the text of a limit, without a queue; see [`policy::Spec`](Spec).
///
/// ```
/// use tower_throttle::{AnyAlgorithm, Limiter};
///
/// let bucket: AnyAlgorithm = "token_bucket 10/s; burst=50".parse()?;
/// assert_eq!(Limiter::new(bucket).check(1).remaining(), 49);
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
impl FromStr for AnyAlgorithm {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let spec = text.parse::<Spec>()?;
        if spec.queue().is_some() {
            return Err(ConfigError::unsupported(
                "a queue of an algorithm",
                "give it to the layer, with `RateLimitLayer::queue`",
            ));
        }
        spec.algorithm()
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms: Vec<_> = self.terms.iter().map(ToString::to_string).collect();
        f.write_str(&terms.join(" + "))
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Spec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Spec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
