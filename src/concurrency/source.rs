//! Where the permits of a limit are: in this process, or in the store of a fleet.

use std::{sync::Arc, time::Duration};

use super::permits::Permits;
use super::request::{PermitRequest, Reserve};
use crate::error::StoreError;

/// Where the permits of requests with the key `K` are.
#[diagnostic::on_unimplemented(
    message = "the permits of a fleet need a key with a name in its store, which `{K}` has not",
    label = "not a `tower_throttle::store::remote::RemoteKey`",
    note = "see `tower_throttle::store::remote::RemoteKey`, which a key of your own can implement"
)]
pub(crate) trait PermitSource<K>: Clone + Send + Sync + 'static {
    /// Whether a request waits for the reply of a store.
    const ASKS: bool;

    /// Makes sure that the store is asked for a request that waits. `queue` requests may wait after its reply.
    fn ask(
        &self,
        key: &K,
        permits: &Arc<Permits>,
        request: PermitRequest,
        queue: (u32, Reserve),
    ) -> Result<(), StoreError>;

    /// How long a reply of the store may take, and why the last request got none.
    fn failure(&self) -> (Duration, StoreError);
}

/// The permits are in this process, as those of a limit that is a number or an
/// [`Adaptive`](super::Adaptive) algorithm are.
///
/// ```
/// use tower_throttle::{Global, concurrency::{ConcurrencyLimitLayer, InProcess, IntoLimit}};
///
/// fn layer(limit: impl IntoLimit<Source = InProcess>) -> ConcurrencyLimitLayer<Global> {
///     ConcurrencyLimitLayer::new(Global, limit)
/// }
/// # drop(layer(10));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl<K> PermitSource<K> for InProcess {
    const ASKS: bool = false;

    fn ask(
        &self,
        _: &K,
        _: &Arc<Permits>,
        _: PermitRequest,
        _: (u32, Reserve),
    ) -> Result<(), StoreError> {
        Ok(())
    }

    fn failure(&self) -> (Duration, StoreError) {
        (Duration::ZERO, StoreError::new("no store", false))
    }
}
