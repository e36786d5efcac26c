//! Messages of a stream.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_core::Stream;
use tokio::time::Instant;
use tokio_test::{assert_pending, assert_ready, task};
use tower_throttle::{
    FixedWindow, Local, Quota, TokenBucket,
    stream::{LimitedStream, StreamLimit},
};

/// The numbers below the second one, from the first one on.
struct Numbers(u32, u32);

impl Stream for Numbers {
    type Item = u32;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<u32>> {
        self.0 += 1;
        Poll::Ready((self.0 <= self.1).then_some(self.0))
    }
}

/// 10 per second, one at once.
fn bucket() -> TokenBucket {
    TokenBucket::new(Quota::per_second(10).burst(1))
}

/// The limits that a stream can have: of one key only, and one of many keys.
fn limits() -> [StreamLimit; 2] {
    [
        StreamLimit::new(Local::new(bucket()), ()),
        StreamLimit::new(bucket(), 7_u64),
    ]
}

/// The milliseconds in which five messages pass.
async fn time_of_five(cost: fn(&u32) -> u64, limit: StreamLimit) -> u128 {
    let start = Instant::now();
    let mut messages = LimitedStream::new(Numbers(0, 5), limit).cost(cost);
    let mut expected = 1..=5;
    while let Some(message) = messages.next().await {
        assert_eq!(message.ok(), expected.next());
    }
    assert_eq!(expected.next(), None);
    start.elapsed().as_millis()
}

/// Shows promise 343.
#[tokio::test(start_paused = true)]
async fn each_message_is_counted_once_and_waits_for_its_turn() {
    for limit in limits() {
        assert_eq!(time_of_five(|_| 1, limit).await, 400);
    }
}

/// However often a stream is polled while a message waits, the message is counted once, and the next one
/// is not read.
///
/// Shows promise 343.
#[tokio::test(start_paused = true)]
async fn polling_again_counts_nothing_and_reads_nothing() {
    for limit in limits() {
        let mut messages = LimitedStream::new(Numbers(0, 9), limit);
        assert_eq!(messages.next().await.unwrap().ok(), Some(1));
        let start = Instant::now();
        for _ in 0..50 {
            let mut next = pin!(messages.next());
            let mut context = Context::from_waker(Waker::noop());
            assert!(next.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(messages.get_mut().0, 2);
        assert_eq!(messages.next().await.unwrap().ok(), Some(2));
        assert_eq!(messages.next().await.unwrap().ok(), Some(3));
        assert_eq!(start.elapsed().as_millis(), 200);
    }
}

/// Shows promise 343.
#[tokio::test(start_paused = true)]
async fn a_message_that_may_not_wait_fails_and_the_stream_goes_on() {
    for limit in limits() {
        let mut messages = LimitedStream::new(Numbers(0, 9), limit.max_wait(Duration::ZERO));
        assert_eq!(messages.next().await.unwrap().ok(), Some(1));
        let denied = messages.next().await.unwrap().unwrap_err();
        let retry = denied.retry_after().unwrap();
        assert_eq!(retry, Duration::from_millis(100));
        tokio::time::advance(retry).await;
        let third = messages.next().await.unwrap();
        assert_eq!(third.ok(), Some(3), "a denied message takes nothing");
    }
}

/// A window books no turns, so others may overtake a message that waits.
///
/// Shows promise 343.
#[tokio::test(start_paused = true)]
async fn a_message_that_others_overtake_waits_no_longer_than_it_may() {
    let local = Local::new(FixedWindow::new(Quota::per_second(1)).anchored());
    let limit = StreamLimit::new(local.clone(), ()).max_wait(Duration::from_millis(2_500));
    let mut messages = LimitedStream::new(Numbers(0, 9), limit);
    assert!(local.check(&(), 1).is_admitted());
    let mut next = task::spawn(messages.next());
    assert_pending!(next.poll());
    let overtake = async || {
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(local.check(&(), 1).is_admitted(), "the next window");
    };
    overtake().await;
    assert_pending!(next.poll());
    overtake().await;
    let denied = assert_ready!(next.poll()).unwrap().unwrap_err();
    assert_eq!(denied.retry_after(), Some(Duration::from_millis(500)));
}

/// Shows promise 343.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_while_it_waits_gives_its_turn_back() {
    for limit in limits() {
        let stream = || LimitedStream::new(Numbers(0, 9), limit.clone());
        let (mut first, mut second) = (stream(), stream());
        assert!(first.next().await.is_some());
        let start = Instant::now();
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(second.next()).poll(&mut context).is_pending());
        drop(second);
        assert!(first.next().await.is_some());
        assert_eq!(start.elapsed().as_millis(), 100);
    }
}
