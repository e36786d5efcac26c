//! Which keys are denied most, and which use most.
//!
//! "Space-saving" (Metwally, Agrawal and El Abbadi, 2005): n counters. A key without a counter takes over the
//! smallest one, with its count, which it may not have earned. So a count is at most an n-th of all too high
//! and never too low, and a key with more than an n-th of all is among them.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    sync::Arc,
};

use crate::error::RateLimited;
use crate::respond::Watch;
use crate::sync::{Mutex, lock};

/// The keys of a layer that were denied most often, and those that have used most: for
/// [`LimitLayer::watch`](super::LimitLayer::watch).
///
/// Of each it counts `n` keys, in memory that does not grow; clones share their counts. A key is shown as the text that
/// `name` makes of it, which is called when its count begins: a page or a log that shows keys shows addresses and names
/// of clients.
///
/// A count is never too low, and too high by at most an n-th of all. A key that was denied more often than
/// `denials / n` is listed. To count a key that is not listed takes time in proportion to `n`.
///
/// ```
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_throttle::{AsError, FixedWindow, Quota, RateLimitLayer, RateLimited, layer::TopKeys};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let top = TopKeys::new(100, String::clone);
/// let layer = RateLimitLayer::new(|customer: &String| customer.clone(), FixedWindow::new(Quota::per_day(2)))
///     .watch(top.clone())
///     .respond(AsError);
/// let service = layer.layer(service_fn(async |customer: String| Ok::<_, RateLimited>(customer)));
/// for customer in ["ann", "ann", "ann", "ann", "bob"] {
///     let _ = service.clone().oneshot(customer.to_owned()).await;
/// }
/// let denied = top.denied_keys();
/// assert_eq!(denied, [("ann".to_owned(), 2)]);
/// assert_eq!(top.used_keys()[0].0, "ann");
/// # }
/// ```
#[derive(Clone)]
pub struct TopKeys<N> {
    n: usize,
    name: N,
    hasher: RandomState,
    denied: TopTable,
    used: TopTable,
}

/// The name and the count of each key.
type TopTable = Arc<Mutex<HashMap<u64, (String, u64)>>>;

impl<N> TopKeys<N> {
    /// Counts up to `n` keys, at least one, and shows each as the text that `name` makes of it.
    pub fn new<K>(n: usize, name: N) -> Self
    where
        N: Fn(&K) -> String,
    {
        Self {
            n: n.max(1),
            name,
            hasher: RandomState::new(),
            denied: Arc::default(),
            used: Arc::default(),
        }
    }

    /// The keys whose requests were denied, the most often first.
    pub fn denied_keys(&self) -> Vec<(String, u64)> {
        sorted(&self.denied)
    }

    /// The keys that have used something, and the sum of the costs that each was admitted, the highest first.
    pub fn used_keys(&self) -> Vec<(String, u64)> {
        sorted(&self.used)
    }

    /// Forgets all counts: for a list of the last minute, read and reset it each minute.
    pub fn reset(&self) {
        lock(&self.denied).clear();
        lock(&self.used).clear();
    }

    fn add<K: Hash>(&self, table: &TopTable, key: &K, cost: u64)
    where
        N: Fn(&K) -> String,
    {
        let hash = self.hasher.hash_one(key);
        let mut counts = lock(table);
        if let Some((_, count)) = counts.get_mut(&hash) {
            *count = count.saturating_add(cost);
            return;
        }
        let mut taken_over = 0;
        if counts.len() >= self.n {
            let smallest = counts.iter().min_by_key(|(_, (_, count))| *count);
            if let Some(hash) = smallest.map(|(hash, _)| *hash) {
                taken_over = counts.remove(&hash).map_or(0, |(_, count)| count);
            }
        }
        counts.insert(hash, ((self.name)(key), taken_over.saturating_add(cost)));
    }
}

fn sorted(table: &TopTable) -> Vec<(String, u64)> {
    let mut keys: Vec<_> = lock(table).values().cloned().collect();
    keys.sort_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
    keys
}

impl<K: Hash, N: Fn(&K) -> String> Watch<K> for TopKeys<N> {
    fn saw(&self, key: &K, decided: Result<u64, &RateLimited>) {
        match decided {
            Ok(0) => {}
            Ok(cost) => self.add(&self.used, key, cost),
            Err(_) => self.add(&self.denied, key, 1),
        }
    }
}

/// Manual impl: keys must not be logged.
impl<N> fmt::Debug for TopKeys<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopKeys")
            .field("n", &self.n)
            .finish_non_exhaustive()
    }
}
