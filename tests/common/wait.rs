//! Waiting for what another task, another machine or a server does.

use std::time::Duration;

use tokio::{task::yield_now, time::Instant};

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
