//! The algorithms under test, each with its promise.

use std::time::Duration;

use tower_throttle::algorithm::{AnyAlgorithm, IntoAlgorithm};
use tower_throttle::testkit::random_quota;
pub(crate) use tower_throttle::testkit::{Promise, Subject};
use tower_throttle::{
    CalendarWindow, FixedWindow, LeakyBucket, Lockout, Quota, SlidingGrid, SlidingLog,
    SlidingWindow, TokenBucket, WarmUp,
};

use crate::random::Random;

pub(crate) fn quota(limit: u64, period: u64) -> Quota {
    Quota::per(limit, Duration::from_nanos(period))
}

/// One under test.
fn subject(name: &'static str, algorithm: impl IntoAlgorithm, promise: Promise) -> Subject {
    Subject::new(name, AnyAlgorithm::new(algorithm), promise)
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
    // There is none without the feature `calendar`. Its shortest day has 23 hours.
    let day = Quota::per_day(quota.limit());
    let day = CalendarWindow::new(day, "America/Santiago").map(|day| Subject {
        period: 23 * 3_600_000_000_000,
        ..subject("calendar day", day, Promise::Windows)
    });
    let subjects = vec![
        subject("fixed window", FixedWindow::new(quota), Promise::Windows),
        subject(
            "anchored window",
            FixedWindow::new(quota).anchored(),
            Promise::Windows,
        ),
        subject("sliding log", SlidingLog::new(quota), log.clone()),
        subject(
            "sliding window",
            SlidingWindow::new(quota),
            Promise::Windows,
        ),
        subject(
            "sliding grid",
            grid,
            Promise::AtMostIn(cell * (cells - 1) + 1),
        ),
        subject("strict grid", grid.strict(), log),
        subject(
            "lockout",
            Lockout::new(quota)
                .block(Duration::from_nanos(block))
                .max_block(Duration::from_nanos(4 * block))
                .forget(Duration::from_nanos(2 * period))
                .parole(parole),
            Promise::Blocks(parole, block, 2 * period),
        ),
        subject(
            "token bucket",
            TokenBucket::new(with_burst),
            Promise::Bucket,
        ),
        subject("leaky meter", LeakyBucket::new(with_burst), Promise::Bucket),
        subject(
            "warm-up",
            WarmUp::new(quota, Duration::from_nanos(5 * period)),
            Promise::Paced(1),
        ),
        subject(
            "warm-up of costs",
            WarmUp::new(quota, Duration::from_nanos(5 * period)).max_cost(3),
            Promise::Paced(3),
        ),
    ];
    subjects.into_iter().chain(day).collect()
}

/// One of each algorithm with a random quota: 1 per day to 1e9 per second, including periods that
/// the limit does not divide.
pub(crate) fn random_subjects(random: &mut Random) -> Vec<Subject> {
    let drawn = random_quota(random.next());
    let plain = Quota::per(drawn.limit(), drawn.period());
    let cells = 2 + random.below(10);
    subjects(plain, drawn.capacity(), cells)
}
