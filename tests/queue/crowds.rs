//! Ten thousand queued requests: rates, wake-ups and the shutdown of a runtime.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use tower::{Layer, ServiceExt};
use tower_throttle::{AsError, Global, LeakyBucket, Quota, RateLimitLayer};

use crate::computed::{computed, growth};
use crate::support::{Harness, Job, Record, pass, settle};

const JOB: Job = Job { name: 1, cost: 1 };

/// Shows promise 25.
#[tokio::test(start_paused = true)]
async fn the_rate_is_reached_in_the_long_run_and_never_exceeded() {
    for (rate, count) in [(1_u32, 50_u32), (100, 2_000), (10_000, 20_000)] {
        let bucket = LeakyBucket::new(Quota::per_second(rate.into()).burst(1));
        let layer = RateLimitLayer::new(Global, bucket)
            .queue(1_000_000)
            .respond(AsError);
        let harness = Harness::new(&layer);
        for name in 0..count {
            tokio::spawn(harness.service.clone().oneshot(Job { name, cost: 1 }));
        }
        settle().await;
        let whole = u64::from(count / rate) * 1_000 + 1_000;
        pass(whole).await;
        let times = harness.times();
        assert_eq!(times.len(), usize::try_from(count).unwrap());
        for (turn, (name, time)) in (0_u32..).zip(&times) {
            assert_eq!(*name, turn, "first come, first served");
            let due = u64::from(turn) * 1_000_000 / u64::from(rate);
            // Never early, and at most a millisecond late.
            assert!(
                (due..=due + 2_000).contains(time),
                "request {turn} at {rate}/s: released at {time}, due at {due}"
            );
        }
        let (_, last) = times[times.len() - 1];
        let ideal = u64::from(count - 1) * 1_000_000 / u64::from(rate);
        assert!(
            last - ideal <= ideal / 1_000,
            "{rate}/s: last at {last}, expected {ideal}"
        );
    }
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct TestWaker(AtomicUsize);

impl Wake for TestWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A call, its waker, the waker's count at the last poll, and whether the call is done.
type Woken<F> = (Pin<Box<F>>, Arc<TestWaker>, usize, bool);

/// Polls woken calls until no call is woken. Returns how many have completed.
fn run<F: Future>(calls: &mut [Woken<F>]) -> usize {
    let mut over = 0;
    loop {
        let mut any = false;
        for (call, waker, seen, done) in &mut *calls {
            let woken = waker.0.load(Ordering::Relaxed);
            if *done || woken == *seen {
                continue;
            }
            any = true;
            *seen = woken;
            let waker = Waker::from(Arc::clone(waker));
            *done = call
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_ready();
            over += usize::from(*done);
        }
        if !any {
            return over;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_waiter_is_woken_once() {
    let bucket = LeakyBucket::new(Quota::per_second(1_000).burst(1));
    let layer = RateLimitLayer::new(Global, bucket)
        .queue(1_000_000)
        .respond(AsError);
    let harness = Harness::new(&layer);
    let mut calls: Vec<_> = (0..10_000)
        .map(|_| {
            // Woken once for the first poll, which is excluded below.
            let waker = Arc::new(TestWaker(AtomicUsize::new(1)));
            (
                Box::pin(harness.service.clone().oneshot(JOB)),
                waker,
                0,
                false,
            )
        })
        .collect();
    let mut over = run(&mut calls);
    assert_eq!(over, 1);
    for round in 0..10_010 {
        if round < 1_000 {
            // One in ten is cancelled, all along the queue.
            let (call, waker, ..) = calls.swap_remove((round * 7_919) % calls.len());
            let _ = waker;
            drop(call);
        }
        tokio::time::advance(Duration::from_millis(1)).await;
        over += run(&mut calls);
    }
    assert!(calls.iter().all(|(.., done)| *done), "only {over} are done");
    let mut woken = calls
        .iter()
        .map(|(_, waker, ..)| waker.0.load(Ordering::Relaxed) - 1);
    assert!(woken.all(|times| times <= 1));
}

/// Lets `count` requests wait on a runtime and drops it. Returns how long that computes, on this thread
/// alone if there is no other.
fn shut_down(runtime: &mut tokio::runtime::Builder, count: usize) -> Duration {
    let runtime = runtime.enable_time().build().unwrap();
    let bucket = LeakyBucket::new(Quota::per_minute(1).burst(1));
    let layer = RateLimitLayer::new(Global, bucket)
        .queue(1_000_000)
        .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(Record::idle());
    runtime.block_on(async {
        let calls: Vec<_> = (0..=count)
            .map(|_| tokio::spawn(service.clone().oneshot(JOB)))
            .collect();
        while handle.counts().waited < count as u64 {
            tokio::task::yield_now().await;
        }
        drop(calls);
    });
    let took = computed(|| drop(runtime));
    // All have left the queue, and took nothing.
    let look = handle.peek(&(), 1);
    let mut look = pin!(look);
    let Poll::Ready(Ok(decision)) = look.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("the decision is not pending");
    };
    assert!(decision.retry_after.unwrap() <= Duration::from_secs(60));
    assert_eq!(handle.waiting(), 0);
    took
}

/// Leaving a line takes logarithmic time.
#[test]
fn shutting_down_a_runtime_takes_no_longer_per_request_if_more_wait() {
    use tokio::runtime::Builder;
    let grown = growth(5_000, |count| {
        shut_down(&mut Builder::new_current_thread(), count)
    });
    assert!(grown < 24, "{grown}");
    shut_down(Builder::new_multi_thread().worker_threads(2), 10_000);
}
