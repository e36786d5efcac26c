//! A server whose number of workers changes, and clients that ask for more than it can do, in virtual
//! time. Each run is the same.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until},
};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};
use tower_throttle::{
    AsError, Global, Handle,
    concurrency::{Adaptive, Aimd, ConcurrencyLimitLayer, Gradient2, Permits},
};

/// How many workers the server has, and for how many seconds.
pub(crate) const PHASES: [(usize, u64); 4] = [(40, 60), (10, 60), (60, 60), (20, 60)];

/// The seconds after a change of capacity in which latencies do not count: no limiter knows of it at
/// once.
pub(crate) const SETTLING: u64 = 30;

/// How many milliseconds a request takes a worker: from, to, and 100 on average.
pub(crate) type ServiceMs = (u64, u64);

pub(crate) const EQUAL: ServiceMs = (100, 100);
pub(crate) const MIXED: ServiceMs = (50, 150);

/// Requests per second: 600 would keep 60 workers busy.
const OFFERED: u64 = 750;

/// A limit in front of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limiter {
    None,
    /// tower's `ConcurrencyLimit` and `LoadShed`.
    Tower(usize),
    Fixed(u32),
    Aimd,
    Gradient2,
}

/// What became of all requests.
pub(crate) struct Outcome {
    /// The requests that were served, in percent of what the server could do, in the phase in which it
    /// was least, once settled.
    pub(crate) served: u64,
    /// 99 of 100 served requests took at most so many milliseconds, in the phase in which it was most,
    /// once settled.
    pub(crate) p99_ms: u64,
    /// The limit at the end of each second; empty if it is not of this crate.
    pub(crate) limits: Vec<u64>,
}

struct Server(Arc<Mutex<Workers>>);

struct Workers {
    free: isize,
    queue: VecDeque<oneshot::Sender<()>>,
    random: Random,
    service_ms: ServiceMs,
}

/// Occupies a worker.
struct Busy(Arc<Mutex<Workers>>);

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }
}

fn lock(workers: &Mutex<Workers>) -> MutexGuard<'_, Workers> {
    workers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Workers {
    fn service_time(&mut self) -> u64 {
        let (least, most) = self.service_ms;
        least + self.random.below(most - least + 1)
    }

    /// Adds free workers, or takes some away once they are free.
    fn add(&mut self, many: isize) {
        self.free += many;
        while self.free > 0 {
            let Some(next) = self.queue.pop_front() else {
                return;
            };
            // The receiver has the worker unless it is gone.
            if next.send(()).is_ok() {
                self.free -= 1;
            }
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        lock(&self.0).add(1);
    }
}

impl Clone for Server {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Service<()> for Server {
    type Response = ();
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        let workers = Arc::clone(&self.0);
        Box::pin(async move {
            let turn = {
                let mut workers = lock(&workers);
                if workers.free > 0 {
                    workers.free -= 1;
                    None
                } else {
                    let (send, receive) = oneshot::channel();
                    workers.queue.push_back(send);
                    Some(receive)
                }
            };
            if let Some(turn) = turn {
                turn.await?;
            }
            let busy = Busy(workers);
            let ms = lock(&busy.0).service_time();
            sleep(Duration::from_millis(ms)).await;
            Ok(())
        })
    }
}

type Limited = BoxCloneSyncService<(), (), BoxError>;

/// The server behind a limiter, and a handle if the limiter is of this crate.
fn behind(server: Server, limiter: Limiter) -> (Limited, Option<Handle<(), Permits>>) {
    fn layer(
        server: Server,
        layer: ConcurrencyLimitLayer<Global>,
    ) -> (Limited, Option<Handle<(), Permits>>) {
        let handle = layer.handle();
        let layer = layer.release_at_response().respond(AsError);
        (BoxCloneSyncService::new(layer.layer(server)), Some(handle))
    }

    fn adaptive(
        server: Server,
        algorithm: impl Adaptive,
    ) -> (Limited, Option<Handle<(), Permits>>) {
        layer(server, ConcurrencyLimitLayer::adaptive(algorithm))
    }

    match limiter {
        Limiter::None => (BoxCloneSyncService::new(server), None),
        Limiter::Tower(limit) => {
            let service = ServiceBuilder::new()
                .load_shed()
                .concurrency_limit(limit)
                .service(server);
            (BoxCloneSyncService::new(service), None)
        }
        Limiter::Fixed(limit) => layer(server, ConcurrencyLimitLayer::new(Global, limit)),
        Limiter::Aimd => adaptive(server, Aimd::new(Duration::from_millis(225))),
        Limiter::Gradient2 => adaptive(server, Gradient2::new()),
    }
}

/// The latencies of requests that were served, by the phase in which they ended.
#[derive(Default)]
struct Served {
    settled: [Vec<u64>; PHASES.len()],
}

/// The phase at a moment, and whether the limiters have had time to settle.
fn phase(at: Duration) -> Option<(usize, bool)> {
    let mut begun = 0;
    for (phase, (_, seconds)) in PHASES.iter().enumerate() {
        let since = at.as_secs().saturating_sub(begun);
        if since < *seconds {
            return Some((phase, since >= SETTLING));
        }
        begun += seconds;
    }
    None
}

/// One run, in virtual time.
pub(crate) fn simulate(limiter: Limiter, service_ms: ServiceMs) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let Ok(runtime) = runtime else {
        unreachable!("a runtime without I/O needs no resources");
    };
    let (served, limits) = runtime.block_on(run(limiter, service_ms));
    let could = |workers: usize, seconds: u64| workers as u64 * seconds * 10;
    let phases = || PHASES.iter().zip(&served.settled);
    let shares = phases().map(|((workers, seconds), latencies)| {
        latencies.len() as u64 * 100 / could(*workers, seconds - SETTLING)
    });
    let p99s = phases().map(|(_, latencies)| {
        let mut latencies = latencies.clone();
        latencies.sort_unstable();
        let at = (latencies.len() * 99).div_ceil(100).max(1) - 1;
        latencies.get(at).copied().unwrap_or_default()
    });
    Outcome {
        served: shares.min().unwrap_or_default(),
        p99_ms: p99s.max().unwrap_or_default(),
        limits,
    }
}

async fn run(limiter: Limiter, service_ms: ServiceMs) -> (Served, Vec<u64>) {
    let workers = Arc::new(Mutex::new(Workers {
        free: 0,
        queue: VecDeque::new(),
        random: Random(0x2545_f491_4f6c_dd1d),
        service_ms,
    }));
    let (service, handle) = behind(Server(Arc::clone(&workers)), limiter);
    let (served, mut limits) = (Arc::new(Mutex::new(Served::default())), Vec::new());
    let (start, mut arrivals) = (Instant::now(), Random(0x9e37_79b9_7f4a_7c15));
    let (mut ms, mut before) = (0, 0);
    for (many, seconds) in PHASES {
        let change = isize::try_from(many).unwrap_or(isize::MAX) - before;
        lock(&workers).add(change);
        before += change;
        for _ in 0..seconds * 1_000 {
            sleep_until(start + Duration::from_millis(ms)).await;
            ms += 1;
            if let (0, Some(handle)) = (ms % 1_000, &handle) {
                limits.push(handle.limit());
            }
            // At most one per millisecond, independent of each other.
            if arrivals.below(1_000) >= OFFERED {
                continue;
            }
            let (service, served) = (service.clone(), Arc::clone(&served));
            tokio::spawn(async move {
                let begun = Instant::now();
                if service.oneshot(()).await.is_err() {
                    return;
                }
                let latency = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                let Some((phase, settled)) = phase(start.elapsed()) else {
                    return;
                };
                let mut served = served.lock().unwrap_or_else(PoisonError::into_inner);
                if settled {
                    served.settled[phase].push(latency);
                }
            });
        }
    }
    let served = std::mem::take(&mut *served.lock().unwrap_or_else(PoisonError::into_inner));
    (served, limits)
}
