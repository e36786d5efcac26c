//! Which keys are denied most, and which use most.
//!
//! "Space-saving" (Metwally, Agrawal and El Abbadi, 2005): n counters. A key without a counter takes over the
//! smallest one, with its count, which it may not have earned: the error. So a count is at most its error too high
//! and never too low, and a key with more than an n-th of all is among them.

use std::{
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::respond::{Event, Watch};
use crate::sync::{Mutex, lock, try_lock};

/// The keys of a layer that were denied most often, and those that have used most: for
/// [`LimitLayer::watch`](super::LimitLayer::watch).
///
/// Of each it counts `n` keys, in memory that does not grow; clones share their counts. A key is shown as a number that
/// this process makes of it, [`hashed`](Self::hashed), or as a text of your choice, [`named`](Self::named): a page
/// or a log that shows keys shows addresses and names of clients.
///
/// Each [`count`](TopKey::count) is at most its [`error`](TopKey::error) too high, and at most [`missed`](Self::missed) too
/// low. A key that was denied more often than `denials / n + missed` is listed. An observation is missed if another
/// thread is counting at the same moment: nothing waits for these counts. A count costs time in proportion to `n`.
///
/// ```
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_throttle::{AsError, FixedWindow, Quota, RateLimitLayer, RateLimited, layer::TopKeys};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let top = TopKeys::named(100, |customer: &String| customer.clone());
/// let layer = RateLimitLayer::new(|customer: &String| customer.clone(), FixedWindow::new(Quota::per_day(2)))
///     .watch(top.clone())
///     .respond(AsError);
/// let service = layer.layer(service_fn(async |customer: String| Ok::<_, RateLimited>(customer)));
/// for customer in ["ann", "ann", "ann", "ann", "bob"] {
///     let _ = service.clone().oneshot(customer.to_owned()).await;
/// }
/// let denied = top.denied_keys();
/// assert_eq!((denied.len(), denied[0].key(), denied[0].count()), (1, "ann", 2));
/// assert_eq!(top.used_keys()[0].key(), "ann");
/// # }
/// ```
#[derive(Clone)]
pub struct TopKeys<N = Hashed> {
    counters: Arc<Counters>,
    name: N,
}

/// Shows a key as 16 hexadecimal digits, which are others in each process.
///
/// ```
/// use tower_throttle::layer::{Hashed, TopKeys};
///
/// let top: TopKeys<Hashed> = TopKeys::hashed(100);
/// assert_eq!(top.denied_keys(), []);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Hashed(());

/// A key and its count.
#[derive(Clone, PartialEq, Eq)]
pub struct TopKey {
    hash: u64,
    key: String,
    count: u64,
    error: u64,
}

struct Counters {
    hasher: RandomState,
    limit: usize,
    /// Whether keys are shown by their hashes: then they get their texts when they are read.
    is_hashed: bool,
    denied: Mutex<Vec<TopKey>>,
    used: Mutex<Vec<TopKey>>,
    missed: AtomicU64,
}

impl TopKeys {
    /// Counts up to `n` keys, at least one, and shows them as numbers.
    pub fn hashed(n: usize) -> Self {
        Self::new(n, Hashed(()), true)
    }
}

impl<N> TopKeys<N> {
    /// Counts up to `n` keys, at least one, and shows each as the text that `name` makes of it.
    pub fn named<K>(n: usize, name: N) -> Self
    where
        N: Fn(&K) -> String,
    {
        Self::new(n, name, false)
    }

    fn new(n: usize, name: N, is_hashed: bool) -> Self {
        let counters = Counters {
            hasher: RandomState::new(),
            limit: n.max(1),
            is_hashed,
            denied: Mutex::default(),
            used: Mutex::default(),
            missed: AtomicU64::new(0),
        };
        Self {
            counters: Arc::new(counters),
            name,
        }
    }

    /// The keys whose requests were denied, the most often first.
    pub fn denied_keys(&self) -> Vec<TopKey> {
        self.counters.sorted(&self.counters.denied)
    }

    /// The keys that have used something, and the sum of the costs that each was admitted, the highest first.
    pub fn used_keys(&self) -> Vec<TopKey> {
        self.counters.sorted(&self.counters.used)
    }

    /// How many requests were not counted, or costs, because another thread was counting.
    pub fn missed(&self) -> u64 {
        self.counters.missed.load(Ordering::Relaxed)
    }

    /// Forgets all counts: for a list of the last minute, read and reset it each minute.
    pub fn reset(&self) {
        lock(&self.counters.denied).clear();
        lock(&self.counters.used).clear();
        self.counters.missed.store(0, Ordering::Relaxed);
    }
}

impl TopKey {
    /// The key, as [`TopKeys`] shows keys. `Debug` does not print it.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How often it was counted, or what it has used.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// How much of the count may be that of other keys.
    pub const fn error(&self) -> u64 {
        self.error
    }
}

impl Counters {
    fn saw(&self, key: &impl Hash, event: Event<'_>, name: impl FnOnce() -> String) {
        match event {
            Event::Admitted(cost) => self.add(&self.used, key, cost, name),
            Event::Denied(_) => self.add(&self.denied, key, 1, name),
            _ => {}
        }
    }

    fn add(
        &self,
        table: &Mutex<Vec<TopKey>>,
        key: &impl Hash,
        cost: u64,
        name: impl FnOnce() -> String,
    ) {
        if cost == 0 {
            return;
        }
        let hash = self.hasher.hash_one(key);
        let Some(mut keys) = try_lock(table) else {
            self.missed.fetch_add(cost, Ordering::Relaxed);
            return;
        };
        if let Some(known) = keys.iter_mut().find(|key| key.hash == hash) {
            known.count = known.count.saturating_add(cost);
            return;
        }
        let mut new = TopKey {
            hash,
            key: name(),
            count: cost,
            error: 0,
        };
        if keys.len() < self.limit {
            keys.push(new);
        } else if let Some(smallest) = keys.iter_mut().min_by_key(|key| key.count) {
            new.error = smallest.count;
            new.count = smallest.count.saturating_add(cost);
            *smallest = new;
        }
    }

    fn sorted(&self, table: &Mutex<Vec<TopKey>>) -> Vec<TopKey> {
        let mut keys = lock(table).clone();
        for key in keys.iter_mut().filter(|_| self.is_hashed) {
            key.key = format!("{:016x}", key.hash);
        }
        keys.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
        keys
    }
}

impl<K: Hash> Watch<K> for TopKeys {
    fn saw(&self, key: &K, event: Event<'_>) {
        self.counters.saw(key, event, String::new);
    }
}

impl<K: Hash, N: Fn(&K) -> String> Watch<K> for TopKeys<N> {
    fn saw(&self, key: &K, event: Event<'_>) {
        self.counters.saw(key, event, || (self.name)(key));
    }
}

/// Manual impl: keys must not be logged.
impl<N> fmt::Debug for TopKeys<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopKeys")
            .field("limit", &self.counters.limit)
            .field("missed", &self.missed())
            .finish_non_exhaustive()
    }
}

/// Manual impl: keys must not be logged.
impl fmt::Debug for TopKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopKey")
            .field("count", &self.count)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}
