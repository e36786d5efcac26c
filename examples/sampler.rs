//! Keeps at most five request spans a second, with everything inside them, and says what it left
//! out.
//!
//!     cargo run --example sampler
//!
//! The limiter stands alone here: no tower, one atomic, one `try_acquire` for each root span.

use std::sync::atomic::{AtomicU64, Ordering};

use tower_throttle::{Limiter, ManualClock, Quota, TokenBucket, clock::Clock};
use tracing::{Metadata, Subscriber, info, info_span, subscriber::Interest};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::{Layer, Registry, fmt, registry::LookupSpan};

/// Lets a root span through if the limiter does; spans and events inside share its fate.
struct Sampler<C> {
    limiter: Limiter<TokenBucket, C>,
    left_out: AtomicU64,
}

impl<C: Clock> Sampler<C> {
    fn keeps_a_root(&self) -> bool {
        let keeps = self.limiter.try_acquire();
        if !keeps {
            self.left_out.fetch_add(1, Ordering::Relaxed);
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
        // A span that was left out is no current span to this filter: what would have been inside
        // it looks like a root. Events never are one, so they go with their span.
        context.lookup_current().is_some() || (metadata.is_span() && self.keeps_a_root())
    }

    /// Asked anew for every span: the answer depends on the moment, not on the place.
    fn callsite_enabled(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
}

fn main() {
    // The clock of this example is moved by hand, so that it prints the same at every run. A
    // service says `Limiter::new(TokenBucket::new(Quota::per_second(5)))`.
    let clock = ManualClock::new();
    let bucket = TokenBucket::new(Quota::per_second(5));
    let sampler: &'static Sampler<_> = Box::leak(Box::new(Sampler {
        limiter: Limiter::with_clock(bucket, clock.clone()),
        left_out: AtomicU64::new(0),
    }));

    let printed = fmt::layer()
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .with_filter(sampler);
    tracing::subscriber::set_global_default(Registry::default().with(printed))
        .expect("no other subscriber in this example");

    for second in 1..=3 {
        for number in 0..100 {
            info_span!("request", second, number).in_scope(|| info!("handled"));
        }
        clock.advance(std::time::Duration::from_secs(1));
    }

    let left_out = sampler.left_out.load(Ordering::Relaxed);
    println!("300 requests: {} kept, {left_out} left out", 300 - left_out);
    assert_eq!(left_out, 285);
}
