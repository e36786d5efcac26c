//! Permanent errors of a store.

use std::time::Duration;

use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::sync::{Mutex, lock};

/// The same error is logged again after this time.
const SILENCE: Duration = Duration::from_secs(600);
/// So many different errors are logged in that time.
const MAX_CAUSES: usize = 16;

/// Logs permanent errors, once per cause: a store refuses each of a thousand calls per second alike.
#[derive(Debug)]
pub(in crate::store) struct RefusalLog(Mutex<Vec<(StoreError, Tick)>>);

impl RefusalLog {
    pub(in crate::store) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    #[cold]
    pub(in crate::store) fn record(&self, store: &str, error: &StoreError) {
        let now = MonotonicClock.now();
        let mut logged = lock(&self.0);
        logged.retain(|(_, at)| now.since(*at) < SILENCE);
        if logged.len() >= MAX_CAUSES || logged.iter().any(|(cause, _)| cause == error) {
            return;
        }
        logged.push((error.clone(), now));
        drop(logged);
        tracing::error!(
            target: "tower_throttle",
            cause = %error,
            "{store} refuses calls: an operator has to correct this"
        );
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn an_error_is_logged_again_after_ten_minutes() {
        let (log, error) = (RefusalLog::new(), StoreError::new("refused", false));
        let logged_at = || {
            log.record("Redis", &error);
            lock(&log.0)[0].1
        };
        let first = logged_at();
        advance(SILENCE.saturating_sub(Duration::from_millis(1))).await;
        assert_eq!(logged_at(), first);
        advance(Duration::from_millis(1)).await;
        assert_eq!(logged_at(), first.plus(SILENCE));
    }
}
