//! Many who wait for one key: what each of them takes, and what it costs to let one go.
//!
//! Every side has the same work: 100,000 tasks wait, and 50 are let go each millisecond. The sides
//! are a layer with a leaky bucket, the leaky-bucket crate, and what is often written by hand: a
//! tokio semaphore to which a task adds permits. Time is what the processor spent, sleeping not
//! counted. Memory is all that is allocated when everybody waits, tasks included.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower_layer::Layer;
use tower_service::Service;
use tower_throttle::{
    Global, LeakyBucket, Order, Quota, RateLimitLayer, RateLimited, Respond, WhenFull,
};

use crate::count;
use crate::row::Effort;

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

/// One who waits takes so many bytes, and to let it go takes so many nanoseconds.
type Figures = (f64, f64);

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
        for _ in 0..waiting {
            tasks.spawn(wait());
        }
        tokio::task::yield_now().await;
        let bytes = count::live() as f64;
        let start = busy();
        while tasks.join_next().await.is_some() {}
        let took = busy() - start;
        (bytes / waiting as f64, took / waiting as f64)
    })
}

fn layer(waiting: usize, order: Order) -> Figures {
    run(waiting, || {
        let quota = Quota::per(PER_MS as u64, Duration::from_millis(1));
        let bucket = LeakyBucket::new(quota).queue(waiting as u64);
        let layer = RateLimitLayer::new(Global, bucket)
            .respond(Never)
            .order(order)
            .seats(u32::MAX)
            .when_full(WhenFull::Deny);
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
        Box::new(move || Arc::clone(&limiter).acquire_owned(1))
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
            }
        })
    })
}

fn spread(mut figures: Vec<f64>) -> [f64; 3] {
    figures.sort_unstable_by(f64::total_cmp);
    let last = figures.len() - 1;
    [figures[0], figures[last / 2], figures[last]]
}

pub(crate) fn run_all(effort: &Effort) {
    let waiting = if effort.quick { 20_000 } else { 100_000 };
    let sides: [(&str, &dyn Fn(usize) -> Figures); 4] = [
        ("layer", &|waiting| layer(waiting, Order::Oldest)),
        ("layer, newest first", &|waiting| {
            layer(waiting, Order::Newest)
        }),
        ("leaky-bucket", &leaky_bucket),
        ("semaphore and a task", &semaphore),
    ];
    let mut bytes = vec![Vec::new(); sides.len()];
    let mut times = vec![Vec::new(); sides.len()];
    // The first round only warms up.
    for round in 0..=effort.rounds() {
        for (side, (_, measure)) in sides.iter().enumerate() {
            let (each, took) = measure(waiting);
            if round > 0 {
                bytes[side].push(each);
                times[side].push(took);
            }
        }
    }
    let first: Vec<_> = times[0].clone();
    if !effort.json {
        println!("{waiting} wait for one key");
        println!(
            "{:<22} {:>14} {:>26} {:>26}",
            "", "bytes each", "ns a release", "of the layer's"
        );
    }
    for (side, (name, _)) in sides.iter().enumerate() {
        let ratios = times[side]
            .iter()
            .zip(&first)
            .map(|(time, own)| time / own)
            .collect();
        let [_, each, _] = spread(bytes[side].clone());
        let [least, median, most] = spread(times[side].clone());
        let [low, ratio, high] = spread(ratios);
        if effort.json {
            println!(
                "{{\"side\":\"{name}\",\"waiting\":{waiting},\"bytes\":{each:.0},\
                 \"ns\":[{least:.0},{median:.0},{most:.0}],\
                 \"ratio\":[{low:.2},{ratio:.2},{high:.2}]}}"
            );
        } else {
            let time = format!("{least:.0} / {median:.0} / {most:.0}");
            let ratio = format!("{low:.2} / {ratio:.2} / {high:.2}");
            println!("{name:<22} {each:>14.0} {time:>26} {ratio:>26}");
        }
    }
}
