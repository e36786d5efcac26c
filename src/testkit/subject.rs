//! An algorithm under test and its promise.

use std::fmt;
use std::sync::Arc;

use crate::algorithm::{Algorithm, AnyAlgorithm};

/// An algorithm under test and the figures of its promise.
///
/// [`check_algorithm`](super::check_algorithm) makes one per random quota. For one law, or one quota:
///
/// ```
/// use tower_throttle::testkit::{Law, Promise, Subject};
/// use tower_throttle::{Quota, SlidingLog};
///
/// let log = SlidingLog::new(Quota::per_second(10));
/// let subject = Subject::new("log", log, Promise::AtMostIn(1_000_000_000));
/// assert_eq!(subject.check(Law::RetryAfter, 7), Ok(()));
///
/// // The promise of a log that admits one less.
/// let strict = Subject { limit: 9, ..subject };
/// assert!((0..100).any(|seed| strict.check(Law::Promise, seed).is_err()));
/// ```
#[derive(Clone, Debug)]
pub struct Subject<A = AnyAlgorithm> {
    /// Its name in reports.
    pub name: &'static str,
    /// The algorithm.
    pub algorithm: A,
    /// The limit L per period.
    pub limit: u64,
    /// The period W in nanoseconds.
    pub period: u64,
    /// The burst B.
    pub burst: u64,
    /// What it promises.
    pub promise: Promise,
    /// Whether a part of a cost can be refunded. Otherwise [`Law::Refunds`](super::Law::Refunds) refunds whole costs.
    pub refunds_parts: bool,
}

/// The most that an algorithm admits in an interval. L, W and B are the figures of its [`Subject`], and t = W/L.
///
/// ```
/// use tower_throttle::testkit::{Promise, Subject};
/// use tower_throttle::{Quota, TokenBucket};
///
/// let bucket = TokenBucket::new(Quota::per_second(10).burst(50));
/// let subject = Subject::new("bucket", bucket, Promise::Bucket);
/// assert_eq!(subject.bound(0, 1_000_000_000), 60);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Promise {
    /// At most L in each window, and windows are at least W long. So at most 2L in any half-open interval of W.
    Windows,
    /// At most L in any half-open interval of this many nanoseconds.
    AtMostIn(u64),
    /// At most L in any half-open period, and this many more after each block, which lasts at least
    /// this long. L again once the blocks are forgotten, after this time.
    Blocks(u64, u64, u64),
    /// At most B + T/t in any closed interval of length T.
    Bucket,
    /// A line: requests pass at least t per unit of cost apart, for costs up to this one. A line that accepts
    /// every cost promises it for 1.
    Paced(u64),
    /// What [`Promise::of`] was given.
    Other(Bound),
}

/// A closure of [`Promise::of`].
#[derive(Clone)]
pub struct Bound(Arc<dyn Fn(u64, u64) -> u64 + Send + Sync>);

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bound(..)")
    }
}

impl Promise {
    /// Any other promise: the most that is admitted from one nanosecond to another, both included.
    ///
    /// ```
    /// use tower_throttle::testkit::{Promise, check_algorithm};
    /// use tower_throttle::{FixedWindow, Quota};
    ///
    /// // Sharper than `Promise::Windows`, which does not say when a window begins.
    /// let checked = check_algorithm(|quota| {
    ///     let (limit, period) = (quota.limit(), quota.period().as_nanos() as u64);
    ///     let promise = Promise::of(move |from, to| limit * (to / period - from / period + 1));
    ///     (FixedWindow::new(Quota::per(limit, quota.period())), promise)
    /// });
    /// assert_eq!(checked, Ok(()));
    /// ```
    pub fn of(most: impl Fn(u64, u64) -> u64 + Send + Sync + 'static) -> Self {
        Self::Other(Bound(Arc::new(most)))
    }
}

impl<A: Algorithm> Subject<A> {
    /// A subject under a name for reports. The figures are those of the algorithm's quota.
    pub fn new(name: &'static str, algorithm: A, promise: Promise) -> Self {
        let quota = algorithm.quota();
        Self {
            name,
            limit: quota.limit(),
            period: quota.period_ns(),
            burst: quota.capacity(),
            algorithm,
            promise,
            refunds_parts: true,
        }
    }
}

impl<A> Subject<A> {
    /// The most that the promise allows from one nanosecond to another, both included.
    pub fn bound(&self, from: u64, to: u64) -> u64 {
        let span = to - from;
        let pieces = |length: u64| span / length + 1;
        match &self.promise {
            Promise::Windows => self.limit * (span.div_ceil(self.period) + 1),
            Promise::AtMostIn(length) => self.limit * pieces(*length),
            Promise::Blocks(parole, block, forget) => {
                let again = (self.limit - parole) * (span / forget);
                self.limit * pieces(self.period) + parole * (span / block) + again
            }
            Promise::Bucket => self.burst + self.earned(span),
            // Turns are exactly t apart, and each is reported in whole nanoseconds, rounded up.
            Promise::Paced(max_cost) => max_cost + self.before(span + 1),
            Promise::Other(Bound(most)) => most(from, to),
        }
    }

    /// Checks admissions, each its nanosecond and its cost, against the promise, in any interval between two.
    ///
    /// # Errors
    /// If more was admitted than was promised, with the first such interval.
    pub fn check_admissions(&self, admissions: &[(u64, u64)]) -> Result<(), String> {
        for (first, (start, _)) in admissions.iter().enumerate() {
            let (mut sum, mut bound) = (0, 0);
            for (end, cost) in &admissions[first..] {
                sum += cost;
                // A later end has no lower bound.
                if sum > bound {
                    bound = self.bound(*start, *end);
                }
                if sum > bound {
                    return Err(format!(
                        "{sum} admitted from {start} ns to {end} ns, at most {bound} promised"
                    ));
                }
            }
        }
        Ok(())
    }

    /// How many whole intervals end before T.
    fn before(&self, span: u64) -> u64 {
        let units = u128::from(span) * u128::from(self.limit);
        u64::try_from((units - 1) / u128::from(self.period)).expect("small figures")
    }

    /// floor(T/t).
    fn earned(&self, span: u64) -> u64 {
        let earned = u128::from(span) * u128::from(self.limit) / u128::from(self.period);
        u64::try_from(earned).expect("small figures")
    }

    /// The same figures with another algorithm, for a planted mistake.
    pub fn with<B>(&self, algorithm: B) -> Subject<B> {
        Subject {
            name: self.name,
            algorithm,
            limit: self.limit,
            period: self.period,
            burst: self.burst,
            promise: self.promise.clone(),
            refunds_parts: self.refunds_parts,
        }
    }
}
