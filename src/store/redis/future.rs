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
    executor::{ScriptExecutor, decode},
    kernel::Kernels,
    server::Redis,
};
use crate::algorithm::Algorithm;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::{
    cas::CasFuture,
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
pub struct RedisFuture<A: Algorithm>(State<A>);

/// What the reply does to the cache of denials.
#[derive(Debug)]
pub(super) enum Caching {
    Nothing,
    /// Its denial is cached.
    Denial(CacheSlot),
    /// That of the key is forgotten: a call that was made later may have been executed earlier.
    Forgets(Arc<DenyCache>, String),
}

enum State<A: Algorithm> {
    Script {
        kernels: Arc<Kernels>,
        call: Call,
        pending: PendingCall<ScriptExecutor>,
        caching: Caching,
    },
    Swap(CasFuture<Redis, A>),
    /// A result that was known without a call; `None` after it was returned.
    Ready(Option<DecisionResult>),
}

impl<A: Algorithm> RedisFuture<A> {
    /// A call in flight.
    pub(super) const fn pending(
        kernels: Arc<Kernels>,
        call: Call,
        pending: PendingCall<ScriptExecutor>,
        caching: Caching,
    ) -> Self {
        Self(State::Script {
            kernels,
            call,
            pending,
            caching,
        })
    }

    pub(super) const fn swap(decision: CasFuture<Redis, A>) -> Self {
        Self(State::Swap(decision))
    }

    /// A result that needs no call.
    pub(super) const fn ready(result: DecisionResult) -> Self {
        Self(State::Ready(Some(result)))
    }
}

impl<A: Algorithm> Future for RedisFuture<A> {
    type Output = DecisionResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<DecisionResult> {
        let poll = match &mut self.0 {
            State::Ready(result) => return result.take().map_or(Poll::Pending, Poll::Ready),
            State::Swap(decision) => return Pin::new(decision).poll(cx),
            State::Script { pending, .. } => pending.poll(cx),
        };
        let Poll::Ready(result) = poll else {
            return Poll::Pending;
        };
        let State::Script {
            kernels,
            call,
            caching,
            ..
        } = mem::replace(&mut self.0, State::Ready(None))
        else {
            return Poll::Pending;
        };
        if let Caching::Forgets(cache, key) = &caching {
            cache.invalidate(key);
        }
        Poll::Ready(result.and_then(|reply| {
            let decision = decode(&kernels, call, &reply)
                .inspect_err(|_| RemoteMetrics(STORE).reply_unusable())?;
            if let Caching::Denial(slot) = caching {
                let next = || kernels.next_denial(call.cost(), &reply, decision);
                let denial = if decision.is_denied() {
                    Some(decision)
                } else {
                    next()
                };
                if let Some(denial) = denial {
                    slot.insert(call.cost(), denial);
                }
            }
            Ok(decision)
        }))
    }
}

/// Manual impl: the key is not logged.
impl<A: Algorithm> fmt::Debug for RedisFuture<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFuture").finish_non_exhaustive()
    }
}
