//! Where the tasks of this crate run, and their panics.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
};

use tokio::runtime::Handle;

use crate::error::StoreError;

/// The runtime of a call to `store`.
pub(crate) fn runtime(store: &str) -> Result<Handle, StoreError> {
    let outside = |_| StoreError::new(format!("{store}: called outside of a tokio runtime"), false);
    Handle::try_current().map_err(outside)
}

/// Runs `future`, a call to `store`. Returns a permanent error if it panics: a panic is a bug or a
/// wrong configuration, not an outage, so nothing may stand in for the store meanwhile.
pub(crate) async fn catch_panic<F: Future>(
    store: &str,
    future: F,
) -> Result<F::Output, StoreError> {
    let mut future = pin!(future);
    poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => {
                let message = format!("{store}: the client panicked: {}", text(&*panic));
                std::task::Poll::Ready(Err(StoreError::new(message, false)))
            }
        },
    )
    .await
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_permanent_error_with_its_message() {
        assert_eq!(catch_panic("Redis", async { 7 }).await, Ok(7));
        let error = catch_panic("Redis", async { panic!("no crypto {}", "provider") }).await;
        let error: StoreError = error.map(|(): ()| ()).unwrap_err();
        assert!(!error.is_transient());
        assert!(error.to_string().contains("no crypto provider"), "{error}");
    }
}
