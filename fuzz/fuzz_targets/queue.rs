//! Queued requests are released in the order and at the times of a simple model, to the millisecond
//! that timers are exact to, while requests enter and leave and quotas change.
#![no_main]

use std::collections::VecDeque;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;
use tower_throttle::{
    AsError, LeakyBucket, Local, Quota, RateLimitLayer, RateLimited, queue::WhenFull,
};

#[derive(Arbitrary, Debug)]
struct Input {
    micros: u16,
    units: u8,
    seats: u8,
    costly: bool,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Enter {
        other: bool,
        cost: u8,
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

struct TestWaker(AtomicBool);

impl Wake for TestWaker {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The model of one queue, in nanoseconds.
#[derive(Default)]
struct QueueModel {
    /// Name, cost and moment of release.
    line: VecDeque<(usize, u64, u64)>,
    free: u64,
}

impl QueueModel {
    /// Whether the request is queued or admitted. `free_seat`: whether a seat is free.
    fn enter(&mut self, job: Job, now: u64, interval: u64, units: u64, free_seat: bool) -> bool {
        // A large cost goes in its turn, but it does not wait, and later requests pay for it.
        let turn = self.free.max(now);
        let positions = units.saturating_sub(job.cost - 1);
        if turn - now > positions * interval || turn > now && !free_seat {
            return false;
        }
        self.free = turn + job.cost * interval;
        self.line.push_back((job.name, job.cost, turn));
        true
    }

    fn leave(&mut self, name: usize, now: u64, interval: u64) {
        let Some(at) = self.line.iter().position(|(one, ..)| *one == name) else {
            return;
        };
        let Some((_, cost, _)) = self.line.remove(at) else {
            return;
        };
        for (.., turn) in self.line.range_mut(at..) {
            *turn -= cost * interval;
        }
        self.free = (self.free - cost * interval).max(now.min(self.free));
    }

    fn retune(&mut self, now: u64, from: u64, to: u64) {
        let rescaled = |turn: u64| {
            let left = u128::from(turn.saturating_sub(now)) * u128::from(to);
            now + u64::try_from(left.div_ceil(u128::from(from))).unwrap()
        };
        for (.., turn) in &mut self.line {
            *turn = rescaled(*turn);
        }
        if self.free > now {
            self.free = rescaled(self.free);
        }
    }

    fn pass(&mut self, now: u64) -> Vec<usize> {
        let mut released = Vec::new();
        while self.line.front().is_some_and(|(.., turn)| *turn <= now) {
            released.extend(self.line.pop_front().map(|(name, ..)| name));
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
        u64::from(input.units % 40),
        u32::from(input.seats % 20).max(1),
    );
    let bucket = LeakyBucket::new(quota(interval)).queue(units);
    let bucket = Local::new(bucket).capacity(16);
    let layer = RateLimitLayer::new(|job: &Job| job.key, bucket)
        .cost(|job: &Job| job.cost)
        .respond(AsError)
        .seats(seats)
        .when_full(WhenFull::Deny);
    let handle = layer.handle();
    let recorder = Recorder(Arc::default());
    let mut service = layer.layer(recorder.clone());
    // Shares its seats with `service`; used to take and count them.
    let seated = layer
        .clone()
        .when_full(WhenFull::Pending)
        .layer(recorder.clone());
    let mut ready_services = Vec::new();
    let mut models = [QueueModel::default(), QueueModel::default()];
    let mut calls: Vec<(usize, Job, Arc<TestWaker>, Pin<Box<_>>)> = Vec::new();
    let start = Instant::now();
    let mut names = 0;
    for step in &input.steps {
        let now = || u64::try_from(start.elapsed().as_nanos()).unwrap();
        let mut accepted = None;
        match step {
            Step::Enter { other, cost } => {
                let cost = if input.costly {
                    u64::from(cost % 4) + 1
                } else {
                    1
                };
                let job = Job {
                    name: names,
                    key: usize::from(*other),
                    cost,
                };
                names += 1;
                let waiting = models.iter().map(|model| model.line.len()).sum::<usize>();
                let free_seat = waiting + ready_services.len() < seats as usize;
                accepted = Some(models[job.key].enter(job, now(), interval, units, free_seat));
                let waker = Arc::new(TestWaker(AtomicBool::new(true)));
                calls.push((job.name, job, waker, Box::pin(service.call(job))));
            }
            Step::Leave(which) if !calls.is_empty() => {
                let (name, job, ..) = calls.remove(usize::from(*which) % calls.len());
                models[job.key].leave(name, now(), interval);
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
                accepted = Some(models[job.key].enter(job, now(), interval, units, true));
                let waker = Arc::new(TestWaker(AtomicBool::new(true)));
                calls.push((job.name, job, waker, Box::pin(service.call(job))));
            }
            Step::DropReady(_) | Step::Call { .. } => {}
        }
        // Polls only the calls that were woken.
        let mut denied = false;
        while calls
            .iter()
            .any(|(_, _, waker, _)| waker.0.load(Ordering::Relaxed))
        {
            calls.retain_mut(|(.., waker, call)| {
                if !waker.0.swap(false, Ordering::Relaxed) {
                    return true;
                }
                let context_waker = Waker::from(Arc::clone(waker));
                match call.as_mut().poll(&mut Context::from_waker(&context_waker)) {
                    Poll::Ready(result) => {
                        denied |= result.is_err();
                        false
                    }
                    Poll::Pending => true,
                }
            });
        }
        assert_eq!(denied, accepted == Some(false), "{step:?}");
        let mut served = std::mem::take(&mut *recorder.0.lock().unwrap());
        for key in [0, 1] {
            let released = models[key].pass(now());
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
