//! Sends requests to all routes.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::{lane::Lane, setting::Traffic};

/// The bursts that are sent late if the machine is too slow; earlier ones are left out.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Sends traffic until the sender of `traffic` is dropped; `None` pauses it.
///
/// Each request goes to all routes. Requests that still wait when this ends are dropped.
pub(crate) async fn drive(lanes: Arc<[Arc<Lane>]>, mut traffic: watch::Receiver<Option<Traffic>>) {
    let mut requests = JoinSet::new();
    let mut sent: u64 = 0;
    let mut next = Instant::now();
    loop {
        let present = *traffic.borrow_and_update();
        let Some(present) = present else {
            if traffic.changed().await.is_err() {
                return;
            }
            next = Instant::now();
            continue;
        };
        tokio::select! {
            changed = traffic.changed() => match changed {
                Ok(()) => next = next.min(Instant::now() + present.pause()),
                Err(_) => return,
            },
            () = sleep_until(next) => {
                let now = Instant::now();
                next = next.max(now.checked_sub(MAX_DELAY).unwrap_or(now));
                while next <= now {
                    for _ in 0..present.burst {
                        let client = sent % present.clients + 1;
                        send(&mut requests, &lanes, client, present.cost);
                        sent += 1;
                    }
                    next += present.pause();
                }
            }
        }
        while requests.try_join_next().is_some() {}
    }
}

/// Sends one request to each route.
fn send(requests: &mut JoinSet<()>, lanes: &[Arc<Lane>], client: u64, cost: u64) {
    for lane in lanes {
        let lane = Arc::clone(lane);
        requests.spawn(async move {
            lane.send(client, cost).await;
        });
    }
}
