//! The limit of a stream: what decides, and how its cost is awaited.

use std::task::{Context, Poll, ready};
use std::{fmt, future::Future, mem, pin::Pin, sync::Arc, time::Duration};

use crate::backend::{Backend, IntoBackend, Op};
use crate::clock::{Clock, MonotonicClock, Tick, Timer};
use crate::decision::{Decision, Verdict};
use crate::error::RateLimited;
use crate::receipt::Receipt;
use crate::sync::{Mutex, PoisonError};

/// The limit of one stream or body: one key of an algorithm, a [`Local`](crate::Local), a store, or another backend.
///
/// Clones share the limit, so streams that are given clones of one are limited together.
///
/// ```
/// use tower_throttle::{Local, Quota, TokenBucket, stream::StreamLimit};
///
/// let bucket = TokenBucket::new(Quota::per_second(10));
/// let of_one_stream = StreamLimit::new(bucket, ());
///
/// let per_user = Local::new(bucket);
/// let of_all_streams_of_alice = StreamLimit::new(per_user.clone(), "alice".to_owned());
/// # drop((of_one_stream, of_all_streams_of_alice));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a limit does nothing until it is given to a stream or a body"]
pub struct StreamLimit {
    source: Arc<dyn Take>,
    pub(super) terms: Terms,
}

/// The settings of a limit that are plain values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) max_wait: Duration,
    pub(super) denies_on_error: bool,
}

/// Waits without bound, and passes while a store is down.
pub(super) const TERMS: Terms = Terms {
    max_wait: Duration::MAX,
    denies_on_error: false,
};

impl StreamLimit {
    /// Counts by one key. `()` does for a limit that only this stream and clones of it have.
    ///
    /// Streams of one key take turns if the algorithm [books turns](crate::algorithm::reserve).
    /// Otherwise each tries again when it may be admitted, and any of them is first.
    ///
    /// While a store is down, everything passes, as in a layer; [`deny_on_store_error`](Self::deny_on_store_error)
    /// or a [`Fallback`](crate::store::Fallback) decides otherwise. An error that does not go away by itself fails.
    #[track_caller]
    pub fn new<L, K>(limiter: L, key: K) -> Self
    where
        L: IntoBackend<Backend: Backend<K>>,
        K: Send + Sync + 'static,
    {
        Self::of(Arc::new(limiter.into_backend()), key)
    }

    pub(super) fn of<B: Backend<K>, K: Send + Sync + 'static>(backend: Arc<B>, key: K) -> Self {
        Self {
            source: Arc::new(Keyed { backend, key }),
            terms: TERMS,
        }
    }

    /// How long a message, or a piece of a body, may wait; without bound unless set. What would wait longer
    /// fails at once with [`RateLimited`], and takes nothing. With zero nothing waits.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Quota, TokenBucket, stream::StreamLimit};
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(10));
    /// let or_fail = StreamLimit::new(bucket, ()).max_wait(Duration::ZERO);
    /// # drop(or_fail);
    /// ```
    pub const fn max_wait(mut self, max_wait: Duration) -> Self {
        self.terms.max_wait = max_wait;
        self
    }

    /// Lets messages fail while a store is down; they pass unless set. Those that fail have a
    /// [`store_error`](RateLimited::store_error).
    ///
    /// ```
    /// use tower_throttle::stream::StreamLimit;
    ///
    /// fn or_fail(limit: StreamLimit) -> StreamLimit {
    ///     limit.deny_on_store_error()
    /// }
    /// ```
    pub const fn deny_on_store_error(mut self) -> Self {
        self.terms.denies_on_error = true;
        self
    }
}

/// The cost that was taken, and the moment of its turn if it has waited.
type Taking = Pin<Box<dyn Future<Output = Result<(u64, Option<Tick>), RateLimited>> + Send>>;

/// A cost that a stream takes.
#[derive(Clone, Copy)]
struct Asked {
    cost: u64,
    divisible: bool,
    terms: Terms,
    /// When the last cost was due, if it has waited.
    turn: Option<Tick>,
}

/// What decides about a stream.
trait Take: fmt::Debug + Send + Sync {
    /// Takes the cost, or a part of it if it is divisible, after a wait of at most the terms' `max_wait`. If the
    /// last turn was at most [`LATE`] ago, it asks as of that turn. Dropping the future gives a place in line
    /// back.
    ///
    /// Boxed, as the type is not known: one allocation per message, or per piece of a body.
    fn take(self: Arc<Self>, ask: Asked) -> Taking;
}

/// How late a timer may be without a loss: longer than timers are without load.
const LATE: Duration = Duration::from_millis(10);

/// A piece is not made smaller than this to make up for a late timer.
const SMALL: u64 = 1_024;

/// What to ask for after a denial: half of the capacity, if that is less.
///
/// A cost above the capacity is never admitted. A cost near the capacity is admitted by a full bucket only,
/// and a full bucket loses the time by which a timer is late: the rate would be too low, by as much for each
/// piece.
fn less(cost: u64, divisible: bool, denied: &Decision) -> Option<u64> {
    let half = (denied.limit / 2).max(1);
    let is_never = denied.retry_after.is_none();
    (divisible && half < cost && (is_never || half >= SMALL)).then_some(half)
}

/// One key of a backend.
struct Keyed<B, K> {
    backend: Arc<B>,
    key: K,
}

impl<B, K> Take for Keyed<B, K>
where
    B: Backend<K>,
    K: Send + Sync + 'static,
{
    fn take(self: Arc<Self>, ask: Asked) -> Taking {
        let (mut cost, terms, mut turn) = (ask.cost, ask.terms, ask.turn);
        Box::pin(async move {
            let passes = !terms.denies_on_error;
            let clock = MonotonicClock;
            let deadline = clock.now().plus(terms.max_wait);
            let mut waited = None;
            loop {
                let now = clock.now();
                let reserve = Op::Reserve {
                    cost,
                    queue: u64::MAX,
                    max_wait: deadline.since(now),
                };
                let planned = turn.filter(|turn| now.since(*turn) <= LATE);
                let taken = |at| self.backend.take_turn(&self.key, cost, at, Duration::ZERO);
                let (mut decision, asked) = match planned.and_then(taken).zip(planned) {
                    Some(decided) => decided,
                    None => match self.backend.apply(&self.key, reserve).await {
                        Ok(decision) => (decision, clock.now()),
                        Err(error) if error.is_transient() && passes => return Ok((cost, None)),
                        Err(error) => return Err(RateLimited::unavailable(error)),
                    },
                };
                let left = deadline.since(asked);
                let (wait, place) = match decision.verdict {
                    Verdict::Admit => return Ok((cost, waited)),
                    Verdict::Wait(wait) => (
                        Some(wait),
                        Some(TurnGuard(&*self, cost, decision.receipt())),
                    ),
                    Verdict::Deny => {
                        if let Some(less) = less(cost, ask.divisible, &decision) {
                            cost = less;
                            continue;
                        }
                        (decision.retry_after, None)
                    }
                };
                let Some(wait) = wait.filter(|wait| *wait <= left) else {
                    decision.verdict = Verdict::Deny;
                    decision.retry_after = wait.map(|wait| wait.saturating_sub(left));
                    return Err(RateLimited::new(decision)); // gives the place back
                };
                // At least one nanosecond, so that time passes between two attempts.
                let at = asked.plus(wait.max(Duration::from_nanos(1)));
                if at > clock.now() {
                    clock.sleep_until(at).await;
                }
                (turn, waited) = (Some(at), Some(at));
                if let Some(place) = place {
                    mem::forget(place);
                    return Ok((cost, waited));
                }
            }
        })
    }
}

/// Manual impl: keys must not be logged.
impl<B, K> fmt::Debug for Keyed<B, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").finish_non_exhaustive()
    }
}

/// A place in the line of a backend, with its cost. It is given back if it is dropped before its turn.
struct TurnGuard<'a, B: Backend<K>, K>(&'a Keyed<B, K>, u64, Receipt);

impl<B: Backend<K>, K> Drop for TurnGuard<'_, B, K> {
    fn drop(&mut self) {
        let Self(Keyed { backend, key }, cost, receipt) = self;
        backend.detach(key, Op::Cancel(*cost, *receipt));
    }
}

/// Takes costs from a limit, one after the other.
pub(super) struct StreamMeter {
    limit: StreamLimit,
    /// The cost that is being taken, so that polling again takes nothing more. Never locked: the mutex makes
    /// the meter `Sync`.
    taking: Mutex<Option<(u64, Taking)>>,
    /// The largest divisible cost that the limit takes at once, as far as is known.
    most: u64,
    /// When the last cost was due, if it has waited.
    turn: Option<Tick>,
}

impl StreamMeter {
    pub(super) fn new(limit: StreamLimit) -> Self {
        Self {
            limit,
            taking: Mutex::new(None),
            most: u64::MAX,
            turn: None,
        }
    }

    /// Takes a cost and returns how much was taken, which is less only if it is divisible. If it is pending,
    /// the next call goes on with the same cost.
    pub(super) fn poll_take(
        &mut self,
        cost: u64,
        divisible: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u64, RateLimited>> {
        if cost == 0 {
            return Poll::Ready(Ok(0));
        }
        let slot = self
            .taking
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let (asked, taking) = slot.get_or_insert_with(|| {
            let cost = if divisible { cost.min(self.most) } else { cost };
            let ask = Asked {
                cost,
                divisible,
                terms: self.limit.terms,
                turn: self.turn.take(),
            };
            (cost, Arc::clone(&self.limit.source).take(ask))
        });
        let (asked, taken) = (*asked, ready!(taking.as_mut().poll(cx)));
        *slot = None;
        let (taken, turn) = taken?;
        self.turn = turn;
        if taken < asked {
            self.most = taken;
        }
        Poll::Ready(Ok(taken))
    }
}

/// Manual impl: a future has no `Debug`.
impl fmt::Debug for StreamMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StreamMeter").field(&self.limit).finish()
    }
}
