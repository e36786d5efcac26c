//! What machines take ahead, use and give back.

use std::time::Duration;

use tower_throttle::store::cas::{Fault, Faulty, MemoryStore};
use tower_throttle::store::{Backend, Op};
use tower_throttle::{FixedWindow, Quota, SlidingLog, TokenBucket};

use crate::{LIFE, admit, admit_units, builder, machine, outage, pass, remaining, take, take_all};

#[tokio::test(start_paused = true)]
async fn machines_together_admit_exactly_the_limit() {
    let store = MemoryStore::new();
    let machines = [(); 8].map(|()| machine(&store));
    let mut admitted = 0;
    for _ in 0..60 {
        for machine in &machines {
            admitted += u64::from(take(machine, 1).await.is_admitted());
        }
    }
    assert_eq!(admitted, 100);
}

/// The units of a machine are used by all its threads, each of them once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_of_a_machine_admit_exactly_the_limit() {
    let window = FixedWindow::new(Quota::per(20_000, Duration::from_secs(1_000_000)));
    let limit = builder(&MemoryStore::new()).units(500).build("api", window);
    let limit = limit.expect("a limit");
    let mut threads = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let limit = limit.clone();
        threads.spawn(async move { take_all(&limit).await });
    }
    let admitted: u64 = threads.join_all().await.into_iter().sum();
    assert_eq!(admitted, 20_000);
}

/// The first request waits for the store. Later ones do not, however fast they come.
#[tokio::test(start_paused = true)]
async fn a_steady_stream_does_not_wait() {
    let store = Faulty::new(MemoryStore::new());
    let bucket = TokenBucket::new(Quota::per_second(1_000));
    let limit = builder(&store).units(100).build("api", bucket);
    let limit = limit.expect("a limit");
    let (mut waited, mut denied) = (0, 0);
    for step in 0..5_000 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let began = tokio::time::Instant::now();
        store.plan([Fault::Delay(Duration::from_millis(5))]);
        denied += u64::from(take(&limit, 1).await.is_denied());
        if began.elapsed() > Duration::ZERO && step > 100 {
            waited += 1;
        }
    }
    assert_eq!((waited, denied), (0, 0));
    let exchanged = limit.counts().exchanged;
    assert!(exchanged < 5_000 / 20, "{exchanged}");
}

#[tokio::test(start_paused = true)]
async fn idle_units_are_given_back() {
    let store = MemoryStore::new();
    let (a, b) = (machine(&store), machine(&store));
    admit_units(&a, 20).await;
    assert!(a.counts().keys == 1);
    assert!(take_all(&b).await < 80, "some are held");
    // Two renewals: the last use was in the first of them.
    pass(10).await;
    assert_eq!(a.counts().keys, 0);
    pass(5).await;
    let rest = take_all(&b).await;
    assert!(rest > 0);
    assert_eq!(take_all(&a).await, 0);
    a.close().await.expect("a reply");
    b.close().await.expect("a reply");
    let other = machine(&store);
    admit(&other, 1).await;
    assert_eq!(remaining(&other).await, 0, "each unit was used once");
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_given_back_when_a_limiter_is_closed_or_dropped() {
    for is_closed in [true, false] {
        let store = MemoryStore::new();
        let limit = machine(&store);
        admit_units(&limit, 13).await;
        if is_closed {
            limit.close().await.expect("a reply");
            assert_eq!(limit.counts().keys, 0);
        } else {
            drop(limit);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let other = machine(&store);
        assert_eq!(take_all(&other).await, 87, "closed: {is_closed}");
    }
}

/// A program that is killed does not return its units. They count as used when their lease ends.
#[tokio::test(start_paused = true)]
async fn units_of_a_machine_that_has_crashed_are_lost_at_the_end_of_its_lease() {
    let store = MemoryStore::new();
    let wire = Faulty::new(store.clone());
    let crashed = machine(&wire);
    admit_units(&crashed, 30).await;
    pass(1).await;
    wire.plan(outage());
    let other = machine(&store);
    let held = 70 - take_all(&other).await;
    assert!((1..=20).contains(&held), "{held}");
    pass(30).await;
    assert!(take(&other, 1).await.is_denied());
    assert_eq!(remaining(&other).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_units_is_taken_exactly() {
    let store = MemoryStore::new();
    let (a, b) = (machine(&store), machine(&store));
    assert!(take(&a, 60).await.is_admitted());
    assert!(take(&b, 30).await.is_admitted());
    assert!(take(&a, 11).await.is_denied());
    assert!(take(&a, 5).await.is_admitted());
    assert!(take(&a, 101).await.is_denied());
    assert_eq!(take(&a, 101).await.retry_after, None);
}

#[tokio::test(start_paused = true)]
async fn a_denied_key_does_not_ask_the_store_for_each_request() {
    let store = MemoryStore::new();
    let limit = machine(&store);
    assert_eq!(take_all(&limit).await, 100);
    let before = limit.counts().exchanged;
    for _ in 0..1_000 {
        let denied = take(&limit, 1).await;
        assert!(denied.is_denied());
        assert!(denied.retry_after.is_some_and(|wait| wait > LIFE));
    }
    assert_eq!(limit.counts().exchanged, before);
    pass(4).await;
    assert!(take(&limit, 1).await.is_denied());
    assert!(limit.counts().exchanged > before);
}

#[tokio::test(start_paused = true)]
async fn a_refund_a_charge_and_a_reset_reach_the_fleet() {
    let store = MemoryStore::new();
    let (a, b) = (machine(&store), machine(&store));
    let admitted = take(&a, 50).await;
    let refunded = a.apply("key", Op::Refund(20, admitted.receipt())).await;
    assert!(refunded.is_ok());
    let charged = a.apply("key", Op::Charge(40)).await;
    assert!(charged.is_ok());
    a.close().await.expect("a reply");
    assert_eq!(take_all(&b).await, 30);
    let reset = a.apply("key", Op::Reset).await;
    assert!(reset.is_ok());
    pass(5).await;
    assert!(take(&b, 1).await.is_admitted(), "a denial is not for long");
    a.close().await.expect("a reply");
    assert_eq!(1 + take_all(&b).await, 100);
}

#[tokio::test(start_paused = true)]
async fn the_quota_is_changed_for_the_fleet() {
    let store = MemoryStore::new();
    let (a, b) = (machine(&store), machine(&store));
    assert_eq!(take_all(&a).await, 100);
    admit(&b, 1).await;
    let quota = Quota::per(150, Duration::from_secs(1_000_000));
    a.set_quota(quota).await.expect("a reply");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(take_all(&b).await + take_all(&a).await, 50);
}

/// Units that refill are there again, as fast as without leases.
#[tokio::test(start_paused = true)]
async fn machines_use_what_refills() {
    let store = MemoryStore::new();
    let bucket = TokenBucket::new(Quota::per_second(200).burst(100));
    let build = || builder(&store).units(10).build("api", bucket);
    let machines = [build(), build(), build()].map(|limit| limit.expect("a limit"));
    let mut admitted = 0;
    for _ in 0..10_000 {
        for machine in &machines {
            admitted += u64::from(take(machine, 1).await.is_admitted());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!((1_900..=2_100).contains(&admitted), "{admitted}");
}

/// Otherwise the units of one window would come on top of those of the next.
#[tokio::test(start_paused = true)]
async fn no_interval_admits_more_than_the_limit_of_a_log() {
    let store = MemoryStore::new();
    let log = SlidingLog::new(Quota::per(50, Duration::from_secs(5)));
    let build = || builder(&store).build("api", log).expect("a limit");
    let machines = [build(), build(), build()];
    let mut moments = Vec::new();
    for _ in 0..3_000 {
        for machine in &machines {
            if take(machine, 1).await.is_admitted() {
                moments.push(tokio::time::Instant::now());
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let within = |first: usize| {
        let end = moments[first] + Duration::from_secs(5);
        moments[first..].iter().filter(|at| **at < end).count()
    };
    assert!((0..moments.len()).all(|first| within(first) <= 50));
    assert!(moments.len() > 200, "{}", moments.len());
}

#[tokio::test(start_paused = true)]
async fn lost_requests_and_replies_neither_lose_nor_double_a_cost() {
    for fault in [Fault::LostRequest, Fault::LostReply] {
        let store = Faulty::new(MemoryStore::new());
        let limit = machine(&store);
        let mut admitted = 0;
        for step in 0..80 {
            if step % 3 == 0 {
                store.plan([fault]);
            }
            if let Ok(decision) = limit.decide("key", 1).await {
                admitted += u64::from(decision.is_admitted());
            }
            pass(1).await;
        }
        store.clear_plan();
        pass(12).await;
        limit.close().await.expect("a reply");
        assert!(admitted > 20, "{admitted}");
        let other = machine(&store);
        let rest = take_all(&other).await;
        assert!(admitted + rest <= 100, "{admitted} and {rest}");
        assert!(admitted + rest >= 60, "{admitted} and {rest}");
    }
}

/// Each key has a lease of its own, and a key that is not used has none.
#[tokio::test(start_paused = true)]
async fn keys_are_independent_and_bounded() {
    let store = MemoryStore::new();
    let window = FixedWindow::new(Quota::per_hour(10));
    let limit = builder(&store).capacity(50).build("api", window);
    let limit = limit.expect("a limit");
    for key in 0..60_u32 {
        let decision = limit.decide(&key, 1).await.expect("a decision");
        assert_eq!(decision.is_admitted(), key < 50, "{key}");
    }
    assert_eq!(limit.counts().keys, 50);
    assert_eq!(limit.counts().full, 10);
    pass(12).await;
    assert_eq!(limit.counts().keys, 0);
    assert!(
        limit
            .decide(&59_u32, 1)
            .await
            .expect("a decision")
            .is_admitted()
    );
}

/// A renewal is not over before each key was exchanged, however many there are.
#[tokio::test(start_paused = true)]
async fn more_keys_than_exchanges_at_a_time_are_given_back_in_time() {
    let store = MemoryStore::new();
    let limit = machine(&store);
    for key in 0..10_000_u32 {
        let decision = limit.decide(&key, 1).await.expect("a decision");
        assert!(decision.is_admitted());
    }
    assert_eq!(limit.counts().keys, 10_000);
    pass(12).await;
    assert_eq!(limit.counts().keys, 0);
    assert_eq!(limit.counts().exchanged, 30_000);
}

/// The units that the machine holds are a part of what is left, and of what a request takes.
#[tokio::test(start_paused = true)]
async fn a_cost_of_all_that_is_left_is_admitted() {
    for first in [1, 5, 30] {
        let store = MemoryStore::new();
        let day = TokenBucket::new(Quota::per_day(100));
        let limit = builder(&store).build("api", day).expect("a limit");
        admit(&limit, first).await;
        for _ in 0..5 {
            pass(1).await;
            assert_eq!(remaining(&limit).await, 100 - first);
        }
        let decision = take(&limit, 100 - first).await;
        assert!(decision.is_admitted(), "{first}: {decision:?}");
    }
}
