//! Invalid values, which a layer's setters refuse with a panic.

use std::{
    panic::{self, PanicHookInfo},
    sync::mpsc,
    thread,
    time::Duration,
};

#[cfg(feature = "cas")]
use tower_throttle::store::{
    cas::{Cas, MemoryStore},
    fleet::Synced,
};
use tower_throttle::{
    ConcurrencyLimitLayer, FixedWindow, Global, LeakyBucket, Local, Quota, RateLimitLayer,
    queue::Order,
    store::{IntoBackend, Plan, Quotas},
};
#[cfg(feature = "tokio")]
use tower_throttle::{
    StoreError,
    store::{Cached, Fallback},
};

fn layer() -> RateLimitLayer<Global, Local<FixedWindow>> {
    RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(1)))
}

fn queued() -> RateLimitLayer<Global, Local<LeakyBucket>> {
    RateLimitLayer::new(Global, LeakyBucket::new(Quota::per_day(1).burst(1))).queue(1)
}

/// Returns the message and the file of the panic in `build`.
fn refusal(build: impl FnOnce() + Send + 'static) -> (String, String) {
    let (send, receive) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        gone.recv().unwrap();
        build();
    });
    let id = thread.thread().id();
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
        if thread::current().id() == id {
            let file = info.location().unwrap().file().to_owned();
            let payload = info.payload();
            let text = payload.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| payload.downcast_ref().cloned()).unwrap();
            send.send((text, file)).unwrap();
        } else {
            before(info);
        }
    }));
    go.send(()).unwrap();
    thread.join().unwrap_err();
    receive.recv().unwrap()
}

/// Shows promise 11.
#[test]
fn a_refusal_names_the_value_the_allowed_values_and_the_callers_line() {
    for (build, expected) in [
        (
            (|| drop(queued().seats(0))) as fn(),
            "seats: 0 is not allowed; give a number from 1 to 4294967295",
        ),
        (
            || drop(layer().seats(1)),
            "`seats` without a queue is not possible; give the limit a queue first, or leave this out",
        ),
        (
            || drop(layer().order(Order::Newest)),
            "`order` without a queue is not possible; give the limit a queue first, or leave this out",
        ),
        (
            || drop(ConcurrencyLimitLayer::new(Global, 1).order(Order::Newest)),
            "`order` without a queue is not possible; give the limit a queue first, or leave this out",
        ),
        (
            || drop(ConcurrencyLimitLayer::new(Global, 1).max_wait(Duration::ZERO)),
            "`max_wait` without a queue is not possible; give the limit a queue first, or leave this out",
        ),
        (
            || drop(layer().name("")),
            "name: \"\" is not allowed; give printable ASCII",
        ),
        (
            || drop(layer().name("caf\u{e9}")),
            "name: \"caf\u{e9}\" is not allowed; give printable ASCII",
        ),
    ] {
        let (text, file) = refusal(build);
        assert_eq!(text, expected);
        assert!(file.ends_with("refused.rs"), "{file}");
    }
}

fn window() -> FixedWindow {
    FixedWindow::new(Quota::per_day(1))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as a lookup is called")]
fn plan_of((): &()) -> Plan {
    Plan::Default
}

fn expect_refused<L: IntoBackend>(limit: impl FnOnce() -> L + Copy + Send + 'static) {
    let layer = move || RateLimitLayer::new(Global, limit());
    let [seats, order] = [
        refusal(move || drop(layer().seats(1))).0,
        refusal(move || drop(layer().order(Order::Newest))).0,
    ];
    assert!(seats.starts_with("`seats` without a queue"), "{seats}");
    assert!(order.starts_with("`order` without a queue"), "{order}");
}

/// Shows promise 11.
#[test]
fn settings_of_a_queue_are_refused_in_every_backend_without_one() {
    expect_refused(|| Quotas::new(window(), plan_of).tier("a", window()));
    let bucket = || LeakyBucket::new(Quota::per_day(1).burst(1));
    let tiers = Quotas::new(window(), plan_of).tier("a", bucket());
    drop(RateLimitLayer::new(Global, tiers).queue(1).seats(1));

    #[cfg(feature = "tokio")]
    {
        let local = || IntoBackend::into_backend(window());
        let plans = || Cached::new(|()| async { Ok::<_, StoreError>(Plan::Default) });
        expect_refused(move || Quotas::new(window(), plans()));
        expect_refused(move || Fallback::new(local(), local()));
        let queued = Fallback::new(local(), bucket().into_backend());
        drop(RateLimitLayer::new(Global, queued).queue(1).seats(1));
    }
    #[cfg(feature = "cas")]
    {
        expect_refused(|| Cas::new(MemoryStore::new(), "name", window()));
        expect_refused(|| Synced::new(MemoryStore::new(), "name", window()));
        expect_refused(|| {
            let cas = Cas::new(MemoryStore::new(), "name", window());
            Quotas::new(cas, plan_of)
        });
        let queued = Cas::new(MemoryStore::new(), "name", bucket());
        drop(RateLimitLayer::new(Global, queued).queue(1).seats(1));
        let windows = || Cas::new(MemoryStore::new(), "name", window());
        let (text, _) = refusal(move || drop(RateLimitLayer::new(Global, windows()).queue(1)));
        assert!(
            text.starts_with("`queue` for a limit without turns"),
            "{text}"
        );
    }
    #[cfg(feature = "redis")]
    {
        let redis = || tower_throttle::store::redis::Redis::open("redis://127.0.0.1:1").unwrap();
        expect_refused(move || redis().limiter("name", window()));
        drop(
            RateLimitLayer::new(Global, redis().limiter("name", bucket()))
                .queue(1)
                .seats(1),
        );
    }
}
