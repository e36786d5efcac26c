//! Faults of a server, and of the network before it.

use std::time::Duration;

use tokio::time::Instant;
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::{Backend, Op};
use tower_throttle::{Quota, TokenBucket};

use super::{Store, block_on};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Replies arrive byte by byte.
    Split,
    /// Replies arrive late, but in time.
    Delayed,
    /// Calls are executed twice, as by a client that sends them again.
    Doubled,
    /// Replies do not arrive.
    Lost,
    /// Connections are cut instead of a reply.
    Cut,
    /// Connections are cut in the middle of a reply.
    CutInside,
    /// Connections are reset instead of a reply.
    Reset,
    /// The server is killed, and started when the fault ends.
    Killed,
    /// The server does not run until the fault ends.
    Stopped,
    /// The server is killed and started at once.
    Restarted,
}

impl Fault {
    pub(super) const ALL: [Self; 10] = [
        Self::Split,
        Self::Delayed,
        Self::Doubled,
        Self::Lost,
        Self::Cut,
        Self::CutInside,
        Self::Reset,
        Self::Killed,
        Self::Stopped,
        Self::Restarted,
    ];

    /// Whether a server without a file forgets its states.
    pub(crate) const fn loses_states(self) -> bool {
        matches!(self, Self::Killed | Self::Restarted)
    }

    /// The deadline of calls during the fault. Where no call waits in vain, it is so late that none
    /// fails by it: one that fails is charged and not admitted, which would hide an admission too many.
    const fn deadline(self) -> Duration {
        match self {
            Self::Split | Self::Delayed | Self::Doubled | Self::Restarted => {
                Duration::from_secs(30)
            }
            _ => Duration::from_millis(200),
        }
    }
}

const LIMIT: u64 = 50;
/// More than a call takes on a busy machine.
const GRACE: Duration = Duration::from_secs(3);

/// Calls in flight at the same time. Returns how many were admitted, and how many failed.
async fn calls<L: Backend<str>>(limit: &L, deadline: Duration) -> Result<(u64, u64), String> {
    let calls: Vec<_> = (0..16).map(|_| limit.apply("key", Op::Take(1))).collect();
    let (mut admitted, mut failed) = (0, 0);
    for call in calls {
        match tokio::time::timeout(deadline + GRACE, call).await {
            Err(_) => return Err("a call did not end by its deadline".to_owned()),
            Ok(Err(_)) => failed += 1,
            Ok(Ok(decision)) => admitted += u64::from(decision.is_admitted()),
        }
    }
    Ok((admitted, failed))
}

/// Waits until a call succeeds.
async fn connected<L: Backend<str>>(limit: &L) -> Result<(), String> {
    let begun = Instant::now();
    while limit.apply("key", Op::Peek(0)).await.is_err() {
        if begun.elapsed() > Duration::from_secs(30) {
            return Err("no decision without a fault".to_owned());
        }
        // The breaker lets a probe through. Tasks that connect go on.
        tokio::task::yield_now().await;
        std::thread::park_timeout(Duration::from_millis(5));
    }
    Ok(())
}

async fn fault_of<S: Store>(fault: Fault) -> Result<(), String> {
    let mut store = S::start();
    let quota = Quota::per(LIMIT, Duration::from_secs(100_000_000));
    let algorithm = AnyAlgorithm::new(TokenBucket::new(quota));
    let deadline = fault.deadline();
    let limit = store.limit("chaos", algorithm, deadline);
    connected(&limit).await?;
    let (mut admitted, mut failed) = calls(&limit, deadline).await?;
    if !store.inflict(fault) {
        return Ok(());
    }
    let forgotten = if S::loses_states(fault) { admitted } else { 0 };
    let failed_before = failed;
    for _ in 0..4 {
        let (more, failures) = calls(&limit, deadline).await?;
        (admitted, failed) = (admitted + more, failed + failures);
    }
    // On a busy machine calls may have timed out before a proxy has forwarded them.
    let begun = Instant::now();
    while !store.has_harmed(fault) && begun.elapsed() < Duration::from_secs(30) {
        connected(&limit).await?;
        let (more, failures) = calls(&limit, deadline).await?;
        (admitted, failed) = (admitted + more, failed + failures);
    }
    store.heal(fault);
    // Where another server decides meanwhile, it may lack the last states.
    if fault == Fault::Stopped && !S::loses_states(fault) && failed == failed_before {
        return Err("no call failed".to_owned());
    }
    connected(&limit).await?;
    for _ in 0..6 {
        let (more, failures) = calls(&limit, deadline).await?;
        (admitted, failed) = (admitted + more, failed + failures);
    }
    let bound = LIMIT + forgotten;
    if admitted > bound {
        return Err(format!("{admitted} admitted of {bound}"));
    }
    // What was not admitted was counted for a call that failed.
    if admitted + failed < LIMIT {
        return Err(format!(
            "{admitted} admitted and {failed} failed of {LIMIT}"
        ));
    }
    Ok(())
}

pub(crate) fn fault<S: Store>() -> Option<String> {
    Fault::ALL.into_iter().find_map(|fault| {
        let found = block_on(fault_of::<S>(fault));
        found.err().map(|found| format!("{fault:?}: {found}"))
    })
}
