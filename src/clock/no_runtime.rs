//! Without the feature `tokio` there are no runtimes, and time is never paused.

use std::{convert::Infallible, future::Pending, pin::Pin, task::Waker};

use super::Tick;

pub(super) const IS_PAUSABLE: bool = false;

pub(super) const fn now() -> Option<Tick> {
    None
}

/// Never constructed.
pub(super) type TokioSleep = Pin<Box<Pending<()>>>;

pub(super) const fn sleep_until(_: Tick) -> Option<TokioSleep> {
    None
}

/// Never constructed.
#[derive(Debug)]
pub(super) struct RuntimeTimer(Infallible);

impl RuntimeTimer {
    pub(super) const fn of_caller() -> Option<Self> {
        None
    }

    pub(super) const fn serves_caller(&self) -> bool {
        match self.0 {}
    }

    pub(super) const fn set(&mut self, _: Tick, _: Tick, _: &Waker) -> bool {
        match self.0 {}
    }
}
