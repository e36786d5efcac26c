//! Another limiter while one cannot decide.

use std::{
    borrow::Borrow,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use crate::backend::{Backend, IntoBackend, Losses, Op};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::quota::Quota;
use crate::store::events::{SwitchEvent, switched};
use crate::sync::{AtomicU64, Ordering};

/// Asks the first limiter, and where that cannot decide the second one.
///
/// For a limit of a whole fleet the second one is a limit in this process, best of the N-th part
/// of the quota on each of N machines, so that an outage neither opens the gates nor closes them:
///
/// ```
/// use tower_throttle::store::{Backend, Fallback};
///
/// fn with_spare<K, P, S>(fleet: P, this_machine: S) -> Fallback<P, S>
/// where
///     P: Backend<K>,
///     S: Backend<K>,
/// {
///     Fallback::new(fleet, this_machine)
/// }
/// ```
///
/// Only an error that passes by itself ([`StoreError::is_transient`]) is covered for. One that
/// somebody has to mend (a wrong password, a key that another program wrote) is answered as it is:
/// covering for it would hide it.
///
/// Each switch is counted (also as `tower_throttle_switches_total`, with the feature `metrics`) and
/// logged (feature `tracing`).
///
/// Each machine that has begun to use its second limiter may admit what that one admits once more,
/// beyond the first limiter's promise. What the second one admitted is not told to the first one
/// later.
pub struct Fallback<P, S>(Arc<FallbackInner<P, S>>);

struct FallbackInner<P, S> {
    first: P,
    second: S,
    /// Calls that the second limiter decided.
    covered: AtomicU64,
    /// Times that deciding passed from one limiter to the other; odd while the second one decides.
    switches: AtomicU64,
}

impl<P, S> Fallback<P, S> {
    /// Asks `first`, and where that cannot decide `second`.
    pub fn new(first: P, second: S) -> Self {
        Self(Arc::new(FallbackInner {
            first,
            second,
            covered: AtomicU64::new(0),
            switches: AtomicU64::new(0),
        }))
    }

    /// How many calls the second limiter has decided.
    pub fn covered(&self) -> u64 {
        self.0.covered.load(Ordering::Relaxed)
    }

    /// How many times deciding has passed from one limiter to the other.
    pub fn switches(&self) -> u64 {
        self.0.switches.load(Ordering::Relaxed)
    }

    /// Whether the last call was decided by the second limiter.
    pub fn is_covering(&self) -> bool {
        self.switches() % 2 == 1
    }
}

impl<P, S> FallbackInner<P, S> {
    /// Notes who decides now. Of callers that see the same switch one counts it.
    fn decides(&self, second: bool) {
        let switches = self.switches.load(Ordering::Relaxed);
        if (switches % 2 == 1) != second {
            let counted = self.switches.compare_exchange(
                switches,
                switches + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if counted.is_ok() {
                switched(if second {
                    SwitchEvent::FallbackOn
                } else {
                    SwitchEvent::FallbackOff
                });
            }
        }
        if second {
            self.covered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<K, P, S> Backend<K> for Fallback<P, S>
where
    K: ToOwned<Owned: Send + Unpin + 'static> + ?Sized + 'static,
    P: Backend<K, Future: Unpin>,
    S: Backend<K, Future: Unpin>,
{
    type Future = FallbackFuture<K, P, S>;

    fn apply(&self, key: &K, op: Op) -> Self::Future {
        FallbackFuture {
            both: Arc::clone(&self.0),
            key: key.to_owned(),
            op,
            asked: FallbackState::Primary(self.0.first.apply(key, op)),
        }
    }

    /// To the one that decides now.
    fn detach(&self, key: &K, op: Op) {
        if self.is_covering() {
            self.0.second.detach(key, op);
        } else {
            self.0.first.detach(key, op);
        }
    }

    /// The second limiter's too.
    fn losses(&self) -> Losses {
        self.0.first.losses() + self.0.second.losses()
    }

    /// The first limiter's.
    fn quotas(&self) -> Vec<Quota> {
        self.0.first.quotas()
    }

    fn limits(&self) -> usize {
        self.0.first.limits()
    }
}

impl<P, S> IntoBackend for Fallback<P, S>
where
    P: Send + Sync + 'static,
    S: Send + Sync + 'static,
{
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

/// By hand: a clone shares both limiters and the counts.
impl<P, S> Clone for Fallback<P, S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P: fmt::Debug, S: fmt::Debug> fmt::Debug for Fallback<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback")
            .field("first", &self.0.first)
            .field("second", &self.0.second)
            .field("covered", &self.covered())
            .field("switches", &self.switches())
            .finish()
    }
}

/// A decision on its way from one of the limiters of a [`Fallback`].
#[must_use = "futures do nothing unless polled"]
pub struct FallbackFuture<K, P, S>
where
    K: ToOwned + ?Sized,
    P: Backend<K>,
    S: Backend<K>,
{
    both: Arc<FallbackInner<P, S>>,
    key: K::Owned,
    op: Op,
    asked: FallbackState<P::Future, S::Future>,
}

enum FallbackState<P, S> {
    Primary(P),
    Secondary(S),
}

impl<K, P, S> Future for FallbackFuture<K, P, S>
where
    K: ToOwned<Owned: Unpin> + ?Sized,
    P: Backend<K, Future: Unpin>,
    S: Backend<K, Future: Unpin>,
{
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match &mut this.asked {
                FallbackState::Primary(first) => match Pin::new(first).poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) if error.is_transient() => {
                        this.both.decides(true);
                        let key: &K = this.key.borrow();
                        this.asked = FallbackState::Secondary(this.both.second.apply(key, this.op));
                    }
                    Poll::Ready(heard) => {
                        if heard.is_ok() {
                            this.both.decides(false);
                        }
                        return Poll::Ready(heard);
                    }
                },
                FallbackState::Secondary(second) => return Pin::new(second).poll(cx),
            }
        }
    }
}

impl<K, P, S> fmt::Debug for FallbackFuture<K, P, S>
where
    K: ToOwned + ?Sized,
    P: Backend<K>,
    S: Backend<K>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = match self.asked {
            FallbackState::Primary(_) => "first",
            FallbackState::Secondary(_) => "second",
        };
        f.debug_struct("FallbackFuture")
            .field("op", &self.op)
            .field("asked", &asked)
            .finish_non_exhaustive()
    }
}
