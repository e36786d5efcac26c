//! The task that takes units, renews leases and returns them.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::{runtime::Handle, task::JoinSet};

use super::exchange::Due;
use super::fleet::{Fleet, MAX_EXCHANGES, UnderWay};
use crate::algorithm::Algorithm;
use crate::clock::{Clock, MonotonicClock, Tick, Timer};
use crate::error::StoreError;
use crate::store::{
    cas::{CasStore, error::Failure},
    events::RemoteMetrics,
};
use crate::sync::Ordering;

/// How long a limiter that is dropped takes to return its leases at most.
const FLUSH_TIME: Duration = Duration::from_secs(1);
/// The metric of the lag is set this often at most.
const LAG_PERIOD: Duration = Duration::from_secs(1);

/// Starts the task, if it does not run: at first, and if its runtime was shut down.
pub(super) fn ensure_running<S: CasStore, A: Algorithm>(
    fleet: &Arc<Fleet<S, A>>,
) -> Result<(), StoreError> {
    if fleet.is_running() {
        return Ok(());
    }
    let Ok(runtime) = Handle::try_current() else {
        return Err(Failure::OutsideOfRuntime.in_store(S::NAME));
    };
    if fleet.start() {
        let task = Task {
            fleet: Arc::clone(fleet),
        };
        runtime.spawn(task.run());
    }
    Ok(())
}

/// Ends the task, which returns what is left.
pub(super) fn close_detached<S: CasStore, A: Algorithm>(fleet: &Arc<Fleet<S, A>>) {
    fleet.is_closing.store(true, Ordering::Release);
    fleet.wake.notify_one();
}

struct Task<S: CasStore, A: Algorithm> {
    fleet: Arc<Fleet<S, A>>,
}

impl<S: CasStore, A: Algorithm> Task<S, A> {
    async fn run(self) {
        let fleet = &self.fleet;
        let mut exchanges = JoinSet::new();
        let mut missed = 0_u32;
        let mut seen = (0, 0);
        // The next of the keys whose time has come, if more are left than could be exchanged.
        let mut place = None;
        let mut lag_reported_at = Tick::ZERO;
        let mut sleep = pin!(self.tick());
        while !fleet.is_closing.load(Ordering::Acquire) {
            let is_tick = self.next_wake(&mut exchanges, sleep.as_mut()).await;
            while exchanges.try_join_next().is_some() {}
            if is_tick {
                sleep.set(self.tick());
                self.count_missed(&mut missed, &mut seen);
                self.report_lag(&mut lag_reported_at);
                // Before anything that waits for the store.
                if fleet.clock.was_suspended() {
                    fleet.node.drop_units(fleet.clock.now());
                }
                self.adopt_changes().await;
            }
            let now = fleet.clock.now();
            if is_tick {
                fleet.node.forget_empty(now);
                place.get_or_insert_default();
            }
            let most = MAX_EXCHANGES.saturating_sub(exchanges.len());
            let mut outgoing = fleet.node.collect(now, Due::Urgent, most);
            if let Some(first) = place {
                let most = most - outgoing.len();
                let (due, next) = fleet.node.collect_from(first, now, Due::Round, most);
                outgoing.extend(due);
                place = next;
            }
            for outgoing in outgoing {
                let under_way = UnderWay::new(Arc::clone(fleet), outgoing);
                exchanges.spawn(async move {
                    // Its error is kept, and the report is sent again.
                    let _ = under_way.run().await;
                });
            }
        }
        // Exchanges that are under way may be taking units.
        while exchanges.join_next().await.is_some() {}
        self.flush_for(FLUSH_TIME).await;
    }

    /// Returns what is left when the last clone has been dropped.
    async fn flush_for(&self, longest: Duration) {
        let ends_at = MonotonicClock.now().plus(longest);
        let mut flush = pin!(self.fleet.flush());
        let mut end = pin!(MonotonicClock.sleep_until(ends_at));
        poll_fn(|cx| match flush.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => end.as_mut().poll(cx),
        })
        .await;
    }

    /// The time to the next look, up to a tenth shorter, so that machines do not keep in step.
    fn tick(&self) -> impl Future<Output = ()> + use<S, A> {
        let tick = self.fleet.settings.tick();
        let jitter = self.fleet.shared().random_below(tick / 10);
        MonotonicClock.sleep_until(MonotonicClock.now().plus(tick.saturating_sub(jitter)))
    }

    /// Waits for the next look, for keys that cannot wait, or for the end of an exchange. Returns
    /// whether it is time for a look.
    async fn next_wake(
        &self,
        exchanges: &mut JoinSet<()>,
        mut sleep: Pin<&mut impl Future<Output = ()>>,
    ) -> bool {
        let mut urgent = pin!(self.fleet.wake.notified());
        poll_fn(|cx| {
            if sleep.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            if urgent.as_mut().poll(cx).is_ready() {
                return Poll::Ready(false);
            }
            match exchanges.poll_join_next(cx) {
                Poll::Ready(Some(_)) => Poll::Ready(false),
                _ => Poll::Pending,
            }
        })
        .await
    }

    /// Notes whether the store has replied since the last look.
    fn count_missed(&self, missed: &mut u32, seen: &mut (u64, u64)) {
        let fleet = &self.fleet;
        let done = fleet.exchanges.done.load(Ordering::Relaxed);
        let unanswered = fleet.exchanges.unanswered.load(Ordering::Relaxed);
        let replied = done + fleet.exchanges.failed.load(Ordering::Relaxed) - unanswered;
        if replied > seen.0 {
            *missed = 0;
        } else if unanswered > seen.1 {
            *missed = missed.saturating_add(1);
        }
        *seen = (replied, unanswered);
        fleet.set_cut_off(*missed >= fleet.settings.cut_off_after);
    }

    /// Sets the metric, at most once per second: to find the oldest change, it looks at every key.
    fn report_lag(&self, reported_at: &mut Tick) {
        let now = MonotonicClock.now();
        if cfg!(feature = "metrics") && now.since(*reported_at) >= LAG_PERIOD {
            *reported_at = now;
            RemoteMetrics(S::NAME).leased_lag(self.fleet.lag());
        }
    }

    /// Adopts a quota that was changed for the fleet.
    async fn adopt_changes(&self) {
        let fleet = &self.fleet;
        if fleet.policy.is_refresh_due(MonotonicClock.now()) {
            fleet.policy.refresh(None).await;
        }
        let policy = fleet.policy.active();
        if policy.decider.algorithm.quota() != fleet.node.algorithm().quota() {
            // The quota was checked when it was set.
            let _ = fleet.node.set_algorithm(&policy.decider.algorithm);
        }
    }
}

/// Lets another task take over, if the runtime is shut down.
impl<S: CasStore, A: Algorithm> Drop for Task<S, A> {
    fn drop(&mut self) {
        self.fleet.stop();
    }
}
