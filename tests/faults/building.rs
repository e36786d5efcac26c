//! A table is built once, when it is first used, whatever the number and order of its settings.

use std::sync::PoisonError;

use test_support::counting::peak_of;
use tower_throttle::store::local::Overflow;
use tower_throttle::{Global, Local, ManualClock, Quota, RateLimitLayer, TokenBucket};

use crate::ALONE;

const KEYS: usize = 1_000_000;

fn configured() -> Local<TokenBucket, ManualClock> {
    Local::new(TokenBucket::new(Quota::per_second(10)))
        .capacity(2 * KEYS)
        .overflow(Overflow::Deny)
        .capacity(KEYS)
        .with_clock(ManualClock::new())
}

/// A table is built once, when it is first used. A setting that comes later is refused: it would start
/// a second table.
#[test]
fn a_table_is_built_once_and_when_it_is_first_used() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (local, peak) = peak_of(configured);
    assert!(peak < 100_000, "built before its first use: {peak}");

    // Reading the settings is no use.
    let ((), peak) = peak_of(|| {
        let _ = format!("{local:?}");
    });
    assert!(peak < 100_000, "{peak} bytes for settings");
    let planned = local.stats();
    let table = planned.table_bytes..planned.table_bytes + (1 << 20);

    let clone = local.clone();
    let (_, peak) = peak_of(|| local.check(&1, 1));
    assert!(table.contains(&peak), "{peak} bytes for {table:?}");
    let used = local.stats();
    assert_eq!(
        (planned.capacity, planned.table_bytes),
        (used.capacity, used.table_bytes)
    );
    // The clone was made before, and shares the table.
    let (decision, peak) = peak_of(|| clone.check(&1, 1));
    assert_eq!((decision.remaining(), peak < 100_000), (8, true));

    // A layer builds the table before the first request.
    let local = Local::new(TokenBucket::new(Quota::per_second(10))).capacity(KEYS);
    let one_million = local.stats().table_bytes;
    let (layer, peak) = peak_of(|| RateLimitLayer::new(Global, local));
    assert!(peak >= one_million, "{peak} bytes for {one_million}");
    let (_, peak) = peak_of(|| layer.handle().peek_now(&(), 1));
    assert!(peak < 100_000, "{peak} bytes for a request");
    // The first use does the same without a layer.
    let (local, peak) = peak_of(|| {
        let local = configured();
        let _ = local.peek(&1, 0);
        local
    });
    assert!(table.contains(&peak), "{peak} bytes for {table:?}");
    let (_, peak) = peak_of(|| local.check(&1, 1));
    assert!(peak < 100_000, "{peak} bytes for a request");
}
