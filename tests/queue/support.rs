//! A service that records when each request reaches it, and tasks that call it.

use std::{
    future::{Ready, ready},
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{task::JoinHandle, time::Instant};
use tokio_test::task;
use tower::{Layer, Service, ServiceExt};

pub(crate) type Boxed = Box<dyn std::error::Error + Send + Sync>;

/// A request: a name and a cost. Its key is `name / 1000`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) name: u32,
    pub(crate) cost: u64,
}

pub(crate) fn key(job: &Job) -> u32 {
    job.name / 1_000
}

/// The names of the requests that reached the service, and when.
pub(crate) type Served = Vec<(u32, u64)>;

#[derive(Clone, Debug)]
pub(crate) struct Record {
    start: Instant,
    served: Arc<Mutex<Served>>,
}

impl Record {
    pub(crate) fn idle() -> Self {
        Self {
            start: Instant::now(),
            served: Arc::default(),
        }
    }

    /// The requests served so far, with the time in milliseconds.
    pub(crate) fn served(&self) -> Served {
        let served = self.served.lock().unwrap();
        let in_millis = served.iter().map(|(name, time)| (*name, time / 1_000));
        in_millis.collect()
    }
}

impl Service<Job> for Record {
    type Response = u32;
    type Error = Boxed;
    type Future = Ready<Result<u32, Boxed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, job: Job) -> Self::Future {
        let time = u64::try_from(self.start.elapsed().as_micros()).unwrap();
        self.served.lock().unwrap().push((job.name, time));
        ready(Ok(job.name))
    }
}

/// A limited service and its record.
pub(crate) struct Harness<S> {
    pub(crate) service: S,
    record: Record,
}

pub(crate) type Call = JoinHandle<Result<u32, Boxed>>;

impl<S> Harness<S>
where
    S: Service<Job, Response = u32, Error = Boxed> + Clone + Send + 'static,
    S::Future: Send,
{
    pub(crate) fn new(layer: &impl Layer<Record, Service = S>) -> Self {
        let record = Record::idle();
        Self {
            service: layer.layer(record.clone()),
            record,
        }
    }

    /// Sends a request and runs it as far as it can go.
    pub(crate) async fn send(&self, name: u32) -> Call {
        let call = tokio::spawn(self.service.clone().oneshot(Job { name, cost: 1 }));
        settle().await;
        call
    }

    /// The requests served so far, with the time in milliseconds.
    pub(crate) fn served(&self) -> Served {
        self.record.served()
    }

    /// The same in microseconds.
    pub(crate) fn times(&self) -> Served {
        self.record.served.lock().unwrap().clone()
    }
}

/// Runs all tasks as far as they can go.
pub(crate) async fn settle() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn cancel(call: Call) {
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    settle().await;
}

pub(crate) async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    settle().await;
}

/// Polls a service for readiness.
pub(crate) fn poll_ready<S: Service<Job> + Unpin>(
    service: &mut task::Spawn<S>,
) -> Poll<Result<(), S::Error>> {
    service.enter(|cx, mut service| service.poll_ready(cx))
}
