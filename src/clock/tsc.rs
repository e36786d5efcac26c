//! The processor's time stamp counter, between two readings of `Instant`.
//!
//! Reading the counter takes a third of the time of `Instant::now` (10.5 ns of 28): with `Instant` a
//! decision on a table of few keys takes up to 1.8 times as long as one of governor. The crate `quanta`
//! is as fast, but measures the rate once, for up to 200 ms at its first use, and corrects no drift.
//! The counter is used only if the kernel's own clock source is the counter: then the kernel has
//! verified that its rate is constant and the same on all processors.
//!
//! # Protocol
//! A reading of `Instant` starts a *line*, which converts the counter to nanoseconds for
//! [`VALID_NS`]. When a line has ended, the next caller reads `Instant` again and starts another
//! line. If calls are rare, no line is started and every call reads `Instant`. So nothing is
//! extrapolated over an idle time, and the error is bounded even if the counter is wrong:
//!
//! 1. A line starts [`LEAD_NS`] ahead of `Instant`. That is more than the error of its rate, so a
//!    line is never behind `Instant`.
//! 2. A line never starts below the end of the line before. If that is further ahead of `Instant`,
//!    the new line runs slower, so that it has lost the difference at its end.
//! 3. A caller without a line returns `Instant`, or the end of the last line if that is later.
//!
//! So the time never runs backwards. It is at most 60 µs ahead of `Instant`: a line's length and
//! lead, if the counter jumps over a whole line. It is behind only if the counter loses time within
//! a line. A thread that finds the counter lower than at its own last reading ends the line. The
//! processor may read the counter before an earlier load: a thread may find a time that is some
//! nanoseconds before one that another thread has passed on. Waiting for the load takes 8 ns.
//!
//! # The rate
//! It is measured between readings at least 10 ms apart and used once two measurements in a row
//! agree. When they stop agreeing (a virtual machine was moved, the counter was reset), `Instant`
//! is read for a second, and the kernel is asked again whether it trusts the counter.

#[cfg(not(all(test, tower_throttle_loom)))]
mod processor;

#[cfg(not(all(test, tower_throttle_loom)))]
pub(super) use self::processor::now;
/// The atomics of a model cannot be in a `static`.
#[cfg(all(test, tower_throttle_loom))]
pub(super) fn now() -> u64 {
    super::system::system_nanos()
}

use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, fence};

/// What the time is read from.
pub(super) trait TimeSource {
    /// `Instant::now`, in nanoseconds.
    fn instant(&self) -> u64;
    /// The counter.
    fn counter(&self) -> u64;
    /// Whether the kernel's clock source is the counter.
    fn is_counter_reliable(&self) -> bool;
    /// Remembers `count` for this thread. Returns the one that was remembered before.
    fn replace_last_count(&self, count: u64) -> u64;
}

/// How long a line is valid: the most that a jump of the counter can add to the time.
const VALID_NS: u64 = 50_000;
/// How far ahead of `Instant` a line starts.
const LEAD_NS: u64 = 1_000;
/// Calls are rare if none came for this long.
const RARE_NS: u64 = 2 * VALID_NS;
/// The most time between the two readings of `Instant` around one of the counter.
const MAX_READ_GAP_NS: u64 = 5_000;
/// The shortest measurement of the rate.
const BASELINE_NS: u64 = 10_000_000;
/// How long the counter is left alone after two measurements disagreed.
const PAUSE_NS: u64 = 1_000_000_000;

/// Nanoseconds of the counter, close to `Instant`.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Tsc {
    /// Odd while `line` is written.
    sequence: AtomicU64,
    line: [AtomicU64; 4],
    /// The end of the line before, for callers that find `sequence` odd.
    floor: AtomicU64,
    /// The kernel does not trust the counter.
    is_unreliable: AtomicBool,
    /// The holder of this lock writes the line.
    calibration: Mutex<Calibration>,
}

/// Converts counts to nanoseconds: `base_ns + (count - base_count) * rate / 2^32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    base_count: u64,
    base_ns: u64,
    rate: u64,
    /// The line ends after this many counts. Zero if it only holds a lower bound.
    valid_counts: u64,
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
struct Reading {
    count: u64,
    ns: u64,
}

/// The measurement of the rate.
#[derive(Debug)]
struct Calibration {
    /// The last reading of `Instant`.
    last_ns: u64,
    /// Where the present measurement began.
    start: Option<Reading>,
    /// The last measurement.
    measured: Option<u64>,
    /// The rate on which two measurements agreed.
    rate: Option<u64>,
    /// The counter is not used before.
    resume_ns: u64,
    /// What the kernel said, if it was asked.
    is_reliable: Option<bool>,
}

impl Tsc {
    #[cfg(not(all(test, tower_throttle_loom)))]
    pub(super) const fn new() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            line: [const { AtomicU64::new(0) }; 4],
            floor: AtomicU64::new(0),
            is_unreliable: AtomicBool::new(false),
            calibration: Mutex::new(Calibration::new()),
        }
    }

    /// The nanoseconds of `Instant`, or a little more. Never runs backwards.
    #[inline]
    pub(super) fn now(&self, source: &impl TimeSource) -> u64 {
        let (sequence, line) = self.load_line();
        if let Some(ns) = line.and_then(|line| line.read(source)) {
            return ns;
        }
        self.read_instant(sequence, line.map(Line::end), source)
    }

    /// The line, and the sequence number that it was read at. `None` while it is written.
    #[inline]
    fn load_line(&self) -> (u64, Option<Line>) {
        let sequence = self.sequence.load(Ordering::Acquire);
        let [base_count, base_ns, rate, valid_counts] = &self.line;
        let line = Line {
            base_count: base_count.load(Ordering::Relaxed),
            base_ns: base_ns.load(Ordering::Relaxed),
            rate: rate.load(Ordering::Relaxed),
            valid_counts: valid_counts.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        let is_whole = sequence % 2 == 0 && self.sequence.load(Ordering::Relaxed) == sequence;
        (sequence, is_whole.then_some(line))
    }

    /// The end of the last line, for a caller that has found a line being written.
    fn load_floor(&self) -> u64 {
        // Pairs with the store of the odd sequence: `load_line` may have seen that or a later one
        // by its second load, which orders nothing.
        fence(Ordering::Acquire);
        self.floor.load(Ordering::Relaxed)
    }

    /// `sequence` and `end` are those of the line that the caller has read. There is no `end` if the line
    /// was being written.
    #[cold]
    fn read_instant(&self, sequence: u64, end: Option<u64>, source: &impl TimeSource) -> u64 {
        let instant = source.instant();
        // A line that started since then has a later end, which it may be far from.
        let floor = end.unwrap_or_else(|| self.load_floor());
        let now = instant.max(floor);
        if self.is_unreliable.load(Ordering::Relaxed) {
            return now;
        }
        // Does not wait for the thread that starts a line.
        let Ok(mut calibration) = self.calibration.try_lock() else {
            return now;
        };
        let (latest, line) = self.load_line();
        let line = line.unwrap_or_else(|| Line::stopped(floor));
        if end.is_none() || latest != sequence {
            if let Some(ns) = line.read(source) {
                return ns;
            }
        }
        let next = calibration.next_line(instant, line.end(), source);
        if calibration.is_reliable == Some(false) {
            self.is_unreliable.store(true, Ordering::Relaxed);
        }
        self.store_line(line.end(), next);
        next.base_ns
    }

    fn store_line(&self, floor: u64, line: Line) {
        self.floor.store(floor, Ordering::Relaxed);
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Release);
        fence(Ordering::Release);
        let words = [line.base_count, line.base_ns, line.rate, line.valid_counts];
        for (word, value) in self.line.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.sequence.store(sequence + 2, Ordering::Release);
    }
}

impl Line {
    /// No line: only a lower bound for later readings.
    const fn stopped(ns: u64) -> Self {
        Self {
            base_count: 0,
            base_ns: ns,
            rate: 0,
            valid_counts: 0,
        }
    }

    /// The present moment, if the line has not ended.
    #[inline]
    fn read(self, source: &impl TimeSource) -> Option<u64> {
        let count = source.counter();
        let last = source.replace_last_count(count);
        let passed = count.wrapping_sub(self.base_count);
        (passed < self.valid_counts && last <= count)
            .then(|| self.base_ns + scaled(passed, self.rate))
    }

    /// The last moment of the line.
    const fn end(self) -> u64 {
        self.base_ns + scaled(self.valid_counts, self.rate)
    }
}

impl Calibration {
    const fn new() -> Self {
        Self {
            last_ns: 0,
            start: None,
            measured: None,
            rate: None,
            resume_ns: 0,
            is_reliable: None,
        }
    }

    /// The line after one that ended at `floor`, when `Instant` says `now`.
    fn next_line(&mut self, now: u64, floor: u64, source: &impl TimeSource) -> Line {
        let stopped = Line::stopped(now.max(floor));
        let is_rare = now.saturating_sub(self.last_ns) > RARE_NS;
        self.last_ns = now;
        if is_rare || now < self.resume_ns {
            return stopped;
        }
        if self.is_reliable.is_none() {
            self.is_reliable = Some(source.is_counter_reliable());
            return stopped;
        }
        let count = source.counter();
        let ns = source.instant();
        // The thread may have been preempted in between.
        if ns.saturating_sub(now) > MAX_READ_GAP_NS {
            return stopped;
        }
        let Some(rate) = self.measure(Reading { count, ns }) else {
            return stopped;
        };
        let start = ns + LEAD_NS;
        let excess = floor.saturating_sub(start);
        Line {
            base_count: count,
            base_ns: start + excess,
            // At its end the line is where it would be without the excess.
            rate: rate - rate / VALID_NS * excess.min(VALID_NS),
            valid_counts: (VALID_NS << 32) / rate,
        }
    }

    /// The rate, if it is known.
    fn measure(&mut self, reading: Reading) -> Option<u64> {
        let Some(start) = self.start else {
            self.start = Some(reading);
            return None;
        };
        if reading.ns.saturating_sub(start.ns) < BASELINE_NS {
            return self.rate;
        }
        let measured = start.rate_until(reading);
        self.rate = match (self.measured, measured) {
            (Some(before), Some(rate)) if rate.abs_diff(before) <= before / 200 => Some(rate),
            _ => None,
        };
        self.start = Some(reading);
        if self.measured.is_some() && self.rate.is_none() {
            *self = Self {
                last_ns: self.last_ns,
                resume_ns: reading.ns + PAUSE_NS,
                ..Self::new()
            };
        } else {
            self.measured = measured;
        }
        self.rate
    }
}

impl Reading {
    /// Nanoseconds per count, times 2^32. `None` if the counter did not run at 0.1 to 10 GHz.
    fn rate_until(self, later: Self) -> Option<u64> {
        let counts = later.count.checked_sub(self.count)?;
        let passed = u128::from(later.ns.checked_sub(self.ns)?);
        let rate = u64::try_from((passed << 32).checked_div(counts.into())?).ok()?;
        (1 << 28..=10 << 32).contains(&rate).then_some(rate)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "584 years of nanoseconds fit"
)]
#[inline]
const fn scaled(counts: u64, rate: u64) -> u64 {
    ((counts as u128 * rate as u128) >> 32) as u64
}

#[cfg(all(test, tower_throttle_loom))]
mod loom_models;
#[cfg(test)]
#[cfg(not(tower_throttle_loom))]
mod tests;
