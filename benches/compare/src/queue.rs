//! Many queued requests of one key: the cost of each, and the cost of a release.
//!
//! Every side does the same work on a tokio runtime of one thread: 100,000 tasks wait, 50 are
//! released per millisecond, and each released task calls a service that does nothing. The sides:
//! - the layer with a leaky bucket of 50 per millisecond, which also decides, per key.
//! - the same, newest first.
//! - the leaky-bucket crate, fair, with 50 at the end of each millisecond. Each task acquires one.
//! - a common hand-written solution: each task takes a permit of a tokio semaphore, and one task
//!   adds 50 permits per millisecond.
//!
//! The time to enter is measured from before the first task is spawned until all tasks wait. The
//! time of a release is measured from then until all tasks are joined, per task that was still
//! waiting. Both are CPU time of the process, so a thread that releases lines counts too, and sleeping does not.
//! Memory is everything allocated when all tasks wait: tasks with their futures, and queues.
//!
//! The last rows are of an important request that meets a full line after one cancel in its middle: it takes
//! the place of the last waiter. Beside a line of 5,000 it may take longer only as the logarithm of the line does.

use std::convert::Infallible;
use std::future::{Future, Ready, poll_fn, ready};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower_layer::Layer;
use tower_service::Service;
use tower_throttle::{
    Global, LeakyBucket, Quota, RateLimitLayer, RateLimited,
    respond::{Opaque, Respond},
};

use crate::count;
use crate::row::{Effort, Row};

/// A service that does nothing.
#[derive(Clone)]
struct Idle;

impl<R> Service<R> for Idle {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: R) -> Self::Future {
        ready(Ok(()))
    }
}

/// Waits for readiness after the release, as a hand-written middleware does.
async fn serve(mut service: Idle) -> Result<(), Infallible> {
    poll_fn(|cx| Service::<()>::poll_ready(&mut service, cx)).await?;
    service.call(()).await
}

#[derive(Clone)]
struct Never;

impl<R> Respond<R, (), Infallible> for Never {
    type Protocol = Opaque;

    fn deny(&self, _: R, denied: RateLimited) -> Result<(), Infallible> {
        panic!("unexpected denial: {denied}");
    }
}

const PER_MS: usize = 50;

/// The CPU time of this process in nanoseconds, that of the thread with the timers included.
fn busy() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes to `time` and does not keep the pointer.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "this system has no CPU clock per process");
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Per queued request: bytes, nanoseconds to enter and nanoseconds to be released.
type Figures = [f64; 3];

fn run<F>(waiting: usize, begin: impl FnOnce() -> Box<dyn FnMut() -> F>) -> Figures
where
    F: Future<Output: Send> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async move {
        let mut wait = begin();
        let mut tasks = JoinSet::new();
        count::count_live();
        let start = busy();
        for _ in 0..waiting {
            tasks.spawn(wait());
        }
        // The runtime polls this task last, so all others have been polled before it.
        tokio::spawn(async {}).await.expect("no panic");
        let entered = busy();
        let bytes = count::live() as f64;
        let mut gone = 0;
        while tasks.try_join_next().is_some() {
            gone += 1;
        }
        let left = (waiting - gone) as f64;
        assert!(left > 0.0, "no task is still waiting");
        let start_of_end = busy();
        while tasks.join_next().await.is_some() {}
        let end = busy();
        [
            bytes / waiting as f64,
            (entered - start) / waiting as f64,
            (end - start_of_end) / left,
        ]
    })
}

fn layer(waiting: usize, newest_first: bool) -> Figures {
    run(waiting, || {
        let quota = Quota::per(PER_MS as u64, Duration::from_millis(1));
        let bucket = LeakyBucket::new(quota.burst(1));
        let layer = RateLimitLayer::new(Global, bucket).queue(u32::MAX);
        let layer = if newest_first {
            layer.newest_first()
        } else {
            layer
        };
        let layer = layer.respond(Never);
        let mut service = layer.layer(Idle);
        Box::new(move || service.call(()))
    })
}

fn leaky_bucket(waiting: usize) -> Figures {
    run(waiting, || {
        let limiter = leaky_bucket::RateLimiter::builder()
            .initial(0)
            .max(PER_MS)
            .refill(PER_MS)
            .interval(Duration::from_millis(1))
            .build();
        let limiter = Arc::new(limiter);
        Box::new(move || {
            let limiter = Arc::clone(&limiter);
            async move {
                limiter.acquire_owned(1).await;
                serve(Idle).await
            }
        })
    })
}

fn semaphore(waiting: usize) -> Figures {
    run(waiting, || {
        let permits = Arc::new(Semaphore::new(0));
        let paced = Arc::downgrade(&permits);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(1));
            loop {
                ticks.tick().await;
                let Some(permits) = paced.upgrade() else {
                    return;
                };
                permits.add_permits(PER_MS);
            }
        });
        Box::new(move || {
            let permits = Arc::clone(&permits);
            async move {
                permits.acquire().await.expect("an open semaphore").forget();
                serve(Idle).await
            }
        })
    })
}

/// Nanoseconds for an important request that meets a full line of so many, after one cancel in its middle.
fn important(waiting: usize) -> f64 {
    const ROUNDS: usize = 50;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        // Nothing is released meanwhile, and the first one passes at once.
        let bucket = LeakyBucket::new(Quota::per_hour(1));
        let layer = RateLimitLayer::new(Global, bucket)
            .queue(u32::MAX)
            .priority(|rank: &u8| *rank);
        let mut service = layer.respond(Never).layer(Idle);
        let mut cx = Context::from_waker(Waker::noop());
        let mut enter = |rank| {
            let mut request = Box::pin(service.call(rank));
            let is_waiting = request.as_mut().poll(&mut cx).is_pending();
            (request, is_waiting)
        };
        assert!(!enter(80).1, "the first one passes");
        let mut line: Vec<_> = (0..waiting)
            .map(|_| enter(80))
            .map(|(request, is_waiting)| is_waiting.then_some(request).expect("a place"))
            .collect();
        let mut important = Vec::new();
        let mut took = 0.0;
        for round in 0..ROUNDS {
            drop(line.remove(waiting / 2 - round));
            let (request, is_waiting) = enter(80);
            assert!(is_waiting, "the line is full again");
            line.push(request);
            let start = busy();
            let (request, is_waiting) = enter(100);
            took += busy() - start;
            assert!(is_waiting, "it takes the place of another one");
            important.push(request);
            // Its place was taken.
            line.pop();
        }
        took / ROUNDS as f64
    })
}

fn run_important(effort: &Effort) {
    let few = 5_000;
    for waiting in [few, 20_000, 80_000] {
        let mut row = Row {
            work: format!("important, meets a full line of {waiting} after a cancel"),
            peer: "of 5000",
            unit: "ns",
            ours: Vec::new(),
            theirs: Vec::new(),
            goal: if waiting == few { f64::INFINITY } else { 1.5 },
            absolute: false,
            more: false,
        };
        if !effort.wants(&row.work) {
            continue;
        }
        for _ in 0..effort.rounds() {
            row.theirs.push(important(few));
            row.ours.push(important(waiting));
        }
        row.print(effort);
    }
}

pub(crate) fn run_all(effort: &Effort) {
    run_important(effort);
    let waiting = if effort.quick { 20_000 } else { 100_000 };
    type Measure<'a> = &'a dyn Fn(usize) -> Figures;
    let sides: [(&str, Measure<'_>); 4] = [
        ("the layer", &|waiting| layer(waiting, false)),
        ("newest first", &|waiting| layer(waiting, true)),
        ("leaky-bucket", &leaky_bucket),
        ("semaphore and a task", &semaphore),
    ];
    let mut figures = vec![[const { Vec::new() }; 4]; sides.len()];
    // The first round only warms up.
    for round in 0..=effort.rounds() {
        for (side, (_, measure)) in sides.iter().enumerate() {
            let [memory, enter, release] = measure(waiting);
            if round > 0 {
                let measured = [memory, enter, release, enter + release];
                for (all, one) in figures[side].iter_mut().zip(measured) {
                    all.push(one);
                }
            }
        }
    }
    // Only both together have a goal: entering the layer also decides, and stores the request.
    let kinds = [
        ("memory per request", "bytes", f64::INFINITY),
        ("to enter", "ns", f64::INFINITY),
        ("to be released", "ns", f64::INFINITY),
        ("to enter and be released", "ns", 1.3),
    ];
    for ((peer, _), theirs) in sides.iter().zip(&figures).skip(1) {
        for (kind, (what, unit, goal)) in kinds.into_iter().enumerate() {
            let row = Row {
                work: format!("{waiting} queued for one key, {what}"),
                peer,
                unit,
                ours: figures[0][kind].clone(),
                theirs: theirs[kind].clone(),
                goal: if *peer == "newest first" {
                    f64::INFINITY
                } else {
                    goal
                },
                absolute: false,
                more: false,
            };
            if effort.wants(&row.work) {
                row.print(effort);
            }
        }
    }
}
