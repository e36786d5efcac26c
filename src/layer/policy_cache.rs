//! What clients are told about the limits of a layer.

use std::sync::{
    Arc, OnceLock, PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};

use crate::quota::Quota;
use crate::respond::Policies;

/// A name and the quotas, read by every response that speaks of the limit.
///
/// Until something changes they are read without a lock, so that responses on different cores do
/// not meet.
#[derive(Debug)]
pub(super) struct PolicyCache {
    /// Made when first needed: which key the limiter is asked with is not known before.
    first: OnceLock<Arc<Policies>>,
    /// How often name or quotas have changed since; `later` holds from the first time on.
    changes: AtomicU64,
    later: RwLock<LatestPolicies>,
}

#[derive(Debug)]
struct LatestPolicies {
    name: Arc<str>,
    /// Gone again when the name or a quota changes.
    policies: Option<Arc<Policies>>,
}

impl PolicyCache {
    pub(super) fn new() -> Self {
        Self {
            first: OnceLock::new(),
            changes: AtomicU64::new(0),
            later: RwLock::new(LatestPolicies {
                name: "default".into(),
                policies: None,
            }),
        }
    }

    pub(super) fn rename(&self, name: &str) {
        self.change(|later| later.name = name.into());
    }

    pub(super) fn name(&self) -> Arc<str> {
        let later = self.later.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&later.name)
    }

    /// The quotas have changed.
    pub(super) fn refresh_policies(&self) {
        self.change(|_| ());
    }

    fn change(&self, change: impl FnOnce(&mut LatestPolicies)) {
        let mut later = self.later.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut later);
        later.policies = None;
        // Before anybody has read them, as while a layer is built, there is nothing to take back.
        // Whoever fills `first` at this moment does so under the same lock.
        if self.first.get().is_some() {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Lends the policies; `quotas` are asked where they are not written yet.
    #[inline]
    pub(super) fn with<T>(
        &self,
        quotas: impl FnOnce() -> Vec<Quota>,
        lend: impl FnOnce(&Policies) -> T,
    ) -> T {
        match self.first.get() {
            Some(first) if self.changes.load(Ordering::Acquire) == 0 => lend(first),
            _ => lend(&self.now(quotas)),
        }
    }

    #[cold]
    #[inline(never)]
    fn now(&self, quotas: impl FnOnce() -> Vec<Quota>) -> Arc<Policies> {
        {
            let later = self.later.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(policies) = &later.policies {
                return Arc::clone(policies);
            }
        }
        let mut later = self.later.write().unwrap_or_else(PoisonError::into_inner);
        let policies = Arc::new(Policies::new(&later.name, &quotas()));
        later.policies = Some(Arc::clone(&policies));
        let _ = self.first.set(Arc::clone(&policies));
        policies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(told: &PolicyCache, limit: u64) -> Vec<String> {
        told.with(
            || vec![Quota::per_second(limit)],
            |policies| {
                let list = policies.list().iter();
                list.map(|policy| format!("{} {}", policy.name, policy.quota.limit()))
                    .collect()
            },
        )
    }

    #[test]
    fn policies_are_rebuilt_only_after_a_change() {
        let told = PolicyCache::new();
        told.rename("search");
        assert_eq!(names(&told, 1), ["search 1"]);
        assert_eq!(names(&told, 2), ["search 1"], "not asked again");
        told.refresh_policies();
        assert_eq!(names(&told, 3), ["search 3"]);
        assert_eq!(names(&told, 4), ["search 3"]);
        told.rename("other");
        assert_eq!(names(&told, 5), ["other 5"]);
        assert_eq!(&*told.name(), "other");
    }
}
