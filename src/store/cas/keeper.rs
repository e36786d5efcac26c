//! The task that keeps the lease of one key for a machine.

use std::{future::Future, pin::pin, sync::Arc, task::Wake, time::Duration};

use tokio::sync::Notify;

use super::{
    CasStore, Loaded, Swapped, Value, Version,
    contention::Contention,
    error::Failure,
    leases::{Held, Holding, LeasePlan, LeaseView},
    shared::Shared,
};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::{
    deadline::within,
    events::RemoteMetrics,
    remote::{RemoteKey, key_name},
};
use crate::sync::Ordering;

/// How long a task goes on without permits: the next request then needs one round trip instead of two.
const LINGER: Duration = Duration::from_secs(1);
/// How soon the store is asked again while requests wait for permits of other machines: at first, and at last.
const POLL: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];
/// The longest pause after an error, which may be over at once.
const ERROR_PAUSE: Duration = Duration::from_millis(2);

/// The permits of a key on this machine.
pub(crate) trait LeaseHolder: Send + Sync + 'static {
    /// What it is to hold, given what other machines do. If that `is_current`, requests that find no room are
    /// denied. From then on it holds no more than that.
    fn plan(&self, view: &LeaseView, is_current: bool) -> LeasePlan;

    /// The plan holds until `valid_until`. The others held so much then.
    fn confirm(&self, plan: &LeasePlan, others: u64, valid_until: Tick);

    /// The store cannot be asked: fails the requests that wait.
    fn fail(&self, error: StoreError);

    /// Ends the task if nothing is in flight and none waits. Returns whether it did.
    fn end(&self) -> bool;

    /// The task was dropped with its runtime.
    fn stop(&self);
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
    pub(crate) fn new(
        store: S,
        [prefix, name]: [&str; 2],
        life: Duration,
        deadline: Duration,
    ) -> Self {
        let shared = Shared::new(store, deadline);
        Self {
            name_prefix: format!("{{{prefix}:{name}:"),
            machine: shared.next_version().as_u64(),
            life,
            shared,
        }
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.shared.deadline
    }

    /// The error of a request whose runtime was shut down.
    pub(crate) fn stopped() -> StoreError {
        Failure::RuntimeShutDown.in_store(S::NAME)
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
        let keeper = Keeper {
            leases: Arc::clone(self),
            key,
            bell,
            holder,
            known: None,
            contention: Contention::default(),
            valid_until: Tick::ZERO,
            renews_at: Tick::ZERO,
            next_turn: None,
            unsure_until: Tick::ZERO,
            has_ended: false,
        };
        keeper.run()
    }
}

struct Keeper<S: CasStore, H: LeaseHolder> {
    leases: Arc<Leases<S>>,
    key: String,
    bell: Arc<Bell>,
    holder: H,
    /// What the store was last seen to hold.
    known: Option<(Option<Version>, Held)>,
    contention: Contention,
    /// From then on other machines may have what this one holds.
    valid_until: Tick,
    /// When the store is told again that it holds them.
    renews_at: Tick,
    /// When another machine has its turn, if machines wait.
    next_turn: Option<Tick>,
    /// A swap failed, and may have been executed. What it says is over then.
    unsure_until: Tick,
    has_ended: bool,
}

impl<S: CasStore, H: LeaseHolder> Keeper<S, H> {
    async fn run(mut self) {
        let (mut poll, mut held) = (POLL[0], 0);
        loop {
            let mut is_unused = false;
            let pause = match self.round().await {
                Ok(plan) if plan.waits() => {
                    // What other machines release is shared out soon after.
                    let is_same = plan.holds == held;
                    poll = if is_same {
                        (poll * 2).min(POLL[1])
                    } else {
                        POLL[0]
                    };
                    held = plan.holds;
                    let pause = poll / 2 + self.leases.shared.random_below(poll / 2);
                    match self.next_turn.map(|turn| turn.since(MonotonicClock.now())) {
                        Some(until) if until < pause => {
                            poll = POLL[0];
                            until
                        }
                        _ => pause,
                    }
                }
                Ok(plan) if plan.holds == 0 => {
                    is_unused = true;
                    LINGER
                }
                Ok(_) => self.leases.life / 3,
                Err(error) => {
                    self.known = None;
                    self.holder.fail(error);
                    // What the store holds of this machine is over by itself then.
                    is_unused = MonotonicClock.now() >= self.valid_until.max(self.unsure_until);
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
        let Leases {
            shared,
            machine,
            life,
            ..
        } = &*self.leases;
        let begun = MonotonicClock.now();
        let ends_at = begun.plus(shared.deadline);
        // When the store held what is known, if that was read in this round.
        let mut read_at = None;
        loop {
            let now = read_at.or_else(|| shared.time.now());
            let (Some((version, held)), Some(now)) = (&self.known, now) else {
                let sent_at = MonotonicClock.now();
                shared.check_breaker(&self.key)?;
                shared.loads.fetch_add(1, Ordering::Relaxed);
                let load = pin!(shared.store.load(&self.key));
                match shared.call_until(&self.key, ends_at, load).await {
                    Ok(loaded) => {
                        read_at = Some(shared.time.learn(sent_at, loaded.server_time));
                        self.known = Some(Self::read(loaded)?);
                    }
                    Err(error) => self.pause_after(error, ends_at).await?,
                }
                continue;
            };
            let view = held.view(*machine, now);
            let until = view.until_next_turn();
            self.next_turn = until.map(|until| MonotonicClock.now().plus(until));
            let plan = self.holder.plan(&view, read_at.is_some());
            let renews = plan.wants > 0 && MonotonicClock.now() >= self.renews_at;
            if (plan.waits() || renews) && read_at.is_none() {
                // Others may have released permits since: a denial is confirmed by a read. A renewal finds out
                // whether the clock of the store was set.
                self.known = None;
                continue;
            }
            let own = held.of(*machine, now);
            let is_unsure = self.unsure_until > Tick::ZERO;
            if !(is_unsure || renews || is_due(own, &plan)) {
                self.holder.confirm(&plan, view.others, self.valid_until);
                return Ok(plan);
            }
            let next = held.with(
                Holding {
                    machine: *machine,
                    expires_at: now.plus(*life),
                    life: *life,
                    holds: plan.holds,
                    wants: plan.wants,
                },
                now,
            );
            let value = Value::new(shared.next_version(), next.to_bytes());
            shared.check_breaker(&self.key)?;
            shared.swaps.fetch_add(1, Ordering::Relaxed);
            RemoteMetrics(S::NAME).batch_sent(1);
            let sent_at = MonotonicClock.now();
            let ttl = next.time_to_live(now);
            let swap = pin!(shared.store.swap(&self.key, *version, &value, ttl));
            match shared.call_until(&self.key, ends_at, swap).await {
                Ok(Swapped::Done(server_time)) => {
                    shared.time.learn(sent_at, server_time);
                    self.contention.success();
                    self.unsure_until = Tick::ZERO;
                    // Others compute the store's time with an error of up to a deadline.
                    self.valid_until = sent_at.plus(life.saturating_sub(shared.deadline));
                    self.renews_at = sent_at.plus(*life / 3);
                    self.known = Some((Some(value.version), next));
                    self.holder.confirm(&plan, view.others, self.valid_until);
                    return Ok(plan);
                }
                Ok(Swapped::Conflict(current)) => {
                    shared.conflicts.fetch_add(1, Ordering::Relaxed);
                    let was_contended = self.contention.is_contended();
                    self.contention.conflict(shared.deadline);
                    (self.known, read_at) = (None, None);
                    match current {
                        Some(current) if !was_contended => {
                            read_at = Some(shared.time.learn(sent_at, current.server_time));
                            self.known = Some(Self::read(current)?);
                        }
                        // What was read before a pause may be old.
                        _ => {
                            let waited = MonotonicClock.now().since(begun);
                            let window = self.contention.window(waited, shared.deadline);
                            shared.pause(window).await;
                        }
                    }
                }
                Err(error) => {
                    (self.known, read_at) = (None, None);
                    self.unsure_until = sent_at.plus(*life);
                    self.pause_after(error, ends_at).await?;
                }
            }
        }
    }

    fn read(loaded: Loaded) -> Result<(Option<Version>, Held), StoreError> {
        let Some(value) = loaded.value else {
            return Ok((None, Held::default()));
        };
        let held = Held::from_bytes(&value.bytes);
        let held = held.ok_or_else(|| Failure::Damaged.in_store(S::NAME))?;
        Ok((Some(value.version), held))
    }

    /// Waits before an operation is tried again, or returns the error if it is not.
    async fn pause_after(&self, error: StoreError, ends_at: Tick) -> Result<(), StoreError> {
        if !error.is_transient() || MonotonicClock.now() >= ends_at {
            return Err(error);
        }
        self.leases.shared.pause(ERROR_PAUSE).await;
        Ok(())
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
            self.holder.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_told_what_changes_for_others() {
        let plan = |(holds, wants)| LeasePlan {
            holds,
            wants,
            grants: holds,
        };
        for (known, planned, is_told) in [
            (None, (0, 0), false),
            (None, (1, 0), true),
            (None, (0, 1), true),
            (Some((2, 2)), (2, 2), false),
            (Some((2, 2)), (1, 1), true),
            // It begins to wait, waits for more, and waits no more.
            (Some((2, 2)), (2, 3), true),
            (Some((2, 3)), (2, 4), false),
            (Some((2, 3)), (2, 2), true),
        ] {
            let own = known.map(|(holds, wants)| Holding {
                machine: 1,
                expires_at: Tick::ZERO,
                life: Duration::ZERO,
                holds,
                wants,
            });
            let is_due = is_due(own, &plan(planned));
            assert_eq!(is_due, is_told, "{known:?} to {planned:?}");
        }
    }
}
