//! Fleets of many seeds, simulated on all processors.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// A long run prints how far it is after so many fleets.
const FLEETS_PER_LINE: u64 = 25_000;

/// Runs the fleets of the seeds below `seeds`, and prints how many. Panics if one of them does.
pub(in crate::store) fn run_all(seeds: u64, run: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(0);
    let run_some = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                break;
            }
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
                next.store(seeds, Ordering::Relaxed);
                resume_unwind(panic);
            }
            if seed > 0 && seed % FLEETS_PER_LINE == 0 {
                println!("{seed} of {seeds} fleets");
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(run_some);
        }
    });
    println!("{seeds} fleets kept their bounds");
}

/// Whether one of the fleets of the seeds below `seeds` panics.
pub(in crate::store) fn any_panics(seeds: u64, run: impl Fn(u64) + Sync) -> bool {
    let all = || run_all(seeds, run);
    catch_unwind(AssertUnwindSafe(all)).is_err()
}
