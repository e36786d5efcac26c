//! Every store that refuses, times every mode.

use std::time::Duration;

use tokio::time::Instant;
use tower_throttle::store::{
    Backend, Fallback,
    cas::{Cas, CasStore, Loaded, Swapped, Value},
    fleet::{Leased, Synced},
};
use tower_throttle::{FixedWindow, Local, Quota, StoreError};

use crate::operator::alerts::counted;
use crate::operator::log::log;
use crate::operator::measured::{Measured, SECRET, measured};

fn window() -> FixedWindow {
    FixedWindow::new(Quota::per(1_000_000, Duration::from_secs(1_000_000)))
}

/// A store of a user's own that refuses every call, or only swaps.
#[derive(Clone, Copy, Debug)]
struct Refusing {
    loads: bool,
}

const REFUSED: &str = "the account of this store is closed";

impl CasStore for Refusing {
    const NAME: &'static str = "own";

    async fn load(&self, _: &str) -> Result<Loaded, StoreError> {
        if self.loads {
            return Ok(Loaded::default());
        }
        Err(StoreError::new(REFUSED, false))
    }

    async fn swap(
        &self,
        _: &str,
        _: Option<u64>,
        _: &Value,
        _: Duration,
    ) -> Result<Swapped, StoreError> {
        Err(StoreError::new(REFUSED, false))
    }
}

/// The first error of a limit, which may decide by itself until it has heard of the store. A busy machine may
/// take longer to connect than a call may.
async fn first_error(limit: &impl Backend<str>) -> StoreError {
    let begun = Instant::now();
    loop {
        match limit.decide(SECRET, 1).await {
            Err(error) if !error.to_string().contains("no decision within") => return error,
            _ => tokio::task::yield_now().await,
        }
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(60), "it goes on without store");
    }
}

/// A limit of a store that refuses returns what the store says, as a permanent error, and reports it.
async fn check(limit: &impl Backend<str>, store: &str, cause: &str, metrics: &Measured) {
    let _ = log();
    let count = || counted("ThrottleStorePermanentErrors", store, metrics);
    let before = count();
    let error = first_error(limit).await;
    let text = error.to_string();
    assert!(!error.is_transient(), "{store}: {text}");
    assert!(text.contains(cause), "{store}: {text}");
    let is_right = !text.contains("whether the call was counted");
    assert!(is_right, "{store}: {text}");
    for _ in 0..50 {
        // It stays.
        let error = limit.decide(SECRET, 1).await.expect_err("a refusal");
        assert!(!error.is_transient(), "{store}: {error}");
    }
    assert!(count() > before, "{store}: the alert does not fire");
    let text = log();
    let lines: Vec<_> = text.lines().filter(|line| line.contains(cause)).collect();
    assert!((1..=4).contains(&lines.len()), "{store}: {text}");
    let expected = format!("ERROR tower_throttle: {store} refuses calls");
    assert!(lines[0].contains(&expected), "{text}");
}

/// What every limiter of a store that refuses says of it.
fn check_reports(last_error: Option<StoreError>, cause: &str) {
    let error = last_error.expect("an error");
    assert!(error.to_string().contains(cause), "{error}");
}

/// The modes of a store with a compare-and-swap. It refuses in the same way each time `store` makes one.
async fn check_modes<S: CasStore>(store: impl Fn() -> S, cause: &str, metrics: &Measured) {
    let name = S::NAME;
    let exact = Cas::new(store(), "exact", window()).expect("a limit");
    let exact = exact.deadline(Duration::from_secs(5));
    check(&exact, name, cause, metrics).await;
    // A mistake is no outage: no fallback stands in.
    let fallback = Cas::new(store(), "fallback", window()).expect("a limit");
    let fallback = fallback.deadline(Duration::from_secs(5));
    let local = Local::new(window());
    let limit = Fallback::new(fallback, local);
    check(&limit, name, cause, metrics).await;
    let interval = Duration::from_millis(10);
    let synced = Synced::new(store(), "synced", window()).expect("a limit");
    let synced = synced.interval(interval);
    check(&synced, name, cause, metrics).await;
    check_reports(synced.last_error(), cause);
    let leased = Leased::new(store(), "leased", window()).expect("a limit");
    check(&leased, name, cause, metrics).await;
    check_reports(leased.last_error(), cause);
    let calls = format!("tower_throttle_store_call_seconds store={name} outcome=permanent");
    assert!(metrics.all(&calls).len() >= 100);
    let batches = format!("tower_throttle_store_batch_size store={name}");
    assert!(metrics.all(&batches).iter().all(|size| *size >= 1.0));
}

/// Shows promise 97.
#[test]
fn a_store_of_a_users_own_that_refuses_is_no_outage_in_any_mode() {
    measured(|metrics| async move {
        for loads in [false, true] {
            check_modes(|| Refusing { loads }, REFUSED, &metrics).await;
        }
    });
}
