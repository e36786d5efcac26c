//! Settings of a clone are its own.

use std::{fmt::Debug, time::Duration};

use tower_throttle::{
    Global, Local, Quota, RateLimitLayer, TokenBucket,
    concurrency::ConcurrencyLimitLayer,
    layer::OnStoreError,
    queue::{Order, WhenFull},
};

/// Whether a change of a clone shows in the original, or does not show in the clone.
fn leaks<T: Clone + Debug>(original: &T, change: impl FnOnce(T) -> T) -> bool {
    let before = format!("{original:?}");
    let changed = change(original.clone());
    before != format!("{original:?}") || before == format!("{changed:?}")
}

type Rate = RateLimitLayer<Global, Local<TokenBucket>>;
type InFlight = ConcurrencyLimitLayer<Global>;
/// The name of a setting, and a change of it.
type Setting<T> = (&'static str, fn(T) -> T);

/// Shows promise 50.
#[test]
fn a_setting_of_a_cloned_layer_does_not_change_the_original() {
    let rate: Rate = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_day(1))).queue(1);
    let settings: [Setting<Rate>; 7] = [
        ("name", |layer| layer.name("other")),
        ("shadow", Rate::shadow),
        ("share_decision", Rate::share_decision),
        ("on_store_error", |layer| {
            layer.on_store_error(OnStoreError::Deny)
        }),
        ("order", |layer| layer.order(Order::Newest)),
        ("seats", |layer| layer.seats(3)),
        ("when_full", |layer| layer.when_full(WhenFull::Deny)),
    ];
    for (setting, change) in settings {
        assert!(!leaks(&rate, change), "RateLimitLayer::{setting}");
    }
    let in_flight: InFlight = ConcurrencyLimitLayer::new(Global, 1).queue(1);
    let settings: [Setting<InFlight>; 8] = [
        ("name", |layer| layer.name("other")),
        ("shadow", InFlight::shadow),
        ("queue", |layer| layer.queue(7)),
        ("max_wait", |layer| layer.max_wait(Duration::ZERO)),
        ("unavailable", InFlight::unavailable),
        ("retry_after", |layer| layer.retry_after(Duration::ZERO)),
        ("seats", |layer| layer.seats(3)),
        ("when_full", |layer| layer.when_full(WhenFull::Deny)),
    ];
    for (setting, change) in settings {
        assert!(
            !leaks(&in_flight, change),
            "ConcurrencyLimitLayer::{setting}"
        );
    }
}
