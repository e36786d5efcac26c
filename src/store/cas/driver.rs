//! The task that decides the calls of one key.

use std::{pin::pin, sync::Arc, time::Duration};

use super::{
    CasStore, Loaded, Program, Swapped, Value, Version,
    contention::Contention,
    decider::{Decider, KeyCall},
    error::Failure,
    inner::Inner,
    lines::QueuedCall,
    recent::Known,
    record::{Outcome, Record},
};
use crate::algorithm::Algorithm;
use crate::backend::Op;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::{
    events::RemoteMetrics,
    remote::{Remote, TaskId},
};
use crate::sync::{Mutex, Ordering, lock};

/// The most calls that are decided in one swap.
const MAX_BATCH: usize = 1_000;
/// The longest pause after an error, which may be over at once.
const ERROR_PAUSE: Duration = Duration::from_millis(2);

/// Decides the calls of one key until there are none.
pub(super) struct Driver<S: CasStore, A: Algorithm> {
    inner: Arc<Inner<S, A>>,
    key: Arc<str>,
    id: TaskId,
}

impl<S: CasStore, A: Algorithm> Driver<S, A> {
    pub(super) const fn new(inner: Arc<Inner<S, A>>, key: Arc<str>, id: TaskId) -> Self {
        Self { inner, key, id }
    }

    pub(super) async fn run(self) {
        let Self { inner, key, id } = &self;
        let mut known = inner.lines.take_known(key);
        let mut contention = known
            .as_ref()
            .map_or_else(Contention::default, |known| known.contention);
        // How many calls the last round decided.
        let mut decided = 0;
        loop {
            let ends_by = inner.ends_by(MonotonicClock.now());
            if decided == 1 && inner.lines.ends(key, *id, &mut known) {
                return;
            }
            // Callers that have just got their decisions make their next calls before the swap, on all
            // threads.
            let mut waiting = 0;
            loop {
                tokio::task::yield_now().await;
                let before = std::mem::replace(&mut waiting, inner.lines.waiting(key));
                if waiting <= before || waiting >= decided.min(MAX_BATCH) {
                    break;
                }
            }
            if contention.is_contended() && !inner.shared.has_turns.load(Ordering::Relaxed) {
                // Before the calls are taken, so that those that come meanwhile go with them. What was
                // known of the key is old then.
                inner
                    .shared
                    .pause(contention.window(Duration::ZERO, inner.shared.deadline))
                    .await;
                known = None;
            }
            let calls = inner
                .lines
                .next_calls(key, *id, MAX_BATCH, ends_by, &mut known);
            let Some(calls) = calls else {
                return;
            };
            decided = calls.len();
            RemoteMetrics(S::NAME).calls_dequeued(decided);
            let mut round = Round {
                inner: Arc::clone(inner),
                key: Arc::clone(key),
                id: *id,
                calls,
                unresolved: Vec::new(),
                contention,
            };
            known = round.run(known).await;
            contention = round.contention;
        }
    }
}

/// Fails the calls that are left, if the runtime is shut down.
impl<S: CasStore, A: Algorithm> Drop for Driver<S, A> {
    fn drop(&mut self) {
        let abandoned = self.inner.lines.abandon(&self.key, self.id);
        RemoteMetrics(S::NAME).calls_dequeued(abandoned);
    }
}

/// Calls that are decided together.
struct Round<S: CasStore, A: Algorithm> {
    inner: Arc<Inner<S, A>>,
    key: Arc<str>,
    id: TaskId,
    calls: Vec<QueuedCall<A>>,
    /// Swaps of this round whose outcome is not known yet.
    unresolved: Vec<SentSwap>,
    contention: Contention,
}

/// A swap that was sent.
struct SentSwap {
    version: Version,
    expected: Option<Version>,
    /// The store replied that it found another version. A client that sends twice gets this reply
    /// although the first swap was executed.
    is_refused: bool,
    decisions: Vec<Decision>,
}

/// Decisions, and what must be stored before they are returned: the record as it is then, with its value.
struct Plan {
    decisions: Vec<Decision>,
    write: Option<(Record, Value, Duration)>,
}

/// A round that decides when it is the turn of this machine.
struct Turn<S: CasStore, A: Algorithm> {
    key: Arc<str>,
    sent_at: Tick,
    /// The round, until the caller takes it back; and what its turn led to.
    round: Mutex<Option<(Round<S, A>, Ran)>>,
}

/// `None` before the turn.
type Ran = Result<Option<Outcomes>, StoreError>;

/// What a turn led to.
enum Outcomes {
    /// The outcome of an earlier swap.
    Known(Step),
    /// A plan for what the store held.
    Decided(Known, Plan),
}

impl<S: CasStore, A: Algorithm> Program for Turn<S, A> {
    fn key(&self) -> &str {
        &self.key
    }

    fn execute(&self, loaded: Loaded) -> Option<(Value, Duration)> {
        let mut turn = lock(&self.round);
        // The caller waits no longer.
        let (round, outcome) = turn.as_mut()?;
        round.drop_unwanted();
        round.take_more_calls();
        *outcome = round.turn(loaded, self.sent_at).map(Some);
        let Ok(Some(Outcomes::Decided(_, plan))) = outcome else {
            return None;
        };
        round.count_swap();
        let write = plan.write.as_ref();
        write.map(|(_, value, ttl)| (value.clone(), *ttl))
    }
}

/// What a step of a round led to.
enum Step {
    /// All calls have their decisions. The store holds this.
    Done(Option<Known>),
    /// The store holds this, and held it at this moment.
    Again(Known, Tick),
    /// It is not known what the store holds.
    Reload,
}

impl<S: CasStore, A: Algorithm> Round<S, A> {
    /// Decides the calls. Returns what the store holds then, if that is known.
    async fn run(&mut self, known: Option<Known>) -> Option<Known> {
        let mut known = known;
        // When the store held that, if it replied with it in this round.
        let mut read_at = None;
        loop {
            self.drop_unwanted();
            if self.calls.is_empty() {
                return known.filter(|_| self.unresolved.is_empty());
            }
            let now = read_at.or_else(|| self.inner.shared.time.now());
            let has_turns = self.inner.shared.has_turns.load(Ordering::Relaxed);
            let takes_turn = has_turns && read_at.is_none() && self.contention.is_contended();
            let result = match (known.take(), now) {
                (known, _) if takes_turn => self.take_turn(known).await,
                (Some(known), Some(now)) => {
                    let is_current = read_at.is_some();
                    self.decide(known, now, is_current).await
                }
                _ => self.load().await,
            };
            match result {
                Ok(Step::Done(known)) if self.calls.is_empty() => return known,
                // Calls that have come since the swap was sent.
                Ok(Step::Done(current)) => (known, read_at) = (current, None),
                Ok(Step::Again(current, at)) => (known, read_at) = (Some(current), Some(at)),
                Ok(Step::Reload) => read_at = None,
                Err(error) => {
                    self.fail(&error);
                    return None;
                }
            }
        }
    }

    /// Ends calls that are not awaited any more, unless a swap may have counted them and others are
    /// awaited.
    fn drop_unwanted(&mut self) {
        let now = MonotonicClock.now();
        let is_wanted = |call: &QueuedCall<A>| call.is_wanted(now);
        let wanted = self.calls.iter().filter(|call| is_wanted(call)).count();
        if wanted == self.calls.len() || (wanted > 0 && !self.unresolved.is_empty()) {
            return;
        }
        let calls = std::mem::take(&mut self.calls);
        let (wanted, ended): (Vec<_>, Vec<_>) = calls.into_iter().partition(is_wanted);
        self.calls = wanted;
        for call in ended {
            let error = self.inner.deadline_exceeded();
            let _ = call.reply_tx.send(Err(error));
        }
    }

    async fn load(&mut self) -> Result<Step, StoreError> {
        let (inner, key) = (Arc::clone(&self.inner), Arc::clone(&self.key));
        let shared = &inner.shared;
        shared.check_breaker()?;
        shared.loads.fetch_add(1, Ordering::Relaxed);
        let sent_at = MonotonicClock.now();
        let load = pin!(shared.store.load(&key));
        match shared.call_until(self.ends_at(), load).await {
            Ok(loaded) => self.adopt(loaded, sent_at),
            Err(error) if error.is_transient() => {
                shared.pause(ERROR_PAUSE).await;
                Ok(Step::Reload)
            }
            Err(error) => Err(error),
        }
    }

    /// Decides on `known`, and writes the outcome if there is any.
    async fn decide(
        &mut self,
        mut known: Known,
        dated: Tick,
        is_current: bool,
    ) -> Result<Step, StoreError> {
        let (inner, key) = (Arc::clone(&self.inner), Arc::clone(&self.key));
        let shared = &inner.shared;
        let Plan { decisions, write } = self.plan(&mut known, dated)?;
        let Some((record, value, ttl)) = write else {
            // Another machine may have changed the record since it was read.
            if !is_current {
                return Ok(Step::Reload);
            }
            self.finish(decisions);
            return Ok(Step::Done(Some(known)));
        };
        let version = value.version;
        shared.check_breaker()?;
        self.count_swap();
        let sent_at = MonotonicClock.now();
        let swap = pin!(shared.store.swap(&key, known.version, &value, ttl));
        match shared.call_until(self.ends_at(), swap).await {
            Ok(Swapped::Done(server_time)) => {
                if let Some(time) = server_time {
                    shared.time.learn(sent_at, server_time);
                    shared.wait_until(dated, time).await;
                }
                self.contention.success();
                self.finish(decisions);
                Ok(Step::Done(Some(self.known(Some(version), record))))
            }
            Ok(Swapped::Conflict(current)) => {
                shared.conflicts.fetch_add(1, Ordering::Relaxed);
                self.unresolved.push(SentSwap {
                    version,
                    expected: known.version,
                    is_refused: true,
                    decisions,
                });
                let is_contended = self.contention.is_contended();
                self.contention.conflict(shared.deadline);
                match current {
                    Some(current) if !is_contended => self.adopt(current, sent_at),
                    // What was read before a pause may be old.
                    _ => {
                        if is_contended && !shared.has_turns.load(Ordering::Relaxed) {
                            self.wait_at_random().await;
                        }
                        Ok(Step::Reload)
                    }
                }
            }
            // The store refused it.
            Err(error) if !error.is_transient() => Err(error),
            Err(_) => {
                self.unresolved.push(SentSwap {
                    version,
                    expected: known.version,
                    is_refused: false,
                    decisions,
                });
                shared.pause(ERROR_PAUSE).await;
                Ok(Step::Reload)
            }
        }
    }

    /// Decides while other machines wait, if the store can let them wait.
    async fn take_turn(&mut self, last: Option<Known>) -> Result<Step, StoreError> {
        let inner = Arc::clone(&self.inner);
        let shared = &inner.shared;
        shared.check_breaker()?;
        let ends_at = self.ends_at();
        let turn = Arc::new(Turn {
            key: Arc::clone(&self.key),
            sent_at: MonotonicClock.now(),
            round: Mutex::new(Some((self.take(), Ok(None)))),
        });
        let run = pin!(shared.store.run(Arc::clone(&turn) as Arc<dyn Program>));
        let ran = shared.call_until(ends_at, run).await;
        let Some((round, outcome)) = lock(&turn.round).take() else {
            return Ok(Step::Reload);
        };
        *self = round;
        match (ran, outcome?) {
            (Ok(false), _) => {
                shared.has_turns.store(false, Ordering::Relaxed);
                Ok(Step::Reload)
            }
            (Ok(true), None) => Ok(Step::Reload),
            (Ok(true), Some(Outcomes::Known(step))) => Ok(step),
            (Ok(true), Some(Outcomes::Decided(known, plan))) => {
                if last.is_some_and(|last| last.version == known.version) {
                    self.contention.success();
                } else {
                    self.contention.conflict(shared.deadline);
                }
                self.finish(plan.decisions);
                Ok(Step::Done(Some(match plan.write {
                    Some((record, value, _)) => self.known(Some(value.version), record),
                    None => self.known(known.version, known.record),
                })))
            }
            (Err(error), _) if !error.is_transient() => Err(error),
            (Err(_), turn) => {
                if let Some(Outcomes::Decided(known, plan)) = turn {
                    let attempt = plan.write.map(|(_, value, _)| SentSwap {
                        version: value.version,
                        expected: known.version,
                        is_refused: false,
                        decisions: plan.decisions,
                    });
                    self.unresolved.extend(attempt);
                }
                shared.pause(ERROR_PAUSE).await;
                Ok(Step::Reload)
            }
        }
    }

    /// The round with its calls, which leaves one without.
    fn take(&mut self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            key: Arc::clone(&self.key),
            calls: std::mem::take(&mut self.calls),
            unresolved: std::mem::take(&mut self.unresolved),
            ..*self
        }
    }

    /// What to do with what the store holds.
    fn turn(&mut self, loaded: Loaded, sent_at: Tick) -> Result<Outcomes, StoreError> {
        match self.adopt(loaded, sent_at)? {
            Step::Again(mut known, now) => {
                let plan = self.plan(&mut known, now)?;
                Ok(Outcomes::Decided(known, plan))
            }
            step => Ok(Outcomes::Known(step)),
        }
    }

    /// What to write, and the decisions that follow from it.
    fn plan(&self, known: &mut Known, dated: Tick) -> Result<Plan, StoreError> {
        let shared = &self.inner.shared;
        let ahead = known.record.ahead;
        let now = if shared.has_one_clock() {
            known.record.begin_at(dated)
        } else {
            dated
        };
        let calls: Vec<&KeyCall<A>> = self.calls.iter().map(|call| &call.call).collect();
        let has_value = known.version.is_some();
        let decided = self
            .inner
            .decider
            .decide(&known.record, has_value, now, &calls);
        let decided = decided.map_err(|failure| failure.in_store(S::NAME))?;
        // A denial is written as well, or the time of the key would begin there again with each call.
        let is_set_back = known.record.ahead > ahead;
        let moved = || is_set_back.then(|| known.record.clone());
        let write = decided.record.or_else(moved).map(|record| {
            let version = shared.next_version();
            let record = record.swapped_by(version).written_at(now);
            let value = Value::new(version, record.to_bytes());
            let ttl = Decider::<A>::time_to_live(&record, now);
            (record, value, ttl)
        });
        let decisions = decided.decisions;
        Ok(Plan { decisions, write })
    }

    fn count_swap(&self) {
        self.inner.shared.swaps.fetch_add(1, Ordering::Relaxed);
        RemoteMetrics(S::NAME).batch_sent(self.calls.len());
    }

    /// Takes what the store holds, and finds out which swap of this round was executed.
    fn adopt(&mut self, loaded: Loaded, sent_at: Tick) -> Result<Step, StoreError> {
        let now = self.inner.shared.time.learn(sent_at, loaded.server_time);
        let (version, record) = match loaded.value {
            Some(value) => (Some(value.version), Record::from_bytes(&value.bytes)),
            None => (None, Some(Record::default())),
        };
        let Some(record) = record else {
            // A reset replaces what cannot be read.
            let resets = |call: &QueuedCall<A>| call.call.op == Op::Reset;
            if !self.calls.iter().any(resets) {
                return Err(Failure::Damaged.in_store(S::NAME));
            }
            let record = Record::default();
            return Ok(Step::Again(self.known(version, record), now));
        };
        if version.is_some() {
            let attempts = std::mem::take(&mut self.unresolved);
            for attempt in attempts {
                match record.outcome_of(attempt.version, attempt.expected) {
                    Outcome::Executed => {
                        self.finish(attempt.decisions);
                        return Ok(Step::Done(Some(self.known(version, record))));
                    }
                    _ if attempt.is_refused => {}
                    Outcome::NotExecuted if version == attempt.expected => {
                        // It may still be on its way.
                        self.unresolved.push(attempt);
                    }
                    Outcome::NotExecuted => {}
                    Outcome::Unknown => return Err(Failure::LostTrack.in_store(S::NAME)),
                }
            }
        }
        Ok(Step::Again(self.known(version, record), now))
    }

    /// When the last call has to have its decision.
    fn ends_at(&self) -> Tick {
        let deadlines = self.calls.iter().map(|call| call.deadline);
        deadlines.max().unwrap_or_default()
    }

    /// Lets other machines go first, and takes the calls that have come meanwhile.
    async fn wait_at_random(&mut self) {
        let inner = Arc::clone(&self.inner);
        let shared = &inner.shared;
        let left = self.calls.first().map_or(Duration::ZERO, |call| {
            call.deadline.since(MonotonicClock.now())
        });
        let waited = shared.deadline.saturating_sub(left);
        shared
            .pause(self.contention.window(waited, shared.deadline))
            .await;
        self.take_more_calls();
    }

    fn take_more_calls(&mut self) {
        let (room, ends_by) = (
            MAX_BATCH.saturating_sub(self.calls.len()),
            self.inner.ends_by(MonotonicClock.now()),
        );
        let more = self
            .inner
            .lines
            .more_calls(&self.key, self.id, room, ends_by);
        RemoteMetrics(S::NAME).calls_dequeued(more.len());
        self.calls.extend(more);
    }

    fn known(&self, version: Option<Version>, record: Record) -> Known {
        Known {
            version,
            record,
            contention: self.contention,
        }
    }

    /// Returns the decisions of the first calls. Those that have come since wait for the next swap.
    fn finish(&mut self, decisions: Vec<Decision>) {
        for (call, decision) in self.calls.drain(..decisions.len()).zip(decisions) {
            // The call may have been dropped.
            let _ = call.reply_tx.send(Ok(decision));
        }
        self.unresolved.clear();
    }

    fn fail(&mut self, error: &StoreError) {
        let is_uncertain = self.unresolved.iter().any(|attempt| !attempt.is_refused);
        let error = if is_uncertain {
            let message = format!("{error}; whether the call was counted is not known");
            StoreError::new(message, error.is_transient())
        } else {
            error.clone()
        };
        for call in self.calls.drain(..) {
            let _ = call.reply_tx.send(Err(error.clone()));
        }
    }
}
