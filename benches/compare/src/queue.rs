//! Many who wait for one key: what each of them takes, and what it costs to let one go.
//!
//! Every side has the same work, on a tokio runtime of one thread: 100,000 tasks wait, 50 are let go
//! each millisecond, and each of those calls a service that does nothing. The sides:
//! - the layer, with a leaky bucket of 50 a millisecond; it also decides, for a key.
//! - the same, where the newest go first.
//! - the leaky-bucket crate, fair, 50 at the end of each millisecond; each task acquires one.
//! - what is often written by hand: a tokio semaphore, from which each task takes a permit, and one
//!   task that adds 50 each millisecond.
//!
//! The time to enter is from before a task is spawned until all have been polled and wait; the time
//! of a release is from then on, of those who still wait then, until all tasks have been joined.
//! Both are what the processor spent, sleeping not counted. Memory is all that is allocated when
//! everybody waits: tasks with their futures, lines and lists.

use std::convert::Infallible;
use std::future::{Future, Ready, poll_fn, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower_layer::Layer;
use tower_service::Service;
use tower_throttle::{
    Global, LeakyBucket, Quota, RateLimitLayer, RateLimited, queue::Order, respond::Respond,
};

use crate::count;
use crate::row::{Effort, Row};

/// A service that does nothing.
#[derive(Clone)]
struct Idle;

impl Service<()> for Idle {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Ok(()))
    }
}

/// As in a middleware written by hand: the request waited without the readiness of the service.
async fn serve(mut service: Idle) -> Result<(), Infallible> {
    poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(()).await
}

#[derive(Clone)]
struct Never;

impl Respond<(), (), Infallible> for Never {
    fn deny(&self, (): &(), denied: RateLimited) -> Result<(), Infallible> {
        panic!("nobody is denied: {denied}");
    }
}

const PER_MS: usize = 50;

/// Nanoseconds that this thread has had of a processor.
fn busy() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes into `time` and keeps nothing.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "this system does not count the time of a thread");
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// One who waits takes so many bytes, so many nanoseconds to enter and so many to be let go.
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
        // The last in the queue of the runtime: all others have been polled before it.
        tokio::spawn(async {}).await.expect("it does nothing");
        let entered = busy();
        let bytes = count::live() as f64;
        let mut gone = 0;
        while tasks.try_join_next().is_some() {
            gone += 1;
        }
        let left = (waiting - gone) as f64;
        assert!(left > 0.0, "nobody waits any longer");
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

fn layer(waiting: usize, order: Order) -> Figures {
    run(waiting, || {
        let quota = Quota::per(PER_MS as u64, Duration::from_millis(1));
        let bucket = LeakyBucket::new(quota).queue(waiting as u64);
        let layer = RateLimitLayer::new(Global, bucket)
            .respond(Never)
            .order(order);
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
                permits.acquire().await.expect("it is open").forget();
                serve(Idle).await
            }
        })
    })
}

pub(crate) fn run_all(effort: &Effort) {
    let waiting = if effort.quick { 20_000 } else { 100_000 };
    type Measure<'a> = &'a dyn Fn(usize) -> Figures;
    let sides: [(&str, Measure<'_>); 4] = [
        ("the layer", &|waiting| layer(waiting, Order::Oldest)),
        ("newest first", &|waiting| layer(waiting, Order::Newest)),
        ("leaky-bucket", &leaky_bucket),
        ("semaphore and a task", &semaphore),
    ];
    let mut figures = vec![[const { Vec::new() }; 3]; sides.len()];
    // The first round only warms up.
    for round in 0..=effort.rounds() {
        for (side, (_, measure)) in sides.iter().enumerate() {
            let measured = measure(waiting);
            if round > 0 {
                for (all, one) in figures[side].iter_mut().zip(measured) {
                    all.push(one);
                }
            }
        }
    }
    // Only to let one go has a goal: who enters decides as well, and carries what it hands on.
    let kinds = [
        ("one who waits takes", "bytes", f64::INFINITY),
        ("to enter", "ns", f64::INFINITY),
        ("a release", "ns", 1.0),
    ];
    for ((peer, _), theirs) in sides.iter().zip(&figures).skip(1) {
        for (kind, (what, unit, goal)) in kinds.into_iter().enumerate() {
            let row = Row {
                work: format!("{waiting} wait for one key, {what}"),
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
