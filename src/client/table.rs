//! The servers that a layer knows, and the line of each.
//!
//! The lock of the table is held to find a server; each server has a lock of its own. A server is never
//! displaced while a request waits for it or is in flight, so that each response finds the server it is about.
//!
//! Of a line only the first is woken when something changes, and only it has a timer for its turn. A request
//! that leaves wakes the one behind it. Each of the others has a timer for its own deadline. One that is not polled keeps
//! its place until it is dropped.

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use super::feedback::Feedback;
use super::server::KnownServer;
use crate::clock::{Clock, MonotonicClock, Sleep, Tick, Timer, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::RateLimited;
use crate::sync::{Mutex, MutexGuard, lock};

/// What a layer was told.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacerSettings {
    pub(super) queue: usize,
    pub(super) max_wait: Duration,
    pub(super) jitter: u32,
    pub(super) retry_percent: u64,
    pub(super) retry_reserve: u64,
}

/// How many servers are known at once, unless more are in use.
const MAX_SERVERS: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct ServerTable {
    servers: HashMap<u64, Arc<Mutex<ServerEntry>>>,
    /// Hundredths of retries beyond the share of requests: a request gives `retry_percent` back, a retry
    /// takes 100, and at most `100 * retry_reserve` are taken.
    spent: u64,
}

#[derive(Debug, Default)]
struct ServerEntry {
    server: KnownServer,
    /// By ticket; the lowest goes first. Its waker, once it was polled.
    line: BTreeMap<u64, Option<Waker>>,
    tickets: u64,
}

impl ServerTable {
    /// The entry of a server. A new one takes the place of the one that was used least recently, of those
    /// that no request uses: first of those that are not blocked.
    fn entry(&mut self, key: u64, now: Tick, settings: &PacerSettings) -> Arc<Mutex<ServerEntry>> {
        // The table is larger while more servers are in use. So that it shrinks again, up to two are removed.
        for _ in 0..2 {
            if self.servers.len() < MAX_SERVERS || self.servers.contains_key(&key) {
                break;
            }
            let known = self.servers.iter();
            // The lock is free: only the table has the entry.
            let unused = known.filter(|(_, entry)| Arc::strong_count(entry) == 1);
            let oldest = unused.min_by_key(|(_, entry)| {
                let server = &lock(entry).server;
                (server.turn(0) > now, server.last)
            });
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.servers.remove(&oldest);
            }
        }
        let entry = self.servers.entry(key).or_insert_with(|| {
            let mut entry = ServerEntry::default();
            // The keys of each layer are hashed with other seeds.
            entry.server.jitter = (settings.jitter, key);
            Arc::new(Mutex::new(entry))
        });
        Arc::clone(entry)
    }
}

/// Unlocks the entry and wakes the first request from `ticket` on: wakers may run a user's code.
fn wake_from(entry: MutexGuard<'_, ServerEntry>, ticket: u64) {
    let first = entry.line.range(ticket..).next();
    let waker = first.and_then(|(_, waker)| waker.clone());
    drop(entry);
    waker.into_iter().for_each(Waker::wake);
}

/// One request, from its place in line to its response. Dropped, it gives its place to the next.
pub(super) struct Visit {
    table: Arc<Mutex<ServerTable>>,
    entry: Arc<Mutex<ServerEntry>>,
    settings: PacerSettings,
    ticket: u64,
    deadline: Tick,
    stage: VisitStage,
    sleep: Option<(Tick, Sleep)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum VisitStage {
    Line,
    /// In flight, with the number that the server knows it by.
    Sent(u64),
    Nowhere,
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
    pub(super) fn enter(table: Arc<Mutex<ServerTable>>, key: u64, settings: PacerSettings) -> Self {
        let now = MonotonicClock.now();
        let deadline = now.plus(settings.max_wait);
        let mut known = lock(&table);
        known.spent = known.spent.saturating_sub(settings.retry_percent);
        let entry = known.entry(key, now, &settings);
        drop(known);
        let mut line = lock(&entry);
        line.tickets += 1;
        let ticket = line.tickets;
        line.line.insert(ticket, None);
        drop(line);
        Self {
            table,
            entry,
            settings,
            ticket,
            deadline,
            stage: VisitStage::Line,
            sleep: None,
        }
    }

    /// Waits until the request is to be sent.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RateLimited>> {
        loop {
            match self.next(MonotonicClock.now(), cx.waker()) {
                Next::Send(number) => {
                    self.stage = VisitStage::Sent(number);
                    return Poll::Ready(Ok(()));
                }
                Next::Refuse(wait) => {
                    self.stage = VisitStage::Nowhere;
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
        let mut guard = lock(&self.entry);
        let entry = &mut *guard;
        entry.server.refresh(now);
        let is_first = entry.line.range(..self.ticket).next().is_none();
        let is_last = entry.line.range(self.ticket + 1..).next().is_none();
        // Counting those ahead of one in the middle would take as long as the line.
        let ahead = if is_last { entry.line.len() - 1 } else { 0 };
        let turn = entry.server.turn(ahead as u64);
        let is_new = matches!(entry.line.get(&self.ticket), Some(None));
        let is_full = is_new && entry.line.len() > self.settings.queue;
        let next = if is_first && turn <= now {
            Next::Send(entry.server.send(now))
        } else if is_full || turn > self.deadline || now >= self.deadline {
            Next::Refuse(nanos(turn.since(now)).max(1))
        } else {
            Next::Wait(if is_first { turn } else { self.deadline })
        };
        let is_over = !matches!(next, Next::Wait(_));
        let old = if is_over {
            entry.line.remove(&self.ticket)
        } else {
            entry.line.insert(self.ticket, Some(waker.clone()))
        };
        if is_over {
            wake_from(guard, self.ticket);
        } else {
            drop(guard);
        }
        drop(old);
        next
    }

    /// Gives up the turn, if the server has denied another request since then. Returns whether it did.
    pub(super) fn waits_again(&mut self) -> bool {
        let mut entry = lock(&self.entry);
        let is_blocked = entry.server.is_blocked(MonotonicClock.now());
        if is_blocked {
            entry.server.lose();
            entry.line.insert(self.ticket, None);
            self.stage = VisitStage::Line;
        }
        is_blocked
    }

    /// What the response says.
    pub(super) fn learn(&mut self, feedback: &Feedback) {
        if let VisitStage::Sent(number) = mem::replace(&mut self.stage, VisitStage::Nowhere) {
            let (now, mut entry) = (MonotonicClock.now(), lock(&self.entry));
            entry.server.learn(number, feedback, now);
            wake_from(entry, 0);
        }
    }

    /// Waits again after a denial, before the requests that came later, if the budget allows it.
    pub(super) fn retry(&mut self) -> bool {
        let (mut table, mut entry) = (lock(&self.table), lock(&self.entry));
        let has_budget = table.spent + 100 <= 100 * self.settings.retry_reserve;
        let waits = has_budget && entry.line.len() < self.settings.queue;
        if waits {
            table.spent += 100;
            entry.line.insert(self.ticket, None);
            self.stage = VisitStage::Line;
        }
        waits
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut entry = lock(&self.entry);
        match self.stage {
            VisitStage::Line => {
                entry.line.remove(&self.ticket);
                wake_from(entry, self.ticket);
            }
            VisitStage::Sent(_) => {
                entry.server.lose();
                wake_from(entry, 0);
            }
            VisitStage::Nowhere => {}
        }
    }
}
