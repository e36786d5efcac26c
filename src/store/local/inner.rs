//! What the clones of a table share. The table itself is built once, when it is first used.

use std::sync::{Arc, OnceLock};

use super::hash::Seeded;
use super::overflow::{Overflow, Rules};
use super::table::Table;
use crate::algorithm::Algorithm;
use crate::backend::Stats;
use crate::clock::{Clock, Tick};
use crate::sync::{Mutex, lock};

/// A table of this many keys takes 3 megabytes, and of windows of three numbers 4.
pub(super) const DEFAULT_CAPACITY: usize = 100_000;

/// The settings, and the table once it is in use.
pub(super) struct LocalInner<A: Algorithm, C> {
    in_use: OnceLock<InUse<A>>,
    /// The algorithm that all shards have, unless a change is under way.
    current: Mutex<Arc<A>>,
    /// A table that is allocated and not in use. Held while the table is made and while its algorithm is changed.
    pub(super) change: Mutex<Option<Table<A>>>,
    pub(super) rules: Rules,
    pub(super) capacity: usize,
    pub(super) clock: C,
}

/// What every decision reads.
pub(super) struct InUse<A: Algorithm> {
    pub(super) table: Table<A>,
    pub(super) hasher: Seeded,
}

/// What a table is made of: with the number of its keys, and what it does with more.
pub(super) type Parts<A, C> = (A, (usize, Overflow), C);

impl<A: Algorithm, C> LocalInner<A, C> {
    pub(super) fn new((algorithm, (capacity, overflow), clock): Parts<A, C>) -> Self {
        Self {
            in_use: OnceLock::new(),
            change: Mutex::new(None),
            rules: Rules::new(overflow, algorithm.capabilities().is_user_code),
            current: Mutex::new(Arc::new(algorithm)),
            capacity,
            clock,
        }
    }

    /// What it was made of, unless its table is in use.
    pub(super) fn into_parts(self) -> Option<Parts<A, C>> {
        if self.in_use.get().is_some() {
            return None;
        }
        let algorithm = A::clone(&lock(&self.current));
        Some((algorithm, (self.capacity, self.rules.overflow), self.clock))
    }

    /// Allocates the table, unless it is.
    pub(super) fn allocate(&self) {
        let mut allocated = lock(&self.change);
        if self.in_use.get().is_none() {
            allocated.get_or_insert_with(|| self.new_table());
        }
    }

    fn new_table(&self) -> Table<A> {
        Table::new(&self.algorithm(), self.capacity)
    }

    /// The current algorithm. Does not build the table.
    pub(super) fn algorithm(&self) -> Arc<A> {
        Arc::clone(&lock(&self.current))
    }

    /// The table and its hash. From the first call on the table is in use.
    #[inline]
    pub(super) fn in_use(&self) -> &InUse<A> {
        self.in_use.get().unwrap_or_else(|| self.use_table())
    }

    #[cold]
    fn use_table(&self) -> &InUse<A> {
        let mut allocated = lock(&self.change);
        self.in_use.get_or_init(|| InUse {
            table: allocated.take().unwrap_or_else(|| self.new_table()),
            hasher: Seeded::default(),
        })
    }

    /// Uses what `load` makes for the current algorithm. Returns false, and nothing is loaded, if the table is in use.
    pub(super) fn load<E>(
        &self,
        load: impl FnOnce(&Arc<A>) -> Result<InUse<A>, E>,
    ) -> Result<bool, E> {
        let mut allocated = lock(&self.change);
        if self.in_use.get().is_some() {
            return Ok(false);
        }
        let loaded = load(&self.algorithm())?;
        *allocated = None;
        Ok(self.in_use.set(loaded).is_ok())
    }
}

impl<A: Algorithm, C: Clock> LocalInner<A, C> {
    /// Decides from now on by what `change` makes of the algorithm, and converts the states of all keys.
    pub(super) fn change_algorithm<E>(
        &self,
        change: impl FnOnce(&A) -> Result<A, E>,
    ) -> Result<(), E> {
        let allocated = lock(&self.change);
        let new = Arc::new(change(&self.algorithm())?);
        let in_use = self.in_use.get().map(|in_use| &in_use.table);
        if let Some(table) = in_use.or(allocated.as_ref()) {
            table.rescale(&new, || self.clock.now());
        }
        *lock(&self.current) = new;
        Ok(())
    }

    /// How full it is and what it has lost, also of a table that is not built yet.
    pub(super) fn stats(&self) -> Stats {
        let (slots, table_bytes) = Table::<A>::slots_and_bytes(self.capacity);
        let mut stats = Stats {
            capacity: self.capacity,
            slots,
            table_bytes,
            ..self.rules.losses()
        };
        self.visit(|algorithm, state, now| {
            let largest = algorithm.peek(state, now, 0).use_percent();
            stats.largest_use_percent = stats.largest_use_percent.max(largest);
            stats.live += usize::from(algorithm.forgettable_at(state) > now);
        });
        stats
    }

    /// Shows all states of a table in use to `see`, with the time.
    pub(super) fn visit(&self, mut see: impl FnMut(&A, &A::State, Tick)) {
        if let Some(InUse { table, .. }) = self.in_use.get() {
            let now = self.clock.now();
            table.visit(|algorithm, state| see(algorithm, state, now));
        }
    }
}
