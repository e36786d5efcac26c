//! Batches, by an executor whose server replies when the test says so.

use std::task::{Context, Poll, Waker};

use tokio::{sync::Semaphore, time::advance};

use super::*;
use crate::store::remote::{BreakerConfig, Breakers, pending::CallResult};

const DEADLINE: Duration = Duration::from_millis(50);

/// Replies to call `n` with `n`, or with an error if `n` is odd and single calls fail.
#[derive(Debug)]
struct Double {
    breakers: Breakers,
    /// The batches that were sent, with the numbers of their calls.
    sent: Mutex<Vec<Vec<u32>>>,
    /// One permit per batch that the server may reply to.
    replies: Semaphore,
    odd_calls_fail: bool,
    /// How many replies are missing at the end of a batch.
    missing: usize,
}

impl Double {
    fn new() -> Self {
        Self {
            breakers: Breakers::new("double", BreakerConfig::default()),
            sent: Mutex::new(Vec::new()),
            replies: Semaphore::new(0),
            odd_calls_fail: false,
            missing: 0,
        }
    }
}

impl Remote for Double {
    type Reply = u32;

    const STORE: &'static str = "double";

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn deadline_exceeded(&self) -> StoreError {
        StoreError::new("no answer", true)
    }
}

impl Executor for Double {
    type Call = u32;

    fn breakers(&self) -> &Breakers {
        &self.breakers
    }

    fn server_of(&self, _: &u32) -> Server {
        Server::Single
    }

    fn supports_batching(&self) -> bool {
        true
    }

    async fn send(&self, calls: &[u32]) -> Result<Vec<CallResult<Self>>, StoreError> {
        lock(&self.sent).push(calls.to_vec());
        let permit = self.replies.acquire().await.expect("it stays open");
        permit.forget();
        let reply = |call: &u32| match call {
            call if self.odd_calls_fail && call % 2 == 1 => Err(StoreError::new("odd", true)),
            call => Ok(*call),
        };
        Ok(calls[..calls.len() - self.missing]
            .iter()
            .map(reply)
            .collect())
    }
}

/// Calls of one batcher, in flight.
struct Calls {
    batcher: Arc<Batcher<Double>>,
    pending: Vec<Option<PendingCall<Double>>>,
    results: Vec<Option<CallResult<Double>>>,
}

impl Calls {
    fn new(double: Double) -> Self {
        Self {
            batcher: Batcher::new(double),
            pending: Vec::new(),
            results: Vec::new(),
        }
    }

    /// Makes `count` calls, numbered on.
    fn submit(&mut self, count: u32) {
        for _ in 0..count {
            let number = u32::try_from(self.pending.len()).expect("few");
            let submitted = self.batcher.submit(number, MonotonicClock.now());
            self.results
                .push(submitted.as_ref().err().cloned().map(Err));
            self.pending.push(submitted.ok());
        }
    }

    /// Polls all calls, lets the tasks run, and polls again.
    async fn poll(&mut self) {
        for _ in 0..3 {
            let cx = &mut Context::from_waker(Waker::noop());
            for (pending, result) in self.pending.iter_mut().zip(&mut self.results) {
                let polled = pending.as_mut().map(|call| call.poll(cx));
                if let Some(Poll::Ready(ready)) = polled {
                    (*pending, *result) = (None, Some(ready));
                }
            }
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Lets the server reply to `batches` batches.
    async fn reply(&mut self, batches: usize) {
        self.batcher.executor.replies.add_permits(batches);
        self.poll().await;
    }

    fn sent(&self) -> Vec<Vec<u32>> {
        lock(&self.batcher.executor.sent).clone()
    }

    fn sizes(&self) -> Vec<usize> {
        self.sent().iter().map(Vec::len).collect()
    }

    fn replied(&self, numbers: std::ops::Range<u32>) -> bool {
        numbers
            .into_iter()
            .all(|number| self.results[number as usize] == Some(Ok(number)))
    }
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_share_a_batch_and_two_batches_are_in_flight() {
    let mut calls = Calls::new(Double::new());
    calls.submit(1);
    calls.poll().await;
    calls.submit(3);
    calls.poll().await;
    // Both tasks wait for the server.
    calls.submit(200);
    calls.poll().await;
    assert_eq!(calls.sent(), [vec![0], vec![1, 2, 3]]);
    calls.reply(2).await;
    assert!(calls.replied(0..4));
    assert_eq!(calls.sizes(), [1, 3, MAX_BATCH, MAX_BATCH]);
    calls.reply(4).await;
    assert!(calls.replied(0..204));
    assert_eq!(calls.sizes()[4..], [MAX_BATCH, 200 - 3 * MAX_BATCH]);
    assert!(lock(&calls.batcher.line).is_idle());
}

#[tokio::test(start_paused = true)]
async fn long_batches_in_flight_are_equally_long() {
    let mut calls = Calls::new(Double::new());
    calls.submit(4);
    calls.poll().await;
    calls.submit(1);
    calls.poll().await;
    calls.submit(60);
    calls.reply(1).await;
    calls.reply(1).await;
    assert_eq!(calls.sizes(), [4, 1, 31, 29]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_or_late_is_not_sent() {
    let mut calls = Calls::new(Double::new());
    // Both batches wait for the server.
    for _ in 0..2 {
        calls.submit(1);
        calls.poll().await;
    }
    advance(DEADLINE / 2).await;
    calls.submit(2);
    calls.pending[2] = None;
    calls.poll().await;
    calls.reply(2).await;
    assert!(calls.replied(0..2));
    assert_eq!(calls.sent()[2..], [vec![3]], "call 2 was dropped");
    calls.reply(1).await;

    // A call that is queued for its whole deadline.
    for _ in 0..2 {
        calls.submit(1);
        calls.poll().await;
    }
    calls.submit(1);
    advance(DEADLINE).await;
    calls.poll().await;
    let late = calls.results[6].clone().expect("it is over");
    assert_eq!(late, Err(StoreError::new("no answer", true)));
    assert!(calls.sent().iter().all(|batch| !batch.contains(&6)));
}

#[tokio::test(start_paused = true)]
async fn each_call_of_a_batch_gets_its_own_result() {
    let mut double = Double::new();
    double.odd_calls_fail = true;
    let mut calls = Calls::new(double);
    calls.submit(6);
    calls.poll().await;
    calls.reply(2).await;
    for (number, result) in (0..).zip(&calls.results) {
        let expected = match number {
            number if number % 2 == 1 => Err(StoreError::new("odd", true)),
            number => Ok(number),
        };
        assert_eq!(*result, Some(expected), "call {number}");
    }
    assert!(!calls.batcher.executor.breakers.counts().is_open);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_reply_of_its_own_fails() {
    let mut double = Double::new();
    double.missing = 1;
    let mut calls = Calls::new(double);
    calls.submit(4);
    calls.poll().await;
    calls.reply(2).await;
    assert!(calls.replied(0..3));
    assert_eq!(calls.results[3], Some(Err(missing_reply("double"))));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_expires_in_its_batch_leaves_the_replies_of_others_in_place() {
    let mut calls = Calls::new(Double::new());
    // Both batches wait for the server, and a third one is of calls that expire one after the other.
    for _ in 0..2 {
        calls.submit(1);
        calls.poll().await;
    }
    for _ in 0..3 {
        calls.submit(1);
        advance(DEADLINE / 4).await;
    }
    calls.reply(2).await;
    assert_eq!(calls.sent()[2..], [vec![2, 3, 4]]);
    for expired in [2, 3] {
        advance(DEADLINE / 4 + TIMER_TICK).await;
        calls.poll().await;
        assert!(matches!(calls.results[expired], Some(Err(_))));
    }
    calls.reply(1).await;
    assert!(calls.replied(4..5));
}

/// When the breaker opens after the server stopped replying, with a call every `gap`.
async fn opens_after(gap: Duration) -> Duration {
    let mut calls = Calls::new(Double::new());
    let begun = MonotonicClock.now();
    loop {
        calls.submit(1);
        calls.poll().await;
        let passed = MonotonicClock.now().since(begun);
        if calls.batcher.executor.breakers.counts().opened > 0 || passed > 10 * DEADLINE {
            return passed;
        }
        advance(gap).await;
    }
}

/// The threshold is three. Both slots of a batcher are busy with batches of different ages.
#[tokio::test(start_paused = true)]
async fn a_stall_counts_once_per_timeout_while_both_slots_are_busy() {
    for micros in [200, 300, 700, 1_000, 3_000, 7_000] {
        let gap = Duration::from_micros(micros);
        let opened = opens_after(gap).await;
        // Each timeout is found by the next tick of a timer, and by the next call.
        let slack = 3 * (gap + 2 * TIMER_TICK);
        assert!(opened + slack >= 3 * DEADLINE, "{gap:?}: after {opened:?}");
        assert!(opened <= 3 * DEADLINE + slack, "{gap:?}: after {opened:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stall_that_is_shorter_than_two_timeouts_counts_once() {
    let mut double = Double::new();
    let config = BreakerConfig {
        failure_threshold: 2,
        ..BreakerConfig::default()
    };
    double.breakers = Breakers::new("double", config);
    let mut calls = Calls::new(double);
    for _ in 0..70 {
        calls.submit(1);
        calls.poll().await;
        advance(Duration::from_millis(1)).await;
    }
    calls.reply(1_000).await;
    assert_eq!(calls.batcher.executor.breakers.counts().opened, 0);
}
