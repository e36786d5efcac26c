//! A waker for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

/// Counts how often it was woken.
#[derive(Default)]
pub(super) struct TestWaker(AtomicUsize);

impl TestWaker {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for TestWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
