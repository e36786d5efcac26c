//! The algorithms under test, each with its promise.

use std::sync::Arc;
use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, IntoAlgorithm};
use tower_throttle::testkit::check_algorithm;
use tower_throttle::{
    CalendarWindow, FixedWindow, LeakyBucket, Lockout, Quota, SlidingGrid, SlidingLog,
    SlidingWindow, TokenBucket, WarmUp,
};

use crate::random::Random;

pub(crate) fn quota(limit: u64, period: u64) -> Quota {
    Quota::per(limit, Duration::from_nanos(period))
}

/// The most that is admitted from one nanosecond to another, both included.
pub(crate) type Promise = Arc<dyn Fn(u64, u64) -> u64 + Send + Sync>;

/// An algorithm under test and its promise.
#[derive(Clone)]
pub(crate) struct Subject<A = AnyAlgorithm> {
    pub(crate) name: &'static str,
    pub(crate) algorithm: A,
    pub(crate) limit: u64,
    pub(crate) period: u64,
    pub(crate) promise: Promise,
}

impl<A: Algorithm> Subject<A> {
    pub(crate) fn new(
        name: &'static str,
        algorithm: A,
        promise: impl Fn(u64, u64) -> u64 + Send + Sync + 'static,
    ) -> Self {
        let quota = algorithm.quota();
        Self {
            name,
            limit: quota.limit(),
            period: u64::try_from(quota.period().as_nanos()).expect("periods fit"),
            algorithm,
            promise: Arc::new(promise),
        }
    }

    pub(crate) fn check(&self, seed: u64) -> Result<(), String> {
        let checked = check_algorithm(&self.algorithm, &*self.promise, seed);
        checked.map_err(|fault| format!("{fault}\n  {}, seed {seed}", self.name))
    }

    /// Whether the check finds that it breaks this law in one of many traces.
    pub(crate) fn breaks(&self, law: &str) -> bool {
        let breaks = |fault: String| fault.starts_with(&format!("{law}: "));
        (0..200).any(|seed| self.check(seed).is_err_and(breaks))
    }

    /// The same promise with another algorithm.
    pub(crate) fn with<B: Algorithm>(&self, algorithm: B) -> Subject<B> {
        let promise = Arc::clone(&self.promise);
        Subject::new(self.name, algorithm, move |from, to| promise(from, to))
    }
}

/// At most L in each window of at least this length, so at most 2L in any interval of it.
fn windows(limit: u64, period: u64) -> impl Fn(u64, u64) -> u64 {
    move |from, to| limit * ((to - from).div_ceil(period) + 1)
}

/// At most L in any half-open interval of this length.
fn at_most_in(limit: u64, length: u64) -> impl Fn(u64, u64) -> u64 {
    move |from, to| limit * ((to - from) / length + 1)
}

/// At most B + T/t in any closed interval of length T.
pub(crate) fn bucket(quota: Quota) -> impl Fn(u64, u64) -> u64 {
    let (limit, period) = (u128::from(quota.limit()), quota.period().as_nanos());
    move |from, to| {
        let earned = u128::from(to - from) * limit / period;
        quota.capacity() + u64::try_from(earned).expect("small figures")
    }
}

/// A random quota and burst: 1 per day to 1e9 per second, including periods that the limit does not divide.
pub(crate) fn random_quota(random: &mut Random) -> Quota {
    let limit = 1 + random.log_uniform(10);
    let period = match random.below(5) {
        0 => 1_000_000_000,
        1 => 86_400_000_000_000,
        2 => *random.pick(&[7, 100, 7_000_013]),
        3 => *random.pick(&[333_333_333, 1_000_000_001]),
        _ => 1 + random.log_uniform(40),
    };
    quota(limit, period).burst(1 + random.below(3 * limit))
}

fn subject(
    name: &'static str,
    algorithm: impl IntoAlgorithm,
    promise: impl Fn(u64, u64) -> u64 + Send + Sync + 'static,
) -> Subject {
    Subject::new(name, AnyAlgorithm::new(algorithm), promise)
}

/// One of each algorithm, for a quota and a burst.
pub(crate) fn subjects(quota: Quota, burst: u64, cells: u64) -> Vec<Subject> {
    let period = u64::try_from(quota.period().as_nanos()).expect("periods fit");
    let limit = quota.limit();
    let cell = period.div_ceil(cells);
    // Whole microseconds, in which Redis counts, unless the period is too short.
    let block = match cell {
        0..10_000 => cell,
        _ => cell.next_multiple_of(1_000),
    };
    let grid = SlidingGrid::new(quota).cells(usize::try_from(cells).expect("few cells"));
    let with_burst = quota.burst(burst);
    let window = || windows(limit, period);
    // At most L in any half-open period, and L more after each block.
    let blocks = move |from, to| {
        let span: u64 = to - from;
        limit * (span / period + 1) + limit * (span / block)
    };
    // Turns are exactly t apart, and each is reported in whole nanoseconds, rounded up.
    let paced = move |from, to| {
        let units = u128::from(to - from + 1) * u128::from(limit);
        1 + u64::try_from((units - 1) / u128::from(period)).expect("small figures")
    };
    let warm_up = WarmUp::new(quota, Duration::from_nanos(5 * period));
    let lockout = Lockout::new(quota)
        .block(Duration::from_nanos(block))
        .max_block(Duration::from_nanos(4 * block))
        .forget(Duration::from_nanos(2 * period));
    let strict = at_most_in(limit, period);
    let cells = at_most_in(limit, cell * (cells - 1) + 1);
    // There is none without the feature `calendar`. Its shortest day has 23 hours.
    let day = Quota::per_day(limit);
    let day = CalendarWindow::new(day, "America/Santiago").map(|day| {
        let promise = windows(limit, 23 * 3_600_000_000_000);
        subject("calendar day", day, promise)
    });
    let subjects = vec![
        subject("fixed window", FixedWindow::new(quota), window()),
        subject(
            "anchored window",
            FixedWindow::new(quota).anchored(),
            window(),
        ),
        subject(
            "sliding log",
            SlidingLog::new(quota),
            at_most_in(limit, period),
        ),
        subject("sliding window", SlidingWindow::new(quota), window()),
        subject("sliding grid", grid, cells),
        subject("strict grid", grid.strict(), strict),
        subject("lockout", lockout, blocks),
        subject(
            "token bucket",
            TokenBucket::new(with_burst),
            bucket(with_burst),
        ),
        subject(
            "leaky meter",
            LeakyBucket::new(with_burst),
            bucket(with_burst),
        ),
        subject("warm-up", warm_up, paced),
    ];
    subjects.into_iter().chain(day).collect()
}

/// One of each algorithm with a random quota.
pub(crate) fn random_subjects(random: &mut Random) -> Vec<Subject> {
    let drawn = random_quota(&mut Random::new(random.next()));
    let plain = Quota::per(drawn.limit(), drawn.period());
    let cells = 2 + random.below(10);
    subjects(plain, drawn.capacity(), cells)
}
