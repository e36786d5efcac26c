//! Exchanges that are under way.

use std::{collections::VecDeque, pin::pin, sync::Arc};

use tokio::{sync::oneshot, task::JoinSet};

use super::machine::Machine;
use super::pending::Listed;
use crate::clock::{Clock, MonotonicClock};
use crate::error::StoreError;
use crate::store::{cas::CasStore, events::RemoteMetrics, remote::catch_panic};

/// An exchange that is under way. If it is dropped, as with its runtime, the report is sent again.
pub(super) struct UnderWay<M: Machine> {
    machine: Arc<M>,
    outgoing: M::Outgoing,
    is_over: bool,
}

impl<M: Machine> UnderWay<M> {
    pub(super) const fn new(machine: Arc<M>, outgoing: M::Outgoing) -> Self {
        Self {
            machine,
            outgoing,
            is_over: false,
        }
    }

    pub(super) async fn run(mut self) -> Result<(), StoreError> {
        let begun = MonotonicClock.now();
        let result = {
            let exchange = pin!(self.machine.exchange(&self.outgoing));
            catch_panic(M::Store::NAME, exchange).await?
        };
        self.is_over = true;
        let link = self.machine.link();
        let took = MonotonicClock.now().since(begun);
        let deadline = link.shared().deadline;
        RemoteMetrics(M::Store::NAME).call_ended(begun, deadline, result.as_ref().err());
        link.exchange_limit.learn(result.is_ok(), took, deadline);
        result
    }
}

impl<M: Machine> Drop for UnderWay<M> {
    fn drop(&mut self) {
        if !self.is_over {
            let message = format!("{}: the exchange was given up", M::Store::NAME);
            let error = StoreError::new(message, true);
            self.machine.give_up(&self.outgoing, &error);
        }
    }
}

/// Exchanges all that is left, and waits for it. What fails is tried again.
pub(in crate::store) async fn flush<M: Machine>(machine: &Arc<M>) -> Result<(), StoreError> {
    let mut result = Ok(());
    for _ in 0..M::FLUSHES {
        for exchanged in wait_for_exchanges(&**machine) {
            // The result is that of the next round.
            let _ = exchanged.await;
        }
        // Made at once: if this future is dropped, the reports are sent again.
        let left = machine.collect_rest().into_iter();
        let mut left: VecDeque<_> = left
            .map(|outgoing| UnderWay::new(Arc::clone(machine), outgoing))
            .collect();
        let mut exchanges = JoinSet::new();
        result = Ok(());
        loop {
            while exchanges.len() < machine.link().exchange_limit.now() {
                let Some(next) = left.pop_front() else { break };
                exchanges.spawn(next.run());
            }
            match exchanges.join_next().await {
                Some(Ok(Err(error))) => result = Err(error),
                Some(_) => {}
                None => break,
            }
        }
        if machine.keys().len() == 0 {
            return Ok(());
        }
    }
    result
}

/// Completes when the exchanges end that are under way.
fn wait_for_exchanges<M: Machine>(machine: &M) -> Vec<oneshot::Receiver<Result<(), StoreError>>> {
    let mut receivers = Vec::new();
    for mut shard in machine.keys().shards() {
        let keys = shard.values_mut().map(Listed::pending);
        for key in keys.filter(|key| key.in_flight) {
            let (waiter, receiver) = oneshot::channel();
            key.waiters.push(waiter);
            receivers.push(receiver);
        }
    }
    receivers
}
