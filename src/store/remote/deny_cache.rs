//! Denials that a server returned, until the moment at which they end.

use std::{collections::HashMap, hash::BuildHasher, time::Duration};

use crate::clock::Tick;
use crate::decision::Decision;
use crate::quota::Quota;
use crate::store::local::Seeded;
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
    hasher: Seeded,
    shards: [Mutex<DenialShard>; SHARDS],
}

#[derive(Debug, Default)]
struct DenialShard {
    denials: HashMap<String, CachedDenial, Seeded>,
    /// Counts invalidations: a denial from before one is not cached after it.
    invalidations: u64,
}

#[derive(Debug)]
struct CachedDenial {
    decision: Decision,
    cost: u64,
    /// A key may have one of its own: a denial under one quota is none under another one.
    quota: Quota,
    /// Not later than when the decision was made.
    asked_at: Tick,
    until: Tick,
}

/// The cost of a request, and the quota of its key.
pub(crate) type Asked = (u64, Quota);

impl DenyCache {
    pub(crate) fn new() -> Self {
        Self {
            hasher: Seeded::default(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    fn shard(&self, key: &str) -> &Mutex<DenialShard> {
        let hash = self.hasher.hash_one(key).to_ne_bytes();
        &self.shards[usize::from(hash[0]) % SHARDS]
    }

    /// The denial of a request that was made at `at`, or the version to insert one with. A request that has waited
    /// since is denied as it was then, or when the denial was made, if that was later.
    pub(crate) fn get(&self, key: &str, asked: Asked, at: Tick) -> Result<Decision, u64> {
        let shard = lock(self.shard(key));
        let denial = shard.denials.get(key);
        let is_same = |denial: &&CachedDenial| (denial.cost, denial.quota) == asked;
        match denial.filter(is_same) {
            Some(denial) if denial.until > at => {
                let elapsed = at.since(denial.asked_at);
                let remaining = |span: Duration| span.saturating_sub(elapsed);
                Ok(Decision {
                    retry_after: denial.decision.retry_after.map(remaining),
                    reset_after: remaining(denial.decision.reset_after),
                    ..denial.decision
                })
            }
            _ => Err(shard.invalidations),
        }
    }

    /// Caches a denial, which was made at `asked_at` or later, unless the shard was invalidated since that `version`.
    pub(crate) fn insert(
        &self,
        key: &str,
        (cost, quota): Asked,
        decision: Decision,
        (asked_at, version): (Tick, u64),
    ) {
        let Some(wait) = decision.retry_after else {
            return;
        };
        let mut shard = lock(self.shard(key));
        if shard.invalidations != version {
            return;
        }
        let denial = CachedDenial {
            decision,
            cost,
            quota,
            asked_at,
            until: asked_at.plus(wait.min(MAX_TTL)),
        };
        if let Some(cached) = shard.denials.get_mut(key) {
            *cached = denial;
            return;
        }
        if shard.denials.len() >= MAX_KEYS_PER_SHARD {
            shard.denials.retain(|_, denial| denial.until > asked_at);
        }
        if shard.denials.len() < MAX_KEYS_PER_SHARD {
            shard.denials.insert(key.to_owned(), denial);
        }
    }

    /// Forgets the denial of a key: units were returned to it.
    pub(crate) fn invalidate(&self, key: &str) {
        let mut shard = lock(self.shard(key));
        shard.denials.remove(key);
        shard.invalidations += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Verdict;

    const QUOTA: Quota = Quota::per_second(5);
    const ONE: Asked = (1, QUOTA);
    const TWO: Asked = (2, QUOTA);

    const fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    fn denial(ms: u64) -> Decision {
        let ns = ms * 1_000_000;
        Decision::new(Verdict::Deny, 5, 0, Some(ns), 2 * ns)
    }

    fn version_at(cache: &DenyCache, ms: u64) -> (Tick, u64) {
        let version = cache.get("key", ONE, at(ms));
        (at(ms), version.expect_err("not cached"))
    }

    /// Shows promise 89.
    #[test]
    fn a_cached_denial_expires_and_its_waits_shrink() {
        let cache = DenyCache::new();
        let version = version_at(&cache, 100);
        cache.insert("key", ONE, denial(50), version);
        let known = cache.get("key", ONE, at(130)).expect("cached");
        assert_eq!(known.retry_after, Some(Duration::from_millis(20)));
        assert_eq!(known.reset_after, Duration::from_millis(70));
        assert!(cache.get("key", ONE, at(149)).is_ok());
        assert!(cache.get("key", ONE, at(150)).is_err());
        assert!(cache.get("key", TWO, at(130)).is_err(), "another cost");
        assert!(cache.get("other", ONE, at(130)).is_err());
        let of_another_quota = (1, Quota::per_second(6));
        assert!(cache.get("key", of_another_quota, at(130)).is_err());
        // Of a request that was made before the denial, and has waited.
        let known = cache.get("key", ONE, at(90)).expect("cached");
        assert_eq!(known.retry_after, Some(Duration::from_millis(50)));
    }

    #[test]
    fn a_refund_invalidates_an_older_denial() {
        let cache = DenyCache::new();
        let version = version_at(&cache, 0);
        cache.invalidate("key");
        cache.insert("key", ONE, denial(50), version);
        assert!(cache.get("key", ONE, at(1)).is_err());
        let version = version_at(&cache, 1);
        cache.insert("key", ONE, denial(50), version);
        assert!(cache.get("key", ONE, at(2)).is_ok());
        cache.invalidate("key");
        assert!(cache.get("key", ONE, at(2)).is_err());
    }

    /// Shows promise 89.
    #[test]
    fn a_long_denial_expires_from_the_cache() {
        let cache = DenyCache::new();
        let version = version_at(&cache, 0);
        cache.insert("key", ONE, denial(86_400_000), version);
        assert!(cache.get("key", ONE, at(9_999)).is_ok());
        assert!(cache.get("key", ONE, at(10_000)).is_err());
    }

    /// Shows promise 89.
    #[test]
    fn the_cache_is_bounded() {
        let cache = DenyCache::new();
        for number in 0..100_000 {
            let key = number.to_string();
            let version = cache.get(&key, ONE, at(0)).expect_err("not cached");
            cache.insert(&key, ONE, denial(50), (at(0), version));
        }
        let known = || -> usize { cache.shards.iter().map(|s| lock(s).denials.len()).sum() };
        assert_eq!(known(), SHARDS * MAX_KEYS_PER_SHARD);
        let version = cache.get("0", TWO, at(1)).expect_err("another cost");
        cache.insert("0", TWO, denial(50), (at(1), version));
        // It replaces the denial of its key.
        assert!(cache.get("0", TWO, at(2)).is_ok());
        let version = cache.get("late", ONE, at(60)).expect_err("not cached");
        cache.insert("late", ONE, denial(50), (at(60), version));
        // Expired denials make room.
        assert!(cache.get("late", ONE, at(61)).is_ok());
    }
}
