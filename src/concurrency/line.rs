//! The permits of one key, as its line asks for them.

use std::{sync::Arc, time::Duration};

use super::permits::Permits;
use super::request::{PermitRequest, Reserve, reserved};
use crate::clock::Tick;
use crate::decision::{Decision, LineCosts, Verdict};
use crate::queue::{LineLimit, Order, TOLD};

pub(super) struct PermitsOfKey {
    pub(super) permits: Arc<Permits>,
    pub(super) id: u64,
    pub(super) reserve: Reserve,
}

impl LineLimit for PermitsOfKey {
    fn take(&self, units: u64, priority: u8, _: Tick, _: Duration) -> Decision {
        let taken = self.permits.table.take(PermitRequest {
            id: self.id,
            units,
            priority,
            reserved: reserved(self.reserve, priority),
            order: Order::default(),
        });
        match taken {
            Ok(usage) => usage.decision(Verdict::Admit),
            Err(usage) => Decision {
                retry_after: Some(TOLD),
                ..usage.decision(Verdict::Deny)
            },
        }
    }

    fn wait(&self, _: LineCosts, _: Tick) -> Option<[Duration; 2]> {
        Some([TOLD; 2])
    }
}
