//! A store in this process.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use super::{CasStore, Loaded, Program, Runs, Swapped, Value};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::sync::{Mutex, MutexGuard, lock};

type Values = HashMap<String, (Value, Tick)>;

/// A store in this process, for tests and simulations. Clones share their values.
///
/// Several limiters over one store behave like as many machines:
///
/// ```
/// use tower_throttle::{FixedWindow, Quota, store::{Backend, cas::{Cas, MemoryStore}}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let machine = || Cas::new(store.clone(), "api", FixedWindow::new(Quota::per_hour(2)));
/// let (a, b) = (machine()?, machine()?);
/// assert!(a.decide("alice", 1).await?.is_admitted());
/// assert!(b.decide("alice", 1).await?.is_admitted());
/// assert!(a.decide("alice", 1).await?.is_denied());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryStore<C = MonotonicClock> {
    values: Arc<Mutex<Values>>,
    clock: C,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::with_clock(MonotonicClock)
    }
}

impl<C: Clock> MemoryStore<C> {
    /// An empty store that reports the time of `clock`.
    pub fn with_clock(clock: C) -> Self {
        Self {
            values: Arc::default(),
            clock,
        }
    }

    /// Removes all values, as a server that is started again without a file.
    pub fn clear(&self) {
        lock(&self.values).clear();
    }

    /// The value of a key, and the moment up to which it is kept, even if that is past.
    pub fn get(&self, key: &str) -> Option<(Value, Tick)> {
        lock(&self.values).get(key).cloned()
    }

    /// The keys that have a value.
    pub fn keys(&self) -> Vec<String> {
        lock(&self.values).keys().cloned().collect()
    }

    fn lock(&self) -> (MutexGuard<'_, Values>, Tick) {
        let values = lock(&self.values);
        // Read under the lock: swaps happen in the order of their times.
        let now = self.clock.now();
        (values, now)
    }
}

/// The value of a key, unless it has expired.
fn loaded(values: &Values, key: &str, now: Tick) -> Loaded {
    let current = values.get(key).filter(|(_, expires_at)| *expires_at > now);
    Loaded {
        value: current.map(|(value, _)| value.clone()),
        server_time: Some(now),
    }
}

impl<C: Clock> CasStore for MemoryStore<C> {
    const NAME: &'static str = "memory";
    const RUNS: Runs = Runs::All;

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        let (values, now) = self.lock();
        Ok(loaded(&values, key, now))
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        let (mut values, now) = self.lock();
        let current = loaded(&values, key, now);
        if current.value.as_ref().map(|value| value.version) != expected {
            return Ok(Swapped::Conflict(Some(current)));
        }
        values.insert(key.to_owned(), (new.clone(), now.plus(ttl)));
        Ok(Swapped::Done(Some(now)))
    }

    async fn run<P: Program>(&self, program: &P) -> Result<P::Reply, StoreError> {
        let (mut values, now) = self.lock();
        let keys = program.keys();
        let current = keys.iter().map(|key| loaded(&values, key, now));
        let (writes, reply) = program.execute(&current.collect::<Vec<_>>());
        for write in writes {
            let key = keys[write.index].to_owned();
            values.insert(key, (write.value, now.plus(write.ttl)));
        }
        Ok(reply)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

/// Manual impl: keys must not be logged.
impl<C: fmt::Debug> fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("keys", &lock(&self.values).len())
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[tokio::test]
    async fn a_value_is_gone_at_the_end_of_its_time() {
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let (ttl, nanosecond) = (Duration::from_nanos(10), Duration::from_nanos(1));
        let value = |version| Value {
            version,
            bytes: vec![1],
        };
        let swap = async |expected: Option<u64>, version| {
            let swapped = store.swap("key", expected, &value(version), ttl).await;
            matches!(swapped, Ok(Swapped::Done(_)))
        };
        assert!(swap(None, 1).await);
        clock.advance(nanosecond * 9);
        let loaded = store.load("key").await.expect("a reply");
        assert_eq!(loaded.value, Some(value(1)));
        assert!(!swap(None, 2).await);
        clock.advance(nanosecond);
        let loaded = store.load("key").await.expect("a reply");
        assert_eq!(loaded.value, None);
        assert!(!swap(Some(1), 2).await);
        assert!(swap(None, 2).await);
        store.clear();
        assert!(store.keys().is_empty());
    }
}
