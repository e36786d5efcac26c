//! A leased limit never exceeds that of its algorithm.

use std::time::Duration;

use tokio::time::Instant;
use tower_throttle::clock::Clock;
use tower_throttle::store::Backend;
use tower_throttle::store::cas::{Fault, Faulty, MemoryStore};
use tower_throttle::{CalendarWindow, FixedWindow, ManualClock, Quota};

use crate::fleet::{admit, drain, leased, machine, outage, pass, remaining, take, take_all};

/// A machine that was suspended finds that its units have lapsed.
///
/// Shows promise 200.
#[tokio::test(start_paused = true)]
async fn nothing_is_used_of_units_that_have_lapsed() {
    let store = Faulty::new(MemoryStore::new());
    let limit = machine(leased(&store));
    admit(&limit, 30).await;
    store.plan(outage());
    // No task runs meanwhile.
    tokio::time::advance(Duration::from_secs(3)).await;
    let decided = limit.decide("key", 1).await;
    assert!(!decided.is_ok_and(|decision| decision.is_admitted()));
    store.clear_plan();
    let rest = drain(&machine(leased(&store))).await;
    assert!(rest <= 100 - 30, "{rest}");
}

/// Shows promise 204.
#[tokio::test(start_paused = true)]
async fn what_is_not_used_is_given_back() {
    let store = MemoryStore::new();
    let limit = machine(leased(&store));
    admit(&limit, 1).await;
    pass(5).await;
    assert_eq!(drain(&machine(leased(&store))).await, 99);
    let held = machine(leased(&MemoryStore::new()));
    assert!(take(&held, 100).await.is_admitted());
    assert!(take(&held, 1).await.is_denied());
}

/// They are on their way to the store: a request waits for them, and is not denied until a window ends.
///
/// Shows promise 204.
#[tokio::test(start_paused = true)]
async fn what_is_being_given_back_is_not_denied() {
    let store = Faulty::new(MemoryStore::new());
    let window = FixedWindow::new(Quota::per_hour(10));
    let limit = leased(&store).build("api", window).expect("a limit");
    admit(&limit, 1).await;
    assert_eq!(remaining(&limit).await, 9);
    store.plan([Fault::Delay(Duration::from_millis(500))]);
    let closing = tokio::spawn({
        let limit = limit.clone();
        async move { limit.close().await }
    });
    // Until the batch is on its way.
    while store.planned() > 0 {
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    assert!(take(&limit, 1).await.is_admitted());
    assert!(begun.elapsed() > Duration::ZERO, "it is on its way");
    closing.await.expect("no panic").expect("an exchange");
}

/// Advances the store's clock and that of the machines at once.
async fn pass_on(clock: &ManualClock, span: Duration) {
    clock.advance(span);
    tokio::time::advance(span).await;
    // The machines exchange.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// What is left of a limit for both machines.
async fn drain_all(clock: &ManualClock, machines: [&impl Backend<str>; 2]) -> u64 {
    let mut taken = 0;
    for _ in 0..20 {
        for machine in machines {
            taken += take_all(machine).await;
        }
        pass_on(clock, Duration::from_millis(120)).await;
    }
    taken
}

/// In Berlin, a month from the last day of each: the 28th of February to the 30th of March has 31 days, the next
/// window 30 and, as the clocks are set forward in it, an hour less.
///
/// Shows promise 318.
#[cfg(feature = "calendar")]
#[tokio::test(start_paused = true)]
async fn months_of_the_calendar_are_shared() {
    const HOUR: u64 = 3_600;
    // 2026-02-28 00:00, 2026-03-31 00:00 and 2026-04-30 00:00 in Berlin.
    let starts = [1_772_233_200_u64, 1_774_908_000, 1_777_500_000];
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(starts[0] - HOUR));
    let store = MemoryStore::with_clock(clock.clone());
    let months = CalendarWindow::new(Quota::per_month(20), "Europe/Berlin").expect("a zone");
    let months = months.anchor(31);
    let one = leased(&store)
        .build("api", months.clone())
        .expect("a limit");
    let other = leased(&store).build("api", months).expect("a limit");
    pass_on(&clock, Duration::from_secs(1)).await;
    for (start, end) in starts.iter().zip(&starts[1..]) {
        let (before, rest) = (start - 3, Duration::from_millis(600));
        // The last seconds of a window, and then its first ones.
        let now = clock.now().as_nanos() / 1_000_000_000;
        pass_on(&clock, Duration::from_secs(before - now)).await;
        let _ = drain_all(&clock, [&one, &other]).await;
        pass_on(&clock, rest).await;
        let taken = drain_all(&clock, [&one, &other]).await;
        assert_eq!(taken, 20, "in the window from {start}");
        let denied = take(&one, 1).await;
        let now = clock.now().as_nanos() / 1_000_000_000;
        let left = Duration::from_secs(end - now);
        let told = denied.retry_after.expect("a time");
        assert!(
            told.abs_diff(left) <= Duration::from_secs(1),
            "{told:?}, not {left:?}"
        );
    }
}
