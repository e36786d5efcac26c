//! What a reload did.

use super::active::{Active, Generation};

/// What a reload did, by the names of limits. Those that it does not name are as before.
///
/// A limit with another key, algorithm, store or capacity is another one: it is removed and added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloaded {
    /// They begin with no usage.
    pub added: Vec<String>,
    /// Their numbers or something else is another; their usage is kept. With `[[deny]]`, if that applies to other
    /// requests or has other lists.
    pub changed: Vec<String>,
    /// They are gone, and so is their usage.
    pub removed: Vec<String>,
}

impl Reloaded {
    pub(super) fn between<'a>(old: &'a Generation, new: &'a Generation) -> Self {
        let names = |of: &Generation, is_named: &dyn Fn(&Active) -> bool| {
            let named = of.limits.iter().filter(|active| is_named(active));
            named.map(|active| active.limit.name.clone()).collect()
        };
        let same =
            |of: &'a Generation, active: &Active| of.same(&active.limit.name, &active.identity);
        let denies = |of: &'a Generation| of.denies.iter().map(|(deny, list)| (deny, &list.0));
        let mut changed: Vec<_> = names(new, &|active| {
            same(old, active).is_some_and(|old| !active.is_as(old))
        });
        changed.extend(denies(old).ne(denies(new)).then(|| "[[deny]]".to_owned()));
        Self {
            added: names(new, &|active| same(old, active).is_none()),
            changed,
            removed: names(old, &|active| same(new, active).is_none()),
        }
    }
}
