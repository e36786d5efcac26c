//! The counter and `Instant` of this machine.

use std::{cell::Cell, fs::File, io::Read};

use super::{TimeSource, Tsc};
use crate::clock::system::system_nanos;

/// The time of this process.
#[inline]
pub(in crate::clock) fn now() -> u64 {
    static TSC: Tsc = Tsc::new();
    TSC.now(&SystemSource)
}

/// Readings of this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct SystemSource;

thread_local! {
    static LAST_COUNT: Cell<u64> = const { Cell::new(0) };
}

impl TimeSource for SystemSource {
    #[inline]
    fn instant(&self) -> u64 {
        system_nanos()
    }

    #[inline]
    fn counter(&self) -> u64 {
        counter()
    }

    fn is_counter_reliable(&self) -> bool {
        // `fs::read` would allocate a page, in a request.
        let mut source = [0; 16];
        File::open("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .and_then(|mut file| file.read(&mut source))
            .is_ok_and(|len| source[..len].trim_ascii() == b"tsc")
    }

    #[inline]
    fn replace_last_count(&self, count: u64) -> u64 {
        LAST_COUNT.replace(count)
    }
}

#[cfg(not(miri))]
#[inline]
#[expect(
    unsafe_code,
    reason = "the counter has no safe reader, and std's reader is slower"
)]
fn counter() -> u64 {
    // SAFETY: `rdtsc` touches no memory, and every x86-64 processor has it. A system
    // that forbids `rdtsc` to user programs (`PR_SET_TSC`) ends the process with a signal; the
    // kernel's own fast clock does not work on such a system either.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Miri has no counter.
#[cfg(miri)]
fn counter() -> u64 {
    system_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{AtomicBool, AtomicU64, Ordering};

    /// How far ahead of `Instant` a reading may be.
    const MAX_AHEAD_NS: u64 = 60_000;

    /// By how much a reading may be before one that another thread has passed on. A processor reads the
    /// counter while an instruction before it waits for memory of another processor: on a busy virtual machine
    /// that was 1.4 µs.
    const MAX_EARLY_NS: u64 = 10_000;

    const READINGS: u32 = if cfg!(miri) { 300 } else { 3_000_000 };

    /// The real clock on this machine: a thread passes its readings to other threads.
    ///
    /// Shows promise 30.
    #[test]
    fn a_thread_never_sees_a_step_back_nor_is_far_behind_another_one() {
        static TSC: Tsc = Tsc::new();
        static LATEST: AtomicU64 = AtomicU64::new(0);
        static IS_DONE: AtomicBool = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !IS_DONE.load(Ordering::Relaxed) {
                    LATEST.store(TSC.now(&SystemSource), Ordering::Release);
                }
            });
            let readers = [0, 1].map(|_| {
                scope.spawn(|| {
                    let mut last = 0;
                    for step in 0..READINGS {
                        let latest = LATEST.load(Ordering::Acquire);
                        let now = TSC.now(&SystemSource);
                        assert!(now >= last, "{now} after {last}");
                        assert!(now + MAX_EARLY_NS >= latest, "{now} after {latest}");
                        last = now;
                        if step % 16 == 0 {
                            let before = SystemSource.instant();
                            let now = TSC.now(&SystemSource);
                            let after = SystemSource.instant();
                            assert!(now >= before, "{now} is behind {before}");
                            assert!(now <= after + MAX_AHEAD_NS, "{now} is ahead of {after}");
                        }
                    }
                })
            });
            let results = readers.map(std::thread::ScopedJoinHandle::join);
            IS_DONE.store(true, Ordering::Relaxed);
            assert!(results.iter().all(Result::is_ok));
        });
    }
}
