//! The load of all machines of a row, and what is seen of it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tower_throttle::algorithm::Algorithm;
use tower_throttle::store::Backend;
use tower_throttle::store::cas::{Cas, CasStore};
use tower_throttle::store::fleet::FleetLimiter;
use tower_throttle::{Decision, StoreError};

use super::case::Case;

/// Requests are sent in portions of this many milliseconds.
const PORTION: Duration = Duration::from_millis(5);
/// Slots of a second in which admissions are counted.
pub(super) const SLOTS: u64 = 10;

/// What happened in the measurement.
pub(super) struct Seen {
    /// Per slot.
    pub(super) admitted: Vec<AtomicU64>,
    pub(super) denied: AtomicU64,
    pub(super) errors: AtomicU64,
    /// Nanoseconds of the longest decision, and of the longest lag.
    pub(super) longest: AtomicU64,
    pub(super) lag: AtomicU64,
    /// Intervals in which a machine had requests for a key, of all keys and machines.
    pub(super) in_use: AtomicU64,
}

/// A limiter of one machine.
pub(super) trait Machine:
    Backend<u64, Future: Future<Output = Result<Decision, StoreError>>> + Clone
{
    /// Keys that were exchanged, and writes that found another version.
    fn counts(&self) -> [u64; 2];

    fn lag(&self) -> Duration {
        Duration::ZERO
    }
}

impl<S: CasStore, A: Algorithm> Machine for Cas<S, A>
where
    Self: Backend<u64> + Clone,
{
    fn counts(&self) -> [u64; 2] {
        [0, Backend::<u64>::stats(self).conflicts]
    }
}

impl<S: CasStore, A: Algorithm, const AHEAD: bool> Machine for FleetLimiter<S, A, AHEAD> {
    fn counts(&self) -> [u64; 2] {
        let stats = Backend::<u64>::stats(self);
        [stats.store_calls, stats.conflicts]
    }

    fn lag(&self) -> Duration {
        self.lag()
    }
}

impl Seen {
    pub(super) fn new(seconds: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            admitted: (0..seconds * SLOTS).map(|_| zero()).collect(),
            denied: zero(),
            errors: zero(),
            longest: zero(),
            lag: zero(),
            in_use: zero(),
        }
    }

    fn length(&self) -> Duration {
        Duration::from_secs(self.admitted.len() as u64 / SLOTS)
    }
}

/// Sends requests at the rate of a machine until the measurement, which begins at `first`, ends, whether
/// earlier ones have their decisions or not.
pub(super) async fn send<M: Machine>(
    (machine, number): (M, u64),
    case: Case,
    first: Instant,
    seen: Arc<Seen>,
) {
    let (length, interval) = (seen.length(), case.interval());
    let mut last_use = vec![0; case.keys as usize];
    let (mut sent, mut due, mut at) = (0_u64, 0.0, Instant::now());
    let mut calls = JoinSet::new();
    while Instant::now() < first + length {
        let now = Instant::now();
        let measured = now.checked_duration_since(first);
        let second = measured.map_or(u64::MAX, |since| since.as_secs());
        due += case.rate(number, second) * (now - at).as_secs_f64();
        at = now;
        while sent < due as u64 {
            let key = sent % case.keys;
            sent += 1;
            if let Some(since) = measured {
                let current = 1 + since.as_nanos() / interval.as_nanos();
                if std::mem::replace(&mut last_use[key as usize], current) != current {
                    seen.in_use.fetch_add(1, Ordering::Relaxed);
                }
            }
            let call = decide(machine.clone(), key, first, Arc::clone(&seen));
            let mut call = Box::pin(call);
            // A decision in memory needs no task.
            if pin!(&mut call).poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending {
                calls.spawn(call);
            }
        }
        if measured.is_some() {
            seen.lag.fetch_max(nanos(machine.lag()), Ordering::Relaxed);
        }
        while calls.try_join_next().is_some() {}
        tokio::time::sleep(PORTION).await;
    }
    calls.join_all().await;
}

/// One request, as a layer asks. It counts in the slot in which it was sent.
async fn decide<M: Machine>(machine: M, key: u64, first: Instant, seen: Arc<Seen>) {
    let sent_at = Instant::now();
    let decision = machine.decide(&key, 1).await;
    let decision = decision.map(|one| one.is_admitted());
    let Some(since) = sent_at.checked_duration_since(first) else {
        return;
    };
    seen.longest
        .fetch_max(nanos(sent_at.elapsed()), Ordering::Relaxed);
    let slot = since.as_millis() as u64 * SLOTS / 1_000;
    let count = match decision {
        Ok(true) => seen.admitted.get(slot as usize),
        Ok(false) => Some(&seen.denied),
        Err(_) => Some(&seen.errors),
    };
    if let Some(count) = count {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
