//! What is done to the value of one key, by a load and a swap.
//!
//! A store may have executed a swap that failed. Each swap has a version of its own, and a value names the last ones:
//! the next read shows whether it was executed. Exact limits, budgets and permits all do it here.

use std::{pin::pin, sync::Arc, time::Duration};

use super::{
    CasStore, Loaded, Runs, Swapped, Value,
    error::{damaged, lost_track},
    record::{Record, SwapOutcome},
    shared::Shared,
};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::sync::Ordering;

/// The longest pause after an error, which may be over at once.
const ERROR_PAUSE: Duration = Duration::from_millis(2);
/// The longest time to live: 20 years, the most that Cassandra takes.
const MAX_TTL: Duration = Duration::from_secs(20 * 365 * 86_400);

/// A record as the store was last seen to hold it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::store) struct Known {
    /// `None` if the key has no value.
    pub(in crate::store) version: Option<u64>,
    pub(in crate::store) record: Record,
}

impl Known {
    /// `None` if the value is damaged, unless it is replaced.
    pub(super) fn read(loaded: &Loaded, replaces: bool) -> Option<Self> {
        let record = match &loaded.value {
            None => Some(Record::default()),
            Some(value) => Record::from_bytes(&value.bytes),
        };
        Some(Self {
            version: loaded.value.as_ref().map(|value| value.version),
            record: record.or_else(|| replaces.then(Record::default))?,
        })
    }
}

/// What a decision is made on.
pub(in crate::store) struct Held<'a> {
    pub(in crate::store) record: &'a Record,
    /// Whether the store has a value, which `record` is unless it cannot be read.
    pub(in crate::store) has_value: bool,
    /// By the time of the key.
    pub(in crate::store) now: Tick,
    /// A moment of this machine that is not later than that.
    pub(in crate::store) asked_at: Tick,
}

/// What is done to the value of a key.
pub(in crate::store) trait OnKey {
    /// What comes of it, which holds once it is written.
    type Reply;
    /// Whether the time of a key goes on where it was when the store's clock is set back. What has a rule of its own for
    /// that is told the store's time.
    const HAS_TIME: bool = true;

    /// By when it has to be done; `None` if that is wanted no more. If it `is_open`, a swap may have been executed.
    fn ends_at(&mut self, is_open: bool) -> Option<Tick>;

    /// Since when it waits.
    fn begun_at(&self) -> Tick;

    /// Other machines went first, so more may join.
    fn join(&mut self) {}

    /// Whether it is done by a program instead, if other machines swap the key too.
    fn may_run(&self) -> bool {
        false
    }

    /// Whether it replaces a value that cannot be read.
    fn replaces(&self) -> bool {
        false
    }

    /// A swap was sent, and the value was swapped too often since to show whether it was executed. Returns whether it
    /// goes on all the same.
    fn loses_track(&mut self) -> bool {
        false
    }

    /// Whether it is done with nothing to write, although others may have changed the record since it was read.
    fn needs_no_read(&self) -> bool {
        false
    }

    /// What is to be written, if anything, and the reply. The record `is_current` if it was read just now.
    fn execute(
        &mut self,
        held: &Held<'_>,
        is_current: bool,
    ) -> Result<(Option<Record>, Self::Reply), StoreError>;
}

/// A swap that was sent, and whose outcome is not known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::store) struct Sent<R> {
    pub(super) version: u64,
    pub(super) expected: Option<u64>,
    /// The store replied that it found another version. A client that sends twice gets this reply
    /// although the first swap was executed.
    pub(super) is_refused: bool,
    pub(in crate::store) reply: R,
}

/// What a step led to.
pub(super) enum Step<R> {
    /// The reply, and what the store holds.
    Done(R, Known),
    /// The store holds this, and held it at this moment.
    Again(Known, Tick),
    /// It is not known what the store holds.
    Reload,
}

/// What is written, if anything: the record as it is then, with its value.
pub(in crate::store) type Planned<R> = (Option<(Record, Value, Duration)>, R);

/// What to write, and what comes of it.
pub(super) fn plan<S: CasStore, R>(
    shared: &Shared<S>,
    known: &mut Known,
    (dated, asked_at, has_time): (Tick, Tick, bool),
    execute: impl FnOnce(&Held<'_>) -> Result<(Option<Record>, R), StoreError>,
) -> Result<Planned<R>, StoreError> {
    let ahead = known.record.ahead;
    let now = if has_time {
        known.record.begin_at(dated)
    } else {
        dated
    };
    let held = Held {
        record: &known.record,
        has_value: known.version.is_some(),
        now,
        asked_at,
    };
    let (record, reply) = execute(&held)?;
    // A denial is written as well, or the time of the key would begin there again with each call.
    let is_set_back = known.record.ahead > ahead;
    let moved = || is_set_back.then(|| known.record.clone());
    let write = record.or_else(moved).map(|record| {
        let version = shared.next_random();
        let record = record.swapped_by(version).written_at(now);
        let value = Value {
            version,
            bytes: record.to_bytes(),
        };
        // Until it decides like a fresh one, and a tenth and a second longer.
        let needed = record.forgettable_at.since(now).min(MAX_TTL);
        let ttl = (needed + needed / 10 + Duration::from_secs(1)).min(MAX_TTL);
        (record, value, ttl)
    });
    Ok((write, reply))
}

/// Does `what` to the value of `key`, of which `known` is what the store was last seen to hold, and `sent` what was
/// sent and has no outcome. If that is kept when it fails or is dropped, it can go on later.
///
/// # Errors
/// If it was not done by the time at which it is to end. `None` if it is wanted no more, or done by a program instead.
pub(in crate::store) async fn swap<S: CasStore, P: OnKey>(
    shared: &Shared<S>,
    key: &Arc<str>,
    what: &mut P,
    known: &mut Option<Known>,
    sent: &mut Vec<Sent<P::Reply>>,
) -> Option<Result<P::Reply, StoreError>> {
    let mut swapping = Swapping { shared, key, sent };
    // When the store held what is known, if it replied with it here; and when it was asked for that.
    let (mut read_at, mut asked_at) = (None, MonotonicClock.now());
    loop {
        let Some(ends_at) = what.ends_at(!swapping.sent.is_empty()) else {
            if !swapping.sent.is_empty() {
                *known = None;
            }
            return None;
        };
        if what.may_run() && swapping.sent.is_empty() && shared.contended.has(key) {
            *known = None;
            return None;
        }
        if read_at.is_none() {
            asked_at = MonotonicClock.now();
        }
        let now = read_at.or_else(|| shared.time.now());
        let step = if let (Some(known), Some(now)) = (known.take(), now) {
            let time = (now, read_at.is_some(), asked_at);
            swapping.decide(what, known, time, ends_at).await
        } else {
            swapping.load(what, ends_at).await
        };
        match step {
            Ok(Step::Done(reply, held)) => {
                *known = Some(held);
                return Some(Ok(reply));
            }
            Ok(Step::Again(held, at)) => (*known, read_at) = (Some(held), Some(at)),
            Ok(Step::Reload) => read_at = None,
            Err(error) => return Some(Err(swapping.failed(error))),
        }
    }
}

pub(super) struct Swapping<'a, S, R> {
    pub(super) shared: &'a Shared<S>,
    pub(super) key: &'a Arc<str>,
    /// Swaps whose outcome is not known yet.
    pub(super) sent: &'a mut Vec<Sent<R>>,
}

impl<S: CasStore, R> Swapping<'_, S, R> {
    async fn load<P: OnKey<Reply = R>>(
        &mut self,
        what: &mut P,
        ends_at: Tick,
    ) -> Result<Step<R>, StoreError> {
        let (shared, key) = (self.shared, self.key);
        shared.calls.fetch_add(1, Ordering::Relaxed);
        let sent_at = MonotonicClock.now();
        let load = pin!(shared.store.load(key));
        match shared.call_until(key, ends_at, load).await {
            Ok(loaded) => self.adopt(what, &loaded, sent_at),
            Err(error) => self.reload_after(error).await,
        }
    }

    /// Decides on what is known, and writes the outcome if there is any.
    async fn decide<P: OnKey<Reply = R>>(
        &mut self,
        what: &mut P,
        mut known: Known,
        (dated, is_current, asked_at): (Tick, bool, Tick),
        ends_at: Tick,
    ) -> Result<Step<R>, StoreError> {
        let (shared, key) = (self.shared, self.key);
        let has_time = P::HAS_TIME && shared.has_time_of_key(is_current);
        let time = (dated, asked_at, has_time);
        let execute = |held: &Held<'_>| what.execute(held, is_current);
        let (write, reply) = plan(shared, &mut known, time, execute)?;
        let Some((record, value, ttl)) = write else {
            // Another machine may have changed the record since it was read.
            return Ok(if is_current || what.needs_no_read() {
                Step::Done(reply, known)
            } else {
                Step::Reload
            });
        };
        let (version, expected) = (value.version, known.version);
        shared.calls.fetch_add(1, Ordering::Relaxed);
        // Before it is sent: it may be dropped while it is.
        self.sent.push(Sent {
            version,
            expected,
            is_refused: false,
            reply,
        });
        let sent_at = MonotonicClock.now();
        let swap = pin!(shared.store.swap(key, expected, &value, ttl));
        let swapped = shared.call_until(key, ends_at, swap).await;
        match swapped {
            Ok(Swapped::Done(server_time)) => {
                if let Some(time) = server_time {
                    shared.time.learn(sent_at, server_time);
                    shared.wait_until(dated, time).await;
                }
                shared.contended.note(key, false, shared.deadline);
                let version = Some(version);
                let known = Known { version, record };
                // None that was sent before can be executed now.
                let own = self.sent.drain(..).next_back();
                Ok(own.map_or(Step::Reload, |own| Step::Done(own.reply, known)))
            }
            Ok(Swapped::Conflict(current)) => {
                shared.conflicts.fetch_add(1, Ordering::Relaxed);
                if let Some(own) = self.sent.last_mut() {
                    own.is_refused = true;
                }
                let is_contended = shared.contended.note(key, true, shared.deadline);
                match current {
                    Some(current) if !is_contended => self.adopt(what, &current, sent_at),
                    // What was read before a pause may be old.
                    _ => {
                        let is_known = self.sent.iter().all(|sent| sent.is_refused);
                        if is_contended && !(what.may_run() && is_known) {
                            shared.back_off(key, what.begun_at()).await;
                            what.join();
                        }
                        Ok(Step::Reload)
                    }
                }
            }
            Err(error) => {
                // A store with transactions has rolled the swap of a locked row back.
                let is_rolled_back = error.is_of_key() && S::RUNS == Runs::All;
                if !error.is_transient() || error.is_not_sent() || is_rolled_back {
                    self.sent.pop();
                }
                self.reload_after(error).await
            }
        }
    }

    /// Takes what the store holds, and finds out which swap was executed.
    pub(super) fn adopt<P: OnKey<Reply = R>>(
        &mut self,
        what: &mut P,
        loaded: &Loaded,
        sent_at: Tick,
    ) -> Result<Step<R>, StoreError> {
        let now = self.shared.time.learn(sent_at, loaded.server_time);
        let known = Known::read(loaded, what.replaces());
        let known = known.ok_or_else(|| damaged(S::NAME))?;
        if known.version.is_none() {
            self.sent.retain(|sent| !sent.is_refused);
        } else {
            for sent in std::mem::take(self.sent) {
                match known.record.outcome_of(sent.version, sent.expected) {
                    SwapOutcome::Executed => return Ok(Step::Done(sent.reply, known)),
                    _ if sent.is_refused => {}
                    // It may still be on its way.
                    SwapOutcome::NotExecuted if known.version == sent.expected => {
                        self.sent.push(sent);
                    }
                    SwapOutcome::NotExecuted => {}
                    SwapOutcome::Unknown if what.loses_track() => {}
                    SwapOutcome::Unknown => return Err(lost_track(S::NAME)),
                }
            }
        }
        Ok(Step::Again(known, now))
    }

    /// Tries again after a transient error, unless the breaker is open.
    async fn reload_after(&self, error: StoreError) -> Result<Step<R>, StoreError> {
        if !error.is_transient() || error.is_not_sent() {
            return Err(error);
        }
        self.shared.pause(ERROR_PAUSE).await;
        Ok(Step::Reload)
    }

    fn failed(&self, error: StoreError) -> StoreError {
        if self.sent.iter().all(|sent| sent.is_refused) {
            return error;
        }
        let message = format!("{error}; whether the call was counted is not known");
        StoreError::new(message, error.is_transient())
    }
}
