//! What a reload did.

use std::fmt;

use super::active::{Active, Generation};

/// What a reload did, by the names of limits. Those that it does not name are as before.
///
/// A limit with another key, algorithm, store or capacity is another one: it is removed and added.
///
/// It prints as one line per name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloaded {
    /// They begin with no usage.
    pub added: Vec<String>,
    /// Their numbers or something else is another; their usage is kept.
    pub changed: Vec<String>,
    /// They are gone, and so is their usage.
    pub removed: Vec<String>,
    /// Whether `[[deny]]` applies to other requests or has other lists.
    pub denies_changed: bool,
}

impl Reloaded {
    /// Whether everything is as before.
    ///
    /// ```
    /// use tower_throttle::policy::{Environment, PolicyFile, PolicyLayer};
    ///
    /// let file = || PolicyFile::from_toml("version = 1").unwrap();
    /// let layer = PolicyLayer::new(file(), Environment::new()).unwrap();
    /// let reloaded = layer.handle().reload(file()).unwrap();
    /// assert!(reloaded.is_unchanged());
    /// assert_eq!(reloaded.to_string(), "no limit has changed");
    /// ```
    pub fn is_unchanged(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn between<'a>(old: &'a Generation, new: &'a Generation) -> Self {
        let names = |of: &Generation, is_named: &dyn Fn(&Active) -> bool| {
            let named = of.limits.iter().filter(|active| is_named(active));
            named.map(|active| active.limit.name.clone()).collect()
        };
        let same =
            |of: &'a Generation, active: &Active| of.same(&active.limit.name, &active.identity);
        let denies = |of: &Generation| -> Vec<_> {
            let denies = of.denies.iter();
            denies
                .map(|(deny, list)| (deny.clone(), list.0.clone()))
                .collect()
        };
        Self {
            added: names(new, &|active| same(old, active).is_none()),
            changed: names(new, &|active| {
                same(old, active).is_some_and(|old| !active.is_as(old))
            }),
            removed: names(old, &|active| same(new, active).is_none()),
            denies_changed: denies(old) != denies(new),
        }
    }
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unchanged() {
            return f.write_str("no limit has changed");
        }
        let denies = ["deny".to_owned()];
        let all = [
            (&*self.removed, "removed"),
            (&*self.added, "added"),
            (&*self.changed, "changed, usage is kept"),
            (&denies[..usize::from(self.denies_changed)], "changed"),
        ];
        let lines = |(names, what): (&[String], _)| {
            let lines = names.iter().map(|name| format!("{name}: {what}"));
            lines.collect::<Vec<_>>()
        };
        f.write_str(&all.map(lines).concat().join("\n"))
    }
}
