//! What the clones of a table share. The table itself is built once, when it is first used.

use std::sync::OnceLock;

use super::overflow::{Overflow, Stats};
use super::table::Table;
use crate::algorithm::{Facts, Words};
use crate::backend::Losses;
use crate::clock::Clock;

/// A table of this many keys takes 2.3 megabytes.
pub(super) const DEFAULT_CAPACITY: usize = 100_000;

/// The settings, and the table once it is built.
pub(super) struct LocalInner<A: Words, C, S> {
    table: OnceLock<Table<A>>,
    /// The algorithm that the table is built with.
    pub(super) algorithm: A,
    pub(super) capacity: usize,
    pub(super) overflow: Overflow,
    pub(super) clock: C,
    pub(super) hasher: S,
}

impl<A: Words, C, S> LocalInner<A, C, S> {
    pub(super) const fn new(
        algorithm: A,
        capacity: usize,
        overflow: Overflow,
        clock: C,
        hasher: S,
    ) -> Self {
        Self {
            table: OnceLock::new(),
            algorithm,
            capacity,
            overflow,
            clock,
            hasher,
        }
    }

    pub(super) fn is_built(&self) -> bool {
        self.table.get().is_some()
    }

    /// Runs `read` on the current algorithm. Does not build the table.
    pub(super) fn read_algorithm<T>(&self, read: impl FnOnce(&A) -> T) -> T {
        match self.table.get() {
            Some(table) => read(&table.epochs.current().algorithm),
            None => read(&self.algorithm),
        }
    }

    /// Those of the current algorithm.
    #[inline]
    pub(super) fn facts(&self) -> Facts {
        match self.table.get() {
            Some(table) => table.epochs.current().facts,
            None => self.algorithm.facts(),
        }
    }

    /// What a full table lost so far.
    #[inline]
    pub(super) fn losses(&self) -> Losses {
        match self.table.get() {
            Some(table) => table.counters.losses(),
            None => Losses::default(),
        }
    }
}

impl<A: Words, C: Clock, S> LocalInner<A, C, S> {
    /// The sizes and counters, also of a table that is not built yet.
    pub(super) fn stats(&self) -> Stats {
        match self.table.get() {
            Some(table) => table.stats(self.clock.now()),
            None => Table::stats_unused(&self.algorithm, self.capacity),
        }
    }

    /// How many keys are blocked.
    pub(super) fn blocked(&self) -> usize {
        let table = self.table.get();
        table.map_or(0, |table| table.blocked(self.clock.now()))
    }

    /// The largest part of its limit that a key has used.
    pub(super) fn largest_use_percent(&self) -> u64 {
        let table = self.table.get();
        table.map_or(0, |table| table.largest_use_percent(self.clock.now()))
    }

    /// The table, which is built at the first call.
    #[inline]
    pub(super) fn table(&self) -> &Table<A> {
        match self.table.get() {
            Some(table) => table,
            None => self.build(),
        }
    }

    #[cold]
    fn build(&self) -> &Table<A> {
        let build = || {
            let now = self.clock.now();
            Table::new(self.algorithm.clone(), self.capacity, self.overflow, now)
        };
        self.table.get_or_init(build)
    }
}
