//! The time that a thread computes, however busy the machine is.

use std::time::{Duration, Instant};
use std::{fs, thread};

/// How long this thread has computed, or how long it runs if the system does not tell.
fn now(begun: Instant) -> Duration {
    // What is told is as of the last time that the thread was scheduled.
    thread::yield_now();
    let told = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let computed = told.and_then(|text| text.split(' ').next()?.parse().ok());
    computed.map_or_else(|| begun.elapsed(), Duration::from_nanos)
}

/// How long this thread computes for `work`.
#[expect(clippy::disallowed_methods, reason = "measures real time")]
pub fn computed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    let before = now(begun);
    work();
    now(begun).saturating_sub(before)
}

/// How many times as long `work` takes for eight times as many: about 8 if each takes as long as before, and
/// about 64 if each looks at all others. `work` returns its time.
pub fn growth(size: usize, work: impl Fn(usize) -> Duration) -> u128 {
    let least = |size| (0..3).map(|_| work(size)).min().expect("three times");
    let (few, many) = (least(size), least(8 * size));
    many.as_nanos() / few.as_nanos()
}
