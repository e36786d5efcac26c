//! The last records of keys that were used lately.

use std::{collections::HashMap, mem, sync::Arc};

use super::swap::Known;

/// Records that save a read: as long as no other machine changes the key, a write is enough. Two
/// generations: those used lately, and those used before.
#[derive(Debug, Default)]
pub(super) struct RecentRecords {
    recent: HashMap<Arc<str>, Known>,
    older: HashMap<Arc<str>, Known>,
}

impl RecentRecords {
    pub(super) fn take(&mut self, key: &str) -> Option<Known> {
        let recent = self.recent.remove(key);
        recent.or_else(|| self.older.remove(key))
    }

    /// Keeps a record. When there are `most` recent ones, the older ones are dropped.
    pub(super) fn keep(&mut self, key: &Arc<str>, known: Known, most: usize) {
        if most == 0 {
            return;
        }
        if self.recent.len() >= most {
            self.older = mem::take(&mut self.recent);
        }
        self.recent.insert(Arc::clone(key), known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::cas::record::Record;

    #[test]
    fn the_last_records_are_kept_and_not_many_more() {
        let known = || Known {
            version: None,
            record: Record::default(),
        };
        let kept_of = |keys: usize, most| {
            let mut records = RecentRecords::default();
            let names: Vec<Arc<str>> = (0..keys).map(|key| key.to_string().into()).collect();
            for name in &names {
                records.keep(name, known(), most);
            }
            let kept = names.iter().map(|name| records.take(name).is_some());
            kept.collect::<Vec<_>>()
        };
        assert_eq!(kept_of(4, 4), [true; 4]);
        assert_eq!(kept_of(2, 0), [false; 2]);
        let kept = kept_of(11, 4);
        assert_eq!(kept[4..], [true; 7], "the last four, and those before");
        assert_eq!(kept[..4], [false; 4]);
    }
}
