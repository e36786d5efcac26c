//! The last records of keys that were used lately.

use std::{collections::HashMap, mem, sync::Arc};

use super::{Version, contention::Contention, record::Record};

/// A record as the store was last seen to hold it.
#[derive(Clone, Debug)]
pub(in crate::store) struct Known {
    /// `None` if the key has no value.
    pub(in crate::store) version: Option<Version>,
    pub(in crate::store) record: Record,
    /// How often other machines have swapped it.
    pub(in crate::store) contention: Contention,
}

/// Records that save a read: as long as no other machine changes the key, a write is enough. Two
/// generations: those used lately, and those used before.
#[derive(Debug, Default)]
pub(in crate::store) struct RecentRecords {
    recent: HashMap<Arc<str>, Known>,
    older: HashMap<Arc<str>, Known>,
}

impl RecentRecords {
    pub(in crate::store) fn take(&mut self, key: &str) -> Option<Known> {
        let recent = self.recent.remove(key);
        recent.or_else(|| self.older.remove(key))
    }

    /// Drops the records that have not been kept anew since the last call.
    pub(in crate::store) fn drop_unused(&mut self) {
        self.older = mem::take(&mut self.recent);
    }

    /// Keeps a record. When there are `most` recent ones, the older ones are dropped.
    pub(in crate::store) fn keep(&mut self, key: &Arc<str>, known: Known, most: usize) {
        if most == 0 {
            return;
        }
        if self.recent.len() >= most {
            self.drop_unused();
        }
        self.recent.insert(Arc::clone(key), known);
    }
}
