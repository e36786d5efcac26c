//! The lines of all keys.
//!
//! A request that goes through at once comes by here only while somebody waits: it reads a counter.
//! Lines are kept in shards, a lock each, found by a hash of the key with a secret seed; a line is
//! there while somebody is in it, so there are never more than waiting requests. Two keys whose
//! 64 bits of hash are the same wait in one line.
//!
//! Whoever holds a shard may ask the limiter, so that the line and the limiter change together.
//! Wakers are called and dropped when it is no longer held.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState},
    task::Waker,
    time::Duration,
};

use super::Order;
use super::line::{Left, Line, Turn};
use crate::clock::Tick;
use crate::quota::Quota;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// A power of two. Models want the same lock each time, whatever the seed.
const SHARDS: u64 = if cfg!(all(test, tower_throttle_loom)) {
    1
} else {
    16
};

pub(crate) struct Lines {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    waiting: AtomicU64,
    /// How often a limiter got something back for somebody in line. Changed while the shard is held
    /// in which that was.
    moves: AtomicU64,
}

type Shard = HashMap<u64, Line, BuildHasherDefault<Hashed>>;

/// Passes on what has been hashed.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The place of one request in a line.
#[derive(Debug)]
pub(crate) struct Ticket {
    line: u64,
    at: usize,
}

/// The line of one key, held.
pub(crate) struct Held<'a> {
    lines: &'a Lines,
    line: u64,
    /// Always there until it is dropped.
    shard: Option<MutexGuard<'a, Shard>>,
    woken: Vec<Waker>,
    /// Nobody has any more use for them.
    gone: [Option<Waker>; 2],
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect(),
            hasher: RandomState::new(),
            waiting: AtomicU64::new(0),
            moves: AtomicU64::new(0),
        }
    }

    /// Whether anybody waits, for whatever key.
    #[inline]
    pub(crate) fn anyone(&self) -> bool {
        self.waiting() > 0
    }

    /// How many wait, for all keys.
    #[inline]
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A number that changes whenever a limiter has got something back for somebody in line. Read
    /// before the limiter is asked, it tells in a held line whether the answer still stands.
    #[inline]
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    /// Holds the line of `key`.
    pub(crate) fn hold<K: Hash + ?Sized>(&self, key: &K) -> Held<'_> {
        self.hold_line(self.hasher.hash_one(key))
    }

    /// Holds the line in which `ticket` stands.
    pub(crate) fn hold_for(&self, ticket: &Ticket) -> Held<'_> {
        self.hold_line(ticket.line)
    }

    fn hold_line(&self, line: u64) -> Held<'_> {
        // Not the bits by which the shard's map tells its lines apart.
        let shard = usize::try_from((line >> 32) % SHARDS).unwrap_or_default();
        Held {
            lines: self,
            line,
            shard: Some(lock(&self.shards[shard])),
            woken: Vec::new(),
            gone: [None, None],
        }
    }

    /// Holds all lines, lets `change` change the quota, and plans everyone anew if it answers the old
    /// quota and the new one.
    pub(crate) fn replan<E>(
        &self,
        now: Tick,
        change: impl FnOnce() -> Result<Option<(Quota, Quota)>, E>,
    ) -> Result<(), E> {
        let mut shards: Vec<_> = self.shards.iter().map(lock).collect();
        let changed = change()?;
        self.moved();
        let Some((from, to)) = changed else {
            return Ok(());
        };
        let mut woken = Vec::new();
        for line in shards.iter_mut().flat_map(|shard| shard.values_mut()) {
            let before = line.len();
            line.replan(now, &from, &to, &mut woken);
            self.count(before, line.len());
        }
        drop(shards);
        woken.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// The moments that have been granted in all lines.
    #[cfg(all(test, tower_throttle_loom))]
    pub(crate) fn slots(&self) -> Vec<Tick> {
        let mut slots = Vec::new();
        for shard in &self.shards {
            slots.extend(lock(shard).values().flat_map(Line::slots));
        }
        slots
    }

    fn moved(&self) {
        self.moves.fetch_add(1, Ordering::Release);
    }

    fn count(&self, before: usize, after: usize) {
        let difference = (after as u64).wrapping_sub(before as u64);
        if difference != 0 {
            self.waiting.fetch_add(difference, Ordering::Relaxed);
        }
    }
}

impl Held<'_> {
    /// Whether nobody waits in it.
    pub(crate) fn is_empty(&self) -> bool {
        let shard = self.shard.as_deref();
        let line = shard.and_then(|shard| shard.get(&self.line));
        line.is_none_or(|line| line.len() == 0)
    }

    /// The limiter has got something back for somebody in this line.
    pub(crate) fn moved(&self) {
        self.lines.moved();
    }

    /// A place for a request to which the limiter has granted the moment `slot`.
    pub(crate) fn join(&mut self, cost: u64, slot: Tick, order: Order) -> Ticket {
        let line = self.line;
        let at = self
            .change(true, |line, woken, _| line.join(cost, slot, order, woken))
            .unwrap_or_default();
        Ticket { line, at }
    }

    /// What the owner of `ticket` is to do `now`. Unless it is to wait, the ticket is used up.
    pub(crate) fn ask(&mut self, ticket: &Ticket, now: Tick, waker: &Waker) -> Turn {
        let waker = waker.clone();
        self.change(false, |line, woken, [own, gone]| {
            *own = Some(waker);
            line.ask(ticket.at, now, own, gone, woken)
        })
        .unwrap_or(Turn::Come)
    }

    /// Calls all whose turn has come.
    pub(crate) fn release(&mut self, now: Tick) {
        self.change(false, |line, woken, _| line.release(now, woken));
    }

    /// Takes `ticket` out of the line, before its turn or after it was called; see [`Line::leave`].
    pub(crate) fn leave(&mut self, ticket: &Ticket, quota: impl FnOnce() -> Option<Quota>) -> Left {
        self.change(false, |line, woken, [gone, _]| {
            line.leave(ticket.at, quota, gone, woken)
        })
        .unwrap_or(Left::Keep)
    }

    /// Lets the line have what a request before it gives back; see [`Line::move_up`].
    pub(crate) fn move_up(
        &mut self,
        cost: u64,
        now: Tick,
        quota: impl FnOnce() -> Option<Quota>,
    ) -> Left {
        self.change(false, |line, woken, _| {
            let left = line.move_up(cost, now, quota);
            line.release(now, woken);
            left
        })
        .unwrap_or(Left::Refund)
    }

    /// Sends the one away that would go last; answers what it cost.
    pub(crate) fn shed(&mut self, wait: Duration) -> Option<u64> {
        self.change(false, |line, woken, _| line.shed(wait, woken))
            .flatten()
    }

    /// Changes the line, which is there from its first request to its last.
    fn change<T>(
        &mut self,
        make: bool,
        change: impl FnOnce(&mut Line, &mut Vec<Waker>, &mut [Option<Waker>; 2]) -> T,
    ) -> Option<T> {
        let shard = self.shard.as_deref_mut()?;
        let line = if make {
            shard.entry(self.line).or_default()
        } else {
            shard.get_mut(&self.line)?
        };
        let before = line.len();
        let changed = change(line, &mut self.woken, &mut self.gone);
        self.lines.count(before, line.len());
        if line.is_deserted() {
            shard.remove(&self.line);
        }
        Some(changed)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.shard = None;
        self.woken.drain(..).for_each(Waker::wake);
    }
}

/// By hand: keys are nobody's business, and nobody is to wait for a lock.
impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
