//! Where the tasks of this crate run, and their panics.

use std::{
    any::Any,
    cell::Cell,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::OnceLock,
    task::Poll,
};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::StoreError;

/// The runtime of a call to `store`.
pub(crate) fn runtime(store: &str) -> Result<Handle, StoreError> {
    let outside = |_| StoreError::new(format!("{store}: called outside of a tokio runtime"), false);
    Handle::try_current().map_err(outside)
}

thread_local! {
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is a thread of [`own_runtime`].
pub(crate) fn is_own_thread() -> bool {
    IS_OWN.get()
}

/// A runtime with threads of its own, for batches of calls. In the runtime of the callers, if that has too much to do, they
/// would wait for all its other tasks, and be the later the more calls are made. `None` if there are no threads for it.
fn own_runtime() -> Option<Handle> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let start = || {
        // While one ends the calls of a batch, another one goes on with what locks rows.
        Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("tower-throttle-store")
            .on_thread_start(|| IS_OWN.set(true))
            .enable_all()
            .build()
            .ok()
    };
    let runtime = RUNTIME.get_or_init(start).as_ref();
    runtime.map(|runtime| runtime.handle().clone())
}

/// Where the tasks that call `store` run: on threads of their own, or in the runtime of the caller.
pub(crate) fn task_runtime(store: &str, has_own_threads: bool) -> Result<Handle, StoreError> {
    let own = if has_own_threads { own_runtime() } else { None };
    own.map_or_else(|| runtime(store), Ok)
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
                let message = format!("{store}: a panic: {}", text(&*panic));
                Poll::Ready(Err(StoreError::new(message, false)))
            }
        },
    )
    .await
}

/// The outputs of some futures, which run at the same time.
pub(crate) async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures
        .into_iter()
        .map(|one| (Box::pin(one), None))
        .collect();
    poll_fn(|cx| {
        for (future, output) in &mut futures {
            if output.is_none() {
                if let Poll::Ready(ready) = future.as_mut().poll(cx) {
                    *output = Some(ready);
                }
            }
        }
        if futures.iter().any(|(_, output)| output.is_none()) {
            return Poll::Pending;
        }
        Poll::Ready(futures.drain(..).filter_map(|(_, output)| output).collect())
    })
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
