//! The states of all keys.
//!
//! # Where a key is stored
//! The high bits of its hash choose a shard and a line in it, its home. It is in a slot of this line or of
//! one of the 31 others that it may use. The home holds the distance of the farthest of its keys
//! (`reach`), so reading one line is usually enough to see that a key is absent.
//!
//! # Locks
//! In this order: the one of changes, the one of a shard, the one of the shared state. No thread locks two
//! shards.

use std::io;
use std::mem::needs_drop;
use std::sync::Arc;

use super::line::{Boxed, Inline};
use super::rules::{Rules, Step};
use super::shards::Shards;
use crate::algorithm::Algorithm;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::saved::{Reading, SavedLimit, Writing};

/// States that are larger are outside of their slots.
const MOST_INLINE: usize = 56;

/// How the states of one type are stored.
enum Layout {
    /// Three in a line.
    Three,
    /// Two in a line of 64 bytes.
    Two,
    /// Outside of their slots: they have memory of their own or are large.
    Boxed,
}

const fn layout<S>() -> Layout {
    match size_of::<S>() {
        size if size > MOST_INLINE || needs_drop::<S>() => Layout::Boxed,
        17..=24 => Layout::Two,
        _ => Layout::Three,
    }
}

/// The states of all keys. One of the three has lines, and the compiler knows which.
pub(super) struct Table<A: Algorithm> {
    three: Shards<A, Inline<A::State>, 3>,
    two: Shards<A, Inline<A::State>, 2>,
    boxed: Shards<A, Boxed<A::State>, 3>,
}

/// Runs a method of the shards that the states are in.
macro_rules! in_shards {
    ($table:ident.$($call:tt)*) => {
        match const { layout::<A::State>() } {
            Layout::Three => $table.three.$($call)*,
            Layout::Two => $table.two.$($call)*,
            Layout::Boxed => $table.boxed.$($call)*,
        }
    };
}

impl<A: Algorithm> Table<A> {
    pub(super) const IS_BOXED: bool = matches!(layout::<A::State>(), Layout::Boxed);

    pub(super) fn new(algorithm: &Arc<A>, keys: usize) -> Self {
        let mut table = Self {
            three: Shards::none(),
            two: Shards::none(),
            boxed: Shards::none(),
        };
        match const { layout::<A::State>() } {
            Layout::Three => table.three = Shards::new(algorithm, keys),
            Layout::Two => table.two = Shards::new(algorithm, keys),
            Layout::Boxed => table.boxed = Shards::new(algorithm, keys),
        }
        table
    }

    /// The slots and bytes of a table for so many keys.
    pub(super) fn slots_and_bytes(keys: usize) -> (usize, usize) {
        match const { layout::<A::State>() } {
            Layout::Three => Shards::<A, Inline<A::State>, 3>::slots_and_bytes(keys),
            Layout::Two => Shards::<A, Inline<A::State>, 2>::slots_and_bytes(keys),
            Layout::Boxed => Shards::<A, Boxed<A::State>, 3>::slots_and_bytes(keys),
        }
    }

    /// See [`Shards::decide`].
    #[expect(clippy::inline_always, reason = "as for `Shards::decide`")]
    #[inline(always)]
    pub(super) fn decide<T>(
        &self,
        request: (u64, Tick, u64),
        done: impl FnOnce(Decision) -> T,
        rest: impl FnOnce() -> T,
    ) -> T {
        in_shards!(self.decide(request, done, rest))
    }

    /// See [`Shards::run`].
    pub(super) fn run(
        &self,
        rules: &Rules<A>,
        key: (u64, Tick, bool),
        step: &mut Step<'_, A>,
    ) -> Result<(), Tick> {
        in_shards!(self.run(rules, key, step))
    }

    /// See [`Shards::save`].
    pub(super) fn save(&self, now: Tick, out: &mut Writing) -> io::Result<()> {
        in_shards!(self.save(now, out))
    }

    /// See [`Shards::load`].
    pub(super) fn load(&mut self, saved: &SavedLimit<A>, from: &mut Reading<'_>) -> io::Result<()> {
        in_shards!(self.load(saved, from))
    }

    pub(super) fn remove(&self, hash: u64) {
        in_shards!(self.remove(hash));
    }

    pub(super) fn rescale(&self, new: &Arc<A>, now: &dyn Fn() -> Tick) {
        in_shards!(self.rescale(new, now));
    }

    /// See [`Shards::visit`].
    pub(super) fn visit(&self, most: usize, see: &mut dyn FnMut(&A, &A::State)) -> (usize, usize) {
        in_shards!(self.visit(most, see))
    }
}
