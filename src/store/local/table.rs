//! The states of all keys, in shards of lines, each behind a lock.
//!
//! # Where a key is stored
//! The high bits of its hash choose a shard and a line in it, its home. It is in a slot of this line or of
//! one of the 31 others that it may use. The home holds the distance of the farthest of its keys
//! (`reach`), so reading one line is usually enough to see that a key is absent.
//!
//! # Locks
//! First the one of changes, then the one of a shard. No thread locks two shards.

use std::array::from_fn;
use std::sync::Arc;

use super::line::{SLOTS, SlotLine, WINDOW, offset, tag};
use super::overflow::{Overflow, Rules};
use crate::algorithm::Algorithm;
use crate::clock::Tick;
use crate::denied::LastDenial;
use crate::sync::{CachePadded, Mutex, MutexGuard, lock, lock_busy};

/// In more lines, the keys of the shards are about as many.
const LINES_PER_SHARD: usize = 512;
const MOST_SHARDS: usize = 1_024;
/// Eight lines are whole cache lines, whatever a state takes.
const BLOCK: usize = 8;

/// What runs on a state: returns whether a request was denied. It may run several times and must depend
/// on nothing but its arguments.
pub(super) type Step<'a, A> = dyn FnMut(&A, &mut <A as Algorithm>::State) -> Option<bool> + 'a;

/// The lines of all shards.
pub(super) struct Table<A: Algorithm> {
    shards: Box<[Locked<A>]>,
    /// There are as many shards as 2 to the power of this.
    bits: u32,
}

#[derive(Clone)]
pub(super) struct TableShard<A: Algorithm> {
    /// It has made the states of this shard.
    algorithm: Arc<A>,
    lines: usize,
    /// A thread has waited for the lock since a denial was shown.
    pub(super) is_busy: bool,
    /// The lines, and some that are not used.
    blocks: Box<[Block<A::State>]>,
}

#[derive(Clone)]
#[repr(align(64))]
struct Block<S>([SlotLine<S>; BLOCK]);

/// No two locks share a cache line.
type Locked<A> = CachePadded<(Mutex<TableShard<A>>, LastDenial)>;

/// Where a key is or may be.
#[derive(Clone, Copy)]
struct Place {
    distance: usize,
    line: usize,
    slot: usize,
}

impl<A: Algorithm> Table<A> {
    /// The bits that choose the shard, and the lines in each. A full table uses three quarters of its slots.
    fn sizes(keys: usize) -> (u32, usize) {
        let lines = match (keys * 45).div_ceil(100) {
            // Then the lines of a key differ from each other.
            few if few < LINES_PER_SHARD => few.next_power_of_two(),
            lines => lines,
        };
        let bits = (lines / LINES_PER_SHARD).clamp(1, MOST_SHARDS).ilog2();
        (bits, lines.div_ceil(1 << bits))
    }

    /// The slots and bytes of a table for so many keys.
    pub(super) fn slots_and_bytes(keys: usize) -> (usize, usize) {
        let (bits, lines) = Self::sizes(keys);
        let blocks = lines.div_ceil(BLOCK) * size_of::<Block<A::State>>();
        (
            (lines * SLOTS) << bits,
            (size_of::<Locked<A>>() + blocks) << bits,
        )
    }

    pub(super) fn new(algorithm: &Arc<A>, keys: usize) -> Self {
        let (bits, lines) = Self::sizes(keys);
        let line = |_| SlotLine::empty(|| algorithm.fresh(Tick::ZERO));
        let blocks = 0..lines.div_ceil(BLOCK);
        let shard = |_| {
            let shard = TableShard {
                algorithm: Arc::clone(algorithm),
                lines,
                is_busy: false,
                blocks: blocks.clone().map(|_| Block(from_fn(line))).collect(),
            };
            CachePadded((Mutex::new(shard), LastDenial::default()))
        };
        Self {
            shards: (0..1 << bits).map(shard).collect(),
            bits,
        }
    }

    /// The shard of the key with this hash, and the hash without the bits that choose it.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are fewer shards than 2^32"
    )]
    #[inline]
    fn locked(&self, hash: u64) -> (&(Mutex<TableShard<A>>, LastDenial), u64) {
        let rotated = hash.rotate_left(self.bits);
        let shard = &self.shards[rotated as usize & (self.shards.len() - 1)];
        (&shard.0, rotated)
    }

    /// What was denied to the key with this hash last, if it is shown.
    #[inline]
    pub(super) fn last_denial(&self, hash: u64) -> &LastDenial {
        &self.locked(hash).0.1
    }

    /// The shard of the key with this hash, and its home line there. The high bits choose both.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the product's high half is below the number of lines"
    )]
    #[inline]
    pub(super) fn shard(&self, hash: u64) -> (MutexGuard<'_, TableShard<A>>, usize) {
        let (locked, rotated) = self.locked(hash);
        let shard = lock_busy(&locked.0, |shard| shard.is_busy = true);
        let home = (u128::from(rotated) * shard.lines as u128) >> 64;
        (shard, home as usize)
    }

    /// The same, for anything but a request.
    fn shard_to_change(&self, hash: u64) -> (MutexGuard<'_, TableShard<A>>, usize) {
        let shard = self.shard(hash);
        self.last_denial(hash).hide();
        shard
    }

    /// Shows that the key in this line and slot is denied, so that threads with requests of it need not wait for
    /// each other.
    #[cold]
    pub(super) fn show(
        &self,
        shard: &mut TableShard<A>,
        (line, slot): (usize, usize),
        (hash, now): (u64, Tick),
    ) {
        shard.is_busy = false;
        let state = &shard.line(line).states[slot];
        self.last_denial(hash)
            .show(hash, now, &*shard.algorithm, state);
    }

    /// Runs `step` on the state of a key. A new state is stored only if `keep`. The error is the moment
    /// at which a slot may become free.
    pub(super) fn run(
        &self,
        rules: &Rules,
        (hash, now, keep): (u64, Tick, bool),
        step: &mut Step<'_, A>,
    ) -> Result<(), Tick> {
        let (mut shard, home) = self.shard_to_change(hash);
        if let Some(place) = shard.find(hash, home) {
            let (algorithm, line) = shard.line_mut(place.line);
            let state = &mut line.states[place.slot];
            let denied = if rules.is_user_code {
                // So that a panic changes nothing.
                let mut copy = state.clone();
                let denied = step(algorithm, &mut copy);
                *state = copy;
                denied
            } else {
                step(algorithm, state)
            };
            if let Some(is_denied) = denied {
                line.set_denied(place.slot, is_denied);
            }
            return Ok(());
        }
        let mut state = shard.algorithm.fresh(now);
        let mut denied = step(&shard.algorithm, &mut state);
        if !keep || shard.algorithm.forgettable_at(&state) <= now {
            return Ok(());
        }
        let (place, evicts) = match (shard.find_free(home, now), rules.overflow) {
            (Ok(place), _) => (place, None),
            (Err(soonest), Overflow::Deny) => return Err(soonest),
            (Err(_), Overflow::EvictLeast) => {
                let (was_denied, place) = shard.find_victim(home, now);
                // Otherwise keys that evict each other would start as unused again and again.
                state = shard.line(place.line).states[place.slot].clone();
                denied = step(&shard.algorithm, &mut state);
                if denied == Some(true) {
                    // There is nothing to store, and the other key keeps its slot.
                    rules.count(|lost| &lost.denied, now);
                    return Ok(());
                }
                if shard.algorithm.forgettable_at(&state) <= now {
                    return Ok(());
                }
                (place, Some(was_denied))
            }
        };
        shard.put(home, place, hash, state, denied == Some(true));
        if let Some(was_denied) = evicts {
            rules.count_evicted(was_denied, now);
        }
        Ok(())
    }

    /// Removes a key.
    pub(super) fn remove(&self, hash: u64) {
        let (mut shard, home) = self.shard_to_change(hash);
        if let Some(place) = shard.find(hash, home) {
            let (algorithm, line) = shard.line_mut(place.line);
            line.put(place.slot, 0, algorithm.fresh(Tick::ZERO));
        }
    }

    /// Converts all states to another algorithm, shard by shard, each as of the moment that `now` returns
    /// while it is locked. A state that has expired is removed.
    pub(super) fn rescale(&self, new: &Arc<A>, now: impl Fn() -> Tick) {
        for shard in &self.shards {
            let (shard, last_denial) = &shard.0;
            let mut shard = lock(shard);
            last_denial.hide();
            let now = now();
            // A copy, so that a panic leaves the shard as it was.
            let mut blocks = shard.blocks.clone();
            for line in blocks.iter_mut().flat_map(|block| &mut block.0) {
                for slot in line.used() {
                    let state = &mut line.states[slot];
                    if shard.algorithm.forgettable_at(state) <= now {
                        line.put(slot, 0, new.fresh(Tick::ZERO));
                    } else {
                        new.rescale(state, &shard.algorithm, now);
                    }
                }
            }
            shard.blocks = blocks;
            shard.algorithm = Arc::clone(new);
        }
    }

    /// Shows all states to `see`.
    pub(super) fn visit(&self, mut see: impl FnMut(&A, &A::State)) {
        for shard in &self.shards {
            let shard = lock(&shard.0.0);
            for line in shard.all_lines() {
                for slot in line.used() {
                    see(&shard.algorithm, &line.states[slot]);
                }
            }
        }
    }
}

impl<A: Algorithm> TableShard<A> {
    fn all_lines(&self) -> impl Iterator<Item = &SlotLine<A::State>> {
        self.blocks.iter().flat_map(|block| &block.0)
    }

    fn line(&self, at: usize) -> &SlotLine<A::State> {
        &self.blocks[at / BLOCK].0[at % BLOCK]
    }

    /// A line, with the algorithm that has made its states.
    #[inline]
    pub(super) fn line_mut(&mut self, at: usize) -> (&A, &mut SlotLine<A::State>) {
        (&self.algorithm, &mut self.blocks[at / BLOCK].0[at % BLOCK])
    }

    /// The line at this distance from a home.
    fn line_at(&self, home: usize, distance: usize) -> usize {
        (home + offset(distance)) % self.lines
    }

    fn find(&self, hash: u64, home: usize) -> Option<Place> {
        (0..=usize::from(self.line(home).reach)).find_map(|distance| {
            let line = self.line_at(home, distance);
            let slot = self.line(line).find(tag(hash, distance))?;
            Some(Place {
                distance,
                line,
                slot,
            })
        })
    }

    /// All slots that a key may use, with its home line first.
    fn places(&self, home: usize) -> impl Iterator<Item = Place> {
        (0..self.lines.min(WINDOW)).flat_map(move |distance| {
            let line = self.line_at(home, distance);
            (0..SLOTS).map(move |slot| Place {
                distance,
                line,
                slot,
            })
        })
    }

    /// The next slot that is empty or whose state has expired, or when the first one expires.
    fn find_free(&self, home: usize, now: Tick) -> Result<Place, Tick> {
        let mut soonest = Tick::MAX;
        for place in self.places(home) {
            let line = self.line(place.line);
            if let Some(slot) = line.empty_slot() {
                return Ok(Place { slot, ..place });
            }
            let until = self.algorithm.forgettable_at(&line.states[place.slot]);
            if until <= now {
                return Ok(place);
            }
            soonest = soonest.min(until);
        }
        Err(soonest)
    }

    /// The key that loses least: one that is not being denied, and whose state expires first. Whether it
    /// is being denied, and where it is. No slot is free.
    fn find_victim(&self, home: usize, now: Tick) -> (bool, Place) {
        let place = Place {
            distance: 0,
            line: home,
            slot: 0,
        };
        let mut least = ((true, Tick::MAX), place);
        for place in self.places(home) {
            let line = self.line(place.line);
            let state = &line.states[place.slot];
            let until = self.algorithm.forgettable_at(state);
            let marked = line.is_denied(place.slot);
            // Checking the limit is expensive. Skip it if this key would lose more in any case.
            if (marked, until) < least.0 {
                let denied = marked || self.algorithm.peek(state, now, 1).is_denied();
                if (denied, until) < least.0 {
                    least = ((denied, until), place);
                }
            }
        }
        (least.0.0, least.1)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a distance is below 32")]
    fn put(&mut self, home: usize, place: Place, hash: u64, state: A::State, is_denied: bool) {
        let line = self.line_mut(place.line).1;
        line.put(place.slot, tag(hash, place.distance), state);
        line.set_denied(place.slot, is_denied);
        let reach = usize::from(self.line(home).reach).max(place.distance);
        let is_used = |distance: &usize| {
            self.line(self.line_at(home, *distance))
                .has_distance(*distance)
        };
        let reach = (1..=reach).rev().find(is_used).unwrap_or(0);
        self.line_mut(home).1.reach = reach as u8;
    }
}

mod saved;
#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;
