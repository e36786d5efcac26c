//! What a reload did.

use std::fmt;

use super::active::Active;
use super::generation::Generation;
use crate::policy::file::Limit;

/// What a reload did to each limit, by name.
///
/// It prints as one line per limit that is not as before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloaded {
    /// They count on as before; their usage is kept.
    pub kept: Vec<String>,
    /// They have new numbers or another password of their store; their usage is kept.
    pub changed: Vec<String>,
    /// Those of `kept` and `changed` that apply to other requests, or have another list of exceptions,
    /// `missing`, `failure`, `shadow`, `headers` or `on_store_error`.
    pub adjusted: Vec<String>,
    /// They begin with no usage, with the reason.
    pub fresh: Vec<(String, String)>,
    /// They are gone.
    pub removed: Vec<String>,
    /// Whether `[[deny]]` applies to other requests or has other lists.
    pub denies_changed: bool,
}

impl Reloaded {
    /// Whether everything is as before.
    ///
    /// ```
    /// # #[cfg(feature = "toml")] {
    /// use tower_throttle::policy::{Environment, PolicyFile, PolicyLayer};
    ///
    /// let file = || PolicyFile::from_toml("version = 1").unwrap();
    /// let layer = PolicyLayer::new(file(), Environment::new()).unwrap();
    /// let reloaded = layer.handle().reload(file()).unwrap();
    /// assert!(reloaded.is_unchanged());
    /// assert_eq!(reloaded.to_string(), "no limit has changed");
    /// # }
    /// ```
    pub fn is_unchanged(&self) -> bool {
        let Self {
            kept: _,
            changed,
            adjusted,
            fresh,
            removed,
            denies_changed,
        } = self;
        let names = [changed, adjusted, removed];
        names.iter().all(|names| names.is_empty()) && fresh.is_empty() && !denies_changed
    }

    /// Compares what the report does not know yet.
    pub(super) fn compare(&mut self, old: &Generation, new: &Generation) {
        let is_kept = |name: &String| self.kept.contains(name) || self.changed.contains(name);
        let adjusted = new.limits.iter().filter(|active| {
            let mut before = old.limits.iter();
            let same = before.find(|old| old.limit.name == active.limit.name);
            let list = active.limit.except.as_ref().map(|except| &except.list);
            let has_other_list = list.is_some_and(|list| !new.has_list_of(old, list));
            is_kept(&active.limit.name)
                && same.is_some_and(|same| has_other_list || is_adjusted(same, active))
        });
        self.adjusted = adjusted.map(|active| active.limit.name.clone()).collect();
        let mut denies = new.denied.iter();
        self.denies_changed =
            old.denied != new.denied || denies.any(|deny| !new.has_list_of(old, &deny.list));
    }
}

/// Whether more than the numbers differ.
fn is_adjusted(old: &Active, new: &Active) -> bool {
    let with_numbers_of_new = Limit {
        limit: new.limit.limit.clone(),
        overrides: new.limit.overrides.clone(),
        ..old.limit.clone()
    };
    let overrides = |of: &Active| {
        of.limit
            .overrides
            .iter()
            .map(|one| (one.key.clone(), one.prefix.clone(), one.headers.clone()))
            .collect::<Vec<_>>()
    };
    with_numbers_of_new != new.limit || overrides(old) != overrides(new)
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unchanged() {
            return f.write_str("no limit has changed");
        }
        let changed = self.changed.iter();
        let changed = changed.map(|name| format!("{name}: changed, usage is kept"));
        let adjusted = self.adjusted.iter();
        let adjusted = adjusted.filter(|name| !self.changed.contains(name));
        let adjusted = adjusted.map(|name| format!("{name}: adjusted, usage is kept"));
        let fresh = self.fresh.iter();
        let fresh = fresh.map(|(name, reason)| format!("{name}: begins with no usage, {reason}"));
        let removed = self.removed.iter().map(|name| format!("{name}: removed"));
        let denies = self.denies_changed.then(|| "deny: changed".to_owned());
        let lines = changed.chain(adjusted).chain(fresh).chain(removed);
        f.write_str(&lines.chain(denies).collect::<Vec<_>>().join("\n"))
    }
}
