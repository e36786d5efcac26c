//! The limits of a layer as clients are told them.

use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};

use crate::quota::Quota;
use crate::respond::Policies;
use crate::sync::Swap;

/// The name and the quotas, read by every response that states the limit.
///
/// Until the quotas change they are read without a lock, so that cores do not contend.
#[derive(Debug)]
pub(super) struct PolicyCache {
    name: Box<str>,
    /// Those before the first change. Made when first needed: the key type of the backend is not known
    /// before.
    initial: OnceLock<Policies>,
    /// Those after as many changes.
    latest: Swap<Option<(u64, Arc<Policies>)>>,
}

impl PolicyCache {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            initial: OnceLock::new(),
            latest: Swap::default(),
        }
    }

    pub(super) const fn name(&self) -> &str {
        &self.name
    }

    /// The policies after so many `changes` of the quotas, read before this. They are made from
    /// `quotas` if there are none yet.
    #[inline]
    pub(super) fn get(&self, changes: u64, quotas: &dyn Fn() -> Vec<Quota>) -> PolicyList<'_> {
        if changes > 0 {
            return PolicyList::Latest(self.load_latest(changes, quotas));
        }
        let initial = self
            .initial
            .get_or_init(|| Policies::new(&self.name, &quotas()));
        PolicyList::Initial(initial)
    }

    #[cold]
    #[inline(never)]
    fn load_latest(&self, changes: u64, quotas: &dyn Fn() -> Vec<Quota>) -> Arc<Policies> {
        let made = self.latest.read(Option::clone);
        if let Some((_, policies)) = made.filter(|(made, _)| *made >= changes) {
            return policies;
        }
        let policies = Arc::new(Policies::new(&self.name, &quotas()));
        self.latest.set(Some((changes, Arc::clone(&policies))));
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

    fn names(cache: &PolicyCache, changes: u64, limit: u64) -> Vec<String> {
        let policies = cache.get(changes, &|| vec![Quota::per_second(limit)]);
        let list = policies.list().iter();
        list.map(|policy| {
            let limit = policy.quota.map_or(0, |quota| quota.limit());
            format!("{} {limit}", policy.name)
        })
        .collect()
    }

    #[test]
    fn policies_are_rebuilt_only_after_a_change() {
        let cache = PolicyCache::new("search");
        assert_eq!(names(&cache, 0, 1), ["search 1"]);
        assert_eq!(names(&cache, 0, 2), ["search 1"], "not asked again");
        assert_eq!(names(&cache, 1, 3), ["search 3"]);
        assert_eq!(names(&cache, 1, 4), ["search 3"]);
        assert_eq!(names(&cache, 2, 5), ["search 5"]);
        // A reader that is late.
        assert_eq!(names(&cache, 1, 6), ["search 5"]);
    }
}
