//! Waiting for what another task, another machine or a server does.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::{task::yield_now, time::Instant};

/// How long it may take under load.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until it is so.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "timed out waiting until {what}");
        yield_now().await;
    }
}

/// The result of the first call of a store, which on a busy machine takes its time to connect.
pub async fn connected<T, E: ToString>(
    mut call: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut last = None;
    until("it connects", async || {
        let result = call().await;
        let is_late = |error: &E| error.to_string().contains("no connection within");
        let is_over = !result.as_ref().is_err_and(is_late);
        last = Some(result);
        is_over
    })
    .await;
    last.expect("a result")
}

/// The output of a future, if it is ready at the first poll.
pub fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
