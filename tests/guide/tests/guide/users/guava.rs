//! A loader of a cold database, as with Guava's `RateLimiter`: its rate rises, it waits for permits, or for so long.

use std::time::Duration;
use tower_throttle::{Limiter, Quota, WarmUp};

struct Loader {
    permits: Limiter<WarmUp>,
}

impl Loader {
    /// `RateLimiter.create(2.0, 3, SECONDS)`.
    fn new() -> Self {
        let rate = WarmUp::new(Quota::per_second(2), Duration::from_secs(3));
        Self {
            permits: Limiter::new(rate),
        }
    }

    /// After `permits.acquire()`.
    async fn load(&self, row: u32) -> u32 {
        self.permits.until_ready().await;
        row
    }

    /// If `permits.tryAcquire(timeout)`.
    async fn load_within(&self, row: u32, timeout: Duration) -> Option<u32> {
        let permit = self.permits.acquire(1, timeout).await;
        permit.is_admitted().then_some(row)
    }
}

// ---- What its users see.

use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn its_waits_are_those_of_guava() {
    let loader = Loader::new();
    let mut waits = Vec::new();
    for row in 0..6 {
        let begun = Instant::now();
        assert_eq!(loader.load(row).await, row);
        waits.push(begun.elapsed().as_millis());
    }
    // Of an interval that falls from 1.5 s to 0.5 s within 3 s, the mean over each permit.
    for (wait, expected) in waits.into_iter().zip([0_u128, 1_333, 1_000, 667, 500, 500]) {
        // Timers have whole milliseconds.
        assert!(wait.abs_diff(expected) <= 1, "{wait} is not {expected}");
    }

    let begun = Instant::now();
    let short = loader.load_within(6, Duration::from_millis(400)).await;
    assert_eq!((short, begun.elapsed()), (None, Duration::ZERO));
    let long = loader.load_within(7, Duration::from_millis(600)).await;
    assert_eq!((long, begun.elapsed().as_millis()), (Some(7), 500));
}
