use std::cell::Cell;

use super::*;

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3_600 * SECOND;

/// How far ahead of `Instant` a reading may be.
const MAX_AHEAD: u64 = 60 * MICRO;

/// A simulated machine whose time is moved by a test.
struct Machine {
    /// `Instant`, in picoseconds.
    instant: Cell<u64>,
    /// In thousandths of a count.
    counter: Cell<u64>,
    /// Counts per microsecond.
    counts: Cell<u64>,
    /// By how much `Instant` runs faster, in millionths.
    slew: Cell<i64>,
    /// How long one reading takes.
    reading_takes: Cell<u64>,
    /// The number of readings between preemptions, and the length of a preemption.
    preempts: Cell<(u64, u64)>,
    readings: Cell<u64>,
    is_reliable: Cell<bool>,
    kernel_takes: Cell<u64>,
    instants: Cell<u64>,
    kernel_asked: Cell<u64>,
    rate: Cell<Option<u64>>,
}

impl Machine {
    fn new() -> Self {
        Self {
            instant: Cell::new(1_000_000 * MILLI),
            counter: Cell::new(7_000_000),
            counts: Cell::new(2_500),
            slew: Cell::new(0),
            reading_takes: Cell::new(25),
            preempts: Cell::new((u64::MAX, 0)),
            readings: Cell::new(0),
            is_reliable: Cell::new(true),
            kernel_takes: Cell::new(20 * MICRO),
            instants: Cell::new(0),
            kernel_asked: Cell::new(0),
            rate: Cell::new(None),
        }
    }

    fn pass(&self, ns: u64) {
        self.pass_on_instant(ns);
        let counts = ns * self.counts.get();
        self.counter.set(self.counter.get().wrapping_add(counts));
    }

    /// Advances `Instant` only, as if the machine was suspended while its counter stopped.
    fn pass_on_instant(&self, ns: u64) {
        let slewed = 1_000_000_i64 + self.slew.get();
        let picos = u128::from(ns) * u128::from(slewed.unsigned_abs()) / 1_000;
        self.instant
            .set(self.instant.get() + u64::try_from(picos).unwrap());
    }

    /// `Instant` without the time that a reading takes.
    fn true_ns(&self) -> u64 {
        self.instant.get() / 1_000
    }

    fn read(&self) {
        let readings = self.readings.get() + 1;
        self.readings.set(readings);
        let (every, stop) = self.preempts.get();
        let stopped = if readings.is_multiple_of(every) {
            stop
        } else {
            0
        };
        self.pass(self.reading_takes.get() + stopped);
    }

    /// Moves the counter by the given nanoseconds.
    fn jump(&self, ns: i64) {
        let counts = ns * i64::try_from(self.counts.get()).unwrap();
        self.counter
            .set(self.counter.get().wrapping_add_signed(counts));
    }
}

impl TimeSource for Machine {
    fn instant(&self) -> u64 {
        self.instants.set(self.instants.get() + 1);
        let ns = self.true_ns();
        self.read();
        ns
    }

    fn counter(&self) -> u64 {
        let count = self.counter.get() / 1_000;
        self.read();
        count
    }

    fn is_counter_reliable(&self) -> bool {
        self.kernel_asked.set(self.kernel_asked.get() + 1);
        self.pass(self.kernel_takes.get());
        self.is_reliable.get()
    }

    fn known_rate(&self) -> Option<u64> {
        self.rate.get()
    }

    fn tell_rate(&self, rate: Option<u64>) {
        self.rate.set(rate);
    }
}

/// A clock on a simulated machine. Every reading is checked.
struct Checked {
    tsc: Tsc,
    machine: Machine,
    last: Cell<u64>,
    /// The most that a reading was ahead.
    ahead: Cell<u64>,
    /// How far behind a reading may be.
    max_behind: Cell<u64>,
    /// Until this moment a reading may be further behind.
    unchecked_until: Cell<u64>,
}

impl Checked {
    fn new() -> Self {
        Self {
            tsc: Tsc::new(),
            machine: Machine::new(),
            last: Cell::new(0),
            ahead: Cell::new(0),
            max_behind: Cell::new(0),
            unchecked_until: Cell::new(0),
        }
    }

    /// A clock that reads the counter.
    fn running() -> Self {
        let checked = Self::new();
        checked.run(30 * MILLI, 10 * MICRO);
        assert!(checked.run(10 * MILLI, MICRO) < 500);
        checked
    }

    fn read(&self) {
        let before = self.machine.true_ns();
        let now = self.tsc.now(&self.machine);
        let after = self.machine.true_ns();
        if before > self.unchecked_until.get() {
            let behind = before.saturating_sub(now);
            assert!(
                behind <= self.max_behind.get(),
                "{now}, but it was {before}"
            );
        }
        assert!(now <= after + MAX_AHEAD, "{now} is ahead of {after}");
        assert!(now >= self.last.get(), "{now} after {}", self.last.get());
        self.last.set(now);
        self.ahead
            .set(self.ahead.get().max(now.saturating_sub(after)));
    }

    /// Lets `Instant` jump. The clock notices only at the end of a line.
    fn jump_instant(&self, ns: u64) {
        self.machine.pass_on_instant(ns);
        let until = self.machine.true_ns() + VALID_NS + 10 * MICRO;
        self.unchecked_until.set(until);
    }

    /// Reads once per `step` for `span`. Returns how often `Instant` was read.
    fn run(&self, span: u64, step: u64) -> u64 {
        self.machine.instants.set(0);
        for _ in 0..span / step {
            self.machine.pass(step);
            self.read();
        }
        self.machine.instants.get()
    }
}

#[test]
fn frequent_calls_read_the_counter_after_two_measurements() {
    let checked = Checked::new();
    assert!(checked.run(20 * MILLI, 10 * MICRO) >= 2_000);
    checked.run(10 * MILLI, 10 * MICRO);
    assert!(checked.run(SECOND, MICRO) < 45_000, "of a million readings");
    assert_eq!(checked.machine.kernel_asked.get(), 1);
    assert!(checked.ahead.get() < 2 * MICRO, "{}", checked.ahead.get());
}

#[test]
fn a_new_thread_uses_the_rate_of_another_one() {
    let running = Checked::running();
    let other = Checked {
        tsc: Tsc::new(),
        ..running
    };
    other.last.set(0);
    assert!(other.run(MILLI, MICRO) < 50, "of a thousand readings");
}

#[test]
fn a_rate_of_another_thread_that_does_not_hold_is_dropped() {
    let checked = Checked::new();
    let rate = (1_000 << 32) / checked.machine.counts.get();
    checked.machine.rate.set(Some(rate + rate / 100));
    assert!(checked.run(MILLI, MICRO) < 50);
    checked.run(20 * MILLI, 10 * MICRO);
    assert_eq!(checked.machine.rate.get(), None);
    assert_eq!(checked.run(MILLI, MICRO), 1_000, "Instant is read");
}

#[test]
fn rare_calls_read_instant_once_each() {
    let checked = Checked::running();
    checked.run(MILLI, 200 * MICRO);
    assert_eq!(checked.run(SECOND, 200 * MICRO), 5_000);
    assert!(
        checked.run(10 * MILLI, MICRO) < 500,
        "used again immediately"
    );
}

/// Shows promise 30.
#[test]
fn idle_hours_add_no_error() {
    let checked = Checked::running();
    for hours in [1, 10, 100] {
        for slew in [0, 500, -500] {
            checked.machine.slew.set(slew);
            checked.machine.pass(hours * HOUR);
            checked.read();
            checked.ahead.set(0);
            checked.run(MILLI, MICRO);
            assert!(checked.ahead.get() < 2 * MICRO, "{}", checked.ahead.get());
            checked.run(50 * MILLI, 10 * MICRO);
            assert!(checked.run(10 * MILLI, MICRO) < 500);
        }
    }
    assert_eq!(checked.machine.kernel_asked.get(), 1);
}

/// Shows promise 30.
#[test]
fn a_counter_jump_moves_the_time_by_less_than_a_line() {
    let sizes = [1, 10, 25, 40, 60, 100, 1_000, 1_000_000, 3_600_000_000];
    for micros in sizes {
        for sign in [1, -1] {
            let checked = Checked::running();
            for offset in 0..40 {
                // At every position in a line.
                checked.run(offset * 3 * MICRO + 200 * MICRO, MICRO);
                checked.machine.jump(sign * micros * 1_000);
                checked.run(200 * MICRO, MICRO);
            }
            checked.run(2 * SECOND, 20 * MICRO);
            assert!(checked.run(10 * MILLI, MICRO) < 500, "used again");
        }
    }
}

/// Shows promise 30.
#[test]
fn a_machine_with_another_frequency_is_measured_again() {
    for counts in [1_000, 2_450, 2_525, 4_000] {
        let checked = Checked::running();
        // A line takes longer on a slower counter.
        checked.max_behind.set(100 * MICRO);
        checked.machine.counts.set(counts);
        checked.machine.counter.set(counts * 77_777);
        checked.run(2 * SECOND, 10 * MICRO);
        assert!(checked.run(10 * MILLI, MICRO) < 500, "{counts}");
        checked.max_behind.set(0);
        checked.ahead.set(0);
        checked.run(10 * MILLI, MICRO);
        assert!(checked.ahead.get() < 2 * MICRO, "{}", checked.ahead.get());
    }
}

/// Shows promise 30.
#[test]
fn the_counter_is_dropped_when_the_kernel_stops_trusting_it() {
    let checked = Checked::running();
    checked.machine.is_reliable.set(false);
    checked.machine.jump(1_000_000_000);
    checked.run(2 * SECOND, 10 * MICRO);
    assert_eq!(checked.run(10 * MILLI, MICRO), 10_000);
    assert_eq!(checked.machine.kernel_asked.get(), 2);
}

/// Shows promise 30.
#[test]
fn a_counter_that_the_kernel_does_not_trust_is_never_used() {
    let checked = Checked::new();
    checked.machine.is_reliable.set(false);
    assert_eq!(checked.run(100 * MILLI, 10 * MICRO), 10_000);
    assert_eq!(checked.machine.kernel_asked.get(), 1);
}

#[test]
fn a_rate_that_no_processor_has_is_not_used() {
    let begin = Reading { count: 0, ns: 0 };
    let rate = |count, ns| begin.rate_until(Reading { count, ns });
    assert_eq!(rate(3_000, 1_000), Some((1 << 32) / 3));
    for counts in [20_000, 50, 0] {
        assert_eq!(rate(counts, 1_000), None, "{counts} in a microsecond");
    }
}

/// Shows promise 30.
#[test]
fn random_faults_never_break_the_bounds() {
    for seed in 1..8 {
        let checked = Checked::new();
        // The counter jumps back within its line, but not below the last reading.
        checked.max_behind.set(2 * VALID_NS);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed);
        let mut below = |most: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % most
        };
        for _ in 0..2_000 {
            let machine = &checked.machine;
            match below(20) {
                0 => machine.slew.set(i64::try_from(below(1_001)).unwrap() - 500),
                1 => machine.pass(below(HOUR)),
                2 => machine.jump(i64::try_from(below(200 * MICRO)).unwrap() - 100_000),
                3 => checked.jump_instant(below(SECOND)),
                4 => machine.counter.set(below(1 << 60)),
                5 => machine.reading_takes.set(below(200)),
                6 => machine.preempts.set((1 + below(1_000), below(MILLI))),
                7 => machine.pass(2 * SECOND),
                _ => drop(checked.run(below(20 * MILLI), 1 + below(40 * MICRO))),
            }
        }
    }
}
