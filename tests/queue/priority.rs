//! A line of a rate limit and one of a limit on concurrency go on alike.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt};
use tower_throttle::{
    AsError, ConcurrencyLimitLayer, Global, LeakyBucket, Quota, RateLimitLayer, key::Priority,
    queue::Order,
};

use crate::support::{Boxed, settle};

/// A request: its name and its priority.
type Job = (char, Priority);

const SECOND: Duration = Duration::from_secs(1);
const HIGH: Priority = Priority::HIGH;
const MEDIUM: Priority = Priority::MEDIUM;
const LOW: Priority = Priority::LOW;

/// What was served, with the second in which it was, and what was denied, in order.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    served: Vec<(char, u64)>,
    denied: String,
}

fn outcome(served: &str, denied: &str) -> Outcome {
    Outcome {
        served: served.chars().zip(0..).collect(),
        denied: denied.to_owned(),
    }
}

/// Sends the jobs one after the other to a service behind the limit that takes a second for each.
async fn run<L>(layer: L, jobs: &[Job]) -> Outcome
where
    L: Layer<Slow>,
    L::Service: Service<Job, Response = (), Error = Boxed, Future: Send> + Clone + Send + 'static,
{
    run_each(layer, jobs, Duration::ZERO).await
}

/// The same, with so much time after each.
async fn run_each<L>(layer: L, jobs: &[Job], pause: Duration) -> Outcome
where
    L: Layer<Slow>,
    L::Service: Service<Job, Response = (), Error = Boxed, Future: Send> + Clone + Send + 'static,
{
    let outcome = Arc::new(Mutex::new(Outcome::default()));
    let start = Instant::now();
    let record = Arc::clone(&outcome);
    let serve: Serve = Arc::new(move |(name, _)| {
        let at = start.elapsed().as_secs();
        record.lock().unwrap().served.push((name, at));
    });
    let service = layer.layer(Slow(serve));
    let mut calls = Vec::new();
    for job in jobs.iter().copied() {
        let (service, outcome) = (service.clone(), Arc::clone(&outcome));
        calls.push(tokio::spawn(async move {
            if service.oneshot(job).await.is_err() {
                outcome.lock().unwrap().denied.push(job.0);
            }
        }));
        settle().await;
        sleep(pause).await;
    }
    for call in calls {
        call.await.unwrap();
    }
    std::mem::take(&mut outcome.lock().unwrap())
}

type Serve = Arc<dyn Fn(Job) + Send + Sync>;

#[derive(Clone)]
struct Slow(Serve);

impl Service<Job> for Slow {
    type Response = ();
    type Error = Boxed;
    type Future = Pin<Box<dyn Future<Output = Result<(), Boxed>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, job: Job) -> Self::Future {
        (self.0)(job);
        Box::pin(async {
            sleep(SECOND).await;
            Ok(())
        })
    }
}

/// One per second, of which three may wait.
macro_rules! rate {
    ($order:expr) => {
        RateLimitLayer::new(Global, LeakyBucket::new(Quota::per_second(1)).queue(3)).order($order)
    };
}

macro_rules! concurrency {
    ($order:expr) => {
        ConcurrencyLimitLayer::new(Global, 1)
            .release_at_response()
            .queue(3)
            .max_wait(SECOND * 100)
            .order($order)
    };
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "a layer gives a reference"
)]
fn priority(job: &Job) -> Priority {
    job.1
}

/// The fifth job finds the line full, and so does the sixth.
const JOBS: [Job; 6] = [
    ('a', HIGH),
    ('b', LOW),
    ('c', MEDIUM),
    ('d', LOW),
    ('e', HIGH),
    ('f', LOW),
];

/// Shows promise 189.
#[tokio::test(start_paused = true)]
async fn the_lines_of_both_kinds_of_limits_go_on_by_priority_and_then_by_order() {
    for (order, expected) in [
        // `e` takes the place of the newest one of the lowest priority; none is below `f`.
        (Order::Oldest, outcome("aecb", "df")),
        // `e` takes the place of the oldest one, and `f` that of the next.
        (Order::Newest, outcome("aecf", "bd")),
    ] {
        let rate = rate!(order).priority(priority).respond(AsError);
        let busy = concurrency!(order).priority(priority).respond(AsError);
        assert_eq!(run(rate.clone(), &JOBS).await, expected, "{order:?}");
        assert_eq!(run(busy.clone(), &JOBS).await, expected, "{order:?}");
        assert_eq!(rate.handle().counts(), busy.handle().counts());

        // Planted bug: priorities that no line reads.
        assert_ne!(run(rate!(order).respond(AsError), &JOBS).await, expected);
        assert_ne!(
            run(concurrency!(order).respond(AsError), &JOBS).await,
            expected
        );
    }
}

/// Shows promise 189.
#[tokio::test(start_paused = true)]
async fn equal_priorities_wait_as_without_any() {
    for order in [Order::Oldest, Order::Newest] {
        let plain = run(rate!(order).respond(AsError), &JOBS).await;
        let busy = run(concurrency!(order).respond(AsError), &JOBS).await;
        assert_eq!(plain, busy, "{order:?}");
        let all_low = |_: &Job| LOW;
        let low = rate!(order).priority(all_low).respond(AsError);
        assert_eq!(run(low, &JOBS).await, plain, "{order:?}");
        let low = concurrency!(order).priority(all_low).respond(AsError);
        assert_eq!(run(low, &JOBS).await, plain, "{order:?}");
    }
}

/// A request that expects to wait for a second when it joins, and that others overtake.
///
/// Shows promise 61.
#[tokio::test(start_paused = true)]
async fn a_request_that_others_overtake_leaves_after_the_longest_wait() {
    let jobs = [
        ('a', HIGH),
        ('b', LOW),
        ('c', HIGH),
        ('d', HIGH),
        ('e', HIGH),
    ];
    let pause = Duration::from_millis(400);
    for (order, served) in [(Order::Oldest, "acde"), (Order::Newest, "aced")] {
        let busy = |longest| concurrency!(order).max_wait(longest).priority(priority);
        let rate = |longest| {
            let line = LeakyBucket::new(Quota::per_second(1)).queue(9);
            let layer = RateLimitLayer::new(Global, line.max_wait(longest));
            layer.order(order).priority(priority)
        };
        // It would be served in the fourth second.
        let later = outcome(&format!("{served}b"), "");
        for (longest, expected) in [(2_500, outcome(served, "b")), (4_000, later)] {
            let longest = Duration::from_millis(longest);
            let found = run_each(rate(longest).respond(AsError), &jobs, pause).await;
            assert_eq!(found, expected, "{order:?}");
            let found = run_each(busy(longest).respond(AsError), &jobs, pause).await;
            assert_eq!(found, expected, "{order:?}");
        }
        let rate = rate(Duration::from_millis(2_500)).respond(AsError);
        run_each(rate.clone(), &jobs, pause).await;
        assert_eq!(rate.handle().counts().denied, 1);
        assert_eq!(rate.handle().waiting(), 0);
        // The last one of the others was served a second ago, and `b` has given its cost back.
        let next = rate.handle().peek_now(&(), 1).wait();
        assert_eq!(next, Some(Duration::ZERO), "{order:?}");
    }
    // The newest overtake others of their own priority too.
    let line = LeakyBucket::new(Quota::per_second(1)).queue(9);
    let line = line.max_wait(Duration::from_millis(2_500));
    let layer = RateLimitLayer::new(Global, line).order(Order::Newest);
    let found = run_each(layer.respond(AsError), &jobs, pause).await;
    assert_eq!(found, outcome("aced", "b"));
}
