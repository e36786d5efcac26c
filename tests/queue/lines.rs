//! Calls that are polled late, too early or never, and a service that fails.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio_test::task::Spawn;
use tower_throttle::{
    AsError, LeakyBucket, Local, Quota, RateLimitLayer,
    clock::{Clock, MonotonicClock, Tick},
};

use crate::support::{Harness, key, pass};

/// A harness whose layer has the key `key` and the cost `job.cost`.
macro_rules! harness {
    ($limit:expr, $queue:expr) => {
        Harness::new(
            &RateLimitLayer::new(key, $limit)
                .queue($queue)
                .cost(|job: &crate::support::Job| job.cost)
                .respond(AsError),
        )
    };
}

/// The future of a call that has joined its queue and was not polled.
macro_rules! call_without_polling {
    ($harness:expr) => {
        tower::Service::call(
            &mut $harness.service.clone(),
            crate::support::Job { name: 1, cost: 1 },
        )
    };
}

/// Shows promise 62.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_never_polled_passes_its_turn_on() {
    let harness = harness!(LeakyBucket::new(Quota::per_second(1).burst(1)), 20);
    let _first = harness.send(0).await;
    let held = call_without_polling!(harness);
    let _next = harness.send(2).await;
    // Its turn comes, but it is never polled.
    pass(1_200).await;
    assert_eq!(harness.served(), [(0, 0)]);
    drop(held);
    pass(10).await;
    assert_eq!(harness.served(), [(0, 0), (2, 1_200)]);
}

/// Shows promise 62.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_woken_and_not_polled_blocks_none() {
    let harness = harness!(LeakyBucket::new(Quota::per_second(1_000_000).burst(1)), 20);
    let _first = harness.send(0).await;
    let mut calls = [(); 3].map(|()| tokio_test::task::spawn(call_without_polling!(harness)));
    for call in &mut calls {
        assert!(call.poll().is_pending());
    }
    pass(1).await;
    assert!(calls.iter().all(Spawn::is_woken));
    for call in calls.iter_mut().rev() {
        assert!(call.poll().is_ready());
    }
}

/// Shows promise 62.
#[tokio::test(start_paused = true)]
async fn a_call_that_leaves_after_its_turn_takes_no_place_from_another() {
    let harness = harness!(LeakyBucket::new(Quota::per_second(1).burst(1)), 20);
    let _first = harness.send(0).await;
    let mut second = tokio_test::task::spawn(call_without_polling!(harness));
    assert!(second.poll().is_pending());
    pass(1_000).await;
    assert!(second.is_woken());
    // The first one of a new line.
    let _third = harness.send(2).await;
    drop(second);
    pass(1_000).await;
    assert_eq!(harness.served().len(), 2);
}

/// A clock that panics while it is told to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faulty(pub(crate) Arc<AtomicBool>);

impl Clock for Faulty {
    fn now(&self) -> Tick {
        assert!(!self.0.load(Ordering::Relaxed), "as asked");
        MonotonicClock.now()
    }
}

/// Shows promise 62.
#[tokio::test(start_paused = true)]
async fn a_limit_that_panics_leaves_none_waiting() {
    let clock = Faulty::default();
    let local = Local::new(LeakyBucket::new(Quota::per_second(1).burst(1)));
    let layer = RateLimitLayer::new(key, local.with_clock(clock.clone()));
    let layer = layer.queue(20).respond(AsError);
    let (harness, handle) = (Harness::new(&layer), layer.handle());
    for name in [0, 1, 2, 3, 1_000] {
        // The last ones join a line, and another one; of those before, each is asked when its turn comes.
        clock.0.store(name > 2, Ordering::Relaxed);
        let _call = harness.send(name).await;
    }
    assert_eq!(handle.waiting(), 2);
    pass(1_000).await;
    assert_eq!(handle.waiting(), 0);
    clock.0.store(false, Ordering::Relaxed);
    let _last = harness.send(9).await;
    assert_eq!(harness.served(), [(0, 0), (9, 1_000)]);
}

/// Shows promise 59.
#[tokio::test(start_paused = true)]
async fn a_call_polled_without_a_wake_up_does_not_proceed_early() {
    let harness = harness!(LeakyBucket::new(Quota::per_second(1).burst(1)), 20);
    let _first = harness.send(0).await;
    let mut calls: Vec<_> = (1..4)
        .map(|name| {
            let job = crate::support::Job { name, cost: 1 };
            let mut service = harness.service.clone();
            tokio_test::task::spawn(tower::Service::call(&mut service, job))
        })
        .collect();
    for seconds in 0..4 {
        for (call, turn) in calls
            .iter_mut()
            .skip(seconds.max(1) - 1)
            .zip(seconds.max(1)..)
        {
            assert_eq!(
                call.poll().is_ready(),
                turn == seconds,
                "{turn} at {seconds}"
            );
        }
        pass(1_000).await;
    }
    assert_eq!(
        harness.served(),
        [(0, 0), (1, 1_000), (2, 2_000), (3, 3_000)]
    );
}
