//! The lines of a rate limit: one per key with requests that wait.
//!
//! Only the head of a line asks the limit, at the moment for which that is planned. A timer per line
//! then lets all take whose moments are over, each as of its own moment, and wakes these.
//!
//! # Protocol
//! A request is counted as waiting before it asks the limit. Who gives something back afterwards sees
//! the count and tells the line; who has given it back before, is seen by the limit. So nothing that is
//! given back stays unused while a request waits for it. A request that waits for none reads only this
//! count. Wakers are called and dropped after the lock of a line is released.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    sync::{Arc, Weak},
    task::{Poll, Wake, Waker},
    time::Duration,
};

use foldhash::fast::FixedState;

use super::line::{Ended, Line, Place};
use super::{Alarm, Order, now};
use crate::clock::Tick;
use crate::decision::{Decision, LineCosts};
use crate::key::Weight;
use crate::receipt::Receipt;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// A power of two. Loom models need the same lock in each run, whatever the seed.
const SHARDS: usize = if cfg!(tower_throttle_loom) { 1 } else { 16 };

/// So many waiters are released under one lock.
const BATCH: usize = 256;

const NANO: Duration = Duration::from_nanos(1);

/// The lines of all keys, by the hash of the key.
#[derive(Default)]
pub(crate) struct Lines {
    shards: [Mutex<LineShard>; SHARDS],
    waiting: AtomicU64,
    /// How many wait for turns that a backend has booked, outside of the lines.
    booked: AtomicU64,
}

type LineShard = HashMap<u64, Box<KeyLine>, FixedState>;

/// The limit of one key, as the head of a line asks it. It knows of no line.
pub(crate) trait LineLimit: Send + 'static {
    /// Takes the cost as of this moment, or after a wait of at most `late`. Or says after how long to ask again; [`TOLD`], if
    /// the line is told.
    fn take(&self, cost: u64, priority: u8, at: Tick, late: Duration) -> Decision;

    /// How long until the cost can be taken after those before it, at least and at most; `None` if never.
    fn wait(&self, costs: LineCosts, at: Tick) -> Option<[Duration; 2]>;
}

/// The wait for what no limit knows in advance, such as the end of a request.
pub(crate) const TOLD: Duration = Duration::MAX;

struct KeyLine {
    limit: Box<dyn LineLimit>,
    line: Line,
    /// When the head asks.
    plan: Tick,
    alarm: Alarm,
}

#[derive(Debug)]
pub(crate) enum Joined {
    Taken(Decision),
    /// How long it will take if none leaves and none overtakes.
    Waits(Place, Duration),
    /// There may be room after this long, if ever.
    Denied(Option<Duration>),
}

struct TimerWaker {
    lines: Weak<Lines>,
    line_id: u64,
}

impl Wake for TimerWaker {
    fn wake(self: Arc<Self>) {
        if let Some(lines) = self.lines.upgrade() {
            lines.ask(self.line_id, true);
        }
    }
}

impl Lines {
    /// The number of waiting requests of all keys.
    #[inline]
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Those that wait in lines, and for turns that were booked.
    pub(crate) fn all_waiting(&self) -> u64 {
        self.waiting() + self.booked.load(Ordering::Relaxed)
    }

    /// Counts a request that waits for a turn that was booked, or does no longer.
    pub(crate) fn count_booked(&self, waits: bool) {
        let change = if waits { 1 } else { u64::MAX };
        self.booked.fetch_add(change, Ordering::Relaxed);
    }

    fn shard(&self, line_id: u64) -> &Mutex<LineShard> {
        // Other bits than those by which the shard's map finds the line.
        let shard = usize::try_from(line_id >> 32).unwrap_or_default();
        &self.shards[shard % SHARDS]
    }

    /// Takes the cost, joins the line or is denied, after those that go before it. It waits if fewer than `most` do, and
    /// until that moment.
    pub(crate) fn join<L: LineLimit>(
        self: &Arc<Self>,
        line_id: u64,
        limit: impl Fn() -> L,
        new: Weight,
        order: Order,
        most: u64,
        until: Tick,
    ) -> Joined {
        let joined = self.update(line_id, |shard, wakers| {
            let (mut own, now, mut costs) =
                (shard.entry(line_id), now(), LineCosts::alone(new.cost));
            let mut of_new = None;
            let asked: &dyn LineLimit = match &mut own {
                Entry::Occupied(own) => {
                    self.run(own.get_mut(), now, wakers);
                    let stays_ahead = |level| !order.goes_before(new.priority, level);
                    costs = own.get().line.before(costs, stays_ahead);
                    &*own.get().limit
                }
                Entry::Vacant(_) => of_new.insert(limit()),
            };
            // Before it asks, and after the key was cloned, which may panic.
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let wait = if costs.ahead > 0 {
                asked.wait(costs, now)
            } else {
                let decision = asked.take(new.cost, new.priority, now, Duration::ZERO);
                if !decision.is_denied() {
                    return Joined::Taken(decision);
                }
                decision.retry_after.map(|wait| [wait; 2])
            };
            let Some([wait, longest]) = wait.filter(|_| most > 0) else {
                return Joined::Denied(wait.map(|[_, longest]| longest));
            };
            if wait < TOLD && now.plus(wait) > until {
                return Joined::Denied(Some(now.plus(longest).since(until)));
            }
            let own = own.or_insert_with(|| {
                let lines = Arc::downgrade(self);
                let mut alarm = Alarm::new(Arc::new(TimerWaker { lines, line_id }).into());
                alarm.serve_caller();
                Box::new(KeyLine {
                    limit: Box::new(of_new.take().unwrap_or_else(limit)),
                    line: Line::default(),
                    plan: Tick::MAX,
                    alarm,
                })
            });
            if own.line.len() as u64 >= most {
                let room = own.plan.since(now);
                let goes_before = |last: &Place| order.goes_before(new.priority, last.priority());
                let Some(last) = own.line.last().filter(goes_before) else {
                    return Joined::Denied(Some(room));
                };
                self.end(own, last, Err(Some(room)), wakers);
            }
            if costs.ahead == 0 {
                own.plan = now.plus(wait.max(NANO));
            } else if wait.is_zero() {
                // The limit of the key has become another one, and passes all of them.
                own.plan = own.plan.min(now);
            }
            Joined::Waits(own.line.push(new, order, until), wait)
        });
        if !matches!(joined, Joined::Waits(..)) {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        joined
    }

    /// Lets the heads take whose moments have come, and ends waits that have lasted too long.
    fn run(&self, own: &mut KeyLine, now: Tick, wakers: &mut Vec<Waker>) {
        while let Some((first, waiter)) = own.line.first() {
            let cost = waiter.units;
            if wakers.len() >= BATCH {
                break;
            }
            let late = own.line.deadlines.first().copied();
            if let Some((until, place)) = late.filter(|late| late.0 < own.plan.min(now)) {
                self.end(own, place, Err(Some(own.plan.since(now))), wakers);
                if place == first {
                    // The next one may go earlier.
                    own.plan = own.plan.min(until.plus(NANO));
                }
                continue;
            }
            if own.plan > now {
                break;
            }
            let late = late.map_or(now, |late| now.min(late.0)).since(own.plan);
            let decision = own.limit.take(cost, first.priority(), own.plan, late);
            if let Some(wait) = decision.wait() {
                own.plan = own.plan.plus(wait);
                self.end(own, first, Ok(decision.receipt()), wakers);
                continue;
            }
            match decision.retry_after {
                None => self.end(own, first, Err(None), wakers),
                // The limit does not know when.
                Some(Duration::ZERO) => own.plan = own.plan.max(now).plus(Duration::from_micros(1)),
                Some(wait) => own.plan = own.plan.plus(wait),
            }
        }
    }

    fn end(&self, own: &mut KeyLine, place: Place, end: Ended, wakers: &mut Vec<Waker>) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        wakers.extend(own.line.end(place, end));
    }

    /// Changes the line of a key. Then sets its timer or drops it, and wakes those whose wait has ended.
    fn update<T>(
        self: &Arc<Self>,
        line_id: u64,
        change: impl FnOnce(&mut LineShard, &mut Vec<Waker>) -> T,
    ) -> T {
        let mut wakers = Vec::new();
        let mut shard = lock(self.shard(line_id));
        let changed = change(&mut shard, &mut wakers);
        loop {
            let (mut unused, mut is_done) = (None, wakers.len() < BATCH);
            if let Some(own) = shard.get_mut(&line_id) {
                match own.next() {
                    None if own.line.ended.is_empty() => unused = shard.remove(&line_id),
                    None => {}
                    // If that is over already, the head asks at once.
                    Some(next) => is_done &= !own.alarm.is_late_for(next) || own.alarm.set(next),
                }
            }
            drop(shard);
            drop(unused);
            wakers.drain(..).for_each(Waker::wake);
            if is_done {
                return changed;
            }
            shard = lock(self.shard(line_id));
            if let Some(own) = shard.get_mut(&line_id) {
                self.run(own, now(), &mut wakers);
            }
        }
    }

    /// Asks for those that wait: something was given back, or the limit was changed.
    pub(crate) fn tell(self: &Arc<Self>, line_id: u64) {
        self.ask(line_id, false);
    }

    /// Asks for those that wait, as the timer does if it has fired.
    fn ask(self: &Arc<Self>, line_id: u64, has_fired: bool) {
        self.update(line_id, |shard, wakers| {
            if let Some(own) = shard.get_mut(&line_id) {
                let now = now();
                if has_fired {
                    own.alarm.clear(now);
                } else {
                    own.plan = own.plan.min(now);
                }
                self.run(own, now, wakers);
            }
        });
    }

    /// Ends the waits of all but the first, of which `most` says how many.
    #[cfg(feature = "cas")]
    pub(crate) fn keep_first(
        self: &Arc<Self>,
        line_id: u64,
        end: Ended,
        most: impl FnOnce(&Line) -> usize,
    ) {
        self.update(line_id, |shard, wakers| match shard.get_mut(&line_id) {
            None => drop(most(&Line::default())),
            Some(own) => {
                let most = most(&own.line);
                while let Some(last) = own.line.last().filter(|_| own.line.len() > most) {
                    self.end(own, last, end, wakers);
                }
            }
        });
    }

    /// Asks for those that wait for any key.
    pub(crate) fn tell_all(self: &Arc<Self>) {
        for shard in &self.shards {
            let lines: Vec<u64> = lock(shard).keys().copied().collect();
            for line_id in lines {
                self.tell(line_id);
            }
        }
    }

    /// Ready once the wait has ended.
    pub(crate) fn poll(self: &Arc<Self>, line_id: u64, place: Place, waker: &Waker) -> Poll<Ended> {
        let polled = self.update(line_id, |shard, _| {
            let own = shard.get_mut(&line_id)?;
            let polled = own.line.poll(place, waker);
            if polled.0.is_pending() {
                own.alarm.serve_caller();
            }
            Some(polled)
        });
        polled.map_or(Poll::Pending, |(polled, _stale)| polled)
    }

    /// Leaves the line. Returns when its cost was taken, if that was at the last moment: it is to be given back.
    pub(crate) fn leave(self: &Arc<Self>, line_id: u64, place: Place) -> Option<Receipt> {
        // Its waker is dropped without a lock.
        let left = self.update(line_id, |shard, wakers| {
            let own = shard.get_mut(&line_id)?;
            let Some(waiter) = own.line.remove(place) else {
                return own.line.ended.remove(&place).map(Err);
            };
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            if own.line.first().is_some_and(|(next, _)| place < next) {
                // A head of another cost may go earlier, or only later.
                let now = now();
                own.plan = own.plan.min(now);
                self.run(own, now, wakers);
            }
            Some(Ok(waiter))
        });
        left?.err()?.ok()
    }
}

impl KeyLine {
    /// When there is something to do, if a request waits.
    fn next(&self) -> Option<Tick> {
        self.line.first()?;
        let until = self.line.deadlines.first().map(|first| first.0.plus(NANO));
        Some(until.map_or(self.plan, |until| until.min(self.plan)))
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lines({} waiting)", self.waiting())
    }
}
