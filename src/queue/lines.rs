//! The lines of all keys.
//!
//! A request that goes through at once comes by here only while somebody waits: it reads a counter.
//! Lines are kept in shards, a lock each, found by a hash of the key with a secret seed; a line is
//! there while somebody is in it, so there are never more than waiting requests. Two keys whose
//! 64 bits of hash are the same wait in one line.
//!
//! Whoever holds a shard may ask the limiter, so that the line and the limiter change together.
//! Wakers are called and dropped when it is no longer held.
//!
//! # Alarms
//! A line has an alarm that rings for its next slot; in `timers`, which change only while the
//! shard is held. Whoever leaves a line with an alarm that would ring too late takes the alarm out,
//! sets it while holding nothing, since that may call wakers, and puts it back; and again, if the
//! line has changed meanwhile. An alarm that is out is seen to by whoever has it.
//!
//! An alarm is one of the runtime in which somebody waited. That of a runtime with workers serves
//! everybody. That of a runtime of one thread serves those who wait on this thread, since nobody
//! may drive it any longer; so a line has one for each such thread. When a runtime goes away, its
//! alarm rings early and cannot be set again; then all who wait are woken, and see to another one.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState},
    mem,
    sync::Arc,
    task::Waker,
    time::Duration,
};

use super::Order;
use super::line::{CostOutcome, Line, LineStatus, WaitOutcome};
use super::timer::{Driver, LineTimer, TimerStatus};
use super::waiters::Rank;
use super::wake::wake;
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

type Shard = HashMap<u64, LineEntry, BuildHasherDefault<PassThroughHasher>>;

/// A line, and what rings for it.
#[derive(Debug)]
struct LineEntry {
    line: Line,
    timers: Vec<TimerEntry>,
}

#[derive(Debug)]
struct TimerEntry {
    driver: Driver,
    /// When it rings; `MAX` if it is not set.
    at: Tick,
    /// `None` while it is out.
    alarm: Option<LineTimer>,
}

/// Passes on what has been hashed.
#[derive(Default)]
struct PassThroughHasher(u64);

impl Hasher for PassThroughHasher {
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
pub(crate) struct QueuePosition {
    board: Arc<LineStatus>,
    /// The rank, and below it the mark.
    rank: u64,
}

impl QueuePosition {
    /// `mark` is a word of its owner, which a type around this one would have no room for.
    fn new(board: Arc<LineStatus>, rank: Rank, mark: bool) -> Self {
        Self {
            board,
            rank: rank << 1 | u64::from(mark),
        }
    }

    const fn rank(&self) -> Rank {
        self.rank >> 1
    }

    #[inline]
    pub(crate) const fn mark(&self) -> bool {
        self.rank & 1 != 0
    }
}

/// The line of one key, held.
pub(crate) struct LineGuard<'a> {
    lines: &'a Lines,
    line: u64,
    /// Always there until it is dropped.
    shard: Option<MutexGuard<'a, Shard>>,
    woken: Vec<Waker>,
    /// An alarm that is to be set.
    late: Option<(LineTimer, Tick)>,
    /// Nobody has any more use for these.
    gone: Option<Waker>,
    deserted: Option<Box<LineEntry>>,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect(),
            hasher: RandomState::new(),
            waiting: AtomicU64::new(0),
            moves: AtomicU64::new(1),
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
    pub(crate) fn hold<K: Hash + ?Sized>(&self, key: &K) -> LineGuard<'_> {
        self.lock_line(self.hasher.hash_one(key))
    }

    /// Holds the line in which `ticket` stands.
    pub(crate) fn lock_position(&self, ticket: &QueuePosition) -> LineGuard<'_> {
        self.lock_line(ticket.board.line)
    }

    fn lock_line(&self, line: u64) -> LineGuard<'_> {
        self.held(line, self.lock_shard(line), None)
    }

    fn lock_shard(&self, line: u64) -> MutexGuard<'_, Shard> {
        // Not the bits by which the shard's map tells its lines apart.
        let shard = usize::try_from((line >> 32) % SHARDS).unwrap_or_default();
        lock(&self.shards[shard])
    }

    fn held<'a>(
        &'a self,
        line: u64,
        shard: MutexGuard<'a, Shard>,
        gone: Option<Waker>,
    ) -> LineGuard<'a> {
        LineGuard {
            lines: self,
            line,
            shard: Some(shard),
            woken: Vec::new(),
            late: None,
            gone,
            deserted: None,
        }
    }

    /// What the owner of `ticket` is to do, whose ticket is used up then; or the line, if it is to
    /// wait and will be woken by `waker`.
    pub(crate) fn ask(
        &self,
        ticket: &QueuePosition,
        waker: &Waker,
    ) -> Result<WaitOutcome, LineGuard<'_>> {
        if ticket.board.calls(ticket.rank()) {
            return Ok(WaitOutcome::Released);
        }
        let line = ticket.board.line;
        let mut shard = self.lock_shard(line);
        let Some(watched) = shard.get_mut(&line).filter(|one| one.is_of(ticket)) else {
            return Ok(WaitOutcome::Released);
        };
        let mut gone = None;
        let Some(turn) = watched.line.ask(ticket.rank(), waker, &mut gone) else {
            return Err(self.held(line, shard, gone));
        };
        let deserted = watched.line.is_unused().then(|| shard.remove(&line));
        drop(shard);
        drop((gone, deserted));
        Ok(turn)
    }

    /// Holds all lines, lets `change` change the quota, and plans everyone anew if it answers the old
    /// quota and the new one.
    pub(crate) fn reschedule<E>(
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
        let mut changed = Vec::new();
        for (name, watched) in shards.iter_mut().flat_map(|shard| shard.iter_mut()) {
            let line = &mut watched.line;
            let before = line.len();
            line.reschedule(now, &from, &to, &mut woken);
            self.count(before, line.len());
            changed.push(*name);
        }
        drop(shards);
        wake(woken);
        for line in changed {
            self.lock_line(line).change(false, |_, _, _| ());
        }
        Ok(())
    }

    /// An alarm of `line` rings.
    pub(crate) fn ring(&self, line: u64, now: Tick) {
        let mut held = self.lock_line(line);
        if let Some(watched) = held.watched() {
            for watch in &mut watched.timers {
                if watch
                    .alarm
                    .as_ref()
                    .is_some_and(|alarm| alarm.has_fired(now))
                {
                    watch.at = Tick::MAX;
                }
            }
        }
        held.release(now);
    }

    /// The moments that have been granted in all lines.
    #[cfg(all(test, tower_throttle_loom))]
    pub(crate) fn slots(&self) -> Vec<Tick> {
        let mut slots = Vec::new();
        for shard in &self.shards {
            slots.extend(
                lock(shard)
                    .values()
                    .flat_map(|watched| watched.line.slots()),
            );
        }
        slots
    }

    /// The alarms of all lines ring.
    #[cfg(all(test, tower_throttle_loom))]
    pub(super) fn fire_all_timers(&self, now: Tick) {
        let lines: Vec<_> = lock(&self.shards[0]).keys().copied().collect();
        lines.into_iter().for_each(|line| self.ring(line, now));
    }

    /// When the next alarm rings for somebody.
    #[cfg(all(test, tower_throttle_loom))]
    pub(super) fn rings(&self) -> Option<Tick> {
        let shard = lock(&self.shards[0]);
        let watched = shard
            .values()
            .filter(|watched| watched.line.next().is_some());
        let set = watched.flat_map(|watched| watched.timers.iter().map(|watch| watch.at));
        set.min()
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

impl LineGuard<'_> {
    fn watched(&mut self) -> Option<&mut LineEntry> {
        self.shard.as_deref_mut()?.get_mut(&self.line)
    }

    /// Whether nobody waits in it.
    pub(crate) fn is_empty(&self) -> bool {
        let shard = self.shard.as_deref();
        let watched = shard.and_then(|shard| shard.get(&self.line));
        watched.is_none_or(|watched| watched.line.len() == 0)
    }

    /// The limiter has got something back for somebody in this line.
    pub(crate) fn moved(&self) {
        self.lines.moved();
    }

    /// A place for a request to which the limiter has granted the moment `slot`.
    pub(crate) fn join(
        &mut self,
        cost: u64,
        slot: Tick,
        order: Order,
        mark: bool,
    ) -> QueuePosition {
        let join = |line: &mut Line, _: &mut _, _: &mut _| {
            let rank = line.join(cost, slot, order);
            QueuePosition::new(Arc::clone(line.board()), rank, mark)
        };
        self.change(true, join)
            .expect("it is held until it is dropped")
    }

    /// Sees to it that an alarm rings for the line on which the caller can rely. `waker` makes what
    /// it calls, with the number of the line, which is to [`ring`](Lines::ring).
    ///
    /// `false` where there is nothing to wait with.
    pub(crate) fn watch(&mut self, waker: impl FnOnce(u64) -> Waker) -> bool {
        let line = self.line;
        let Some(watched) = self.watched() else {
            return true;
        };
        let serves = |here| move |watch: &TimerEntry| watch.driver.serves(here);
        // To know where one is costs something, and here nearly nobody needs to.
        if watched.timers.iter().any(serves(None)) {
            return true;
        }
        let Some(driver) = Driver::here() else {
            return false;
        };
        if watched.timers.iter().any(serves(Some(driver))) {
            return true;
        }
        let Some(alarm) = LineTimer::new(driver, || waker(line)) else {
            return false;
        };
        watched.timers.push(TimerEntry {
            driver,
            at: Tick::MAX,
            alarm: Some(alarm),
        });
        self.change(false, |_, _, _| ());
        true
    }

    /// Calls all whose turn has come.
    pub(crate) fn release(&mut self, now: Tick) {
        self.change(false, |line, woken, _| line.release(now, woken));
    }

    /// Takes `ticket` out of the line, before its turn or after it was called; see [`Line::leave`].
    pub(crate) fn leave(
        &mut self,
        ticket: &QueuePosition,
        cost: u64,
        quota: impl FnOnce() -> Option<Quota>,
    ) -> CostOutcome {
        let rank = ticket.rank();
        let watched = self.watched().filter(|one| one.is_of(ticket));
        if watched.is_some_and(|watched| watched.line.holds(rank)) {
            return self
                .change(false, |line, _, gone| line.leave(rank, cost, quota, gone))
                .unwrap_or(CostOutcome::Keep);
        }
        // It was called and did not come: another may go in its stead.
        self.move_up(cost, LineTimer::now(), quota)
    }

    /// Lets the line have what a request before it gives back; see [`Line::move_up`].
    pub(crate) fn move_up(
        &mut self,
        cost: u64,
        now: Tick,
        quota: impl FnOnce() -> Option<Quota>,
    ) -> CostOutcome {
        self.change(false, |line, woken, _| {
            let left = line.move_up(cost, now, quota);
            line.release(now, woken);
            left
        })
        .unwrap_or(CostOutcome::Refund)
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
        change: impl FnOnce(&mut Line, &mut Vec<Waker>, &mut Option<Waker>) -> T,
    ) -> Option<T> {
        let shard = self.shard.as_deref_mut()?;
        let watched = if make {
            let new = || LineEntry::new(self.line);
            shard.entry(self.line).or_insert_with(new)
        } else {
            shard.get_mut(&self.line)?
        };
        let line = &mut watched.line;
        let before = line.len();
        let changed = change(line, &mut self.woken, &mut self.gone);
        self.lines.count(before, line.len());
        if line.is_unused() {
            self.remove_line();
        } else if self.late.is_none() {
            self.late = watched.late();
        }
        Some(changed)
    }

    /// Takes the line away, which nobody needs any longer.
    fn remove_line(&mut self) {
        let shard = self.shard.as_deref_mut();
        self.deserted = shard
            .and_then(|shard| shard.remove(&self.line))
            .map(Box::new);
    }

    /// Puts an alarm back that was out, and says what became of it.
    fn return_timer(&mut self, alarm: LineTimer, at: Tick, set: TimerStatus) {
        let Some(watched) = self.watched() else {
            // They have all gone.
            return;
        };
        let driver = alarm.driver();
        let known = watched.timers.iter().position(|one| one.driver == driver);
        match (set, known) {
            (TimerStatus::RuntimeGone, known) => {
                if let Some(known) = known {
                    watched.timers.swap_remove(known);
                }
                self.change(false, |line, woken, _| line.wake_all(woken));
            }
            (set, known) => {
                let at = if set == TimerStatus::Armed {
                    at
                } else {
                    Tick::MAX
                };
                let watch = TimerEntry {
                    driver,
                    at,
                    alarm: Some(alarm),
                };
                match known.and_then(|known| watched.timers.get_mut(known)) {
                    // The line has been deserted meanwhile, and has another.
                    Some(known) if known.alarm.is_some() => {}
                    Some(known) => *known = watch,
                    None => watched.timers.push(watch),
                }
                if set == TimerStatus::Elapsed {
                    self.release(LineTimer::now());
                } else {
                    self.change(false, |_, _, _| ());
                }
            }
        }
    }
}

impl LineEntry {
    fn new(line: u64) -> Self {
        Self {
            line: Line::new(line),
            timers: Vec::new(),
        }
    }

    /// Whether `ticket` is of this line, and not of one for the same key that is gone.
    fn is_of(&self, ticket: &QueuePosition) -> bool {
        Arc::ptr_eq(self.line.board(), &ticket.board)
    }

    /// Takes an alarm out that rings too late, and answers when it is to ring.
    fn late(&mut self) -> Option<(LineTimer, Tick)> {
        let next = self.line.next()?;
        let watch = self
            .timers
            .iter_mut()
            .find(|watch| watch.at > next && watch.alarm.is_some())?;
        watch.at = next;
        Some((watch.alarm.take()?, next))
    }
}

impl Drop for LineGuard<'_> {
    fn drop(&mut self) {
        self.shard = None;
        if self.woken.is_empty() && self.late.is_none() {
            return;
        }
        wake(mem::take(&mut self.woken));
        let mut late = self.late.take();
        while let Some((mut alarm, at)) = late {
            let set = alarm.set(at);
            let mut again = self.lines.lock_line(self.line);
            again.return_timer(alarm, at, set);
            // Not by its drop, which would come back here.
            late = again.late.take();
            again.shard = None;
            wake(mem::take(&mut again.woken));
        }
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
