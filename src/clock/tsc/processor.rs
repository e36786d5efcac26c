//! The counter and `Instant` of this machine.

use std::{cell::Cell, fs::File, io::Read};

use super::{TimeSource, Tsc};
use crate::clock::system::system_nanos;

/// The time of this process.
#[inline]
pub(in crate::clock) fn now<const ORDERED: bool>() -> u64 {
    static TSC: Tsc = Tsc::new();
    TSC.now(&SystemSource::<ORDERED>)
}

/// Readings of this machine. The counter is read after all earlier loads if `ORDERED` is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct SystemSource<const ORDERED: bool>;

thread_local! {
    static LAST_COUNT: Cell<u64> = const { Cell::new(0) };
}

impl<const ORDERED: bool> TimeSource for SystemSource<ORDERED> {
    #[inline]
    fn instant(&self) -> u64 {
        system_nanos()
    }

    #[inline]
    fn counter(&self) -> u64 {
        counter::<ORDERED>()
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

    #[inline]
    fn cold(&self) -> &impl TimeSource {
        &SystemSource::<true>
    }
}

#[cfg(not(miri))]
#[inline]
#[expect(
    unsafe_code,
    reason = "the counter has no safe reader, and std's reader is slower"
)]
fn counter<const ORDERED: bool>() -> u64 {
    // SAFETY: `lfence` and `rdtsc` touch no memory, and every x86-64 processor has them. A system
    // that forbids `rdtsc` to user programs (`PR_SET_TSC`) ends the process with a signal; the
    // kernel's own fast clock does not work on such a system either.
    unsafe {
        if ORDERED {
            // Else the counter may be read before an earlier load, and so before the moment that
            // another thread has read and passed on.
            core::arch::x86_64::_mm_lfence();
        }
        core::arch::x86_64::_rdtsc()
    }
}

/// Miri has no counter.
#[cfg(miri)]
fn counter<const ORDERED: bool>() -> u64 {
    system_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{AtomicBool, AtomicU64, Ordering};

    /// How far ahead of `Instant` a reading may be.
    const MAX_AHEAD_NS: u64 = 60_000;

    const READINGS: u32 = if cfg!(miri) { 300 } else { 3_000_000 };

    /// The real clock on this machine: a thread passes its readings to other threads.
    ///
    /// Shows promise 30.
    #[test]
    fn threads_of_this_machine_never_see_a_step_back() {
        static TSC: Tsc = Tsc::new();
        static LATEST: AtomicU64 = AtomicU64::new(0);
        static IS_DONE: AtomicBool = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !IS_DONE.load(Ordering::Relaxed) {
                    LATEST.store(TSC.now(&SystemSource::<true>), Ordering::Release);
                }
            });
            let readers = [0, 1].map(|_| {
                scope.spawn(|| {
                    for step in 0..READINGS {
                        // No other operation in between: the counter is not read before the load.
                        let latest = LATEST.load(Ordering::Acquire);
                        let now = TSC.now(&SystemSource::<true>);
                        assert!(now >= latest, "{now} after {latest}");
                        if step % 16 == 0 {
                            let before = SystemSource::<true>.instant();
                            let now = TSC.now(&SystemSource::<true>);
                            let after = SystemSource::<true>.instant();
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
