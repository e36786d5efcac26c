//! The algorithms under test, each with its promise.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Charge};
use tower_throttle::{
    FixedWindow, LeakyBucket, Lockout, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
    WarmUp,
};

use crate::random::Random;

/// An algorithm under test and the figures of its promise.
#[derive(Clone, Debug)]
pub(crate) struct Subject<A = AnyAlgorithm> {
    pub(crate) name: &'static str,
    pub(crate) algorithm: A,
    pub(crate) limit: u64,
    pub(crate) period: u64,
    pub(crate) burst: u64,
    pub(crate) promise: Promise,
}

/// The most that may be admitted in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// At most L in each aligned window, so at most 2L in any W.
    Windows,
    /// At most 2L in any half-open interval as long as the period.
    Twice,
    /// At most L in any half-open interval of this length.
    AtMostIn(u64),
    /// At most L in any half-open period, and this many more after each block, which lasts at least
    /// this long. L again once the blocks are forgotten, after this time.
    Blocks(u64, u64, u64),
    /// At most B + T/t in any closed interval of length T.
    Bucket,
    /// Requests pass at least t per unit of cost apart, for costs up to this one.
    Paced(u64),
}

pub(crate) fn quota(limit: u64, period: u64) -> Quota {
    Quota::per(limit, Duration::from_nanos(period))
}

impl Subject {
    fn new(name: &'static str, algorithm: impl Into<AnyAlgorithm>, promise: Promise) -> Self {
        let algorithm = algorithm.into();
        let quota = algorithm.quota();
        Self {
            name,
            limit: quota.limit(),
            period: u64::try_from(quota.period().as_nanos()).expect("periods fit"),
            burst: quota.capacity(),
            algorithm,
            promise,
        }
    }

    /// The same subject with another algorithm, for planted bugs.
    pub(crate) fn with<A>(&self, algorithm: A) -> Subject<A> {
        Subject {
            name: self.name,
            algorithm,
            limit: self.limit,
            period: self.period,
            burst: self.burst,
            promise: self.promise,
        }
    }
}

impl<A> Subject<A> {
    /// The most that the promise allows in any closed interval of length `span`.
    pub(crate) fn bound(&self, span: u64) -> u64 {
        let pieces = |length: u64| span / length + 1;
        match self.promise {
            Promise::Windows => self.limit * (pieces(self.period) + 1),
            Promise::Twice => 2 * self.limit * pieces(self.period),
            Promise::AtMostIn(length) => self.limit * pieces(length),
            Promise::Blocks(parole, block, forget) => {
                let again = (self.limit - parole) * (span / forget);
                self.limit * pieces(self.period) + parole * (span / block) + again
            }
            Promise::Bucket => self.burst + self.earned(span),
            // Turns are exactly t apart, and each is reported in whole nanoseconds, rounded up.
            Promise::Paced(max_cost) => max_cost + self.before(span + 1),
        }
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
}

/// One of each algorithm, for a quota and a burst.
pub(crate) fn subjects(quota: Quota, burst: u64, cells: u64) -> Vec<Subject> {
    let period = u64::try_from(quota.period().as_nanos()).expect("periods fit");
    let (cell, parole) = (period.div_ceil(cells), quota.limit().div_ceil(2));
    // Whole microseconds, in which Redis counts, unless the period is too short.
    let block = match cell {
        0..10_000 => cell,
        _ => cell.next_multiple_of(1_000),
    };
    let grid = SlidingGrid::new(quota).cells(usize::try_from(cells).expect("few cells"));
    let with_burst = quota.burst(burst);
    let log = Promise::AtMostIn(period);
    vec![
        Subject::new("fixed window", FixedWindow::new(quota), Promise::Windows),
        Subject::new(
            "anchored window",
            FixedWindow::new(quota).anchored(),
            Promise::Windows,
        ),
        Subject::new("sliding log", SlidingLog::new(quota), log),
        Subject::new("sliding window", SlidingWindow::new(quota), Promise::Twice),
        Subject::new(
            "sliding grid",
            grid,
            Promise::AtMostIn(cell * (cells - 1) + 1),
        ),
        Subject::new("strict grid", grid.strict(), log),
        Subject::new(
            "lockout",
            Lockout::new(quota)
                .block(Duration::from_nanos(block))
                .max_block(Duration::from_nanos(4 * block))
                .forget(Duration::from_nanos(2 * period))
                .parole(parole),
            Promise::Blocks(parole, block, 2 * period),
        ),
        Subject::new(
            "token bucket",
            TokenBucket::new(with_burst),
            Promise::Bucket,
        ),
        Subject::new("leaky meter", LeakyBucket::new(with_burst), Promise::Bucket),
        Subject::new(
            "leaky queue",
            LeakyBucket::new(quota).queue(8),
            Promise::Paced(1),
        ),
        Subject::new(
            "leaky queue of costs",
            LeakyBucket::new(quota).queue(8).max_cost(3),
            Promise::Paced(3),
        ),
        Subject::new(
            "leaky queue that charges before",
            LeakyBucket::new(quota)
                .queue(8)
                .max_cost(3)
                .charge_mode(Charge::Before),
            Promise::Paced(3),
        ),
        Subject::new(
            "warm-up",
            WarmUp::new(quota, Duration::from_nanos(5 * period)).queue(8),
            Promise::Paced(1),
        ),
        Subject::new(
            "warm-up of costs",
            WarmUp::new(quota, Duration::from_nanos(5 * period))
                .queue(8)
                .max_cost(3),
            Promise::Paced(3),
        ),
    ]
}

/// One of each algorithm with a random quota: 1 per day to 1e9 per second, including periods that
/// the limit does not divide.
pub(crate) fn random_subjects(random: &mut Random) -> Vec<Subject> {
    let limit = 1 + random.log_uniform(10);
    let period = match random.below(4) {
        0 => 1_000_000_000,
        1 => 86_400_000_000_000,
        2 => 1 + random.log_uniform(40),
        _ => *random.pick(&[7, 100, 7_000_013, 333_333_333, 1_000_000_001]),
    };
    let burst = 1 + random.below(3 * limit);
    let cells = 2 + random.below(10);
    subjects(quota(limit, period), burst, cells)
}
