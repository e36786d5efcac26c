//! Sends requests to the routes of a run.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::{
    scene::Lanes,
    setting::{One, Traffic},
};

/// The bursts that are sent late if the machine is too slow; earlier ones are left out.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Sends traffic until the sender of `traffic` is dropped; `None` pauses it.
///
/// Requests that still wait when this ends are dropped.
pub(crate) async fn drive(lanes: Arc<Lanes>, mut traffic: watch::Receiver<Option<Traffic>>) {
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
                        send(&mut requests, &lanes, present.request(sent));
                        sent += 1;
                    }
                    next += present.pause();
                }
            }
        }
        while requests.try_join_next().is_some() {}
    }
}

/// Sends one request to each route that gets it.
fn send(requests: &mut JoinSet<()>, lanes: &Lanes, (client, one): (u64, One)) {
    for lane in lanes.next() {
        let lane = Arc::clone(lane);
        requests.spawn(async move {
            lane.send(client, one).await;
        });
    }
}
