//! The future of a decision.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::{
    call::Call,
    connection::STORE,
    executor::{CallReply, ScriptExecutor},
    policy::RedisPolicy,
    script::{Scripted, decode_reply},
};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::receipt::Receipt;
use crate::store::{
    events::RemoteMetrics,
    remote::{CacheSlot, DenyCache, PendingCall},
};

type DecisionResult = Result<Decision, StoreError>;

/// The decision of a [`RedisLimiter`](super::RedisLimiter), in flight.
///
/// It ends by the deadline wherever it is polled.
///
/// # Cancel safety
/// The call is sent when the future is first polled, or before. If it is dropped before the call was
/// sent, the call never is. If it is dropped later, the call is counted.
#[must_use = "futures do nothing unless polled"]
pub struct RedisFuture<A: Scripted> {
    /// The policy that the call was made with.
    policy: Arc<RedisPolicy<A>>,
    /// With the quota of the key, if that has its own.
    of_key: Option<Arc<A>>,
    call: Call,
    state: FutureState,
    caching: Caching,
}

/// What the reply does to the cache of denials.
#[derive(Debug)]
pub(super) enum Caching {
    Nothing,
    /// Its denial is cached.
    Denial(CacheSlot),
    /// That of the key is forgotten: a call that was made later may have been executed earlier.
    Forgets(Arc<DenyCache>, String),
}

#[derive(Debug)]
enum FutureState {
    Pending(PendingCall<ScriptExecutor>),
    /// A result that was known without a call; `None` after it was returned.
    Ready(Option<DecisionResult>),
}

impl<A: Scripted> RedisFuture<A> {
    /// A call in flight.
    pub(super) fn pending(
        (policy, of_key): (Arc<RedisPolicy<A>>, Option<Arc<A>>),
        call: Call,
        pending: PendingCall<ScriptExecutor>,
        caching: Caching,
    ) -> Self {
        Self {
            policy,
            of_key,
            call,
            state: FutureState::Pending(pending),
            caching,
        }
    }

    /// A result that needs no call.
    pub(super) const fn ready(
        policy: Arc<RedisPolicy<A>>,
        call: Call,
        result: DecisionResult,
    ) -> Self {
        Self {
            policy,
            of_key: None,
            call,
            state: FutureState::Ready(Some(result)),
            caching: Caching::Nothing,
        }
    }

    /// The decision of a reply. Caches the denial that it implies for the next request.
    fn decode(&mut self, reply: &CallReply) -> DecisionResult {
        let algorithm = self.of_key.as_deref().unwrap_or(&self.policy.algorithm);
        let at = reply.now;
        let reply = decode_reply(algorithm, self.call, reply.now, &reply.outcome)
            .inspect_err(|_| RemoteMetrics(STORE).reply_unusable())?;
        if let (Some(denial), Caching::Denial(slot), Call::Take(cost)) = (
            reply.next_denial,
            mem::replace(&mut self.caching, Caching::Nothing),
            self.call,
        ) {
            slot.insert(cost, denial);
        }
        let receipt = Receipt::at(at);
        Ok(reply.decision.with_receipt(receipt))
    }
}

impl<A: Scripted> Future for RedisFuture<A> {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut self.state {
            FutureState::Ready(result) => {
                return result.take().map_or(Poll::Pending, Poll::Ready);
            }
            FutureState::Pending(pending) => match pending.poll(cx) {
                Poll::Ready(result) => result,
                Poll::Pending => return Poll::Pending,
            },
        };
        self.state = FutureState::Ready(None);
        if let Caching::Forgets(cache, key) = &self.caching {
            cache.invalidate(key);
        }
        Poll::Ready(result.and_then(|reply| self.decode(&reply)))
    }
}

/// Manual impl: the key is not logged.
impl<A: Scripted> fmt::Debug for RedisFuture<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFuture")
            .field("call", &self.call)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
