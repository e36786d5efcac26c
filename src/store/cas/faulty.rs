//! A store whose operations fail as planned.

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use super::{CasStore, Loaded, Swapped, Value};
use crate::clock::{Clock, MonotonicClock, Timer};
use crate::error::StoreError;
use crate::sync::{Mutex, lock};

/// A store whose operations fail as planned, for tests of a store or of a program. Clones share
/// their plan.
///
/// ```
/// use tower_throttle::{Quota, TokenBucket};
/// use tower_throttle::store::{Backend, cas::{Cas, Fault, Faulty, MemoryStore}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Faulty::new(MemoryStore::new());
/// let limit = Cas::new(store.clone(), "api", TokenBucket::new(Quota::per_hour(10)))?;
/// // The swap is executed, and its reply is lost. The cost is counted once.
/// store.plan([Fault::LostReply]);
/// assert_eq!(limit.decide("alice", 1).await?.remaining(), 9);
/// assert_eq!(limit.decide("alice", 1).await?.remaining(), 8);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Faulty<S> {
    store: Arc<S>,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Default)]
struct Plan {
    faults: VecDeque<Fault>,
    /// Swaps that are still on their way: of a key, if it has this version, a value for so long.
    late: Vec<(String, Option<u64>, Value, Duration)>,
}

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The operation is not executed, and fails.
    LostRequest,
    /// The operation is executed, and fails.
    LostReply,
    /// The operation fails at once. If it is a swap, it is executed before the next swap.
    Late,
    /// The operation is executed twice, as a client would that sends it again after a lost reply. The
    /// second result is returned.
    Twice,
    /// A swap finds another version, whatever is stored. A load is executed.
    Conflict,
    /// The operation is executed after this time. Zero is no fault: to plan the operation after it.
    Delay(Duration),
}

/// Manual impl: keys must not be logged.
impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("faults", &self.faults)
            .field("late", &self.late.len())
            .finish()
    }
}

impl<S: CasStore> Faulty<S> {
    /// A store without faults yet.
    pub fn new(store: S) -> Self {
        Self {
            store: Arc::new(store),
            plan: Arc::default(),
        }
    }

    /// Sets the faults of the next operations, one for each load or swap, in place of those that are still planned.
    pub fn plan(&self, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.plan).faults = faults.into_iter().collect();
    }

    /// How many planned faults are left.
    pub fn planned(&self) -> usize {
        lock(&self.plan).faults.len()
    }

    /// The next fault, after its delay. None is one without a delay.
    async fn next_fault(&self) -> Fault {
        let fault = lock(&self.plan).faults.pop_front();
        let Some(fault) = fault else {
            return Fault::Delay(Duration::ZERO);
        };
        if let Fault::Delay(span) = fault {
            let end = MonotonicClock.now().plus(span);
            MonotonicClock.sleep_until(end).await;
        }
        fault
    }
}

impl<S: CasStore> CasStore for Faulty<S> {
    const NAME: &'static str = S::NAME;

    fn group_of(&self, key: &str) -> Option<usize> {
        self.store.group_of(key)
    }

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        match self.next_fault().await {
            Fault::LostRequest | Fault::LostReply | Fault::Late => Err(lost()),
            _ => self.store.load(key).await,
        }
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        let fault = self.next_fault().await;
        let late = std::mem::take(&mut lock(&self.plan).late);
        for (key, expected, new, ttl) in late {
            self.store.swap(&key, expected, &new, ttl).await?;
        }
        let swap = || self.store.swap(key, expected, new, ttl);
        match fault {
            Fault::Delay(_) => swap().await,
            Fault::LostRequest => Err(lost()),
            Fault::LostReply => swap().await.and_then(|_| Err(lost())),
            Fault::Late => {
                let late = (key.to_owned(), expected, new.clone(), ttl);
                lock(&self.plan).late.push(late);
                Err(lost())
            }
            Fault::Twice => {
                swap().await?;
                swap().await
            }
            Fault::Conflict => Ok(Swapped::Conflict(None)),
        }
    }
}

/// Manual impl: derive would require `S: Clone`, which is shared.
impl<S> Clone for Faulty<S> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            plan: Arc::clone(&self.plan),
        }
    }
}

fn lost() -> StoreError {
    StoreError::new("the connection was lost, as planned", true)
}
