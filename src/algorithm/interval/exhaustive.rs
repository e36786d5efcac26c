//! The integer functions against their definitions, over all combinations of the values at the edges of their types.
//!
//! A definition here is a `u128`.
//! No function under test is used in it.

use super::{ExactNanos, Interval};
use crate::quota::{MAX_PERIOD_NS, Quota};

/// Values around each power of two at which a carry, a shift or an overflow may go wrong.
fn edges(most: u64) -> impl Iterator<Item = u64> + Clone {
    let powers = [0, 1, 2, 20, 31, 32, 33, 53, 61, 62, 63];
    let near = powers.into_iter().flat_map(|power| {
        let power = 1_u64 << power;
        [power - 1, power, power + 1]
    });
    near.chain([10, 1_000_000_007, u64::MAX - 1, u64::MAX])
        .filter(move |value| *value <= most)
}

/// In parts of 1/L nanoseconds.
fn parts(span: ExactNanos, interval: &Interval) -> u128 {
    u128::from(span.ns) * u128::from(interval.limit.get()) + u128::from(span.fraction)
}

fn has_parts(span: ExactNanos, parts: u128, interval: &Interval) -> bool {
    let den = u128::from(interval.limit.get());
    if parts / den >= u128::from(u64::MAX) {
        return span.ns == u64::MAX;
    }
    (u128::from(span.ns), u128::from(span.fraction)) == (parts / den, parts % den)
}

fn check_cost(interval: &Interval, cost: u64) {
    let (num, den) = (
        u128::from(interval.period.get()),
        u128::from(interval.limit.get()),
    );
    let span = interval.time_for(cost);
    let case = || format!("{cost} at {num}/{den}: {span:?}");
    assert!(
        has_parts(span, u128::from(cost) * num, interval),
        "{}",
        case()
    );
    if span != ExactNanos::NEVER {
        let (dividend, divisor) = interval.units_ratio(span);
        assert_eq!(dividend / divisor, cost, "{}", case());
    }
}

fn check_units(interval: &Interval, span: ExactNanos) {
    let units = parts(span, interval) / u128::from(interval.period.get());
    let units = u64::try_from(units).unwrap_or(u64::MAX);
    let (dividend, divisor) = interval.units_ratio(span);
    assert_eq!(dividend / divisor, units, "{span:?} at {interval:?}");
}

fn check_sums(interval: &Interval, due: ExactNanos, span: ExactNanos) {
    let (a, b) = (parts(due, interval), parts(span, interval));
    let case = || format!("{due:?} and {span:?} at {interval:?}");
    assert!(
        has_parts(interval.add(due, span), a + b, interval),
        "{}",
        case()
    );
    let difference = interval.sub(due, span);
    assert!(
        has_parts(difference, a.saturating_sub(b), interval),
        "{}",
        case()
    );
}

fn edge_spans(interval: &Interval) -> Vec<ExactNanos> {
    let last = interval.limit.get() - 1;
    edges(u64::MAX - 1)
        .flat_map(|ns| [0, 1, last / 2, last].map(|fraction| ExactNanos { ns, fraction }))
        .filter(|span| span.fraction <= last)
        .collect()
}

/// The limits and periods at the edges of what a quota accepts.
fn edge_intervals() -> impl Iterator<Item = Interval> {
    edges(MAX_PERIOD_NS)
        .filter(|period| *period > 0)
        .flat_map(|period| {
            let limits = edges(u64::MAX).filter(|limit| *limit > 0);
            limits.filter_map(move |limit| {
                let quota = Quota::try_per(limit, std::time::Duration::from_nanos(period)).ok()?;
                Some(Interval::new(&quota))
            })
        })
}

#[test]
fn intervals_match_fractions() {
    for interval in edge_intervals() {
        for cost in edges(u64::MAX) {
            check_cost(&interval, cost);
        }
        let spans = edge_spans(&interval);
        for due in &spans {
            check_units(&interval, *due);
        }
        for due in spans.iter().step_by(3) {
            for span in &spans {
                check_sums(&interval, *due, *span);
            }
        }
    }
}
