//! Queued requests are released in the order and at the times of a simple model, to the millisecond
//! that timers are exact to, while requests of both orders enter and leave
//! and quotas change.
//!
//! Shows promise 59.
#![no_main]

use std::collections::VecDeque;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;
use tower_throttle::{AsError, LeakyBucket, Local, Quota, RateLimitLayer, RateLimited};

#[derive(Arbitrary, Debug)]
struct Input {
    micros: u16,
    units: u8,
    seats: u8,
    /// Some requests go before those that wait. The line is never full then.
    newest: bool,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Enter {
        other: bool,
        newest: bool,
    },
    Leave(u8),
    Pass(u8),
    Retune(u16),
    /// Polls a service for readiness. If there is a seat, the service keeps it.
    Ready,
    /// Drops one of the ready services.
    DropReady(u8),
    /// Calls one of the ready services.
    Call {
        which: u8,
        other: bool,
    },
}

#[derive(Clone, Copy)]
struct Job {
    name: usize,
    key: usize,
    cost: u64,
}

/// A service that records the names of its requests in order.
#[derive(Clone)]
struct Recorder(Arc<Mutex<Vec<usize>>>);

impl Service<Job> for Recorder {
    type Response = ();
    type Error = RateLimited;
    type Future = Ready<Result<(), RateLimited>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RateLimited>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, job: Job) -> Self::Future {
        self.0.lock().unwrap().push(job.name);
        ready(Ok(()))
    }
}

/// When it was woken last, as a number that grows with each wake-up. Zero once it is polled.
struct TestWaker(AtomicU64);

impl TestWaker {
    fn new() -> Arc<Self> {
        let waker = Arc::new(Self(AtomicU64::new(0)));
        Arc::clone(&waker).wake();
        waker
    }

    fn woken(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for TestWaker {
    fn wake(self: Arc<Self>) {
        static WAKES: AtomicU64 = AtomicU64::new(1);
        let number = WAKES.fetch_add(1, Ordering::Relaxed);
        self.0.store(number, Ordering::Relaxed);
    }
}

/// The model of one line, in nanoseconds.
#[derive(Default)]
struct QueueModel {
    /// Name and cost of each request, in order.
    line: VecDeque<(usize, u64)>,
    /// When the bucket is free.
    free: u64,
    /// When the first one has asked.
    asked: u64,
}

impl QueueModel {
    /// Whether the request waits or is admitted. `free_seat`: whether a seat is free.
    fn enter(&mut self, job: Job, newest: bool, now: u64, most: u64, free_seat: bool) -> bool {
        let is_first = newest || self.line.is_empty();
        let waits = !is_first || self.free > now;
        if waits && (!free_seat || self.line.len() as u64 >= most) {
            return false;
        }
        if is_first {
            self.line.push_front((job.name, job.cost));
            self.asked = now;
        } else {
            self.line.push_back((job.name, job.cost));
        }
        true
    }

    fn leave(&mut self, job: Job) {
        self.line.retain(|(name, _)| *name != job.name);
    }

    fn retune(&mut self, now: u64, from: u64, to: u64) {
        if self.free > now {
            let left = u128::from(self.free - now) * u128::from(to);
            self.free = now + u64::try_from(left.div_ceil(u128::from(from))).unwrap();
        }
    }

    fn pass(&mut self, now: u64, interval: u64) -> Vec<usize> {
        let mut released = Vec::new();
        while let Some((name, cost)) = self.line.front().copied() {
            let turn = self.free.max(self.asked);
            if turn > now {
                break;
            }
            self.line.pop_front();
            self.free = turn + cost * interval;
            self.asked = turn;
            released.push(name);
        }
        released
    }
}

fn quota(interval: u64) -> Quota {
    Quota::per(1, Duration::from_nanos(interval))
}

fuzz_target!(|input: Input| {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(run(&input));
});

/// How many seats are free.
fn free<S: Service<Job> + Clone>(service: &S, seats: u32) -> usize {
    let mut services = vec![service.clone(); seats as usize + 1];
    let ready = services.iter_mut().map(|service| {
        let polled = service.poll_ready(&mut Context::from_waker(Waker::noop()));
        usize::from(polled.is_ready())
    });
    ready.sum()
}

async fn run(input: &Input) {
    let micros = |micros: u16| (u64::from(micros) + 1) * 1_000;
    let mut interval = micros(input.micros);
    let (units, seats) = (
        if input.newest {
            1_000_000
        } else {
            1 + u32::from(input.units % 40)
        },
        u32::from(input.seats % 20).max(1),
    );
    let bucket = LeakyBucket::new(quota(interval));
    let bucket = Local::new(bucket).capacity(16);
    let layer = RateLimitLayer::new(|job: &Job| job.key, bucket)
        .queue(units)
        .cost(|job: &Job| job.cost)
        .respond(AsError)
        .seats(seats);
    // Shares its seats with `service`; used to take and count them.
    let waits_for_seats = layer.clone();
    let layer = layer.deny_when_full();
    let handle = layer.handle();
    let recorder = Recorder(Arc::default());
    let mut service = layer.layer(recorder.clone());
    let mut newest_service = layer.clone().newest_first().layer(recorder.clone());
    let seated = waits_for_seats.layer(recorder.clone());
    let mut ready_services = Vec::new();
    let mut models = [QueueModel::default(), QueueModel::default()];
    let mut calls: Vec<(usize, Job, Arc<TestWaker>, Pin<Box<_>>)> = Vec::new();
    let start = Instant::now();
    let mut names = 0;
    for step in &input.steps {
        let now = || u64::try_from(start.elapsed().as_nanos()).unwrap();
        let mut accepted = None;
        match step {
            Step::Enter { other, newest } => {
                let cost = 1;
                let job = Job {
                    name: names,
                    key: usize::from(*other),
                    cost,
                };
                names += 1;
                let waiting = models.iter().map(|model| model.line.len()).sum::<usize>();
                let free_seat = waiting + ready_services.len() < seats as usize;
                let newest = input.newest && *newest;
                let model = &mut models[job.key];
                accepted = Some(model.enter(job, newest, now(), units.into(), free_seat));
                let waker = TestWaker::new();
                let call = if newest {
                    newest_service.call(job)
                } else {
                    service.call(job)
                };
                calls.push((job.name, job, waker, Box::pin(call)));
            }
            Step::Leave(which) if !calls.is_empty() => {
                let (_, job, ..) = calls.remove(usize::from(*which) % calls.len());
                models[job.key].leave(job);
            }
            Step::Leave(_) => {}
            Step::Pass(ms) => {
                tokio::time::advance(Duration::from_millis((*ms).into())).await;
            }
            Step::Retune(to) => {
                let to = micros(*to);
                handle.set_quota(quota(to)).unwrap();
                for model in &mut models {
                    model.retune(now(), interval, to);
                }
                interval = to;
            }
            Step::Ready => {
                let mut service = seated.clone();
                let ready = service.poll_ready(&mut Context::from_waker(Waker::noop()));
                let waiting: usize = models.iter().map(|model| model.line.len()).sum();
                let free = waiting + ready_services.len() < seats as usize;
                assert_eq!(ready.is_ready(), free, "{step:?}");
                if ready.is_ready() {
                    ready_services.push(service);
                }
            }
            Step::DropReady(which) if !ready_services.is_empty() => {
                drop(ready_services.remove(usize::from(*which) % ready_services.len()));
            }
            Step::Call { which, other } if !ready_services.is_empty() => {
                let mut service = ready_services.remove(usize::from(*which) % ready_services.len());
                let job = Job {
                    name: names,
                    key: usize::from(*other),
                    cost: 1,
                };
                names += 1;
                // It has its seat already.
                accepted = Some(models[job.key].enter(job, false, now(), units.into(), true));
                let waker = TestWaker::new();
                calls.push((job.name, job, waker, Box::pin(service.call(job))));
            }
            Step::DropReady(_) | Step::Call { .. } => {}
        }
        // Polls only the calls that were woken, in this order.
        let mut denied = false;
        loop {
            let woken = calls.iter().enumerate();
            let woken = woken.filter(|(_, (_, _, waker, _))| waker.woken() > 0);
            let Some((at, _)) = woken.min_by_key(|(_, (_, _, waker, _))| waker.woken()) else {
                break;
            };
            let (_, _, waker, call) = &mut calls[at];
            waker.0.store(0, Ordering::Relaxed);
            let context_waker = Waker::from(Arc::clone(waker));
            if let Poll::Ready(result) =
                call.as_mut().poll(&mut Context::from_waker(&context_waker))
            {
                denied |= result.is_err();
                drop(calls.remove(at));
            }
        }
        assert_eq!(denied, accepted == Some(false), "{step:?}");
        let mut served = std::mem::take(&mut *recorder.0.lock().unwrap());
        for key in [0, 1] {
            let released = models[key].pass(now(), interval);
            // Each queue is served in order, independently of the other one.
            let position = |name: &usize| served.iter().position(|one| one == name);
            let positions: Option<Vec<_>> = released.iter().map(position).collect();
            assert!(
                positions.is_some_and(|positions| positions.is_sorted()),
                "{released:?}: {served:?}"
            );
            served.retain(|name| !released.contains(name));
        }
        assert!(served.is_empty(), "served too early: {served:?} {step:?}");
        let waiting: usize = models.iter().map(|model| model.line.len()).sum();
        assert_eq!(handle.waiting(), waiting as u64);
        // Every seat is free, held by a queued request or held by a ready service.
        assert_eq!(
            free(&seated, seats) + waiting + ready_services.len(),
            seats as usize
        );
    }
    drop(calls);
    assert_eq!(handle.waiting(), 0);
    drop(ready_services);
    assert_eq!(free(&seated, seats), seats as usize);
}
