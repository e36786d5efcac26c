//! Loom models of the line: threads that read the clock while one of them starts a line.

use std::cell::Cell;
use std::sync::Arc;

use loom::thread;

use super::{Calibration, LEAD_NS, Line, Reading, TimeSource, Tsc, VALID_NS};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

/// Nanoseconds per count, times 2^32: one.
const RATE: u64 = 1 << 32;
/// How long a reading takes.
const STEP_NS: u64 = 1_000;
/// The start of the first line, on `Instant`.
const START_NS: u64 = 1_000_000_000;

/// A machine with both clocks and a line.
struct Machine {
    /// `Instant`. A read-modify-write reads the latest value, as a clock does, and orders no other
    /// access.
    ns: AtomicU64,
    /// By how much the counter has jumped ahead.
    jump: u64,
    tsc: Tsc,
}

/// A machine as one thread sees it.
struct Processor {
    machine: Arc<Machine>,
    last_count: Cell<u64>,
}

impl Machine {
    /// A machine whose line has `left` to run, with a counter that has jumped ahead by `jump`
    /// within the line.
    fn with_line(left: u64, jump: u64) -> Arc<Self> {
        let now = START_NS + VALID_NS - left - jump;
        let line = Line {
            base_count: START_NS,
            base_ns: START_NS + LEAD_NS,
            rate: RATE,
            valid_counts: VALID_NS,
        };
        let calibration = Calibration {
            last_ns: now,
            start: Some(Reading {
                count: START_NS,
                ns: START_NS,
            }),
            measured: Some(RATE),
            rate: Some(RATE),
            resume_ns: 0,
            is_reliable: Some(true),
        };
        let tsc = Tsc {
            sequence: AtomicU64::new(0),
            line: [line.base_count, line.base_ns, line.rate, line.valid_counts].map(AtomicU64::new),
            floor: AtomicU64::new(START_NS),
            is_unreliable: AtomicBool::new(false),
            calibration: Mutex::new(calibration),
        };
        Arc::new(Self {
            ns: AtomicU64::new(now),
            jump,
            tsc,
        })
    }

    fn processor(self: &Arc<Self>) -> Processor {
        Processor {
            machine: Arc::clone(self),
            last_count: Cell::new(0),
        }
    }
}

impl Processor {
    /// Reads the clock. Returns the reading, and `Instant` after it.
    fn read(&self) -> (u64, u64) {
        let now = self.machine.tsc.now(self);
        (now, self.machine.ns.fetch_add(0, Ordering::Relaxed))
    }
}

impl TimeSource for Processor {
    fn instant(&self) -> u64 {
        self.machine.ns.fetch_add(STEP_NS, Ordering::Relaxed)
    }

    fn counter(&self) -> u64 {
        self.instant() + self.machine.jump
    }

    fn is_counter_reliable(&self) -> bool {
        true
    }

    fn replace_last_count(&self, count: u64) -> u64 {
        self.last_count.replace(count)
    }
}

/// The counter has jumped, so the line ends 30 µs ahead of `Instant`: a reading without a line
/// has to stay above its end.
#[test]
fn loom_a_reading_while_a_line_is_started_does_not_step_back() {
    loom::model(|| {
        let machine = Machine::with_line(STEP_NS, 30_000);
        let other = machine.processor();
        let starts = thread::spawn(move || other.read());
        let processor = machine.processor();
        let (first, _) = processor.read();
        let (second, _) = processor.read();
        assert!(second >= first, "{second} after {first}");
        let _ = starts.join().expect("no thread panics");
    });
}

#[test]
fn loom_a_reading_passed_to_another_thread_is_not_later_than_its_next_reading() {
    loom::model(|| {
        let machine = Machine::with_line(STEP_NS, 30_000);
        let latest = Arc::new(AtomicU64::new(0));
        let (other, passed) = (machine.processor(), Arc::clone(&latest));
        let passes = thread::spawn(move || {
            for _ in 0..2 {
                passed.store(other.read().0, Ordering::Release);
            }
        });
        let processor = machine.processor();
        let latest = latest.load(Ordering::Acquire);
        let (now, _) = processor.read();
        assert!(now >= latest, "{now} after {latest}");
        passes.join().expect("no thread panics");
    });
}

/// Each of them finds that the line has ended. If both started one, the second line would begin at
/// the end of the first.
#[test]
fn loom_threads_at_the_end_of_a_line_start_one_line() {
    loom::model(|| {
        let machine = Machine::with_line(0, 0);
        let other = machine.processor();
        let starts = thread::spawn(move || other.read());
        let here = machine.processor().read();
        let there = starts.join().expect("no thread panics");
        for (now, instant) in [here, there] {
            assert!(now <= instant + 2 * LEAD_NS, "{now} is ahead of {instant}");
        }
    });
}
