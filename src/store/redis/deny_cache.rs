//! Denials that are known without asking: those that Redis told, until the moment it told.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use crate::clock::Tick;
use crate::decision::Decision;
use crate::sync::{Mutex, lock};

/// So that callers seldom meet at a lock.
const SHARDS: usize = 16;
/// Keys remembered in each shard; further ones are asked for.
const MAX_KEYS_PER_SHARD: usize = 1_024;
/// A denial is believed for so long, then asked for again: somebody may have reset the key from
/// another machine.
const MAX_TTL: Duration = Duration::from_secs(10);

/// The denials of one limiter.
#[derive(Debug)]
pub(super) struct DenyCache {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    known: HashMap<String, CachedDenial>,
    /// Counts what was given back, so that a denial from before it is not remembered after it.
    forgotten: u64,
}

#[derive(Debug)]
struct CachedDenial {
    decision: Decision,
    cost: u64,
    /// When the decision was asked for, which is not later than when it was made.
    asked: Tick,
    until: Tick,
}

/// What was known when a call began.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheVersion {
    asked: Tick,
    forgotten: u64,
}

impl DenyCache {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    fn shard(&self, key: &str) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(key).to_ne_bytes();
        &self.shards[usize::from(hash[0]) % SHARDS]
    }

    /// The denial of a request that is known to be denied, or what to remember one with.
    pub(super) fn look(&self, key: &str, cost: u64, now: Tick) -> Result<Decision, CacheVersion> {
        let shard = lock(self.shard(key));
        match shard.known.get(key) {
            Some(known) if known.cost == cost && known.until > now => {
                let passed = now.since(known.asked);
                let left = |span: Duration| ceil_micros(span.saturating_sub(passed));
                Ok(Decision {
                    retry_after: known.decision.retry_after.map(left),
                    reset_after: left(known.decision.reset_after),
                    ..known.decision
                })
            }
            _ => Err(CacheVersion {
                asked: now,
                forgotten: shard.forgotten,
            }),
        }
    }

    /// Remembers a denial of `cost`.
    pub(super) fn remember(&self, key: String, cost: u64, decision: Decision, since: CacheVersion) {
        let Some(wait) = decision.retry_after else {
            return;
        };
        let mut shard = lock(self.shard(&key));
        if shard.forgotten != since.forgotten {
            return;
        }
        if shard.known.len() >= MAX_KEYS_PER_SHARD && !shard.known.contains_key(&key) {
            shard.known.retain(|_, known| known.until > since.asked);
            if shard.known.len() >= MAX_KEYS_PER_SHARD {
                return;
            }
        }
        let known = CachedDenial {
            decision,
            cost,
            asked: since.asked,
            until: since.asked.plus(wait.min(MAX_TTL)),
        };
        shard.known.insert(key, known);
    }

    /// Another quota holds.
    pub(super) fn forget_all(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.known.clear();
            shard.forgotten += 1;
        }
    }

    /// Something was given back to the key.
    pub(super) fn forget(&self, key: &str) {
        let mut shard = lock(self.shard(key));
        shard.known.remove(key);
        shard.forgotten += 1;
    }
}

/// As everything that Redis says is.
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

    fn since(denied: &DenyCache, ms: u64) -> CacheVersion {
        denied.look("key", 1, at(ms)).expect_err("not known")
    }

    #[test]
    fn a_cached_denial_expires_and_its_waits_shrink() {
        let denied = DenyCache::new();
        let begun = since(&denied, 100);
        denied.remember("key".into(), 1, denial(50), begun);
        let known = denied.look("key", 1, at(130)).expect("known");
        assert_eq!(known.retry_after, Some(Duration::from_millis(20)));
        assert_eq!(known.reset_after, Duration::from_millis(70));
        assert!(denied.look("key", 1, at(149)).is_ok());
        assert!(denied.look("key", 1, at(150)).is_err());
        assert!(denied.look("key", 2, at(130)).is_err(), "another cost");
        assert!(denied.look("other", 1, at(130)).is_err());
    }

    #[test]
    fn a_refund_invalidates_an_older_denial() {
        let denied = DenyCache::new();
        let begun = since(&denied, 0);
        denied.forget("key");
        denied.remember("key".into(), 1, denial(50), begun);
        assert!(denied.look("key", 1, at(1)).is_err());
        let begun = since(&denied, 1);
        denied.remember("key".into(), 1, denial(50), begun);
        assert!(denied.look("key", 1, at(2)).is_ok());
        denied.forget("key");
        assert!(denied.look("key", 1, at(2)).is_err());
    }

    #[test]
    fn a_long_denial_expires_from_the_cache() {
        let denied = DenyCache::new();
        let begun = since(&denied, 0);
        denied.remember("key".into(), 1, denial(86_400_000), begun);
        assert!(denied.look("key", 1, at(9_999)).is_ok());
        assert!(denied.look("key", 1, at(10_000)).is_err());
    }

    #[test]
    fn the_cache_is_bounded() {
        let denied = DenyCache::new();
        for number in 0..100_000 {
            let key = number.to_string();
            let begun = denied.look(&key, 1, at(0)).expect_err("not known");
            denied.remember(key, 1, denial(50), begun);
        }
        let known = || -> usize { denied.shards.iter().map(|s| lock(s).known.len()).sum() };
        assert_eq!(known(), SHARDS * MAX_KEYS_PER_SHARD);
        let begun = denied.look("late", 1, at(60)).expect_err("not known");
        denied.remember("late".into(), 1, denial(50), begun);
        assert!(
            denied.look("late", 1, at(61)).is_ok(),
            "what is over makes room"
        );
    }
}
