//! The limit of one key, as the line of the key asks it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{sync::Arc, time::Duration};

use crate::backend::Backend;
use crate::clock::Tick;
use crate::decision::{Decision, LineCosts, Verdict};
use crate::queue::{LineLimit, now};

pub(super) struct LimitOf<K, L> {
    pub(super) key: K,
    pub(super) backend: Arc<L>,
}

impl<K: Send + 'static, L: Backend<K>> LineLimit for LimitOf<K, L> {
    fn take(&self, cost: u64, _: u8, at: Tick, late: Duration) -> Decision {
        let take = || {
            let turn = self.backend.take_turn(&self.key, cost, at, late);
            turn.or_else(|| {
                // The limit has become one that counts denials, and decides as of now.
                let decided = self.backend.decide_now(&self.key, cost, Result::ok);
                let mut decided = decided.ok()??;
                let late = now().since(at);
                decided.retry_after = decided.retry_after.map(|wait| wait.saturating_add(late));
                Some(decided)
            })
        };
        // Only what decides at once is asked. One that panics denies: the others go on.
        let taken = catch_unwind(AssertUnwindSafe(take)).ok().flatten();
        taken.unwrap_or_else(|| Decision::new(Verdict::Deny, 0, 0, None, 0))
    }

    fn wait(&self, costs: LineCosts, at: Tick) -> Option<[Duration; 2]> {
        let wait = || self.backend.expected_wait(&self.key, costs, at);
        catch_unwind(AssertUnwindSafe(wait)).ok()?
    }
}
