//! What says which plan a key has.

use std::{
    future::{Future, ready},
    pin::Pin,
};

use crate::quota::Plan;

/// Says which [`Plan`] a key has: a closure `Fn(&K) -> Plan`, or a [`Cached`](super::Cached) source that has to be
/// waited for, such as a database.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which plan a key of type `{K}` has",
    label = "neither a closure for these keys nor a `Cached`",
    note = "give a closure `|key: &{K}| Plan::Default`, or `Cached::new(|key: {K}| async move {{ Ok::<Plan, Error>(..) }})`"
)]
pub trait Lookup<K>: Send + Sync + 'static {
    /// The plan of `key`, if it is known without waiting.
    fn plan(&self, key: &K) -> Option<Plan>;

    /// Waits for a plan that is not known.
    fn wait(&self, key: &K) -> Pin<Box<dyn Future<Output = Plan> + Send>> {
        Box::pin(ready(self.plan(key).unwrap_or_default()))
    }

    /// Whether each plan is known without waiting, so that a layer can have a line.
    fn knows_all(&self) -> bool {
        false
    }
}

impl<K, F: Fn(&K) -> Plan + Send + Sync + 'static> Lookup<K> for F {
    fn plan(&self, key: &K) -> Option<Plan> {
        Some(self(key))
    }

    fn knows_all(&self) -> bool {
        true
    }
}
