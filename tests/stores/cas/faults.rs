//! A store that fails: no cost is counted twice, and none that was admitted is lost.

use std::{
    iter::repeat_n,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use test_support::wait::at_once;
use tower_throttle::store::cas::{
    Cas, CasStore, Fault, Faulty, Loaded, MemoryStore, Program, Runs,
};
use tower_throttle::store::cas::{Swapped, Value};
use tower_throttle::store::{Backend, Op, Receipt};
use tower_throttle::{Lockout, Quota, StoreError, TokenBucket};

use crate::altered_store::{Altered, Change, Swap};
use crate::cas::{bucket, machine, remaining, take};
use crate::memory_fleet::stats;
use crate::overwrite::overwrite;

/// Shows promise 87.
#[tokio::test(start_paused = true)]
async fn a_cost_is_counted_once_whatever_happens_to_the_swap() {
    for fault in [
        Fault::LostRequest,
        Fault::LostReply,
        Fault::Late,
        Fault::Twice,
        Fault::Conflict,
        Fault::Delay(Duration::from_millis(5)),
    ] {
        let store = Faulty::new(MemoryStore::new());
        let limit = machine(&store, 100);
        // Load and swap of an unused key, then swaps.
        for (planned, left) in [
            (&[Fault::Delay(Duration::ZERO), fault][..], 99),
            (&[fault], 98),
            (&[fault; 2], 97),
        ] {
            store.plan(planned.iter().copied());
            let decision = take(&limit, 1).await.expect("a decision");
            assert_eq!(decision.remaining(), left, "{fault:?}");
        }
        let fresh = machine(&store, 100);
        assert_eq!(remaining(&fresh).await, 97, "{fault:?}");
    }
}

/// A store whose first swap is in conflict, and whose later swaps and programs fail as planned.
#[derive(Clone, Debug)]
struct Turns(MemoryStore, Faulty<MemoryStore>, Arc<AtomicBool>);

impl CasStore for Turns {
    const RUNS: Runs = Runs::All;

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        self.0.load(key).await
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        if !self.2.swap(true, Ordering::Relaxed) {
            return Ok(Swapped::Conflict(None));
        }
        self.1.swap(key, expected, new, ttl).await
    }

    async fn run<P: Program>(&self, program: &P) -> Result<P::Reply, StoreError> {
        let key = program.keys()[0];
        let loaded = self.0.load(key).await?;
        let expected = loaded.value.as_ref().map(|value| value.version);
        let (writes, reply) = program.execute(&[loaded]);
        for write in writes {
            self.1.swap(key, expected, &write.value, write.ttl).await?;
        }
        Ok(reply)
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_without_a_reply_counts_once_at_most_and_is_an_error() {
    for (fault, left) in [
        (Fault::Delay(Duration::ZERO), 97),
        (Fault::LostRequest, 100),
        (Fault::LostReply, 97),
    ] {
        let memory = MemoryStore::new();
        let faulty = Faulty::new(memory.clone());
        let limit = machine(&Turns(memory.clone(), faulty.clone(), Arc::default()), 100);
        for _ in 0..3 {
            faulty.plan([fault]);
            let decided = take(&limit, 1).await;
            let is_answered = fault == Fault::Delay(Duration::ZERO);
            assert_eq!(decided.is_ok(), is_answered, "{decided:?}");
            assert_eq!(faulty.planned(), 0);
        }
        assert_eq!(remaining(&machine(&memory, 100)).await, left, "{fault:?}");
        // After the first conflict it is known that others use the key.
        assert_eq!(stats(&limit).conflicts, 1);
    }
}

/// Swaps of another machine between the swap and the question what became of it.
///
/// Shows promise 87.
#[tokio::test(start_paused = true)]
async fn a_swap_that_others_have_overtaken_is_found_or_said_to_be_unknown() {
    for (others, is_found) in [(1, true), (7, true), (8, false), (30, false)] {
        let memory = MemoryStore::new();
        let other = machine(&memory, 1_000);
        let overtaken = Overtaken {
            other: other.clone(),
            others,
        };
        let limit = Cas::new(Altered(memory, overtaken), "api", bucket(1_000));
        let limit = limit.expect("a limit");
        assert!(take(&other, 1).await.expect("a decision").is_admitted());
        let result = take(&limit, 100).await;
        if is_found {
            assert!(result.expect("a decision").is_admitted(), "{others}");
        } else {
            let error = result.expect_err("too many swaps since");
            let text = error.to_string();
            assert!(error.is_transient() && text.starts_with("store: "));
            assert!(text.contains("to find out"), "{text}");
        }
        // It was counted once in either case.
        assert_eq!(remaining(&other).await, 1_000 - 1 - 100 - others);
    }
}

/// The reply of a swap is lost, while another machine makes swaps of its own.
#[derive(Debug)]
struct Overtaken {
    other: Cas<MemoryStore, TokenBucket>,
    others: u64,
}

impl<S: CasStore> Change<S> for Overtaken {
    async fn swap(&self, store: &S, swap: Swap<'_>) -> Result<Swapped, StoreError> {
        let swapped = swap.run(store).await?;
        assert!(matches!(swapped, Swapped::Done(_)), "one attempt is enough");
        for _ in 0..self.others {
            assert!(take(&self.other, 1).await?.is_admitted());
        }
        Err(StoreError::new("the reply is lost", true))
    }
}

/// Sixty-four machines that try one account at once are all turned down, even by those that admit in an outage. A
/// bucket's call is an error: it may pass.
///
/// Shows promise 190.
#[tokio::test(start_paused = true)]
async fn a_lockout_whose_call_ends_in_conflicts_denies() {
    let memory = MemoryStore::new();
    let store = Faulty::new(memory.clone());
    let lockout = || Cas::new(store.clone(), "login", Lockout::new(Quota::per_hour(5)));
    let machines: Vec<_> = (0..64).map(|_| lockout().expect("a limit")).collect();
    store.plan([Fault::LostRequest; 99]);
    let cut_off = lockout().expect("a limit");
    assert!(cut_off.decide("alice", 1).await.is_err(), "an outage");
    store.plan(repeat_n(Fault::Conflict, 100_000));
    for guess in join_all(machines.iter().map(|machine| machine.decide("alice", 1))).await {
        let guess = guess.expect("an answer");
        let wait = Some(Duration::from_millis(100));
        assert!(guess.is_denied() && (guess.remaining(), guess.retry_after) == (0, wait));
    }
    assert!(take(&machine(&store, 10), 1).await.is_err());
    store.plan([]);
    let guess = machines[0].decide("alice", 1).await;
    assert!(guess.expect("a decision").is_admitted());
    overwrite(&memory, &memory.keys()[0], 7, b"damaged").await;
    let mistake = machines[1].decide("alice", 1).await;
    assert!(!mistake.expect_err("no attempt is counted").is_transient());
}

/// Shows promise 86.
#[tokio::test(start_paused = true)]
async fn a_stalled_store_ends_at_the_deadline_and_opens_the_breaker() {
    let store = Faulty::new(MemoryStore::new());
    let limit = machine(&store, 10).deadline(Duration::from_millis(50));
    store.plan([Fault::Delay(Duration::from_secs(60)); 3]);
    for key in ["a", "b", "c"] {
        let began = tokio::time::Instant::now();
        let error = limit.decide(key, 1).await.expect_err("a stall");
        assert!(error.is_transient());
        assert_eq!(error.to_string(), "memory: no decision within 50ms");
        let waited = began.elapsed();
        assert!(waited <= Duration::from_millis(52), "{waited:?}");
        // The driver ends a little later than its caller.
        tokio::time::advance(Duration::from_millis(2)).await;
    }
    let error = take(&limit, 1).await.expect_err("not asked");
    let text = error.to_string();
    assert!(text.contains("not asked") && text.contains("within 50ms"));
    tokio::time::advance(Duration::from_millis(100)).await;
    assert!(take(&limit, 1).await.expect("a probe").is_admitted());
}

/// The outcome of a swap whose reply is lost is not known as long as the store is down. A load counts nothing.
///
/// Shows promise 87.
#[tokio::test(start_paused = true)]
async fn an_error_says_whether_the_call_may_have_been_counted() {
    for (executed, is_uncertain) in [
        (vec![], false),
        (vec![Fault::Delay(Duration::ZERO), Fault::LostReply], true),
    ] {
        let store = Faulty::new(MemoryStore::new());
        store.plan(executed.into_iter().chain([Fault::LostRequest; 9]));
        let error = take(&machine(&store, 10), 1).await.expect_err("an outage");
        let text = error.to_string();
        let says_so = text.ends_with("; whether the call was counted is not known");
        assert_eq!(says_so, is_uncertain, "{text}");
    }
}

/// A swap is executed, and its reply says that it was not. Another call comes before that is found out.
///
/// Shows promise 87.
#[tokio::test(start_paused = true)]
async fn a_call_that_comes_while_a_swap_is_looked_for_is_decided_after_it() {
    let store = Faulty::new(MemoryStore::new());
    let limit = machine(&store, 10);
    // After the first conflict the next one makes it wait, and take what has come.
    store.plan([
        Fault::Delay(Duration::ZERO),
        Fault::Conflict,
        Fault::Delay(Duration::ZERO),
        Fault::Twice,
    ]);
    let (first, second) = tokio::join!(take(&limit, 1), async {
        while store.planned() > 0 {
            tokio::task::yield_now().await;
        }
        take(&limit, 2).await
    });
    assert_eq!(first.expect("a decision").remaining(), 9);
    assert_eq!(second.expect("a decision").remaining(), 7);
    assert_eq!(remaining(&limit).await, 7);
}

/// A store that is wrongly set up, or has a bug.
#[derive(Clone, Copy, Debug)]
enum Broken {
    Permanent,
    Panics,
}

impl Change<MemoryStore> for Broken {
    async fn load(&self, _: &MemoryStore, _: &str) -> Result<Loaded, StoreError> {
        match self {
            Self::Permanent => Err(StoreError::new("wrong password", false)),
            Self::Panics => panic!("a bug of the store"),
        }
    }
}

/// Shows promise 86.
#[tokio::test(start_paused = true)]
async fn a_mistake_is_permanent_and_opens_no_breaker() {
    let texts = ["wrong password", "store: a panic: a bug of the store"];
    for (broken, text) in [Broken::Permanent, Broken::Panics].into_iter().zip(texts) {
        // A panic is slow to report.
        let limit = machine(&Altered(MemoryStore::new(), broken), 10);
        let limit = limit.deadline(Duration::from_secs(60));
        for _ in 0..5 {
            let error = take(&limit, 1).await.expect_err("a mistake");
            assert_eq!(error.to_string(), text);
            assert!(!error.is_transient());
        }
    }
}

/// Shows promise 106.
#[tokio::test(start_paused = true)]
async fn damaged_bytes_are_an_error_until_the_key_is_reset() {
    let store = MemoryStore::new();
    let limit = machine(&store, 10);
    assert!(take(&limit, 1).await.expect("a decision").is_admitted());
    let key = store.keys().remove(0);
    overwrite(&store, &key, 7, b"no state").await;
    let error = take(&limit, 1).await.expect_err("damaged");
    let text = error.to_string();
    assert!(!error.is_transient() && text.starts_with("memory: the value of the key"));
    let reset = limit.apply("key", Op::Reset).await.expect("a reset");
    assert_eq!(reset.remaining(), 10);
    let other = machine(&store, 10);
    assert_eq!(take(&other, 1).await.expect("a decision").remaining(), 9);
    assert_eq!(take(&limit, 1).await.expect("a decision").remaining(), 8);
}

/// Shows promise 87.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_it_is_decided_is_not_counted() {
    let store = Faulty::new(MemoryStore::new());
    let limit = machine(&store, 10);
    drop(limit.decide("key", 1));
    store.plan([Fault::Delay(Duration::from_millis(5))]);
    let [mut first, mut dropped, mut kept] =
        [1, 2, 3].map(|cost| Box::pin(limit.decide("key", cost)));
    for call in [&mut first, &mut dropped, &mut kept] {
        assert!(at_once(call).is_none());
    }
    // All of them wait for the store.
    while store.planned() > 0 {
        tokio::task::yield_now().await;
    }
    drop((first, dropped));
    assert_eq!(kept.await.expect("a decision").remaining(), 7);
    // A refund that is not awaited is done.
    limit.detach("key", Op::Refund(3, Receipt::NOW));
    tokio::task::yield_now().await;
    assert_eq!(remaining(&limit).await, 10);
}

/// Two calls are sent in one swap, whose reply is lost. One of them is dropped before the outcome is known.
///
/// Shows promise 87.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_after_its_swap_leaves_the_decisions_of_others_in_place() {
    let store = Faulty::new(MemoryStore::new());
    let limit = machine(&store, 10);
    store.plan([Fault::Delay(Duration::ZERO), Fault::LostReply]);
    let [mut dropped, mut kept] = [1, 2].map(|cost| Box::pin(limit.decide("key", cost)));
    for call in [&mut dropped, &mut kept] {
        assert!(at_once(call).is_none());
    }
    while store.planned() > 0 {
        tokio::task::yield_now().await;
    }
    drop(dropped);
    assert_eq!(kept.await.expect("a decision").remaining(), 7);
    assert_eq!(remaining(&limit).await, 7);
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

/// The task that decides for others is on a runtime that ends.
///
/// Shows promise 86.
#[test]
fn a_runtime_that_is_shut_down_holds_up_no_key() {
    let store = Faulty::new(MemoryStore::new());
    let limit = machine(&store, 10);
    store.plan([Fault::Delay(Duration::from_secs(60))]);
    let stopped = runtime();
    let mut waiting = Vec::new();
    stopped.block_on(async {
        let mut first = Box::pin(limit.decide("key", 1));
        assert!(at_once(&mut first).is_none());
        let mut second = Box::pin(limit.decide("key", 1));
        assert!(at_once(&mut second).is_none());
        // The task has asked the store.
        while store.planned() > 0 {
            tokio::task::yield_now().await;
        }
        waiting.push(second);
    });
    drop(stopped);
    runtime().block_on(async {
        let error = waiting.remove(0).await.expect_err("not decided");
        assert!(error.is_transient() && error.to_string().contains("shut down"));
        assert_eq!(take(&limit, 1).await.expect("a decision").remaining(), 9);
    });
    let future = limit.decide("key", 1);
    let error = tokio_test::block_on(future).expect_err("no runtime");
    assert!(error.to_string().contains("outside of a tokio runtime"));
}

/// A call that is polled once and then neither polled on nor dropped.
///
/// Shows promise 86.
#[test]
fn a_call_that_is_not_polled_on_holds_up_a_key_for_one_deadline() {
    let store = Faulty::new(MemoryStore::new());
    let limit = machine(&store, 10).deadline(Duration::from_secs(1));
    store.plan([Fault::Delay(Duration::from_millis(1))]);
    let idle = runtime();
    let mut stuck = Vec::new();
    let begun = tokio::time::Instant::now();
    idle.block_on(async {
        let mut call = Box::pin(limit.decide("key", 1));
        assert!(at_once(&mut call).is_none());
        stuck.push(call);
    });
    runtime().block_on(async {
        let mut failed = 0;
        let decision = loop {
            match take(&limit, 1).await {
                Ok(decision) => break decision,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
            failed += 1;
            assert!(failed < 20, "held up for ever");
        };
        // A pause of this thread may have been as long as the deadline.
        let was_held = failed > 0 || begun.elapsed() >= Duration::from_secs(1);
        assert!(was_held, "the other call was not in the way");
        assert_eq!(decision.remaining(), 9);
    });
}
