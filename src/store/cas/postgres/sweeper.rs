//! The task that removes expired rows.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use tokio::{runtime::Handle, task::AbortHandle};

use super::statements::Calls;
use crate::clock::{Clock, MonotonicClock, Timer};
use crate::error::StoreError;
use crate::store::{deadline::within, remote::catch_panic};
use crate::sync::{Mutex, lock};

/// Rows per statement: a short transaction, whose locks delay few decisions, and by little.
pub(super) const BATCH: u32 = 100;
/// How long a statement may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What the sweeps in the background have done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sweeps {
    /// Rows that were removed.
    pub removed: u64,
    /// Sweeps that failed.
    pub failures: u64,
    /// Why the last one failed, if none has succeeded since.
    pub last_error: Option<StoreError>,
}

/// Sweeps in the background while it exists.
#[derive(Debug)]
pub(super) struct Sweeper {
    /// `None` if the table is not swept.
    interval: Option<Duration>,
    task: Mutex<Option<AbortHandle>>,
    sweeps: Arc<Mutex<Sweeps>>,
}

impl Sweeper {
    pub(super) fn new(interval: Option<Duration>) -> Self {
        Self {
            interval,
            task: Mutex::default(),
            sweeps: Arc::default(),
        }
    }

    pub(super) const fn interval(&self) -> Option<Duration> {
        self.interval
    }

    pub(super) fn sweeps(&self) -> Sweeps {
        lock(&self.sweeps).clone()
    }

    /// Starts the task, or starts it again if it ended: with its runtime, or by a panic.
    pub(super) fn start(&self, calls: &Calls) {
        let Some(interval) = self.interval else {
            return;
        };
        let mut task = lock(&self.task);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let run = run(calls.clone(), interval, Arc::clone(&self.sweeps));
            *task = Some(runtime.spawn(run).abort_handle());
        }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }
}

async fn run(calls: Calls, interval: Duration, sweeps: Arc<Mutex<Sweeps>>) {
    let random = RandomState::new();
    for round in 0_u64.. {
        // Between half the interval and the whole, so that machines do not sweep all at once.
        let part = u32::try_from(random.hash_one(round) % 1_024).unwrap_or(0);
        let pause = interval / 2 + interval / 2 * part / 1_024;
        let sweeps_at = MonotonicClock.now().plus(pause);
        MonotonicClock.sleep_until(sweeps_at).await;
        sweep_all(&calls, &sweeps).await;
    }
}

/// Sweeps until fewer rows are due than fit in a batch.
async fn sweep_all(calls: &Calls, sweeps: &Mutex<Sweeps>) {
    loop {
        let ends_at = MonotonicClock.now().plus(TIMEOUT);
        let sweep = catch_panic("PostgreSQL", calls.sweep(BATCH));
        let swept = within(ends_at, sweep).await.unwrap_or_else(|| {
            let text = format!("PostgreSQL: a sweep did not end within {TIMEOUT:?}");
            Ok(Err(StoreError::new(text, true)))
        });
        let swept = swept.and_then(|swept| swept);
        let mut sweeps = lock(sweeps);
        match swept {
            Ok(swept) => {
                sweeps.removed += swept.removed;
                sweeps.last_error = None;
                if swept.read < u64::from(BATCH) {
                    return;
                }
            }
            Err(error) => {
                sweeps.failures += 1;
                sweeps.last_error = Some(error);
                return;
            }
        }
    }
}
