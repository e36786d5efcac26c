//! The processor's time stamp counter, where the kernel itself trusts it.
//!
//! Reading it takes a third of the time of `Instant::now`. It is trusted where the kernel's present
//! clock source is `tsc`: then the kernel has found it to be the same on all processors and of one
//! rate, and `Instant` counts by it too.
//!
//! Its rate is measured against `Instant` while the program runs, so nobody waits for that: until a
//! twentieth of a second has passed since the first reading, and for good where the kernel uses
//! another clock source, `Instant` is asked. From then on the two are compared about once a second.
//! The rate is corrected so that the next second makes up for the difference, which keeps it
//! within microseconds; if they are ever a millisecond apart (a virtual machine was moved, the
//! counter was reset) `Instant` is asked from then on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// How one stretch of time converts: `ns + (counter - start) * rate / 2^32`.
#[derive(Clone, Copy, Debug)]
struct Line {
    start: u64,
    ns: u64,
    rate: u64,
    /// Counts until the next comparison.
    length: u64,
}

/// Counts nanoseconds as `Instant` does, by the counter.
#[derive(Debug)]
pub(super) struct Tsc {
    /// Odd while `line` is written.
    version: AtomicU64,
    line: [AtomicU64; 4],
    /// The counter and the nanoseconds at the first reading.
    first: OnceLock<Option<(u64, u64)>>,
}

/// In `version`: the counter is not, or no longer, trusted.
const BROKEN: u64 = u64::MAX;
const SECOND: u64 = 1_000_000_000;
/// How long the first measurement of the rate takes, at least.
const FIRST: u64 = SECOND / 20;

impl Tsc {
    pub(super) const fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            line: [const { AtomicU64::new(0) }; 4],
            first: OnceLock::new(),
        }
    }

    /// The nanoseconds that `instant` would answer; it is asked where the counter will not do.
    #[inline]
    pub(super) fn now(&self, instant: impl Fn() -> u64) -> u64 {
        let version = self.version.load(Ordering::Acquire);
        if version % 2 == 0 && version > 0 {
            let [start, ns, rate, length] = &self.line;
            let start = start.load(Ordering::Relaxed);
            let ns = ns.load(Ordering::Relaxed);
            let rate = rate.load(Ordering::Relaxed);
            let length = length.load(Ordering::Relaxed);
            std::sync::atomic::fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                let passed = counter().wrapping_sub(start);
                if passed < length {
                    return ns + scaled(passed, rate);
                }
            }
        }
        self.compare(version, &instant)
    }

    /// Asks `instant`, and brings the line in agreement with it where it is time for that.
    #[cold]
    #[inline(never)]
    fn compare(&self, version: u64, instant: &impl Fn() -> u64) -> u64 {
        let now = instant();
        if version == BROKEN || version % 2 == 1 {
            return now;
        }
        let first = self
            .first
            .get_or_init(|| is_trusted().then(|| (counter(), now)));
        let Some((first_count, first_ns)) = *first else {
            self.version.store(BROKEN, Ordering::Release);
            return now;
        };
        if now.saturating_sub(first_ns) < FIRST {
            return now;
        }
        if self
            .version
            .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            return now;
        }
        std::sync::atomic::fence(Ordering::Release);
        let old = self.line();
        let Some(next) = next_line(old, (first_count, first_ns), counter(), instant()) else {
            self.version.store(BROKEN, Ordering::Release);
            return now;
        };
        let words = [next.start, next.ns, next.rate, next.length];
        for (word, value) in self.line.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
        next.ns
    }

    fn line(&self) -> Line {
        let [start, ns, rate, length] = &self.line;
        Line {
            start: start.load(Ordering::Relaxed),
            ns: ns.load(Ordering::Relaxed),
            rate: rate.load(Ordering::Relaxed),
            length: length.load(Ordering::Relaxed),
        }
    }
}

/// The line from here on: it starts where the old one has come to, so that time neither jumps nor
/// steps back, and meets `ns` a second later. `None` if the counter cannot be trusted.
fn next_line(old: Line, first: (u64, u64), count: u64, ns: u64) -> Option<Line> {
    let counts = count.checked_sub(first.0).filter(|counts| *counts > 0)?;
    let passed = u128::from(ns.checked_sub(first.1)?);
    // Nanoseconds a count, times 2^32; between 0.1 and 10 GHz.
    let rate = u64::try_from((passed << 32) / u128::from(counts)).ok()?;
    if !(1 << 28..=1 << 36).contains(&rate) {
        return None;
    }
    let second = u64::try_from((u128::from(SECOND) << 32) / u128::from(rate)).ok()?;
    if old.rate == 0 {
        return Some(Line {
            start: count,
            ns,
            rate,
            length: second,
        });
    }
    let reached = old.ns + scaled(count.wrapping_sub(old.start), old.rate);
    let apart = ns.abs_diff(reached);
    // After a long time without a reading even a tiny error of the rate adds up.
    let idle = scaled(count.wrapping_sub(old.start), old.rate);
    if apart > SECOND / 1_000 + idle / 2_000 {
        return None;
    }
    let correction =
        u64::try_from(u128::from(rate) * u128::from(apart) / u128::from(SECOND)).ok()?;
    let correction = correction.min(rate / 2);
    Some(Line {
        start: count,
        ns: reached,
        rate: if reached < ns {
            rate + correction
        } else {
            rate - correction
        },
        length: second,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "584 years of nanoseconds fit"
)]
#[inline]
const fn scaled(counts: u64, rate: u64) -> u64 {
    ((counts as u128 * rate as u128) >> 32) as u64
}

#[inline]
#[expect(
    unsafe_code,
    reason = "the counter has no safe reader, and std's takes three times as long"
)]
fn counter() -> u64 {
    // SAFETY: `rdtsc` reads a register into two others and touches no memory. Every x86-64
    // processor has it. Where a system forbids it to user programs (`PR_SET_TSC`) it traps, which
    // ends the process without having broken anything; such a system does not offer its own fast
    // clock either.
    unsafe { core::arch::x86_64::_rdtsc() }
}

fn is_trusted() -> bool {
    std::fs::read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .is_ok_and(|source| source.trim_ascii() == b"tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter of 2.5 GHz that is compared once a second.
    fn line(start: u64, ns: u64) -> Line {
        Line {
            start,
            ns,
            rate: (1 << 32) * 2 / 5,
            length: 2_500_000_000,
        }
    }

    #[test]
    fn a_new_line_begins_where_the_old_one_ends_and_meets_the_clock_a_second_later() {
        let first = (0, 0);
        let old = line(2_500_000_000, SECOND + 900);
        let next = next_line(old, first, 5_000_000_000, 2 * SECOND).expect("900 ns apart");
        assert!(next.ns.abs_diff(2 * SECOND + 900) <= 2, "no jump");
        let end = next.ns + scaled(2_500_000_000, next.rate);
        assert!(end.abs_diff(3 * SECOND) <= 5, "{end}");
    }

    #[test]
    fn a_counter_that_jumps_or_steps_back_is_no_longer_trusted() {
        let old = line(2_500_000_000, SECOND);
        assert!(next_line(old, (0, 0), 5_100_000_000, 2 * SECOND).is_none());
        assert!(next_line(old, (2_400_000_000, 0), 10, 2 * SECOND).is_none());
        assert!(next_line(old, (0, 0), 5_000_000_000, 2 * SECOND).is_some());
    }

    #[test]
    fn readings_never_step_back() {
        static TSC: Tsc = Tsc::new();
        let clock = crate::clock::process_instant;
        let mut last = 0;
        let begin = clock();
        while clock() - begin < 2 * FIRST {
            let now = TSC.now(clock);
            assert!(now + 2_000 >= last, "{now} after {last}");
            last = now;
        }
        let now = TSC.now(clock);
        assert!(clock().abs_diff(now) < 5_000_000);
    }
}
