//! A quota that is changed for the whole fleet.

use super::machine::Machine;
use crate::algorithm::Algorithm;
use crate::clock::{Clock, MonotonicClock};
use crate::error::StoreError;
use crate::quota::Quota;

/// Changes the quota of all machines.
pub(in crate::store) async fn set_quota<M: Machine>(
    machine: &M,
    quota: Quota,
) -> Result<(), StoreError> {
    let policy = &machine.link().policy;
    policy.set_quota(quota, None).await?;
    let changed = machine.set_algorithm(&policy.active().decider.algorithm);
    changed.map_err(|error| StoreError::new(error.to_string(), false))
}

/// Adopts a quota that was changed by another machine.
pub(super) async fn adopt_changes<M: Machine>(machine: &M) {
    let policy = &machine.link().policy;
    if policy.is_refresh_due(MonotonicClock.now()) {
        policy.refresh(None).await;
    }
    let changed = policy.active();
    if changed.decider.algorithm.quota() != machine.algorithm().quota() {
        // The quota was checked when it was set.
        let _ = machine.set_algorithm(&changed.decider.algorithm);
    }
}
