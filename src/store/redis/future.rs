//! A decision on its way from Redis.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::batch::{self, PendingCall};
use super::{RedisLimiter, deny_cache::CacheVersion, params::Call};
use super::{live_policy::ActivePolicy, script::Scripted};
use crate::decision::Decision;
use crate::error::StoreError;

/// What is told in the end.
pub(super) type DecisionResult = Result<Decision, StoreError>;

/// A decision on its way from Redis.
///
/// # Cancel safety
/// A call starts when it is polled for the first time, or before. Dropped before its turn came it
/// is never sent; dropped later it has been counted, or will be.
#[must_use = "futures do nothing unless polled"]
pub struct RedisFuture<A: Scripted> {
    pub(super) limiter: RedisLimiter<A>,
    /// As it was asked with.
    pub(super) tuned: Arc<ActivePolicy<A>>,
    pub(super) call: Call,
    pub(super) state: FutureState,
    /// The name under which to remember a denial.
    pub(super) watch: Option<(String, CacheVersion)>,
}

#[derive(Debug)]
pub(super) enum FutureState {
    Pending(PendingCall),
    /// What was known without asking, until it is told.
    Ready(Option<DecisionResult>),
}

impl<A: Scripted> Future for RedisFuture<A> {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let heard = match &mut self.state {
            FutureState::Ready(known) => {
                return known.take().map_or(Poll::Pending, Poll::Ready);
            }
            FutureState::Pending(answer) => match answer.poll(cx) {
                Poll::Ready(heard) => heard,
                Poll::Pending => return Poll::Pending,
            },
        };
        self.state = FutureState::Ready(None);
        let watch = self.watch.take();
        Poll::Ready(match heard {
            Some(Ok(answer)) => self
                .limiter
                .hear(&self.tuned.algorithm, self.call, &answer, watch),
            Some(Err(error)) => Err(error),
            None => Err(batch::late(self.limiter.deadline())),
        })
    }
}

impl<A: Scripted> fmt::Debug for RedisFuture<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFuture")
            .field("call", &self.call)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
