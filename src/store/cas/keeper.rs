//! The task that keeps the lease of one key for a machine.

use std::{future::Future, sync::Arc, task::Wake, time::Duration};

use tokio::{runtime::Handle, sync::Notify};

use super::{
    CasStore,
    error::shut_down,
    leases::{Holding, Holdings, LeasePlan, LeaseView},
    record::Record,
    shared::Shared,
    swap::{Held, Known, OnKey, Sent, swap},
};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::{
    deadline::within,
    remote::{RemoteKey, key_name},
};

/// How long a task goes on without permits: the next request then needs one round trip instead of two.
const LINGER: Duration = Duration::from_secs(1);
/// How soon the store is asked again while requests wait for permits of other machines: at first, and at last.
const POLL: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];
/// How often a machine whose requests have room looks whether others wait, while requests come.
const LOOK: Duration = Duration::from_millis(250);

/// The permits of a key on this machine.
pub(crate) trait LeaseHolder: Send + Sync + 'static {
    /// What it is to hold, given what other machines do. If that `is_current`, requests that find no room are
    /// denied. From then on it holds no more than that.
    fn plan(&self, view: &LeaseView, is_current: bool) -> LeasePlan;

    /// The plan holds until `valid_until`. The others held so much then.
    fn confirm(&self, plan: &LeasePlan, others: u64, valid_until: Tick);

    /// Fails the requests that wait: the store cannot be asked, or the task was dropped with its runtime if there is no
    /// error.
    fn fail(&self, error: Option<StoreError>);

    /// Ends the task if nothing is in flight and none waits. Returns whether it did.
    fn end(&self) -> bool;
}

/// Wakes a task.
#[derive(Debug, Default)]
pub(crate) struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// What the tasks of all keys of one machine share.
#[derive(Debug)]
pub(crate) struct Leases<S> {
    shared: Shared<S>,
    name_prefix: String,
    machine: u64,
    life: Duration,
}

impl<S: CasStore> Leases<S> {
    pub(crate) fn new(store: S, name: &str, life: Duration, deadline: Duration) -> Self {
        let prefix = store.settings().prefix;
        let shared = Shared::new(store, deadline);
        Self {
            name_prefix: format!("{{{prefix}:{name}:"),
            machine: shared.next_random(),
            life,
            shared,
        }
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.shared.deadline
    }

    /// Where the tasks run.
    pub(crate) fn runtime(&self) -> Result<Handle, StoreError> {
        self.shared.runtime()
    }

    /// The error of a request whose runtime was shut down.
    pub(crate) fn stopped() -> StoreError {
        shut_down(S::NAME)
    }

    /// The name of a key in the store.
    pub(crate) fn name_of(&self, key: &impl RemoteKey) -> String {
        key_name(&self.name_prefix, key) + ":permits"
    }

    /// The task of the key of that name, which `bell` wakes.
    pub(crate) fn keep<H: LeaseHolder>(
        self: &Arc<Self>,
        key: String,
        bell: Arc<Bell>,
        holder: H,
    ) -> impl Future<Output = ()> + Send + use<S, H> {
        self.keeper(key, bell, holder).run()
    }

    fn keeper<H: LeaseHolder>(
        self: &Arc<Self>,
        key: String,
        bell: Arc<Bell>,
        holder: H,
    ) -> Keeper<S, H> {
        Keeper {
            leases: Arc::clone(self),
            key: key.into(),
            bell,
            holder,
            known: None,
            sent: Vec::new(),
            written_at: None,
            seen_at: None,
            next_turn: None,
            begun: Tick::ZERO,
            is_open: false,
            needs_no_read: false,
            has_ended: false,
        }
    }
}

struct Keeper<S: CasStore, H: LeaseHolder> {
    leases: Arc<Leases<S>>,
    key: Arc<str>,
    bell: Arc<Bell>,
    holder: H,
    /// What the store was last seen to hold.
    known: Option<Known>,
    /// What was sent and has no outcome.
    sent: Vec<Sent<Done>>,
    /// When this machine has last told the store what it holds.
    written_at: Option<Tick>,
    /// When it has last learned what the others hold and want.
    seen_at: Option<Tick>,
    /// When another machine has its turn, if machines wait.
    next_turn: Option<Tick>,
    /// When the present round has begun.
    begun: Tick,
    /// A swap may have been executed, or may still be.
    is_open: bool,
    needs_no_read: bool,
    has_ended: bool,
}

/// What a machine is to hold, what the others held then, and when that was decided if it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Done {
    plan: LeasePlan,
    others: u64,
    written_at: Option<Tick>,
}

impl<S: CasStore, H: LeaseHolder> Keeper<S, H> {
    async fn run(mut self) {
        let (mut poll, mut held) = (POLL[0], 0);
        loop {
            let mut is_unused = false;
            let pause = match self.round().await {
                Ok(plan) if plan.waits() => {
                    // What other machines release is shared out soon after.
                    poll = if plan.holds == held {
                        (poll * 2).min(POLL[1])
                    } else {
                        POLL[0]
                    };
                    held = plan.holds;
                    let pause = poll / 2 + self.leases.shared.random_below(poll / 2);
                    let until = |turn: Tick| turn.since(MonotonicClock.now());
                    let until = self.next_turn.map_or(pause, until);
                    if until < pause {
                        poll = POLL[0];
                    }
                    pause.min(until)
                }
                Ok(plan) if plan.holds == 0 => {
                    is_unused = true;
                    LINGER
                }
                Ok(_) => self.leases.life / 3,
                Err(error) => {
                    self.holder.fail(Some(error));
                    // What the store holds of this machine is over by itself then.
                    let sent = self.sent.iter().filter_map(|sent| sent.reply.written_at);
                    let last = sent.chain(self.written_at).max();
                    let is_over = |last: Tick| MonotonicClock.now() >= last.plus(self.leases.life);
                    is_unused = last.is_none_or(is_over);
                    POLL[1]
                }
            };
            let rings = self.bell.0.notified();
            let rang = within(MonotonicClock.now().plus(pause), rings).await;
            if rang.is_none() && is_unused && self.holder.end() {
                self.has_ended = true;
                return;
            }
        }
    }

    /// Brings the store in line with what this machine holds and wants.
    async fn round(&mut self) -> Result<LeasePlan, StoreError> {
        let leases = Arc::clone(&self.leases);
        let (shared, key) = (&leases.shared, Arc::clone(&self.key));
        self.begun = MonotonicClock.now();
        loop {
            let (mut known, mut sent) = (self.known.take(), std::mem::take(&mut self.sent));
            let done = swap(shared, &key, self, &mut known, &mut sent).await;
            (self.known, self.sent) = (known, sent);
            let done = done.unwrap_or_else(|| Err(shared.deadline_exceeded()))?;
            self.confirm(&done);
            // One that an earlier round has sent says what was wanted then.
            if done.written_at.is_none_or(|at| at >= self.begun) {
                return Ok(done.plan);
            }
        }
    }

    /// The store knows of it.
    fn confirm(&mut self, done: &Done) {
        let Leases { shared, life, .. } = &*self.leases;
        self.written_at = done.written_at.or(self.written_at);
        // Others compute the store's time with an error of up to a deadline.
        let good_for = life.saturating_sub(shared.deadline);
        let valid_until = self.written_at.map_or(Tick::ZERO, |at| at.plus(good_for));
        self.holder.confirm(&done.plan, done.others, valid_until);
    }
}

impl<S: CasStore, H: LeaseHolder> OnKey for Keeper<S, H> {
    type Reply = Done;
    // A lease ends after its life by any clock.
    const HAS_TIME: bool = false;

    fn ends_at(&mut self, is_open: bool) -> Option<Tick> {
        self.is_open = is_open;
        let ends_at = self.begun.plus(self.leases.shared.deadline);
        (MonotonicClock.now() < ends_at).then_some(ends_at)
    }

    fn begun_at(&self) -> Tick {
        self.begun
    }

    /// The next swap says all that counts.
    fn loses_track(&mut self) -> bool {
        true
    }

    /// A value that cannot be read counts as lost. So values of another format need keys of another name.
    fn replaces(&self) -> bool {
        true
    }

    fn needs_no_read(&self) -> bool {
        self.needs_no_read
    }

    fn execute(
        &mut self,
        held: &Held<'_>,
        is_current: bool,
    ) -> Result<(Option<Record>, Done), StoreError> {
        let Leases { machine, life, .. } = *self.leases;
        let (now, at) = (held.now, held.asked_at);
        let known = Holdings::from_bytes(&held.record.state).unwrap_or_default();
        let view = known.view(machine, now);
        self.next_turn = view.until_next_turn().map(|until| at.plus(until));
        let plan = self.holder.plan(&view, is_current);
        let begun = self.begun;
        let is_over = |since: Option<Tick>, time| since.is_none_or(|at| begun >= at.plus(time));
        // The store is told again what this machine holds.
        let renews = plan.wants > 0 && is_over(self.written_at, life / 3);
        let is_stale = plan.holds > 0 && is_over(self.seen_at, LOOK);
        // Others may have released permits since: a denial is confirmed by a read. Others may wait for what goes from
        // one request here to the next. A renewal finds out whether the clock of the store was set.
        let needs_read = !is_current && (plan.waits() || renews || is_stale);
        self.needs_no_read = !needs_read;
        let own = known.of(machine, now);
        let is_written = !needs_read && (self.is_open || renews || is_due(own, &plan));
        if is_current || is_written {
            self.seen_at = Some(at);
        }
        let record = is_written.then(|| {
            let own = Holding {
                machine,
                expires_at: now.plus(life),
                life,
                holds: plan.holds,
                wants: plan.wants,
            };
            let next = known.with(own, now);
            held.record.with_state(next.to_bytes(), next.expires_at())
        });
        let written_at = is_written.then_some(at);
        let done = Done {
            plan,
            others: view.others,
            written_at,
        };
        Ok((record, done))
    }
}

/// Whether the store is to know of another plan.
fn is_due(own: Option<Holding>, plan: &LeasePlan) -> bool {
    let Some(own) = own else {
        return plan.holds > 0 || plan.wants > 0;
    };
    let waits = own.wants > own.holds;
    own.holds != plan.holds || waits != plan.waits()
}

/// The requests that wait fail, if the runtime is shut down.
impl<S: CasStore, H: LeaseHolder> Drop for Keeper<S, H> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.holder.fail(None);
        }
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;
