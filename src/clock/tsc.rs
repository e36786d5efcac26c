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
//! counter was reset) it is measured afresh, and the kernel is asked again what it trusts.
//!
//! A thread may be stopped between the two readings of a comparison, and would take the time it
//! stood still for a difference. So `Instant` is read before and after the counter, and only
//! readings that lie close together count.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// What the time is read from.
pub(super) trait TimeSource {
    /// What `Instant` says, in nanoseconds.
    fn instant(&self) -> u64;
    fn counter(&self) -> u64;
    /// Whether the kernel goes by the counter.
    fn is_counter_reliable(&self) -> bool;
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    count: u64,
    ns: u64,
}

/// How one stretch of time converts: `from.ns + (counter - from.count) * rate / 2^32`.
#[derive(Clone, Copy, Debug)]
struct Calibration {
    /// Since when the rate is measured.
    first: Reading,
    from: Reading,
    /// 0 until it is known.
    rate: u64,
    /// Counts until the next comparison.
    length: u64,
}

/// Counts nanoseconds as `Instant` does, by the counter.
#[derive(Debug)]
pub(super) struct Tsc {
    /// Odd while `line` is written.
    version: AtomicU64,
    line: [AtomicU64; 6],
}

/// In `version`: the kernel does not trust the counter.
const UNRELIABLE: u64 = u64::MAX;
const SECOND: u64 = 1_000_000_000;
/// How long the first measurement of the rate takes, at least.
const CALIBRATION_TIME: u64 = SECOND / 20;
/// How far apart the readings of a comparison may be, at most.
const MAX_READ_GAP: u64 = 5_000;

impl Tsc {
    pub(super) const fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            line: [const { AtomicU64::new(0) }; 6],
        }
    }

    /// The nanoseconds that `Instant` would answer; it is asked where the counter will not do.
    #[inline]
    pub(super) fn now(&self, source: &impl TimeSource) -> u64 {
        let version = self.version.load(Ordering::Acquire);
        if version % 2 == 0 {
            let [_, _, count, ns, rate, length] = &self.line;
            let count = count.load(Ordering::Relaxed);
            let ns = ns.load(Ordering::Relaxed);
            let rate = rate.load(Ordering::Relaxed);
            let length = length.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                let passed = source.counter().wrapping_sub(count);
                if passed < length {
                    return ns + scaled(passed, rate);
                }
            }
        }
        self.compare(version, source)
    }

    /// Asks `Instant`, and brings the line in agreement with it where it is time for that.
    #[cold]
    #[inline(never)]
    fn compare(&self, version: u64, source: &impl TimeSource) -> u64 {
        let now = source.instant();
        if version == UNRELIABLE || version % 2 == 1 {
            return now;
        }
        if self
            .version
            .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            return now;
        }
        fence(Ordering::Release);
        let (unlocked, ns) = match self.line().next(now, source) {
            CalibrationUpdate::Keep => (version, now),
            CalibrationUpdate::Calibration(line, ns) => {
                self.write(line);
                (version + 2, ns)
            }
            CalibrationUpdate::Unreliable => (UNRELIABLE, now),
        };
        self.version.store(unlocked, Ordering::Release);
        ns
    }

    fn line(&self) -> Calibration {
        let words = self
            .line
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        let [first_count, first_ns, count, ns, rate, length] = words;
        let first = Reading {
            count: first_count,
            ns: first_ns,
        };
        Calibration {
            first,
            from: Reading { count, ns },
            rate,
            length,
        }
    }

    fn write(&self, line: Calibration) {
        let Calibration { first, from, .. } = line;
        let words = [
            first.count,
            first.ns,
            from.count,
            from.ns,
            line.rate,
            line.length,
        ];
        for (word, value) in self.line.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// What a comparison comes to.
enum CalibrationUpdate {
    /// It is not time for one.
    Keep,
    /// The line from here on, and the time.
    Calibration(Calibration, u64),
    /// The kernel does not go by the counter.
    Unreliable,
}

impl Calibration {
    /// Nothing has been read.
    const EMPTY: Self = Self::begin(Reading { count: 0, ns: 0 });

    /// The rate is measured from here.
    const fn begin(first: Reading) -> Self {
        Self {
            first,
            from: first,
            rate: 0,
            length: 0,
        }
    }

    fn next(self, now: u64, source: &impl TimeSource) -> CalibrationUpdate {
        let blank = self.first.count == 0;
        // Before the reading: the kernel may take its time to answer.
        if blank && !source.is_counter_reliable() {
            return CalibrationUpdate::Unreliable;
        }
        let measuring = !blank && self.rate == 0;
        if measuring && now.saturating_sub(self.first.ns) < CALIBRATION_TIME {
            return CalibrationUpdate::Keep;
        }
        let Some(reading) = read_pair(source) else {
            return CalibrationUpdate::Keep;
        };
        if blank {
            return CalibrationUpdate::Calibration(Self::begin(reading), reading.ns);
        }
        match self.refine(reading) {
            Some(line) => CalibrationUpdate::Calibration(line, line.from.ns),
            None => CalibrationUpdate::Calibration(Self::EMPTY, reading.ns),
        }
    }

    /// The line from `reading` on: it starts where this one has come to, so that time neither jumps
    /// nor steps back, and meets `Instant` a second later. `None` if the counter is not what it was.
    fn refine(self, reading: Reading) -> Option<Self> {
        let counts = reading.count.checked_sub(self.first.count)?;
        let passed = u128::from(reading.ns.checked_sub(self.first.ns)?);
        // Nanoseconds a count, times 2^32; between 0.1 and 10 GHz.
        let rate = u64::try_from((passed << 32).checked_div(counts.into())?).ok()?;
        if !(1 << 28..=1 << 36).contains(&rate) {
            return None;
        }
        let length = u64::try_from((u128::from(SECOND) << 32) / u128::from(rate)).ok()?;
        let measured = Self {
            from: reading,
            rate,
            length,
            ..self
        };
        if self.rate == 0 {
            return Some(measured);
        }
        let since = scaled(reading.count.wrapping_sub(self.from.count), self.rate);
        let reached = self.from.ns + since;
        let apart = reading.ns.abs_diff(reached);
        // After a long time without a comparison even a tiny error of the rate adds up.
        if apart > SECOND / 1_000 + since / 2_000 {
            return None;
        }
        let correction =
            u64::try_from(u128::from(rate) * u128::from(apart) / u128::from(SECOND)).ok()?;
        let correction = correction.min(rate / 2);
        Some(Self {
            from: Reading {
                ns: reached,
                ..reading
            },
            rate: if reached < reading.ns {
                rate + correction
            } else {
                rate - correction
            },
            ..measured
        })
    }
}

/// One moment on both clocks, if the thread was let to read both in one go; else the next one who
/// asks for the time tries again.
fn read_pair(source: &impl TimeSource) -> Option<Reading> {
    let before = source.instant();
    let count = source.counter();
    let between = source.instant().saturating_sub(before);
    let ns = before + between / 2;
    (between <= MAX_READ_GAP).then_some(Reading { count, ns })
}

/// The machine's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct SystemSource;

impl TimeSource for SystemSource {
    #[inline]
    fn instant(&self) -> u64 {
        super::system_nanos()
    }

    #[inline]
    fn counter(&self) -> u64 {
        counter()
    }

    fn is_counter_reliable(&self) -> bool {
        std::fs::read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .is_ok_and(|source| source.trim_ascii() == b"tsc")
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Time that passes only where it is told to, counted at 2.5 GHz.
    #[derive(Default)]
    struct Told {
        ns: Cell<u64>,
        /// Added to what the counter says.
        ahead: Cell<u64>,
        /// How long a reading takes.
        reading_takes: Cell<u64>,
        /// After so many readings the thread is stopped for as many milliseconds.
        stopped_after: Cell<u64>,
        kernel_takes: Cell<u64>,
        distrusts: Cell<bool>,
        instants: Cell<u64>,
        readings: Cell<u64>,
        kernel_asked: Cell<u64>,
    }

    impl Told {
        fn read(&self) -> u64 {
            let now = self.ns.get();
            let readings = self.readings.get() + 1;
            self.readings.set(readings);
            let stops = self.stopped_after.get();
            let stopped = stops > 0 && readings.is_multiple_of(stops);
            self.pass(self.reading_takes.get() + if stopped { stops * 1_000_000 } else { 0 });
            now
        }

        fn pass(&self, ns: u64) {
            self.ns.set(self.ns.get() + ns);
        }
    }

    impl TimeSource for Told {
        fn instant(&self) -> u64 {
            self.instants.set(self.instants.get() + 1);
            1_000 + self.read()
        }

        fn counter(&self) -> u64 {
            7_000 + self.ahead.get() + self.read() * 5 / 2
        }

        fn is_counter_reliable(&self) -> bool {
            self.kernel_asked.set(self.kernel_asked.get() + 1);
            self.pass(self.kernel_takes.get());
            !self.distrusts.get()
        }
    }

    /// Reads each millisecond for so long. Answers how often `Instant` was asked, after each answer
    /// was found to be within `most` nanoseconds of the time and none before the last.
    fn run(tsc: &Tsc, told: &Told, millis: u64, most: u64) -> u64 {
        told.instants.set(0);
        let mut last = 0;
        for _ in 0..millis {
            told.pass(1_000_000);
            let before = 1_000 + told.ns.get();
            let now = tsc.now(told);
            let after = 1_000 + told.ns.get();
            assert!(now + most >= before, "{now}, but it was {before}");
            assert!(now <= after + most, "{now}, but it was {after}");
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
        told.instants.get()
    }

    fn told() -> Told {
        let told = Told::default();
        told.ns.set(1);
        told.reading_takes.set(25);
        told
    }

    #[test]
    fn after_a_twentieth_of_a_second_the_counter_is_read() {
        let (tsc, told) = (Tsc::new(), told());
        assert!(run(&tsc, &told, 50, 0) >= 50);
        assert!(run(&tsc, &told, 10_000, 100) < 50);
        assert_eq!(told.kernel_asked.get(), 1);
    }

    #[test]
    fn clock_read_latency_does_not_affect_the_rate() {
        let (tsc, told) = (Tsc::new(), told());
        told.kernel_takes.set(3_000_000);
        run(&tsc, &told, 60, 100);
        assert!(run(&tsc, &told, 10_000, 100) < 50);
        assert_eq!(told.kernel_asked.get(), 1);
    }

    #[test]
    fn a_preempted_calibration_is_retried() {
        // So that each reading of a comparison is hit in turn.
        for stopped_after in [7, 11, 13] {
            let (tsc, told) = (Tsc::new(), told());
            told.stopped_after.set(stopped_after);
            run(&tsc, &told, 100, MAX_READ_GAP);
            assert!(
                run(&tsc, &told, 10_000, MAX_READ_GAP) < 200,
                "{stopped_after}"
            );
            assert_eq!(told.kernel_asked.get(), 1, "{stopped_after}");
        }
    }

    #[test]
    fn an_uncalibrated_counter_is_not_read() {
        let (tsc, told) = (Tsc::new(), told());
        told.reading_takes.set(MAX_READ_GAP);
        assert!(run(&tsc, &told, 1_000, 0) >= 1_000);
    }

    #[test]
    fn a_counter_the_kernel_distrusts_is_not_read() {
        let (tsc, told) = (Tsc::new(), told());
        told.distrusts.set(true);
        assert_eq!(run(&tsc, &told, 1_000, 0), 1_000);
        assert_eq!(told.kernel_asked.get(), 1);
    }

    #[test]
    fn a_counter_jump_restarts_the_calibration() {
        let (second, hours) = (2_500_000_000, 10_000_000_000_000);
        for (jump, trusted) in [(hours, true), (second, true), (second, false)] {
            let (tsc, told) = (Tsc::new(), told());
            run(&tsc, &told, 2_000, 100);
            told.ahead.set(jump);
            told.distrusts.set(!trusted);
            // It is found out at once, for the jump ends the second.
            run(&tsc, &told, 100, 100);
            let instants = run(&tsc, &told, 10_000, 100);
            assert_eq!(instants < 50, trusted, "{instants}");
            assert_eq!(told.kernel_asked.get(), 2);
        }
    }

    #[test]
    fn a_rate_that_drifts_is_followed() {
        let (tsc, told) = (Tsc::new(), told());
        run(&tsc, &told, 2_000, 100);
        // A hundred millionths faster, as a kernel that is corrected over the network may find it.
        for _ in 0..20_000 {
            told.ahead.set(told.ahead.get() + 250);
            run(&tsc, &told, 1, 150_000);
        }
        assert_eq!(told.kernel_asked.get(), 1);
    }

    #[test]
    fn calibrations_are_continuous_and_converge_within_a_second() {
        let first = Reading { count: 1, ns: 1 };
        let line = Calibration {
            first,
            from: Reading {
                count: 2_500_000_001,
                ns: SECOND + 901,
            },
            rate: (1 << 32) * 2 / 5,
            length: 2_500_000_000,
        };
        let reading = Reading {
            count: 5_000_000_001,
            ns: 2 * SECOND + 1,
        };
        let next = line.refine(reading).expect("900 ns apart");
        assert!(next.from.ns.abs_diff(2 * SECOND + 901) <= 2, "no jump");
        let end = next.from.ns + scaled(2_500_000_000, next.rate);
        assert!(end.abs_diff(3 * SECOND + 1) <= 5, "{end}");
    }

    #[test]
    fn readings_of_this_machine_never_step_back() {
        static TSC: Tsc = Tsc::new();
        let mut last = 0;
        let begin = SystemSource.instant();
        while SystemSource.instant() - begin < 2 * CALIBRATION_TIME {
            let now = TSC.now(&SystemSource);
            assert!(now + 2_000 >= last, "{now} after {last}");
            last = now;
        }
        let now = TSC.now(&SystemSource);
        assert!(SystemSource.instant().abs_diff(now) < 5_000_000);
    }
}
