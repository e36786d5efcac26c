//! Changing limits that are in a store.

use super::Handle;
use crate::error::StoreError;
use crate::quota::Quota;
use crate::store::remote::StoreLimiter;

impl<K, L: StoreLimiter> Handle<K, L> {
    /// Changes the quota for all keys and for the whole fleet; see [`StoreLimiter::set_quota`].
    ///
    /// Response headers of this process state the new quota from now on; those of another process
    /// do so after a call of [`refresh_policies`](Self::refresh_policies) there.
    ///
    /// # Errors
    /// See [`StoreLimiter::set_quota`].
    pub async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        self.limiter.set_quota(quota).await?;
        self.shared.refresh_policies();
        Ok(())
    }
}
