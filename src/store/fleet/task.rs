//! The task that exchanges reports with the store.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::{runtime::Handle, task::JoinSet};

use super::machine::Machine;
use super::quota::adopt_changes;
use super::under_way::{UnderWay, flush};
use crate::clock::{Clock, MonotonicClock, Tick, Timer};
use crate::error::StoreError;
use crate::store::{
    cas::{CasStore, error::Failure},
    events::RemoteMetrics,
    remote::Server,
};
use crate::sync::Ordering;

/// How long a limiter that is dropped takes to exchange what is left at most.
const FLUSH_TIME: Duration = Duration::from_secs(1);
/// Records of keys that were not exchanged for so long, or twice as long, are dropped.
const RECORDS_PERIOD: Duration = Duration::from_secs(10);
/// The metric of the lag is set this often at most.
const LAG_PERIOD: Duration = Duration::from_secs(1);

/// A machine whose task ends when the last clone of its limiter is dropped.
pub(in crate::store) struct Owner<M: Machine>(pub(in crate::store) Arc<M>);

impl<M: Machine> Drop for Owner<M> {
    fn drop(&mut self) {
        self.0.link().close();
    }
}

/// Starts the task, if it does not run: at first, and if its runtime was shut down.
pub(in crate::store) fn ensure_running<M: Machine>(machine: &Arc<M>) -> Result<(), StoreError> {
    if machine.link().is_running() {
        return Ok(());
    }
    let Ok(runtime) = Handle::try_current() else {
        return Err(Failure::OutsideOfRuntime.in_store(M::Store::NAME));
    };
    if machine.link().start() {
        let task = Task {
            machine: Arc::clone(machine),
        };
        runtime.spawn(task.run());
    }
    Ok(())
}

struct Task<M: Machine> {
    machine: Arc<M>,
}

/// The exchanges of a machine since the last tick, to find out whether the store replies.
#[derive(Default)]
struct Replies {
    replied: u64,
    unanswered: u64,
    /// Ticks in a row without a reply.
    missed: u32,
}

impl<M: Machine> Task<M> {
    async fn run(self) {
        let machine = &self.machine;
        let mut exchanges = JoinSet::new();
        let mut replies = Replies::default();
        let mut progress = M::Progress::default();
        let (mut lag_reported_at, mut dropped_at) = (Tick::ZERO, MonotonicClock.now());
        let mut sleep = pin!(self.tick());
        while !machine.link().is_closing.load(Ordering::Acquire) {
            let is_tick = self.next_wake(&mut exchanges, sleep.as_mut()).await;
            if is_tick {
                sleep.set(self.tick());
                self.count_missed(&mut replies);
                self.report_lag(&mut lag_reported_at);
                let now = MonotonicClock.now();
                if now.since(dropped_at) >= RECORDS_PERIOD {
                    dropped_at = now;
                    machine.link().exchanger.drop_unused();
                }
                machine.begin_tick();
                adopt_changes(&**machine).await;
            }
            while exchanges.try_join_next().is_some() {}
            let limit = machine.link().exchange_limit.now();
            let most = if machine.link().shared().breakers.is_open(&Server::Single) {
                // One exchange finds out whether the store replies again.
                usize::from(is_tick && exchanges.is_empty())
            } else {
                limit.saturating_sub(exchanges.len())
            };
            for outgoing in machine.collect_due(&mut progress, is_tick, most) {
                let under_way = UnderWay::new(Arc::clone(machine), outgoing);
                exchanges.spawn(async move {
                    // Its error is kept, and the report is sent again.
                    let _ = under_way.run().await;
                });
            }
        }
        M::end_exchanges(exchanges).await;
        self.flush_for(FLUSH_TIME).await;
    }

    /// Exchanges what is left when the last clone has been dropped.
    async fn flush_for(&self, longest: Duration) {
        let ends_at = MonotonicClock.now().plus(longest);
        let mut flush = pin!(flush(&self.machine));
        let mut end = pin!(MonotonicClock.sleep_until(ends_at));
        poll_fn(|cx| match flush.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => end.as_mut().poll(cx),
        })
        .await;
    }

    /// The time to the next tick, up to a tenth shorter, so that machines do not keep in step.
    fn tick(&self) -> impl Future<Output = ()> + use<M> {
        let length = self.machine.tick_length();
        let jitter = self.machine.link().shared().random_below(length / 10);
        MonotonicClock.sleep_until(MonotonicClock.now().plus(length.saturating_sub(jitter)))
    }

    /// Waits for the next tick, for keys that cannot wait, or for the end of an exchange. Returns
    /// whether it is time for a tick.
    async fn next_wake(
        &self,
        exchanges: &mut JoinSet<()>,
        mut sleep: Pin<&mut impl Future<Output = ()>>,
    ) -> bool {
        let mut urgent = pin!(self.machine.link().wake.notified());
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

    /// Notes whether the store has replied since the last tick. One refusal is enough: it stays.
    fn count_missed(&self, seen: &mut Replies) {
        let link = self.machine.link();
        let done = link.done.load(Ordering::Relaxed);
        let unanswered = link.unanswered.load(Ordering::Relaxed);
        let replied = done + link.failed.load(Ordering::Relaxed) - unanswered;
        if replied > seen.replied {
            seen.missed = 0;
        } else if unanswered > seen.unanswered {
            seen.missed = seen.missed.saturating_add(1);
        }
        (seen.replied, seen.unanswered) = (replied, unanswered);
        let longest = if link.is_refused() {
            1
        } else {
            self.machine.cut_off_after()
        };
        link.set_cut_off(seen.missed >= longest);
    }

    /// Sets the metric, at most once per second: to find the oldest change, it looks at every key.
    fn report_lag(&self, reported_at: &mut Tick) {
        let now = MonotonicClock.now();
        if cfg!(feature = "metrics") && now.since(*reported_at) >= LAG_PERIOD {
            *reported_at = now;
            M::report_lag(RemoteMetrics(M::Store::NAME), self.machine.lag());
        }
    }
}

/// Lets another task take over, if the runtime is shut down.
impl<M: Machine> Drop for Task<M> {
    fn drop(&mut self) {
        self.machine.link().stop();
    }
}
