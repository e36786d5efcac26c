//! The turn of this machine at keys that others use too: one transaction at a time, for all keys of a limit that wait
//! for one. So each row is locked once for all calls, and machines queue for the limit and not for each key.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{pool::Pool, statements::Calls};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::{
    cas::{Loaded, Program},
    deadline::within,
    fleet::Write,
    remote::{TaskId, Waiting, catch_panic, runtime},
};
use crate::sync::lock;

/// The most programs of a transaction.
const MAX_BATCH: usize = 256;
/// Longer than a transaction waits for locks and for this machine.
const TIMEOUT: Duration = Duration::from_secs(3);

type Turn = Waiting<Arc<dyn Program>, bool>;

impl<P: Pool> Calls<P> {
    /// Runs a program with others, in the next transaction. Returns `false` if the pool has no connection for it.
    pub(super) async fn run(&self, program: Arc<dyn Program>) -> Result<bool, StoreError> {
        let runtime = runtime("PostgreSQL")?;
        let now = MonotonicClock.now();
        let (reply_tx, reply_rx) = oneshot::channel();
        let turn = Waiting {
            call: program,
            queued_at: now,
            deadline: Tick::MAX,
            reply_tx,
        };
        let id = lock(&self.turns).push(turn, now, now.plus(2 * TIMEOUT));
        if let Some(id) = id {
            let calls = self.clone();
            runtime.spawn(TurnTask { calls, id }.run());
        }
        let shut_down = |_| StoreError::new("PostgreSQL: the runtime was shut down", true);
        reply_rx.await.map_err(shut_down)?
    }
}

/// The task that runs one transaction after the other, until none waits.
struct TurnTask<P: Pool> {
    calls: Calls<P>,
    id: TaskId,
}

impl<P: Pool> TurnTask<P> {
    async fn run(self) {
        loop {
            // Programs of other keys join.
            tokio::task::yield_now().await;
            let Some(mut turns) = self.next_turns() else {
                return;
            };
            turns.retain(|turn| !turn.reply_tx.is_closed());
            while !turns.is_empty() {
                turns = self.transact(turns).await;
            }
        }
    }

    fn next_turns(&self) -> Option<Vec<Turn>> {
        let ends_by = MonotonicClock.now().plus(2 * TIMEOUT);
        let mut line = lock(&self.calls.turns);
        let turns = line.take(self.id, &(0..=MAX_BATCH), ends_by)?;
        if turns.is_empty() {
            line.end(self.id);
            return None;
        }
        Some(turns)
    }

    /// Runs the programs of one limit, one of each key. Returns the others.
    async fn transact(&self, turns: Vec<Turn>) -> Vec<Turn> {
        let limit = turns.first().map_or("", |turn| limit_of(turn.call.key()));
        let limit = limit.to_owned();
        let mut known = HashSet::new();
        let (turns, others): (Vec<_>, Vec<_>) = turns.into_iter().partition(|turn| {
            limit_of(turn.call.key()) == limit && known.insert(turn.call.key().to_owned())
        });
        let keys: Vec<_> = turns.iter().map(|turn| turn.call.key()).collect();
        let execute = |values: &[Loaded]| {
            let each = turns.iter().zip(values).enumerate();
            let writes = each.filter_map(|(index, (turn, loaded))| {
                let (value, ttl) = turn.call.execute(loaded.clone())?;
                Some(Write { index, value, ttl })
            });
            (writes.collect(), ())
        };
        let table = &self.calls.sql.states;
        let run = catch_panic(
            "PostgreSQL",
            self.calls.transact(table, &keys, &limit, execute),
        );
        let ran = within(MonotonicClock.now().plus(TIMEOUT), run).await;
        let ran = ran.unwrap_or_else(|| {
            let text = format!("PostgreSQL: no reply within {TIMEOUT:?}");
            Ok(Err(StoreError::new(text, true)))
        });
        let ran = ran.and_then(|ran| ran).map(|ran| ran.is_some());
        for turn in turns {
            // The caller may wait no longer.
            let _ = turn.reply_tx.send(ran.clone());
        }
        others
    }
}

/// If the runtime shuts down, programs that no transaction will run end with an error.
impl<P: Pool> Drop for TurnTask<P> {
    fn drop(&mut self) {
        let left = lock(&self.calls.turns).end(self.id);
        drop(left);
    }
}

/// The part of a key that all keys of a limit have: `{prefix:name:`.
fn limit_of(key: &str) -> &str {
    let second = key.match_indices(':').nth(1);
    second.map_or(key, |(end, _)| &key[..end])
}
