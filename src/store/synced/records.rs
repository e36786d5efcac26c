//! The last records of keys that were used lately.

use std::{collections::HashMap, mem, sync::Arc};

use crate::store::cas::{Version, record::Record};
use crate::sync::{Mutex, lock};

/// How many records each of the two generations holds.
const PER_GENERATION: usize = 50_000;

/// A record as the store was last seen to hold it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// `None` if the key has no value.
    pub(super) version: Option<Version>,
    pub(super) record: Record,
}

/// Records that save a read: as long as no other machine changes the key, an exchange is one write.
#[derive(Debug, Default)]
pub(super) struct RecentRecords(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    recent: HashMap<Arc<str>, Known>,
    older: HashMap<Arc<str>, Known>,
}

impl RecentRecords {
    pub(super) fn take(&self, name: &str) -> Option<Known> {
        let mut generations = lock(&self.0);
        let recent = generations.recent.remove(name);
        recent.or_else(|| generations.older.remove(name))
    }

    /// Keeps a record. If there are many, those that were used least lately are dropped.
    pub(super) fn keep(&self, name: &Arc<str>, known: Known) {
        let mut generations = lock(&self.0);
        if generations.recent.len() >= PER_GENERATION {
            generations.older = mem::take(&mut generations.recent);
        }
        generations.recent.insert(Arc::clone(name), known);
    }
}
