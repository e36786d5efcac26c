//! Rows that compare with limiters other than governor: `Limiter` with limiters without keys, and
//! `Local` with keyed ones.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use axum_gcra::gcra;
use tower_throttle::{Limiter, Local, Quota, SlidingGrid, TokenBucket};
use trypema::RateLimiterBuilder;

use crate::keys::{Access, Key, run as run_keys};
use crate::peers;
use crate::row::{Effort, Row, Side};

/// Checks a limit without keys; true if it admits.
type Check<'a> = &'a (dyn Fn() -> bool + Sync);

pub(crate) fn run(effort: &Effort) {
    for admits in [true, false] {
        without_keys(effort, admits);
        for keys in [1_000, if effort.quick { 100_000 } else { 1_000_000 }] {
            by_axum_gcra::<u64>(effort, keys, admits);
            by_axum_gcra::<IpAddr>(effort, keys, admits);
            by_rate_net::<u64>(effort, keys, admits);
            by_rate_net::<IpAddr>(effort, keys, admits);
            by_trypema(effort, keys, admits);
        }
    }
}

fn path(admits: bool) -> &'static str {
    if admits { "admitted" } else { "denied" }
}

fn without_keys(effort: &Effort, admits: bool) {
    let work = format!("one limit without keys, {}", path(admits));
    if !effort.wants(&work) {
        return;
    }
    let ours = Limiter::new(TokenBucket::new(peers::quota(admits)));
    let (rate, burst) = if admits {
        (1_000_000_000, u32::MAX)
    } else {
        (1, 1)
    };
    let slow = if admits {
        Duration::from_secs(1)
    } else {
        Duration::from_secs(86_400)
    };
    let ratelimit = ratelimit::Ratelimiter::builder(rate)
        .period(slow)
        .max_tokens(burst.into())
        .initial_available(burst.into())
        .build()
        .expect("a valid limit");
    let quota = rate_net::Quota::rate(u32::try_from(rate).unwrap_or(u32::MAX), slow);
    let rate_net =
        rate_net::DirectLimiter::with_quota(quota.expect("a valid quota").with_burst(burst));
    let leaky = leaky_bucket::RateLimiter::builder()
        .max(burst as usize)
        .initial(burst as usize)
        .refill(if admits { 1_000_000 } else { 1 })
        .interval(if admits {
            Duration::from_millis(1)
        } else {
            slow
        })
        .build();
    let all: [(&str, Check<'_>); 3] = [
        ("ratelimit", &|| ratelimit.try_wait().is_ok()),
        ("rate-net", &|| rate_net.check().is_allow()),
        ("leaky-bucket", &|| leaky.try_acquire(1)),
    ];
    for (peer, theirs) in all {
        let row = Row::timed(
            effort,
            work.clone(),
            peer,
            1,
            (
                &|ops, _| (0..ops).filter(|_| ours.check(1).is_admitted()).count() as u64,
                &|ops, _| (0..ops).filter(|_| theirs()).count() as u64,
            ),
            1.0,
        );
        row.print(effort);
    }
}

/// Compares our token bucket with `theirs`, which returns whether a key is admitted.
fn keyed<K: Key>(
    effort: &Effort,
    keys: u64,
    admits: bool,
    peer: &'static str,
    theirs: impl Fn(&K) -> bool + Sync,
) {
    let ours = peers::local(admits, keys);
    against(
        effort,
        keys,
        admits,
        peer,
        |key| ours.check(key, 1).is_admitted(),
        theirs,
    );
}

fn against<K: Key>(
    effort: &Effort,
    keys: u64,
    admits: bool,
    peer: &'static str,
    ours: impl Fn(&K) -> bool + Sync,
    theirs: impl Fn(&K) -> bool + Sync,
) {
    let work = name::<K>(keys, admits);
    let mut key = K::blank();
    for number in 0..keys {
        key.set(number);
        let _ = (ours(&key), theirs(&key));
    }
    let our_side: Side<'_> = &|ops, seed| run_keys::<K>(keys, Access::Uniform, ops, seed, &ours);
    let their_side: Side<'_> =
        &|ops, seed| run_keys::<K>(keys, Access::Uniform, ops, seed, &theirs);
    Row::timed(effort, work, peer, 1, (our_side, their_side), 1.0).print(effort);
}

fn name<K: Key>(keys: u64, admits: bool) -> String {
    let path = path(admits);
    format!("{keys} keys {}, Uniform, {path}, 1 threads", K::NAME)
}

fn by_axum_gcra<K: Key>(effort: &Effort, keys: u64, admits: bool) {
    if !effort.wants(&name::<K>(keys, admits)) {
        return;
    }
    // As its layer makes it, except that it never sweeps the whole table.
    let theirs =
        gcra::RateLimiter::<K, ahash::RandomState>::new(u64::MAX, ahash::RandomState::new());
    let quota = if admits {
        let burst = NonZeroU64::new(u32::MAX.into()).expect("not zero");
        gcra::Quota::new(Duration::from_nanos(1), burst)
    } else {
        gcra::Quota::simple(Duration::from_secs(86_400))
    };
    keyed::<K>(effort, keys, admits, "axum_gcra", |key| {
        theirs.req_sync(key.clone(), quota, Instant::now()).is_ok()
    });
}

fn by_rate_net<K: Key + Into<rate_net::Key>>(effort: &Effort, keys: u64, admits: bool) {
    if !effort.wants(&name::<K>(keys, admits)) {
        return;
    }
    let quota = if admits {
        rate_net::Quota::rate(1_000_000_000, Duration::from_secs(1))
            .map(|quota| quota.with_burst(u32::MAX))
    } else {
        rate_net::Quota::rate(1, Duration::from_secs(86_400))
    };
    let theirs = rate_net::RateLimiter::with_quota(quota.expect("a valid quota"));
    keyed::<K>(effort, keys, admits, "rate-net", |key| {
        theirs.check(key.clone()).is_allow()
    });
}

/// trypema counts in windows of cells, so it is compared with our sliding grid.
fn by_trypema(effort: &Effort, keys: u64, admits: bool) {
    if !effort.wants(&name::<String>(keys, admits)) {
        return;
    }
    let theirs = trypema::local::LocalRateLimiterProvider::builder()
        .window_size(trypema::WindowSize::seconds_or_panic(60))
        .bucket_size(trypema::BucketSize::seconds_or_panic(6))
        .build()
        .expect("a valid window");
    // Of 4 million a key gets less in this time, and ten counts up to it still fit a slot of our table.
    let limit: u32 = if admits { 4_000_000 } else { 1 };
    let rate = trypema::RateLimit::per_minute_or_panic(limit.into());
    let grid = SlidingGrid::new(Quota::per_minute(limit.into()));
    let ours = Local::new(grid).capacity(keys as usize);
    let admitted = |decision: &trypema::RateLimitDecision| {
        matches!(decision, trypema::RateLimitDecision::Allowed)
    };
    against::<String>(
        effort,
        keys,
        admits,
        "trypema",
        |key| ours.check(key, 1).is_admitted(),
        |key| admitted(&theirs.absolute().inc(key, &rate, 1)),
    );
}
