//! The time of one decision of each algorithm, alone and behind a `Limiter`, and of one permit.
//!
//!     cargo bench --bench decide
//!
//! Compare only rows of one run: times differ between machines.

use std::{
    future::{Future, ready},
    hint::black_box,
    net::{Ipv4Addr, Ipv6Addr},
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use criterion::Criterion;
use tower::{BoxError, Layer, Service, service_fn};
use tower_throttle::algorithm::Algorithm;
use tower_throttle::{
    AsError, FixedWindow, LeakyBucket, Limiter, Lockout, ManualClock, Quota, SlidingGrid,
    SlidingLog, SlidingWindow, TokenBucket, WarmUp, clock::Tick,
    concurrency::ConcurrencyLimitLayer, key::Networks,
};

/// Far from its limit: every request is admitted.
const OPEN: Quota = Quota::per_second(1_000_000_000);
/// At its limit after the first few requests.
const SHUT: Quota = Quota::per_day(10);

/// Transitions of a local state, a microsecond apart.
fn transition<A: Algorithm>(c: &mut Criterion, name: &str, make: impl Fn(Quota) -> A) {
    let mut group = c.benchmark_group(format!("transition/{name}"));
    for (path, quota) in [("admitted", OPEN), ("denied", SHUT)] {
        let algorithm = make(quota);
        let mut state = algorithm.fresh(Tick::ZERO);
        let mut now = 0;
        group.bench_function(path, |bencher| {
            bencher.iter(|| {
                now += 1_000;
                let now = Tick::from_nanos(now);
                black_box(
                    algorithm
                        .decide(black_box(&mut state), now, 1)
                        .is_admitted(),
                )
            });
        });
    }
    group.finish();
}

/// Decisions of a `Limiter` on a clock that is read with one load.
fn lone<A: Algorithm>(c: &mut Criterion, name: &str, make: impl Fn(Quota) -> A) {
    let mut group = c.benchmark_group(format!("lone/{name}"));
    for (path, quota) in [("admitted", OPEN), ("denied", SHUT)] {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1));
        let limiter = Limiter::new(make(quota)).with_clock(clock);
        group.bench_function(path, |bencher| {
            bencher.iter(|| black_box(limiter.check(1).is_admitted()));
        });
    }
    group.finish();
}

/// Addresses among 100,000 networks.
fn networks(c: &mut Criterion) {
    let scattered = |n: u32| n.wrapping_mul(2_654_435_761);
    let v4 = (0..100_000).map(|n| format!("{}/24", Ipv4Addr::from_bits(scattered(n) & !0xff)));
    let v6 = (0..100_000).map(|n| {
        let bits = 0x2001 << 112 | u128::from(scattered(n)) << 80;
        format!("{}/48", Ipv6Addr::from_bits(bits))
    });
    let list = Networks::new(v4.chain(v6));
    let mut group = c.benchmark_group("networks/100,000");
    let mut n = 0_u32;
    let mut next = || {
        n = n.wrapping_add(12_345_677);
        scattered(n)
    };
    group.bench_function("v4", |bencher| {
        bencher.iter(|| black_box(list.contains(Ipv4Addr::from_bits(next()).into())));
    });
    group.bench_function("v6", |bencher| {
        bencher.iter(|| {
            let bits = 0x2001 << 112 | u128::from(next()) << 80;
            black_box(list.contains(Ipv6Addr::from_bits(bits).into()))
        });
    });
    group.finish();
}

fn algorithms(c: &mut Criterion) {
    transition(c, "token bucket", TokenBucket::new);
    transition(c, "fixed window", FixedWindow::new);
    transition(c, "sliding window", SlidingWindow::new);
    transition(c, "sliding grid", SlidingGrid::new);
    transition(c, "sliding log of 1000", |quota| {
        SlidingLog::new(Quota::per_second(quota.limit().min(1_000)))
    });
    // Half of the places are taken, and each request expires one.
    let half = |quota: Quota| match quota {
        OPEN => Quota::per(1_000, Duration::from_micros(500)),
        shut => shut,
    };
    transition(c, "sliding log, half full", |quota| {
        SlidingLog::new(half(quota))
    });
    transition(c, "lockout, half full", |quota| {
        Lockout::new(half(quota)).block(Duration::from_secs(3_600))
    });
    transition(c, "leaky bucket", LeakyBucket::new);
    transition(c, "warm-up", |quota| {
        WarmUp::new(quota, Duration::from_secs(1))
    });
    lone(c, "token bucket", TokenBucket::new);
    lone(c, "fixed window", FixedWindow::new);
    lone(c, "sliding window", SlidingWindow::new);
    lone(c, "sliding grid", SlidingGrid::new);
}

/// One request through a layer, from `call` to its response, and of that all but the permit.
fn permit(c: &mut Criterion) {
    let mut group = c.benchmark_group("concurrency");
    for (row, cost) in [("taken and released", 1), ("without a permit", 0)] {
        let mut service = ConcurrencyLimitLayer::new(|key: &u64| *key, 10)
            .cost(move |_: &u64| cost)
            .release_at_response()
            .respond(AsError)
            .layer(service_fn(|key: u64| ready(Ok::<u64, BoxError>(key))));
        let mut cx = Context::from_waker(Waker::noop());
        let mut key = 0;
        group.bench_function(row, |bencher| {
            bencher.iter(|| {
                key = (key + 1) % 256;
                assert!(service.poll_ready(&mut cx).is_ready());
                let response = pin!(service.call(black_box(key)));
                black_box(response.poll(&mut cx).is_ready())
            });
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(700))
        .configure_from_args();
    algorithms(&mut criterion);
    permit(&mut criterion);
    networks(&mut criterion);
    criterion.final_summary();
}
