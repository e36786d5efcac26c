//! Waiting for what another task, another machine or a server does.

use std::time::Duration;

use tokio::{task::yield_now, time::Instant};
use tower_throttle::StoreError;

/// How long it may take under load.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "timed out waiting until {what}");
        yield_now().await;
    }
}

/// The result of the first call of a store, which on a busy machine takes its time to connect.
#[allow(dead_code, reason = "for stores on servers")]
pub(crate) async fn connected<T>(
    mut call: impl AsyncFnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut last = None;
    until("it connects", async || {
        let result = call().await;
        let is_late = |error: &StoreError| error.to_string().contains("no connection within");
        let is_over = !result.as_ref().is_err_and(is_late);
        last = Some(result);
        is_over
    })
    .await;
    last.expect("a result")
}
