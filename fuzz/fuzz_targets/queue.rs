//! Requests that enter, leave, wait and are planned anew: who goes when is what a plain queue says
//! of them, to the millisecond that timers go by.
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
use tower_throttle::{AsError, LeakyBucket, Local, Quota, RateLimitLayer, RateLimited, queue::WhenFull};

#[derive(Arbitrary, Debug)]
struct Input {
    micros: u16,
    units: u8,
    seats: u8,
    dear: bool,
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
    /// A service becomes ready, if there is a seat for it, and keeps that.
    Sit,
    /// One of those is dropped.
    Rise(u8),
    /// One of those is called.
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

/// Writes down who came, and when.
#[derive(Clone)]
struct Desk(Arc<Mutex<Vec<usize>>>);

impl Service<Job> for Desk {
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

/// A queue as one would write it down: moments in nanoseconds.
#[derive(Default)]
struct Plain {
    /// Name, cost and moment.
    line: VecDeque<(usize, u64, u64)>,
    free: u64,
}

impl Plain {
    /// Whether it may stay; `room` says whether there is a seat.
    fn enter(&mut self, job: Job, now: u64, interval: u64, units: u64, room: bool) -> bool {
        if job.cost > units.max(1) {
            return false;
        }
        let turn = self.free.max(now);
        let places = units.saturating_sub(job.cost - 1);
        if turn - now > places * interval || turn > now && !room {
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
        let anew = |turn: u64| {
            let left = u128::from(turn.saturating_sub(now)) * u128::from(to);
            now + u64::try_from(left.div_ceil(u128::from(from))).unwrap()
        };
        for (.., turn) in &mut self.line {
            *turn = anew(*turn);
        }
        if self.free > now {
            self.free = anew(self.free);
        }
    }

    fn pass(&mut self, now: u64) -> Vec<usize> {
        let mut gone = Vec::new();
        while self.line.front().is_some_and(|(.., turn)| *turn <= now) {
            gone.extend(self.line.pop_front().map(|(name, ..)| name));
        }
        gone
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

/// How many seats are to be had.
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
    let (units, seats) = (u64::from(input.units % 40), u32::from(input.seats % 20));
    let bucket = LeakyBucket::new(quota(interval)).queue(units);
    let bucket = Local::new(bucket).capacity(16);
    let layer = RateLimitLayer::new(|job: &Job| job.key, bucket)
        .cost(|job: &Job| job.cost)
        .respond(AsError)
        .seats(seats)
        .when_full(WhenFull::Deny);
    let handle = layer.handle();
    let desk = Desk(Arc::default());
    let mut service = layer.layer(desk.clone());
    // Its seats are those of the other: by it they are taken and counted.
    let seated = layer
        .clone()
        .when_full(WhenFull::Pending)
        .layer(desk.clone());
    let mut seat = Vec::new();
    let mut plain = [Plain::default(), Plain::default()];
    let mut calls: Vec<(usize, Job, Arc<TestWaker>, Pin<Box<_>>)> = Vec::new();
    let start = Instant::now();
    let mut names = 0;
    for step in &input.steps {
        let now = || u64::try_from(start.elapsed().as_nanos()).unwrap();
        let mut stays = None;
        match step {
            Step::Enter { other, cost } => {
                let cost = if input.dear {
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
                let waiting = plain.iter().map(|plain| plain.line.len()).sum::<usize>();
                let room = waiting + seat.len() < seats as usize;
                stays = Some(plain[job.key].enter(job, now(), interval, units, room));
                let bell = Arc::new(TestWaker(AtomicBool::new(true)));
                calls.push((job.name, job, bell, Box::pin(service.call(job))));
            }
            Step::Leave(which) if !calls.is_empty() => {
                let (name, job, ..) = calls.remove(usize::from(*which) % calls.len());
                plain[job.key].leave(name, now(), interval);
            }
            Step::Leave(_) => {}
            Step::Pass(ms) => {
                tokio::time::advance(Duration::from_millis((*ms).into())).await;
            }
            Step::Retune(to) => {
                let to = micros(*to);
                handle.set_quota(quota(to)).unwrap();
                for plain in &mut plain {
                    plain.retune(now(), interval, to);
                }
                interval = to;
            }
            Step::Sit => {
                let mut service = seated.clone();
                let ready = service.poll_ready(&mut Context::from_waker(Waker::noop()));
                let waiting: usize = plain.iter().map(|plain| plain.line.len()).sum();
                let free = waiting + seat.len() < seats as usize;
                assert_eq!(ready.is_ready(), free, "{step:?}");
                if ready.is_ready() {
                    seat.push(service);
                }
            }
            Step::Rise(which) if !seat.is_empty() => {
                drop(seat.remove(usize::from(*which) % seat.len()));
            }
            Step::Call { which, other } if !seat.is_empty() => {
                let mut service = seat.remove(usize::from(*which) % seat.len());
                let job = Job {
                    name: names,
                    key: usize::from(*other),
                    cost: 1,
                };
                names += 1;
                // It has its seat.
                stays = Some(plain[job.key].enter(job, now(), interval, units, true));
                let bell = Arc::new(TestWaker(AtomicBool::new(true)));
                calls.push((job.name, job, bell, Box::pin(service.call(job))));
            }
            Step::Rise(_) | Step::Call { .. } => {}
        }
        // Only who is woken is polled.
        let mut denied = false;
        while calls
            .iter()
            .any(|(_, _, bell, _)| bell.0.load(Ordering::Relaxed))
        {
            calls.retain_mut(|(.., bell, call)| {
                if !bell.0.swap(false, Ordering::Relaxed) {
                    return true;
                }
                let waker = Waker::from(Arc::clone(bell));
                match call.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(answer) => {
                        denied |= answer.is_err();
                        false
                    }
                    Poll::Pending => true,
                }
            });
        }
        assert_eq!(denied, stays == Some(false), "{step:?}");
        let mut went = std::mem::take(&mut *desk.0.lock().unwrap());
        for key in [0, 1] {
            let gone = plain[key].pass(now());
            // In the order of the line, whatever the other line does meanwhile.
            let place = |name: &usize| went.iter().position(|one| one == name);
            let places: Option<Vec<_>> = gone.iter().map(place).collect();
            assert!(
                places.is_some_and(|places| places.is_sorted()),
                "{gone:?}: {went:?}"
            );
            went.retain(|name| !gone.contains(name));
        }
        assert!(went.is_empty(), "too early: {went:?} {step:?}");
        let waiting: usize = plain.iter().map(|plain| plain.line.len()).sum();
        assert_eq!(handle.waiting(), waiting as u64);
        // Free, waiting and running are always as many as there are.
        assert_eq!(
            free(&seated, seats) + waiting + seat.len(),
            seats as usize
        );
    }
    drop(calls);
    assert_eq!(handle.waiting(), 0);
    drop(seat);
    assert_eq!(free(&seated, seats), seats as usize);
}
