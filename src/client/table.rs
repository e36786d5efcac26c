//! The servers that a layer knows, and the line of each. One lock, held for a few comparisons.

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use super::feedback::Feedback;
use super::server::Server;
use crate::clock::{Clock, MonotonicClock, MonotonicSleep, Tick, Timer, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::RateLimited;
use crate::sync::{Mutex, lock};

/// What a layer was told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) queue: usize,
    pub(super) max_wait: Duration,
    pub(super) believe: Duration,
    pub(super) capacity: usize,
    pub(super) retry_percent: u64,
    pub(super) retry_reserve: u64,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    servers: HashMap<u64, Entry>,
    /// Hundredths of retries beyond the share of requests: a request gives `retry_percent` back, a retry
    /// takes 100, and at most `100 * retry_reserve` are taken.
    spent: u64,
}

#[derive(Debug, Default)]
struct Entry {
    server: Server,
    /// By ticket; the lowest goes first. When it stops waiting, and its waker once it was polled.
    line: BTreeMap<u64, (Tick, Option<Waker>)>,
    tickets: u64,
}

impl Table {
    /// The entry of a server. A new one takes the place of the one that was used least recently, of those
    /// that nothing waits for: first of those that are not blocked.
    fn entry(&mut self, key: u64, now: Tick, capacity: usize) -> Option<&mut Entry> {
        if self.servers.len() >= capacity && !self.servers.contains_key(&key) {
            let unused = self
                .servers
                .iter()
                .filter(|(_, entry)| entry.line.is_empty());
            let oldest =
                unused.min_by_key(|(_, entry)| (entry.server.turn(0) > now, entry.server.last));
            let oldest = *oldest?.0;
            self.servers.remove(&oldest);
        }
        Some(self.servers.entry(key).or_default())
    }
}

impl Entry {
    /// Forgets what no longer holds, and removes waiters that were not polled when their time was over.
    fn refresh(&mut self, now: Tick) {
        self.server.refresh(now);
        // Deadlines are in the order of tickets.
        while matches!(self.line.first_key_value(), Some((_, (deadline, _))) if *deadline < now) {
            self.line.pop_first();
        }
    }

    fn first(&self) -> Option<Waker> {
        self.line.first_key_value()?.1.1.clone()
    }
}

/// One request, from its place in line to its response. Dropped, it gives its place to the next.
pub(super) struct Visit {
    table: Arc<Mutex<Table>>,
    settings: Settings,
    key: u64,
    ticket: u64,
    deadline: Tick,
    /// Its number while it is in flight.
    sent: Option<u64>,
    sleep: Option<(Tick, MonotonicSleep)>,
}

/// What a request does next.
enum Next {
    Send(u64),
    /// It is polled again at this moment.
    Wait(Tick),
    /// The time until its turn, in nanoseconds.
    Refuse(u64),
}

impl Visit {
    pub(super) fn enter(table: Arc<Mutex<Table>>, key: u64, settings: Settings) -> Self {
        let now = MonotonicClock.now();
        let deadline = now.plus(settings.max_wait);
        let mut state = lock(&table);
        state.spent = state.spent.saturating_sub(settings.retry_percent);
        let entry = state.entry(key, now, settings.capacity);
        // If every server of a full table is waited for, the request is not paced.
        let ticket = entry.map_or(0, |entry| {
            entry.tickets += 1;
            entry.line.insert(entry.tickets, (deadline, None));
            entry.tickets
        });
        drop(state);
        Self {
            table,
            settings,
            key,
            ticket,
            deadline,
            sent: None,
            sleep: None,
        }
    }

    /// Waits until the request is to be sent.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RateLimited>> {
        loop {
            match self.next(MonotonicClock.now(), cx.waker()) {
                Next::Send(number) => {
                    self.sent = Some(number);
                    return Poll::Ready(Ok(()));
                }
                Next::Refuse(wait) => {
                    let decision = Decision::new(Verdict::Deny, 0, 0, Some(wait), wait);
                    return Poll::Ready(Err(RateLimited::new(decision)));
                }
                Next::Wait(until) => {
                    let sleep = self.sleep.take().filter(|(at, _)| *at == until);
                    let new = || (until, MonotonicClock.sleep_until(until));
                    let (_, sleep) = self.sleep.insert(sleep.unwrap_or_else(new));
                    ready!(Pin::new(sleep).poll(cx));
                    self.sleep = None;
                }
            }
        }
    }

    fn next(&self, now: Tick, waker: &Waker) -> Next {
        let mut table = lock(&self.table);
        let Some(entry) = table.servers.get_mut(&self.key) else {
            return Next::Send(0);
        };
        entry.refresh(now);
        let ahead = entry.line.range(..self.ticket).count();
        let before = entry.line.range(..self.ticket).next_back();
        // If that one is not polled any more, it is removed then.
        let before = before.map(|(_, (deadline, _))| deadline.plus(Duration::from_nanos(1)));
        let turn = entry.server.turn(ahead as u64);
        let is_new = matches!(entry.line.get(&self.ticket), Some((_, None)));
        let is_full = is_new && entry.line.len() > self.settings.queue;
        let next = if ahead == 0 && turn <= now {
            Next::Send(entry.server.send(now))
        } else if is_full || turn > self.deadline || now >= self.deadline {
            Next::Refuse(nanos(turn.since(now)).max(1))
        } else {
            Next::Wait(before.map_or(turn, |before| before.min(self.deadline)))
        };
        let is_over = !matches!(next, Next::Wait(_));
        let old = if is_over {
            entry.line.remove(&self.ticket)
        } else {
            let waiter = (self.deadline, Some(waker.clone()));
            entry.line.insert(self.ticket, waiter)
        };
        // It may have become the first just now.
        let first = entry.first().filter(|_| is_over || ahead > 0);
        // Outside of the lock: wakers may run a user's code.
        drop(table);
        drop(old);
        first.into_iter().for_each(Waker::wake);
        next
    }

    /// Gives up the turn, if the server has denied another request since then. Returns whether it did.
    pub(super) fn waits_again(&mut self) -> bool {
        let now = MonotonicClock.now();
        let mut table = lock(&self.table);
        let entry = table.servers.get_mut(&self.key);
        let Some(entry) = entry.filter(|entry| entry.server.is_blocked(now)) else {
            return false;
        };
        entry.server.lose();
        entry.line.insert(self.ticket, (self.deadline, None));
        self.sent = None;
        true
    }

    /// What the response says.
    pub(super) fn learn(&mut self, feedback: &Feedback) {
        let (now, believe) = (MonotonicClock.now(), self.settings.believe);
        let mut woken = Vec::new();
        let mut table = lock(&self.table);
        let entry = table.servers.get_mut(&self.key);
        if let (Some(number), Some(entry)) = (self.sent.take(), entry) {
            entry.server.learn(number, feedback, now, believe);
            // After a denial the turns of all may come too late.
            let count = if feedback.is_denied { usize::MAX } else { 1 };
            let waiters = entry.line.values().take(count);
            woken.extend(waiters.filter_map(|(_, waker)| waker.clone()));
        }
        drop(table);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Waits again after a denial, before the requests that came later, if the budget allows it.
    pub(super) fn retry(&mut self) -> bool {
        let mut table = lock(&self.table);
        let has_budget = table.spent + 100 <= 100 * self.settings.retry_reserve;
        let entry = table.servers.get_mut(&self.key);
        let has_room = |entry: &&mut Entry| entry.line.len() < self.settings.queue;
        let Some(entry) = entry.filter(|_| has_budget).filter(has_room) else {
            return false;
        };
        entry.line.insert(self.ticket, (self.deadline, None));
        table.spent += 100;
        true
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        let first = table.servers.get_mut(&self.key).and_then(|entry| {
            entry.line.remove(&self.ticket);
            if self.sent.is_some() {
                entry.server.lose();
            }
            entry.first()
        });
        drop(table);
        first.into_iter().for_each(Waker::wake);
    }
}
