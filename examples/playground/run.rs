//! Routes under traffic, and the pages that show them.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    sync::{broadcast, watch},
    task::AbortHandle,
    time::{Instant, MissedTickBehavior, interval},
};

use crate::{
    lane::Lane,
    sample::{PERIOD, Sample, millis},
    scene::Lanes,
    setting::{One, Traffic},
    traffic,
};

/// Samples that a slow reader may be behind.
const BACKLOG: usize = 16;

/// The routes of one page, and the traffic to them. Dropping it ends the traffic.
pub(crate) struct Run {
    lanes: Arc<Lanes>,
    traffic: watch::Sender<Option<Traffic>>,
    samples: broadcast::Sender<Arc<str>>,
    viewers: AtomicUsize,
    tasks: [AbortHandle; 2],
}

/// A page that receives samples. When the last one is gone, the traffic stops.
pub(crate) struct Viewer {
    run: Weak<Run>,
    samples: broadcast::Receiver<Arc<str>>,
}

impl Run {
    /// Starts without traffic.
    pub(crate) fn start(lanes: Lanes) -> Arc<Self> {
        let lanes = Arc::new(lanes);
        let traffic = watch::Sender::new(None);
        let samples = broadcast::Sender::new(BACKLOG);
        let drive = tokio::spawn(traffic::drive(Arc::clone(&lanes), traffic.subscribe()));
        let sample = tokio::spawn(sample(
            Arc::clone(&lanes),
            traffic.subscribe(),
            samples.clone(),
        ));
        Arc::new(Self {
            lanes,
            traffic,
            samples,
            viewers: AtomicUsize::new(0),
            tasks: [drive.abort_handle(), sample.abort_handle()],
        })
    }

    /// Changes the traffic; `None` stops it.
    pub(crate) fn set_traffic(&self, traffic: Option<Traffic>) {
        self.traffic.send_replace(traffic);
    }

    pub(crate) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    pub(crate) fn lane(&self, number: usize) -> Option<Arc<Lane>> {
        self.lanes.all().nth(number).cloned()
    }

    /// Sends one request to each route that gets it.
    pub(crate) fn send_one(&self, client: u64, one: One) {
        for lane in self.lanes.next() {
            let lane = Arc::clone(lane);
            tokio::spawn(async move { lane.send(client, one).await });
        }
    }

    pub(crate) fn view(self: &Arc<Self>) -> Viewer {
        self.viewers.fetch_add(1, Ordering::Relaxed);
        Viewer {
            run: Arc::downgrade(self),
            samples: self.samples.subscribe(),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Viewer {
    /// The next sample, as JSON; `None` when the run has ended.
    pub(crate) async fn next(&mut self) -> Option<Arc<str>> {
        loop {
            match self.samples.recv().await {
                Ok(sample) => return Some(sample),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let Some(run) = self.run.upgrade() else {
            return;
        };
        if run.viewers.fetch_sub(1, Ordering::Relaxed) == 1 {
            run.set_traffic(None);
        }
    }
}

/// Sends a sample of all routes in each period.
async fn sample(
    lanes: Arc<Lanes>,
    traffic: watch::Receiver<Option<Traffic>>,
    samples: broadcast::Sender<Arc<str>>,
) {
    let start = Instant::now();
    let mut periods = interval(PERIOD);
    periods.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut clients = 1;
    loop {
        periods.tick().await;
        // After the traffic stopped, its clients are still shown.
        if let Some(traffic) = &*traffic.borrow() {
            clients = traffic.clients;
        }
        let sample = Sample {
            at: millis(start.elapsed()),
            lanes: lanes.all().map(|lane| lane.sample(clients)).collect(),
        };
        if let Ok(text) = serde_json::to_string(&sample) {
            // Fails if no page receives samples.
            let _ = samples.send(text.into());
        }
    }
}
