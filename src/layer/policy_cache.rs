//! The limits of a layer as clients are told them.

use std::{
    ops::Deref,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::quota::Quota;
use crate::respond::Policies;

/// The name and the quotas, read by every response that states the limit.
///
/// Until something changes they are read without a lock, so that cores do not contend.
#[derive(Debug)]
pub(super) struct PolicyCache {
    /// Made when first needed: the key type of the backend is not known before.
    initial: OnceLock<Arc<Policies>>,
    /// How often the name or the quotas have changed since then. If not 0, `latest` is valid.
    version: AtomicU64,
    latest: RwLock<LatestPolicies>,
}

#[derive(Debug)]
struct LatestPolicies {
    name: Arc<str>,
    /// `None` after a change of the name or a quota.
    policies: Option<Arc<Policies>>,
}

impl PolicyCache {
    pub(super) fn new() -> Self {
        Self {
            initial: OnceLock::new(),
            version: AtomicU64::new(0),
            latest: RwLock::new(LatestPolicies {
                name: "default".into(),
                policies: None,
            }),
        }
    }

    pub(super) fn rename(&self, name: &str) {
        self.update(|latest| latest.name = name.into());
    }

    pub(super) fn name(&self) -> Arc<str> {
        let latest = self.latest.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&latest.name)
    }

    /// Called after a change of the quotas.
    pub(super) fn refresh_policies(&self) {
        self.update(|_| ());
    }

    fn update(&self, update: impl FnOnce(&mut LatestPolicies)) {
        let mut latest = self.latest.write().unwrap_or_else(PoisonError::into_inner);
        update(&mut latest);
        latest.policies = None;
        // Before the first read, as while a layer is built, `initial` is empty and cannot be stale.
        // It is only set under this lock.
        if self.initial.get().is_some() {
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// The policies, which are made from `quotas` if there are none yet.
    #[inline]
    pub(super) fn get(&self, quotas: &dyn Fn() -> Vec<Quota>) -> PolicyList<'_> {
        match self.initial.get() {
            Some(initial) if self.version.load(Ordering::Acquire) == 0 => {
                PolicyList::Initial(initial)
            }
            _ => PolicyList::Latest(self.load_latest(quotas)),
        }
    }

    #[cold]
    #[inline(never)]
    fn load_latest(&self, quotas: &dyn Fn() -> Vec<Quota>) -> Arc<Policies> {
        {
            let latest = self.latest.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(policies) = &latest.policies {
                return Arc::clone(policies);
            }
        }
        let mut latest = self.latest.write().unwrap_or_else(PoisonError::into_inner);
        let policies = Arc::new(Policies::new(&latest.name, &quotas()));
        latest.policies = Some(Arc::clone(&policies));
        let _ = self.initial.set(Arc::clone(&policies));
        policies
    }
}

/// Policies of a [`PolicyCache`]. Until something changes, no reference is counted.
#[derive(Debug)]
pub(super) enum PolicyList<'a> {
    Initial(&'a Policies),
    Latest(Arc<Policies>),
}

impl Deref for PolicyList<'_> {
    type Target = Policies;

    fn deref(&self) -> &Policies {
        match self {
            Self::Initial(policies) => policies,
            Self::Latest(policies) => policies,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(cache: &PolicyCache, limit: u64) -> Vec<String> {
        let policies = cache.get(&|| vec![Quota::per_second(limit)]);
        let list = policies.list().iter();
        list.map(|policy| {
            let limit = policy.quota.map_or(0, |quota| quota.limit());
            format!("{} {limit}", policy.name)
        })
        .collect()
    }

    #[test]
    fn policies_are_rebuilt_only_after_a_change() {
        let cache = PolicyCache::new();
        cache.rename("search");
        assert_eq!(names(&cache, 1), ["search 1"]);
        assert_eq!(names(&cache, 2), ["search 1"], "not asked again");
        cache.refresh_policies();
        assert_eq!(names(&cache, 3), ["search 3"]);
        assert_eq!(names(&cache, 4), ["search 3"]);
        cache.rename("other");
        assert_eq!(names(&cache, 5), ["other 5"]);
        assert_eq!(&*cache.name(), "other");
    }
}
