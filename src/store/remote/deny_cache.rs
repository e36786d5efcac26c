//! Denials that a server returned, until the moment at which they end.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use crate::clock::Tick;
use crate::decision::Decision;
use crate::quota::Quota;
use crate::sync::{Mutex, lock};

/// Shards keep lock contention low.
const SHARDS: usize = 16;
/// The most denials per shard; further ones are not cached.
const MAX_KEYS_PER_SHARD: usize = 1_024;
/// A denial is cached for at most this long: another machine may have reset the key.
const MAX_TTL: Duration = Duration::from_secs(10);

/// The denials of one limiter.
#[derive(Debug)]
pub(crate) struct DenyCache {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    denials: HashMap<String, CachedDenial>,
    /// Counts invalidations: a denial from before one is not cached after it.
    invalidations: u64,
}

#[derive(Debug)]
struct CachedDenial {
    decision: Decision,
    cost: u64,
    /// That of the key, if it has its own: a denial under one quota is none under another one.
    quota: Option<Quota>,
    /// When the call began, which is not later than when the decision was made.
    called_at: Tick,
    until: Tick,
}

/// The state of the cache when a call began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheVersion {
    called_at: Tick,
    quota: Option<Quota>,
    invalidations: u64,
}

/// Where the denial of a call in flight is cached.
#[derive(Debug)]
pub(crate) struct CacheSlot {
    cache: Arc<DenyCache>,
    key: String,
    version: CacheVersion,
}

impl CacheSlot {
    pub(crate) fn new(cache: &Arc<DenyCache>, key: String, version: CacheVersion) -> Self {
        Self {
            cache: Arc::clone(cache),
            key,
            version,
        }
    }

    /// Caches a denial of `cost`.
    pub(crate) fn insert(self, cost: u64, denial: Decision) {
        self.cache.insert(self.key, cost, denial, self.version);
    }
}

impl DenyCache {
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    fn shard(&self, key: &str) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(key).to_ne_bytes();
        &self.shards[usize::from(hash[0]) % SHARDS]
    }

    /// The cached denial of a request, or the version to insert one with. With the quota of the key, if it
    /// has its own.
    pub(crate) fn get(
        &self,
        key: &str,
        (cost, quota): (u64, Option<Quota>),
        now: Tick,
    ) -> Result<Decision, CacheVersion> {
        let shard = lock(self.shard(key));
        let denial = shard.denials.get(key);
        let is_same = |denial: &&CachedDenial| (denial.cost, denial.quota) == (cost, quota);
        match denial.filter(is_same) {
            Some(denial) if denial.until > now => {
                let elapsed = now.since(denial.called_at);
                let remaining = |span: Duration| ceil_micros(span.saturating_sub(elapsed));
                Ok(Decision {
                    retry_after: denial.decision.retry_after.map(remaining),
                    reset_after: remaining(denial.decision.reset_after),
                    ..denial.decision
                })
            }
            _ => Err(CacheVersion {
                called_at: now,
                quota,
                invalidations: shard.invalidations,
            }),
        }
    }

    /// Caches a denial of `cost`, unless the shard was invalidated since the call began.
    fn insert(&self, key: String, cost: u64, decision: Decision, version: CacheVersion) {
        let Some(wait) = decision.retry_after else {
            return;
        };
        let mut shard = lock(self.shard(&key));
        if shard.invalidations != version.invalidations {
            return;
        }
        if shard.denials.len() >= MAX_KEYS_PER_SHARD && !shard.denials.contains_key(&key) {
            shard
                .denials
                .retain(|_, denial| denial.until > version.called_at);
            if shard.denials.len() >= MAX_KEYS_PER_SHARD {
                return;
            }
        }
        let denial = CachedDenial {
            decision,
            cost,
            quota: version.quota,
            called_at: version.called_at,
            until: version.called_at.plus(wait.min(MAX_TTL)),
        };
        shard.denials.insert(key, denial);
    }

    /// Forgets the denial of a key: units were returned to it.
    pub(crate) fn invalidate(&self, key: &str) {
        let mut shard = lock(self.shard(key));
        shard.denials.remove(key);
        shard.invalidations += 1;
    }
}

/// Rounds up to microseconds, as all decisions of servers are.
fn ceil_micros(span: Duration) -> Duration {
    let rest = span.subsec_nanos() % 1_000;
    match rest {
        0 => span,
        rest => span.saturating_add(Duration::from_nanos(u64::from(1_000 - rest))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Verdict;

    const fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    fn denial(ms: u64) -> Decision {
        Decision::new(
            Verdict::Deny,
            5,
            0,
            Some(ms * 1_000_000),
            2 * ms * 1_000_000,
        )
    }

    fn version_at(cache: &DenyCache, ms: u64) -> CacheVersion {
        cache.get("key", (1, None), at(ms)).expect_err("not cached")
    }

    /// Shows promise 89.
    #[test]
    fn a_cached_denial_expires_and_its_waits_shrink() {
        let cache = DenyCache::new();
        let version = version_at(&cache, 100);
        cache.insert("key".into(), 1, denial(50), version);
        let known = cache.get("key", (1, None), at(130)).expect("cached");
        assert_eq!(known.retry_after, Some(Duration::from_millis(20)));
        assert_eq!(known.reset_after, Duration::from_millis(70));
        assert!(cache.get("key", (1, None), at(149)).is_ok());
        assert!(cache.get("key", (1, None), at(150)).is_err());
        assert!(
            cache.get("key", (2, None), at(130)).is_err(),
            "another cost"
        );
        assert!(cache.get("other", (1, None), at(130)).is_err());
        let quota = Some(Quota::per_second(5));
        assert!(cache.get("key", (1, quota), at(130)).is_err());
    }

    #[test]
    fn a_refund_invalidates_an_older_denial() {
        let cache = DenyCache::new();
        let version = version_at(&cache, 0);
        cache.invalidate("key");
        cache.insert("key".into(), 1, denial(50), version);
        assert!(cache.get("key", (1, None), at(1)).is_err());
        let version = version_at(&cache, 1);
        cache.insert("key".into(), 1, denial(50), version);
        assert!(cache.get("key", (1, None), at(2)).is_ok());
        cache.invalidate("key");
        assert!(cache.get("key", (1, None), at(2)).is_err());
    }

    #[test]
    fn waits_are_rounded_up_to_microseconds() {
        for (ns, micros) in [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2)] {
            let rounded = ceil_micros(Duration::from_nanos(ns));
            assert_eq!(rounded, Duration::from_micros(micros), "{ns} ns");
        }
    }

    /// Shows promise 89.
    #[test]
    fn a_long_denial_expires_from_the_cache() {
        let cache = DenyCache::new();
        let version = version_at(&cache, 0);
        cache.insert("key".into(), 1, denial(86_400_000), version);
        assert!(cache.get("key", (1, None), at(9_999)).is_ok());
        assert!(cache.get("key", (1, None), at(10_000)).is_err());
    }

    /// Shows promise 89.
    #[test]
    fn the_cache_is_bounded() {
        let cache = DenyCache::new();
        for number in 0..100_000 {
            let key = number.to_string();
            let version = cache.get(&key, (1, None), at(0)).expect_err("not cached");
            cache.insert(key, 1, denial(50), version);
        }
        let known = || -> usize { cache.shards.iter().map(|s| lock(s).denials.len()).sum() };
        assert_eq!(known(), SHARDS * MAX_KEYS_PER_SHARD);
        let version = cache.get("0", (2, None), at(1)).expect_err("another cost");
        cache.insert("0".into(), 2, denial(50), version);
        assert!(
            cache.get("0", (2, None), at(2)).is_ok(),
            "it replaces the denial of its key"
        );
        let version = cache
            .get("late", (1, None), at(60))
            .expect_err("not cached");
        cache.insert("late".into(), 1, denial(50), version);
        assert!(
            cache.get("late", (1, None), at(61)).is_ok(),
            "expired denials make room"
        );
    }
}
