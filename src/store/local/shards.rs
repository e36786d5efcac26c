//! Shards of lines, each behind a lock, and what an operation does with the lines that a key may use.

use std::sync::Arc;

use super::line::{Hold, Line, WINDOW, offset, tag};
use super::overflow::Overflow;
use super::rules::{Rules, Step};
use crate::algorithm::Algorithm;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::sync::{CachePadded, Mutex, MutexGuard, lock};

/// In more lines, the keys of the shards are about as many.
const LINES_PER_SHARD: usize = 512;
const MOST_SHARDS: usize = 1_024;

/// All lines of a table. `N` slots make a line.
pub(super) struct Shards<A: Algorithm, H, const N: usize> {
    shards: Box<[Locked<A, H, N>]>,
    /// There are as many shards as 2 to the power of this.
    bits: u32,
}

#[derive(Clone)]
struct Shard<A: Algorithm, H, const N: usize> {
    /// It has made the states of this shard.
    algorithm: Arc<A>,
    lines: Box<[Line<H, N>]>,
}

/// No two locks share a cache line.
type Locked<A, H, const N: usize> = CachePadded<Mutex<Shard<A, H, N>>>;

/// Where a key is or may be.
#[derive(Clone, Copy)]
struct Place {
    distance: usize,
    line: usize,
    slot: usize,
}

impl<A: Algorithm, H: Hold<A::State>, const N: usize> Shards<A, H, N> {
    /// The bits that choose the shard, and the lines in each.
    ///
    /// A full table uses 69 % of its slots, or 81 % if a line has two: these take 32 bytes each.
    fn sizes(keys: usize) -> (u32, usize) {
        let per_hundred = if N == 2 { 62 } else { 48 };
        let lines = (keys * per_hundred).div_ceil(100);
        let bits = (lines / LINES_PER_SHARD).clamp(1, MOST_SHARDS).ilog2();
        (bits, lines.div_ceil(1 << bits))
    }

    /// The slots and bytes of a table for so many keys.
    pub(super) fn slots_and_bytes(keys: usize) -> (usize, usize) {
        let (bits, lines) = Self::sizes(keys);
        let shard = size_of::<Locked<A, H, N>>() + lines * size_of::<Line<H, N>>();
        ((lines * N) << bits, shard << bits)
    }

    pub(super) fn none() -> Self {
        Self {
            shards: Box::default(),
            bits: 0,
        }
    }

    pub(super) fn new(algorithm: &Arc<A>, keys: usize) -> Self {
        let (bits, lines) = Self::sizes(keys);
        let shard = |_| {
            let line = |_| Line::vacant(|| algorithm.fresh(Tick::ZERO));
            CachePadded(Mutex::new(Shard {
                algorithm: Arc::clone(algorithm),
                lines: (0..lines).map(line).collect(),
            }))
        };
        Self {
            shards: (0..1 << bits).map(shard).collect(),
            bits,
        }
    }

    /// The shard of the key with this hash, and its home line there. The high bits choose both.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are fewer shards than 2^32, and the product's high half is below the number of lines"
    )]
    #[inline]
    fn shard(&self, hash: u64) -> (MutexGuard<'_, Shard<A, H, N>>, usize) {
        let rotated = hash.rotate_left(self.bits);
        let shard = lock(&self.shards[rotated as usize & (self.shards.len() - 1)].0);
        let home = (u128::from(rotated) * shard.lines.len() as u128) >> 64;
        (shard, home as usize)
    }

    /// Decides for a key in its home line. Returns what `done` makes of the decision, or if the key is not
    /// there, `rest`.
    ///
    /// The result of either is returned, and not a `Result` of the two: that would be told apart by a
    /// figure of the decision, which would then be computed even if no caller reads it.
    #[expect(
        clippy::inline_always,
        reason = "without it a decision is built in memory, and the row of one key takes 1.1 to 1.9 times as long as governor"
    )]
    #[inline(always)]
    pub(super) fn decide<T>(
        &self,
        (hash, now, cost): (u64, Tick, u64),
        done: impl FnOnce(Decision) -> T,
        rest: impl FnOnce() -> T,
    ) -> T {
        {
            let (mut shard, home) = self.shard(hash);
            let Shard { algorithm, lines } = &mut *shard;
            let line = &mut lines[home];
            if let Some(slot) = line.find(tag(hash, 0)) {
                let decision = algorithm.decide(line.state_mut(slot), now, cost);
                if cost > 0 {
                    line.set_denied(slot, decision.is_denied());
                }
                drop(shard);
                return done(decision);
            }
        }
        rest()
    }

    /// Runs `step` on the state of a key. A new state is stored only if `keep`. The error is the moment
    /// at which a slot may become free.
    pub(super) fn run(
        &self,
        rules: &Rules<A>,
        (hash, now, keep): (u64, Tick, bool),
        step: &mut Step<'_, A>,
    ) -> Result<(), Tick> {
        let (mut shard, home) = self.shard(hash);
        let shard = &mut *shard;
        if let Some(place) = shard.find(hash, home) {
            let line = &mut shard.lines[place.line];
            let state = line.state_mut(place.slot);
            let denied = if rules.is_user_code {
                // So that a panic changes nothing.
                let mut copy = state.clone();
                let denied = step(&shard.algorithm, &mut copy);
                *state = copy;
                denied
            } else {
                step(&shard.algorithm, state)
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
            (Err(_), Overflow::Shared) => {
                rules.run_shared(&shard.algorithm, now, step);
                return Ok(());
            }
            (Err(_), Overflow::EvictLeast) => {
                let (was_denied, place) = shard.find_victim(home, now);
                // Otherwise keys that evict each other would start as unused again and again.
                state = shard.lines[place.line].state(place.slot).clone();
                denied = step(&shard.algorithm, &mut state);
                if denied == Some(true) {
                    // There is nothing to store, and the other key keeps its slot.
                    rules.counters.count(|counters| &counters.denied, now);
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
            rules.counters.count_evicted(was_denied, now);
        }
        Ok(())
    }

    /// Removes a key.
    pub(super) fn remove(&self, hash: u64) {
        let (mut shard, home) = self.shard(hash);
        if let Some(place) = shard.find(hash, home) {
            shard.lines[place.line].clear(place.slot);
        }
    }

    /// Converts all states to another algorithm, shard by shard, each as of the moment that `now` returns
    /// while it is locked. A state that has expired is removed.
    pub(super) fn rescale(&self, new: &Arc<A>, now: &dyn Fn() -> Tick) {
        for shard in &self.shards {
            let mut shard = lock(&shard.0);
            let now = now();
            // A copy, so that a panic leaves the shard as it was.
            let mut lines = shard.lines.clone();
            for line in &mut lines {
                for slot in line.used() {
                    if shard.algorithm.forgettable_at(line.state(slot)) <= now {
                        line.clear(slot);
                    } else {
                        new.rescale(line.state_mut(slot), &shard.algorithm, now);
                    }
                }
            }
            shard.lines = lines;
            shard.algorithm = Arc::clone(new);
        }
    }

    /// Shows all states to `see`, or if there are more lines than `most`, those of about as many, at equal
    /// distances. Returns how many lines there are, and how many were read.
    pub(super) fn visit(&self, most: usize, see: &mut dyn FnMut(&A, &A::State)) -> (usize, usize) {
        let (mut all, mut read) = (0, 0);
        for shard in &self.shards {
            let shard = lock(&shard.0);
            all += shard.lines.len();
            let every = (shard.lines.len() << self.bits).div_ceil(most);
            for line in shard.lines.iter().step_by(every) {
                read += 1;
                line.used()
                    .for_each(|slot| see(&shard.algorithm, line.state(slot)));
            }
        }
        (all, read)
    }
}

impl<A: Algorithm, H: Hold<A::State>, const N: usize> Shard<A, H, N> {
    /// The line at this distance from a home.
    fn line_at(&self, home: usize, distance: usize) -> usize {
        let lines = self.lines.len();
        let mut line = home + offset(distance, lines);
        while line >= lines {
            line -= lines;
        }
        line
    }

    fn distances(&self) -> std::ops::Range<usize> {
        0..self.lines.len().min(WINDOW)
    }

    fn find(&self, hash: u64, home: usize) -> Option<Place> {
        (0..=usize::from(self.lines[home].reach)).find_map(|distance| {
            let line = self.line_at(home, distance);
            let slot = self.lines[line].find(tag(hash, distance))?;
            Some(Place {
                distance,
                line,
                slot,
            })
        })
    }

    /// The next slot that is empty or whose state has expired, or when the first one expires.
    fn find_free(&self, home: usize, now: Tick) -> Result<Place, Tick> {
        let mut soonest = Tick::MAX;
        for distance in self.distances() {
            let at = self.line_at(home, distance);
            let line = &self.lines[at];
            let place = |slot| Place {
                distance,
                line: at,
                slot,
            };
            if let Some(slot) = line.empty_slot() {
                return Ok(place(slot));
            }
            for slot in 0..N {
                let until = self.algorithm.forgettable_at(line.state(slot));
                if until <= now {
                    return Ok(place(slot));
                }
                soonest = soonest.min(until);
            }
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
        for distance in self.distances() {
            let at = self.line_at(home, distance);
            let line = &self.lines[at];
            for slot in 0..N {
                let state = line.state(slot);
                let until = self.algorithm.forgettable_at(state);
                // Checking the limit is expensive. Skip it if this key would lose more in any case.
                let marked = line.is_denied(slot);
                if (marked, until) < least.0 {
                    let denied = marked || self.algorithm.peek(state, now, 1).is_denied();
                    if (denied, until) < least.0 {
                        least = (
                            (denied, until),
                            Place {
                                distance,
                                line: at,
                                slot,
                            },
                        );
                    }
                }
            }
        }
        (least.0.0, least.1)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a distance is below 32")]
    fn put(&mut self, home: usize, place: Place, hash: u64, state: A::State, is_denied: bool) {
        let line = &mut self.lines[place.line];
        line.put(place.slot, tag(hash, place.distance), state);
        line.set_denied(place.slot, is_denied);
        let reach = usize::from(self.lines[home].reach).max(place.distance);
        let is_used =
            |distance: &usize| self.lines[self.line_at(home, *distance)].has_distance(*distance);
        let reach = (1..=reach).rev().find(is_used).unwrap_or(0);
        self.lines[home].reach = reach as u8;
    }
}

mod saved;
#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;
