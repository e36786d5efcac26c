//! The limits of a layer as clients are told them.

use std::{
    collections::VecDeque,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use crate::respond::Policies;
use crate::sync::Swap;

/// The name of a limit that has not been given one.
pub(super) const UNNAMED: &str = "default";

/// The most versions that are kept besides the first.
const KEPT: usize = 16;

/// The name and what is said of the limits, read by every response that states them.
///
/// There is a version per change of the quotas, or per limit of a concurrency limit. Until something
/// changes they are read without a lock, so that cores do not contend.
#[derive(Debug)]
pub(super) struct PolicyCache {
    name: Arc<str>,
    /// Version 0. Made when first needed: the key type of the backend is not known before.
    initial: OnceLock<Policies>,
    /// The versions that were needed last.
    latest: Swap<VecDeque<(u64, Arc<Policies>)>>,
}

impl PolicyCache {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            initial: OnceLock::new(),
            latest: Swap::default(),
        }
    }

    pub(super) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// A version, which `make` makes if it is not kept.
    #[inline]
    pub(super) fn get(&self, version: u64, make: &dyn Fn(&str) -> Policies) -> PolicyList<'_> {
        if version > 0 {
            return PolicyList::Latest(self.load_latest(version, make));
        }
        PolicyList::Initial(self.initial.get_or_init(|| make(&self.name)))
    }

    #[cold]
    fn load_latest(&self, version: u64, make: &dyn Fn(&str) -> Policies) -> Arc<Policies> {
        let known = self.latest.read(|kept| {
            let known = kept.iter().find(|known| known.0 == version);
            known.map(|(_, policies)| Arc::clone(policies))
        });
        known.unwrap_or_else(|| {
            let policies = Arc::new(make(&self.name));
            self.latest.update(|kept| {
                kept.truncate(KEPT - 1);
                kept.push_front((version, Arc::clone(&policies)));
            });
            policies
        })
    }
}

/// Policies of a [`PolicyCache`]. Until something changes, no reference is counted.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub enum PolicyList<'a> {
    Initial(&'a Policies),
    Latest(Arc<Policies>),
}

impl Default for PolicyList<'_> {
    fn default() -> Self {
        Self::Latest(Arc::new(Policies::new("", &[])))
    }
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
    use crate::quota::Quota;

    fn names(cache: &PolicyCache, version: u64, limit: u64) -> Vec<String> {
        let policies = cache.get(version, &|name| {
            Policies::new(name, &[Quota::per_second(limit)])
        });
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
        assert_eq!(names(&cache, 1, 6), ["search 3"]);
        for version in 3..100 {
            names(&cache, version, 7);
        }
        assert_eq!(cache.latest.read(VecDeque::len), KEPT);
    }
}
