//! A tracing filter that keeps at most five request spans per second: `cargo run --example sampler`
//!
//! It uses a `Limiter` without tower: one `check` per root span.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tower_throttle::{Limiter, ManualClock, Quota, TokenBucket, clock::Clock};
use tracing::{Metadata, Subscriber, info, info_span, subscriber::Interest};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::{Layer, Registry, fmt, registry::LookupSpan};

/// Keeps a root span if the limiter admits it, with all spans and events inside it.
struct Sampler<C> {
    limiter: Limiter<TokenBucket, C>,
    dropped: AtomicU64,
}

impl<C: Clock> Sampler<C> {
    fn keeps_root(&self) -> bool {
        let keeps = self.limiter.check(1).is_admitted();
        if !keeps {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        keeps
    }
}

impl<S, C> Filter<S> for &'static Sampler<C>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    C: Clock,
{
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        // Inside a dropped span there is no current span, so its inner spans look like roots. Its
        // events are not spans and are dropped with it.
        context.lookup_current().is_some() || (metadata.is_span() && self.keeps_root())
    }

    /// The result must not be cached: it depends on the time, not on the callsite.
    fn callsite_enabled(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
}

fn main() {
    // A manual clock, so that each run prints the same. A service uses
    // `Limiter::new(TokenBucket::new(Quota::per_second(5)))`.
    let clock = ManualClock::new();
    let bucket = TokenBucket::new(Quota::per_second(5));
    let sampler: &'static Sampler<_> = Box::leak(Box::new(Sampler {
        limiter: Limiter::new(bucket).with_clock(clock.clone()),
        dropped: AtomicU64::new(0),
    }));

    let printed = fmt::layer()
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .with_filter(sampler);
    tracing::subscriber::set_global_default(Registry::default().with(printed))
        .expect("no other subscriber in this program");

    for second in 1..=3 {
        for number in 0..100 {
            info_span!("request", second, number).in_scope(|| info!("handled"));
        }
        clock.advance(Duration::from_secs(1));
    }

    let dropped = sampler.dropped.load(Ordering::Relaxed);
    println!("300 requests: {} kept, {dropped} dropped", 300 - dropped);
    assert_eq!(dropped, 285);
}
