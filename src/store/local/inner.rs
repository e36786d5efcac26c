//! What the clones of a table share. The table itself is built once, when it is first used.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use super::hash::Seeded;
use super::overflow::{Overflow, Stats};
use super::rules::Rules;
use super::table::Table;
use super::user_code::Running;
use crate::acquire::Outcome;
use crate::algorithm::{Algorithm, Capabilities};
use crate::clock::{Clock, Tick};
use crate::error::ConfigError;
use crate::sync::{Mutex, PoisonError, lock};

/// A table of this many keys takes 3.1 megabytes, and of windows of three numbers 4.
pub(super) const DEFAULT_CAPACITY: usize = 100_000;

/// At most so many lines are read to see how full a table is.
const MOST_LINES: usize = 16_384;

/// The settings, and the table once it is in use.
pub(super) struct LocalInner<A: Algorithm, C, S> {
    in_use: OnceLock<InUse<A, S>>,
    /// Until the table is in use: the hash of its keys, and the table if it is allocated.
    unused: Mutex<(Option<S>, Option<Table<A>>)>,
    /// The algorithm that all shards have, unless a change is under way.
    current: Mutex<Arc<A>>,
    /// Held while the algorithm is changed.
    pub(super) change: Mutex<()>,
    pub(super) rules: Rules<A>,
    pub(super) size: Size,
    pub(super) clock: C,
}

/// How many keys a table is for, and what it does with more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) capacity: usize,
    pub(super) overflow: Overflow,
}

impl Size {
    pub(super) const fn of(capacity: usize) -> Self {
        Self {
            capacity,
            overflow: Overflow::EvictLeast,
        }
    }
}

/// What a table is made of.
pub(super) type Parts<A, C, S> = (A, Size, C, S);

/// What every decision reads.
pub(super) struct InUse<A: Algorithm, S> {
    pub(super) table: Table<A>,
    pub(super) hasher: S,
}

/// A table that was saved.
pub(super) struct Loaded<A: Algorithm> {
    pub(super) table: Table<A>,
    /// The default hash with the seeds that were saved.
    pub(super) hasher: Option<Seeded>,
    /// The state that keys without a slot share.
    pub(super) shared: Option<A::State>,
}

impl<A: Algorithm, C, S> LocalInner<A, C, S> {
    pub(super) fn new((algorithm, size, clock, hasher): Parts<A, C, S>) -> Self {
        Self {
            in_use: OnceLock::new(),
            unused: Mutex::new((Some(hasher), None)),
            rules: Rules::new(&algorithm, size.overflow),
            current: Mutex::new(Arc::new(algorithm)),
            change: Mutex::new(()),
            size,
            clock,
        }
    }

    /// What it was made of, unless its table is allocated.
    pub(super) fn into_parts(self) -> Option<Parts<A, C, S>> {
        let algorithm = self.read_algorithm(A::clone);
        let (hasher, table) = self
            .unused
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let hasher = hasher.filter(|_| table.is_none())?;
        Some((algorithm, self.size, self.clock, hasher))
    }

    /// Allocates the table, unless it is.
    pub(super) fn allocate(&self) {
        if let Some(_running) = Running::enter(self.rules.is_user_code) {
            let _change = lock(&self.change);
            let (hasher, table) = &mut *lock(&self.unused);
            if hasher.is_some() {
                table.get_or_insert_with(|| self.new_table());
            }
        }
    }

    fn new_table(&self) -> Table<A> {
        let algorithm = Arc::clone(&lock(&self.current));
        Table::new(&algorithm, self.size.capacity)
    }

    /// Runs `read` on the current algorithm. Does not build the table.
    pub(super) fn read_algorithm<T>(&self, read: impl FnOnce(&A) -> T) -> T {
        let current = Arc::clone(&lock(&self.current));
        read(&current)
    }

    /// Those of the current algorithm.
    pub(super) fn capabilities(&self) -> Capabilities {
        self.read_algorithm(A::capabilities)
    }

    /// The table and its hash. From the first call on the table is in use. `None` if an algorithm that runs asks.
    #[inline]
    pub(super) fn in_use(&self) -> Option<&InUse<A, S>> {
        self.in_use.get().or_else(|| self.use_table())
    }

    #[cold]
    fn use_table(&self) -> Option<&InUse<A, S>> {
        let _running = Running::enter(self.rules.is_user_code)?;
        Some(self.in_use.get_or_init(|| {
            let _change = lock(&self.change);
            let (hasher, table) = &mut *lock(&self.unused);
            InUse {
                table: table.take().unwrap_or_else(|| self.new_table()),
                hasher: hasher.take().expect("a table is used once"),
            }
        }))
    }

    /// Uses the table that `load` makes for this algorithm, with the hash that it was made with if that is not this
    /// one. Returns false, and nothing is loaded, if the table is in use.
    pub(super) fn load<E>(
        &self,
        load: impl FnOnce(&Arc<A>, &S) -> Result<Loaded<A>, E>,
    ) -> Result<bool, E>
    where
        S: 'static,
    {
        let Some(running) = Running::enter(self.rules.is_user_code) else {
            return Ok(false);
        };
        let change = lock(&self.change);
        let mut unused = lock(&self.unused);
        let (Some(hasher), table) = &mut *unused else {
            return Ok(false);
        };
        let algorithm = Arc::clone(&lock(&self.current));
        let loaded = load(&algorithm, hasher)?;
        if let (Some(seeded), Some(hasher)) =
            (loaded.hasher, (hasher as &mut dyn Any).downcast_mut())
        {
            *hasher = seeded;
        }
        *table = Some(loaded.table);
        if let Some(state) = loaded.shared {
            self.rules.share(algorithm, state);
        }
        // A thread that uses the table first waits for these.
        drop((unused, change, running));
        let _ = self.in_use();
        Ok(true)
    }

    /// Runs `step` on the state of the key with this hash. It may run several times and must depend on
    /// nothing but its arguments.
    ///
    /// If `keep` is set, a key without a slot gets one unless its new state has expired already.
    ///
    /// # Errors
    /// If the table is full. The error is the time at which a slot may become free.
    pub(super) fn run<T: Outcome>(
        &self,
        (hash, now, keep): (u64, Tick, bool),
        step: impl Fn(&A, &mut A::State) -> T,
    ) -> Result<T, Tick> {
        let _running = Running::enter(self.rules.is_user_code).ok_or(now)?;
        let mut result = None;
        let mut step = |algorithm: &A, state: &mut A::State| {
            let outcome = step(algorithm, state);
            let denied = outcome.denied().filter(|_| keep);
            result = Some(outcome);
            denied
        };
        let InUse { table, .. } = self.in_use.get().ok_or(now)?;
        table.run(&self.rules, (hash, now, keep), &mut step)?;
        result.ok_or(now)
    }

    /// Removes a key.
    pub(super) fn remove(&self, hash: u64) {
        let running = Running::enter(self.rules.is_user_code);
        if let (Some(_running), Some(in_use)) = (running, self.in_use.get()) {
            in_use.table.remove(hash);
        }
    }
}

impl<A: Algorithm, C: Clock, S> LocalInner<A, C, S> {
    /// Decides by `new` from now on, and converts the states of all keys.
    pub(super) fn set_algorithm(&self, new: A) -> Result<(), ConfigError> {
        let Some(_running) = Running::enter(self.rules.is_user_code) else {
            return Err(ConfigError::Unsupported {
                what: "a change of an algorithm by an algorithm that runs",
                instead: "change it from outside of the algorithm",
            });
        };
        let _change = lock(&self.change);
        let new = Arc::new(new);
        let unused = lock(&self.unused);
        let in_use = self.in_use.get().map(|in_use| &in_use.table);
        if let Some(table) = in_use.or(unused.1.as_ref()) {
            table.rescale(&new, &|| self.clock.now());
            self.rules.rescale_shared(&new, self.clock.now());
        }
        *lock(&self.current) = new;
        Ok(())
    }

    /// The sizes and counters, also of a table that is not built yet.
    pub(super) fn stats(&self) -> Stats {
        let (slots, table_bytes) = Table::<A>::slots_and_bytes(self.size.capacity);
        let boxed = size_of::<A::State>().saturating_add(self.capabilities().max_heap_bytes);
        let outside = if Table::<A>::IS_BOXED {
            slots.saturating_mul(boxed)
        } else {
            0
        };
        let mut stats = Stats {
            capacity: self.size.capacity,
            slots,
            table_bytes,
            most_bytes: table_bytes.saturating_add(outside),
            losses: self.rules.counters.losses(),
            ..Stats::default()
        };
        let now = self.clock.now();
        let mut live = 0;
        let (all, read) = self.visit(MOST_LINES, &mut |algorithm, state| {
            live += usize::from(algorithm.forgettable_at(state) > now);
        });
        stats.live = if all == read {
            live
        } else {
            scaled(live, all, read)
        };
        if Table::<A>::IS_BOXED {
            self.visit(usize::MAX, &mut |_, _| stats.outside += 1);
        }
        stats
    }

    /// How many keys are blocked.
    pub(super) fn blocked(&self) -> usize {
        let (now, mut blocked) = (self.clock.now(), 0);
        self.visit(usize::MAX, &mut |algorithm, state| {
            blocked += usize::from(A::report(algorithm, state, now).is_blocked);
        });
        blocked
    }

    /// The largest part of its limit that a key has used. Reads each state.
    pub(super) fn largest_use_percent(&self) -> u64 {
        let (now, mut largest) = (self.clock.now(), 0);
        self.visit(usize::MAX, &mut |algorithm, state| {
            largest = largest.max(algorithm.peek(state, now, 0).use_percent());
        });
        largest
    }

    /// Shows the states to `see`; see [`Shards::visit`](super::shards::Shards::visit). None of a table
    /// that is not built, or whose algorithm asks.
    fn visit(&self, most: usize, see: &mut dyn FnMut(&A, &A::State)) -> (usize, usize) {
        match (self.in_use.get(), Running::enter(self.rules.is_user_code)) {
            (Some(in_use), Some(_running)) => in_use.table.visit(most, see),
            _ => (0, 0),
        }
    }
}

/// What `count` lines of `read` are of `all`.
fn scaled(count: usize, all: usize, read: usize) -> usize {
    let scaled = count as u128 * all as u128 / read as u128;
    usize::try_from(scaled).unwrap_or(usize::MAX)
}
