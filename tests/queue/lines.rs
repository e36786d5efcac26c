//! Who goes when.

use std::{
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tower::{Service, ServiceBuilder, layer::layer_fn};
use tower_throttle::{
    AsError, LeakyBucket, Quota, RateLimitLayer, RateLimited, TokenBucket, WarmUp,
    algorithm::Charge, queue::Order,
};

use crate::support::{Boxed, Call, Desk, Job, Record, cancel, key, pass, settle};

/// As a layer of cost `job.cost`, by `key`.
macro_rules! desk {
    ($limit:expr) => {
        Desk::new(
            &RateLimitLayer::new(key, $limit)
                .cost(|job: &crate::support::Job| job.cost)
                .respond(AsError),
        )
    };
}

async fn denied(call: Call) -> RateLimited {
    let error = call.await.unwrap().unwrap_err();
    error.downcast_ref::<RateLimited>().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_releases_one_each_interval() {
    let desk = desk!(LeakyBucket::new(Quota::per_second(2)).queue(20));
    let _calls = desk.send_all(0..5).await;
    pass(5_000).await;
    assert_eq!(
        desk.went(),
        [(0, 0), (1, 500), (2, 1_000), (3, 1_500), (4, 2_000)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_bucket_lets_a_burst_pass_and_paces_the_rest() {
    let desk = desk!(TokenBucket::new(Quota::per_second(2).burst(3)).queue(20));
    let _calls = desk.send_all(0..6).await;
    pass(5_000).await;
    let expected = [(0, 0), (1, 0), (2, 0), (3, 500), (4, 1_000), (5, 1_500)];
    assert_eq!(desk.went(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_warm_up_paces_ever_faster() {
    let warm = WarmUp::new(Quota::per_second(2), Duration::from_secs(4)).queue(20);
    let desk = desk!(warm);
    let _calls = desk.send_all(0..5).await;
    pass(10_000).await;
    let expected = [(0, 0), (1, 1_375), (2, 2_500), (3, 3_375), (4, 4_000)];
    assert_eq!(desk.went(), expected);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_is_missed_by_nobody_but_the_last_slot() {
    let desk = desk!(LeakyBucket::new(Quota::per_second(1)).queue(20));
    let mut calls = desk.send_all(0..6).await;
    pass(1_500).await;
    assert_eq!(desk.went(), [(0, 0), (1, 1_000)]);
    // The third would go at 2 s: everyone behind goes a second earlier.
    cancel(calls.remove(2)).await;
    // And a newcomer after them.
    let _last = desk.send(9).await;
    pass(10_000).await;
    let expected = [
        (0, 0),
        (1, 1_000),
        (3, 2_000),
        (4, 3_000),
        (5, 4_000),
        (9, 5_000),
    ];
    assert_eq!(desk.went(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_crowd_that_leaves_makes_room_for_the_one_behind_it() {
    let desk = desk!(LeakyBucket::new(Quota::per_second(1)).queue(100));
    let mut calls = desk.send_all(0..100).await;
    let last = calls.pop().unwrap();
    pass(100).await;
    for call in calls.drain(1..) {
        cancel(call).await;
    }
    pass(5_000).await;
    assert_eq!(desk.went(), [(0, 0), (99, 1_000)]);
    assert_eq!(last.await.unwrap().unwrap(), 99);
}

#[tokio::test(start_paused = true)]
async fn in_a_warm_up_each_takes_the_slot_of_the_one_before() {
    let warm = WarmUp::new(Quota::per_second(2), Duration::from_secs(4)).queue(20);
    let desk = desk!(warm);
    let mut calls = desk.send_all(0..5).await;
    cancel(calls.remove(2)).await;
    pass(10_000).await;
    assert_eq!(desk.went(), [(0, 0), (1, 1_375), (3, 2_500), (4, 3_375)]);
}

#[tokio::test(start_paused = true)]
async fn a_dear_request_takes_several_slots_and_gives_them_back() {
    for charge in [Charge::After, Charge::Before] {
        let desk = desk!(
            LeakyBucket::new(Quota::per_second(1).burst(50))
                .queue(50)
                .charge_mode(charge)
        );
        let costs = [1, 2, 3, 1, 2];
        let mut calls = Vec::new();
        for (name, cost) in (0..).zip(costs) {
            calls.push(desk.send_of(name, cost).await);
        }
        cancel(calls.remove(2)).await;
        let _last = desk.send_of(9, 2).await;
        pass(60_000).await;
        let expected = match charge {
            Charge::After => [(0, 0), (1, 1_000), (3, 3_000), (4, 4_000), (9, 6_000)],
            Charge::Before => [(0, 0), (1, 2_000), (3, 3_000), (4, 5_000), (9, 7_000)],
        };
        assert_eq!(desk.went(), expected, "{charge:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn thirds_of_a_nanosecond_are_not_lost_by_moving_up() {
    let desk = desk!(LeakyBucket::new(Quota::per_second(3).burst(50)).queue(1_000));
    // Different costs, so that moments are moved and not handed down.
    let _first = desk.send_of(0, 2).await;
    let calls = desk.send_all(1..301).await;
    let _last = desk.send(999).await;
    for call in calls {
        cancel(call).await;
    }
    pass(10_000).await;
    let went = desk.times();
    assert_eq!(went.len(), 2);
    // 666,666,666 and two thirds; timers ring at whole milliseconds.
    assert_eq!(went[1], (999, 667_000));
}

#[tokio::test(start_paused = true)]
async fn several_limits_move_up_together() {
    let fast = TokenBucket::new(Quota::per_second(10).burst(1)).queue(50);
    let slow = LeakyBucket::new(Quota::per_second(1)).queue(50);
    let desk = desk!((fast, slow));
    let mut calls = desk.send_all(0..5).await;
    cancel(calls.remove(1)).await;
    let _last = desk.send(9).await;
    pass(10_000).await;
    let expected = [(0, 0), (2, 1_000), (3, 2_000), (4, 3_000), (9, 4_000)];
    assert_eq!(desk.went(), expected);
}

#[tokio::test(start_paused = true)]
async fn where_nothing_tells_what_a_place_was_worth_it_is_lost() {
    let fast = TokenBucket::new(Quota::per_second(10).burst(5)).queue(50);
    let slow = LeakyBucket::new(Quota::per_second(1).burst(5)).queue(50);
    let desk = desk!((fast, slow));
    let _first = desk.send(0).await;
    let dear = desk.send_of(1, 2).await;
    let _third = desk.send(2).await;
    cancel(dear).await;
    let _last = desk.send(9).await;
    pass(10_000).await;
    assert_eq!(desk.went(), [(0, 0), (2, 3_000), (9, 4_000)]);
}

#[tokio::test(start_paused = true)]
async fn keys_wait_in_lines_of_their_own() {
    let desk = desk!(LeakyBucket::new(Quota::per_second(1)).queue(20));
    let _a = desk.send_all(0..3).await;
    let mut b = desk.send_all(1_000..1_003).await;
    cancel(b.remove(1)).await;
    pass(10_000).await;
    let expected = [(0, 0), (1_000, 0), (1, 1_000), (1_002, 1_000), (2, 2_000)];
    let mut went = desk.went();
    went.sort_unstable_by_key(|(name, time)| (*time, *name));
    assert_eq!(went, expected);
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_does_not_overtake_even_where_the_limiter_has_room() {
    let layer =
        RateLimitLayer::new(key, LeakyBucket::new(Quota::per_second(1)).queue(20)).respond(AsError);
    let desk = Desk::new(&layer);
    let _calls = desk.send_all(0..3).await;
    // The limiter forgets the key and would let the newcomer pass at once.
    layer.handle().reset(&0_u32).await.unwrap();
    let _newcomer = desk.send(9).await;
    // The first in line has got the newcomer's moment.
    assert_eq!(desk.went(), [(0, 0), (1, 0)]);
    pass(10_000).await;
    assert_eq!(desk.went(), [(0, 0), (1, 0), (2, 1_000), (9, 2_000)]);
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_is_denied_on_arrival() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(50);
    let desk = desk!(bucket.max_wait(Duration::from_millis(2_500)));
    let _calls = desk.send_all(0..3).await;
    pass(100).await;
    let late = desk.send(3).await;
    assert!(late.is_finished(), "at once");
    // It would go at 3 s, and will be let in when that is 2.5 s away.
    assert_eq!(
        denied(late).await.retry_after(),
        Some(Duration::from_millis(400))
    );
    pass(399).await;
    assert!(desk.send(4).await.is_finished());
    pass(1).await;
    assert!(!desk.send(5).await.is_finished());
    pass(10_000).await;
    assert_eq!(desk.went(), [(0, 0), (1, 1_000), (2, 2_000), (5, 3_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_answers_passes_its_turn_on() {
    use tower::Service;

    let desk = desk!(LeakyBucket::new(Quota::per_second(1)).queue(20));
    let _first = desk.send(0).await;
    let mut service = desk.service.clone();
    let job = crate::support::Job { name: 1, cost: 1 };
    let held = service.call(job);
    let _next = desk.send(2).await;
    // Its turn comes, but it is never polled.
    pass(1_200).await;
    assert_eq!(desk.went(), [(0, 0)]);
    drop(held);
    settle().await;
    assert_eq!(desk.went(), [(0, 0), (2, 1_200)]);
}

#[tokio::test(start_paused = true)]
async fn who_is_not_polled_keeps_nobody_behind_from_going() {
    use tower::Service;

    let desk = desk!(LeakyBucket::new(Quota::per_second(1)).queue(20));
    let _first = desk.send(0).await;
    let mut service = desk.service.clone();
    let job = crate::support::Job { name: 1, cost: 1 };
    let held = service.call(job);
    let _next = desk.send_all(2..5).await;
    pass(2_100).await;
    // It was called with the one behind it.
    assert_eq!(desk.went(), [(0, 0), (2, 2_000)]);
    // And did not come: the next one has its turn, and the last one that of the next.
    drop(held);
    pass(10_000).await;
    assert_eq!(desk.went(), [(0, 0), (2, 2_000), (3, 2_100), (4, 3_000)]);
}

/// A call that is polled once and then not for a while: the line that it stood in is gone when it
/// has been called, and the same key has another.
macro_rules! called_and_not_polled {
    ($desk:expr) => {{
        let _first = $desk.send(0).await;
        let job = crate::support::Job { name: 1, cost: 1 };
        let mut slow =
            tokio_test::task::spawn(tower::Service::call(&mut $desk.service.clone(), job));
        assert!(slow.poll().is_pending());
        pass(1_200).await;
        assert!(slow.is_woken());
        let next = $desk.send(2).await;
        (slow, next)
    }};
}

#[tokio::test(start_paused = true)]
async fn who_was_called_and_leaves_passes_its_turn_on_to_a_line_that_is_new() {
    let desk = desk!(LeakyBucket::new(Quota::per_second(1)).queue(20));
    let (slow, _next) = called_and_not_polled!(desk);
    drop(slow);
    pass(5_000).await;
    assert_eq!(desk.went(), [(0, 0), (2, 1_200)]);
}

#[tokio::test(start_paused = true)]
async fn who_was_called_goes_though_others_wait_where_it_stood() {
    for order in [Order::Oldest, Order::Newest] {
        let bucket = LeakyBucket::new(Quota::per_second(1)).queue(20);
        let layer = RateLimitLayer::new(key, bucket)
            .respond(AsError)
            .order(order);
        let desk = Desk::new(&layer);
        let (mut slow, _next) = called_and_not_polled!(desk);
        assert!(slow.poll().is_ready());
        pass(5_000).await;
        assert_eq!(desk.went(), [(0, 0), (1, 1_200), (2, 2_000)]);
    }
}

#[tokio::test(start_paused = true)]
async fn who_looks_without_having_been_woken_does_not_go_before_its_turn() {
    let desk = desk!(LeakyBucket::new(Quota::per_second(1)).queue(20));
    let _first = desk.send(0).await;
    let mut calls: Vec<_> = (1..4)
        .map(|name| {
            let job = crate::support::Job { name, cost: 1 };
            let mut service = desk.service.clone();
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
    assert_eq!(desk.went(), [(0, 0), (1, 1_000), (2, 2_000), (3, 3_000)]);
}

/// How a service answers that is asked whether it is ready.
#[derive(Clone, Default)]
enum Mood {
    #[default]
    Ready,
    Busy(Option<Waker>),
    FailsOnce,
}

#[derive(Clone)]
struct Moody {
    inner: Record,
    mood: Arc<Mutex<Mood>>,
}

impl Service<Job> for Moody {
    type Response = u32;
    type Error = Boxed;
    type Future = <Record as Service<Job>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        let mut mood = self.mood.lock().unwrap();
        match &mut *mood {
            Mood::Ready => Poll::Ready(Ok(())),
            Mood::Busy(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Mood::FailsOnce => {
                *mood = Mood::Ready;
                Poll::Ready(Err("it has failed".into()))
            }
        }
    }

    fn call(&mut self, job: Job) -> Self::Future {
        self.inner.call(job)
    }
}

/// Where one goes each second, into a service of changing moods.
macro_rules! moody {
    ($mood:expr) => {{
        let mood = Arc::clone(&$mood);
        let moods = layer_fn(move |inner| Moody {
            inner,
            mood: Arc::clone(&mood),
        });
        let bucket = LeakyBucket::new(Quota::per_second(1)).queue(20);
        let limit = RateLimitLayer::new(key, bucket).respond(AsError);
        Desk::new(&ServiceBuilder::new().layer(limit).layer(moods))
    }};
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_used_up_by_who_then_waits_for_the_service() {
    let mood = Arc::<Mutex<Mood>>::default();
    let desk = moody!(mood);
    let _calls = desk.send_all(0..4).await;
    pass(900).await;
    *mood.lock().unwrap() = Mood::Busy(None);
    pass(600).await;
    assert_eq!(desk.went(), [(0, 0)]);
    let busy = std::mem::take(&mut *mood.lock().unwrap());
    let Mood::Busy(Some(waker)) = busy else {
        panic!("nobody asked the service");
    };
    waker.wake();
    pass(5_000).await;
    assert_eq!(desk.went(), [(0, 0), (1, 1_500), (2, 2_000), (3, 3_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_used_up_by_who_then_finds_the_service_broken() {
    let mood = Arc::<Mutex<Mood>>::default();
    let desk = moody!(mood);
    let mut calls = desk.send_all(0..4).await;
    pass(900).await;
    *mood.lock().unwrap() = Mood::FailsOnce;
    pass(5_000).await;
    let error = calls.remove(1).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "it has failed");
    assert_eq!(desk.went(), [(0, 0), (2, 2_000), (3, 3_000)]);
}
