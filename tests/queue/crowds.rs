//! Ten thousand who wait: rates, wake-ups, and the end of the runtime.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use tower::{Layer, Service, ServiceExt};
use tower_throttle::{AsError, Global, LeakyBucket, Quota, RateLimitLayer};

use crate::support::{Desk, Job, Record, pass, settle};

const JOB: Job = Job { name: 1, cost: 1 };

#[tokio::test(start_paused = true)]
async fn the_rate_is_kept_in_the_long_run_and_never_exceeded() {
    for (rate, count) in [(1_u32, 50_u32), (100, 2_000), (10_000, 20_000)] {
        let bucket = LeakyBucket::new(Quota::per_second(rate.into())).queue(1_000_000);
        let layer = RateLimitLayer::new(Global, bucket).respond(AsError);
        let desk = Desk::new(&layer);
        for name in 0..count {
            tokio::spawn(desk.service.clone().oneshot(Job { name, cost: 1 }));
        }
        settle().await;
        let whole = u64::from(count / rate) * 1_000 + 1_000;
        pass(whole).await;
        let times = desk.times();
        assert_eq!(times.len(), usize::try_from(count).unwrap());
        for (turn, (name, time)) in (0_u32..).zip(&times) {
            assert_eq!(*name, turn, "first come, first served");
            let due = u64::from(turn) * 1_000_000 / u64::from(rate);
            // Never before it has fallen due, and at the next millisecond at the latest.
            assert!(
                (due..=due + 2_000).contains(time),
                "{turn} of {rate}/s: {time} for {due}"
            );
        }
        let (_, last) = times[times.len() - 1];
        let ideal = u64::from(count - 1) * 1_000_000 / u64::from(rate);
        assert!(
            last - ideal <= ideal / 1_000,
            "{rate}/s: {last} for {ideal}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn however_many_have_fallen_due_they_all_go() {
    for waiting in [1_u32, 63, 64, 65, 1_000] {
        let bucket = LeakyBucket::new(Quota::per_second(100)).queue(1_000_000);
        let layer = RateLimitLayer::new(Global, bucket).respond(AsError);
        let desk = Desk::new(&layer);
        for name in 0..=waiting {
            tokio::spawn(desk.service.clone().oneshot(Job { name, cost: 1 }));
        }
        pass(1).await;
        assert_eq!(desk.went(), [(0, 0)]);
        tokio::time::advance(Duration::from_secs(20)).await;
        pass(1).await;
        let went = desk.went();
        assert_eq!(went.len(), waiting as usize + 1);
        for (turn, gone) in (1_u32..).zip(&went[1..]) {
            assert_eq!(*gone, (turn, 20_001));
        }
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct TestWaker(AtomicUsize);

impl Wake for TestWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A call, its bell, how often that had rung when it was last polled, and whether it is over.
type Rung<F> = (Pin<Box<F>>, Arc<TestWaker>, usize, bool);

/// Polls all that have been woken until none is; answers how many came to an end.
fn run<F: Future>(calls: &mut [Rung<F>]) -> usize {
    let mut over = 0;
    loop {
        let mut any = false;
        for (call, bell, seen, done) in &mut *calls {
            let rung = bell.0.load(Ordering::Relaxed);
            if *done || rung == *seen {
                continue;
            }
            any = true;
            *seen = rung;
            let waker = Waker::from(Arc::clone(bell));
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
async fn each_is_woken_once() {
    let bucket = LeakyBucket::new(Quota::per_second(1_000)).queue(1_000_000);
    let layer = RateLimitLayer::new(Global, bucket).respond(AsError);
    let desk = Desk::new(&layer);
    let mut calls: Vec<_> = (0..10_000)
        .map(|_| {
            // Rung once, for the first poll, which is not counted below.
            let bell = Arc::new(TestWaker(AtomicUsize::new(1)));
            (Box::pin(desk.service.clone().oneshot(JOB)), bell, 0, false)
        })
        .collect();
    let mut over = run(&mut calls);
    assert_eq!(over, 1);
    for round in 0..10_010 {
        if round < 1_000 {
            // One in ten leaves, from all over the line.
            let (call, bell, ..) = calls.swap_remove((round * 7_919) % calls.len());
            let _ = bell;
            drop(call);
        }
        tokio::time::advance(Duration::from_millis(1)).await;
        over += run(&mut calls);
    }
    assert!(calls.iter().all(|(.., done)| *done), "{over} are over");
    let mut woken = calls
        .iter()
        .map(|(_, bell, ..)| bell.0.load(Ordering::Relaxed) - 1);
    assert!(woken.all(|times| times <= 1));
}

#[test]
fn the_end_of_a_runtime_is_quick() {
    for many in [false, true] {
        let runtime = if many {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_time()
                .build()
        } else {
            tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
        }
        .unwrap();
        let bucket = LeakyBucket::new(Quota::per_hour(1)).queue(1_000_000);
        let layer = RateLimitLayer::new(Global, bucket).respond(AsError);
        let handle = layer.handle();
        let service = layer.layer(Record::idle());
        runtime.block_on(async {
            let calls: Vec<_> = (0..10_001)
                .map(|_| tokio::spawn(service.clone().oneshot(JOB)))
                .collect();
            while handle.counts().waited < 10_000 {
                tokio::task::yield_now().await;
            }
            drop(calls);
        });
        let start = clock();
        drop(runtime);
        assert!(start.elapsed() < Duration::from_secs(1));
        // Everybody has left the line and given back what they had taken.
        let look = handle.peek(&(), 1);
        let mut look = pin!(look);
        let Poll::Ready(Ok(decision)) = look.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        else {
            panic!("it decides at once");
        };
        assert!(decision.wait().unwrap() <= Duration::from_secs(3_600));
        assert_eq!(handle.waiting(), 0);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the time that it really takes is in question"
)]
fn clock() -> Instant {
    Instant::now()
}

#[tokio::test(start_paused = true)]
async fn two_runtimes_share_a_line() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(100);
    let layer = RateLimitLayer::new(Global, bucket).respond(AsError);
    let desk = Desk::new(&layer);
    let _first = desk.send(0).await;
    let mut service = desk.service.clone();
    // Waits on another runtime, which goes away.
    let elsewhere = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut call = Box::pin(service.call(JOB));
            assert!(
                call.as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()))
                    .is_pending()
            );
            Some(call)
        })
    });
    let call: Option<_> = elsewhere.join().unwrap();
    let _last = desk.send(2).await;
    drop(call);
    pass(5_000).await;
    let went = desk.went();
    assert_eq!(went[0], (0, 0));
    assert_eq!((went.len(), went[1].0), (2, 2));
    assert!((999..=1_001).contains(&went[1].1), "{went:?}");
}
