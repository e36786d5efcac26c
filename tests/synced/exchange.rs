//! What machines learn of each other.

use std::time::Duration;

use tower_throttle::store::cas::{Cas, Fault, Faulty, MemoryStore};
use tower_throttle::store::synced::{Synced, SyncedBuilder};
use tower_throttle::store::{Backend, Op};
use tower_throttle::{FixedWindow, Quota, TokenBucket};

use crate::{INTERVAL, admit, builder, machine, outage, pass, remaining, take, take_all, window};

#[tokio::test(start_paused = true)]
async fn machines_know_after_an_interval_what_the_others_have_admitted() {
    let store = MemoryStore::new();
    let (a, b) = (machine(&store), machine(&store));
    admit(&a, 30).await;
    admit(&b, 5).await;
    assert_eq!((remaining(&a).await, remaining(&b).await), (70, 95));
    pass(3).await;
    admit(&a, 1).await;
    admit(&b, 1).await;
    pass(3).await;
    let stored = Cas::new(store.clone(), "api", window());
    let left = stored.apply("key", Op::Peek(0)).await.expect("a decision");
    assert_eq!(left.remaining(), 63);
    // The machine that exchanged last knows of all.
    assert_eq!(remaining(&a).await.min(remaining(&b).await), 63);
    assert_eq!(a.counts().nodes, 2);
    assert_eq!((a.counts().pending, b.counts().pending), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn one_machine_admits_exactly_the_limit_without_waiting() {
    let store = MemoryStore::new();
    let limit = machine(&store);
    assert_eq!(take_all(&limit).await, 100);
    pass(2).await;
    assert!(take(&limit, 1).await.is_denied());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_not_used_costs_nothing() {
    let store = Faulty::new(MemoryStore::new());
    let limit = builder(&store).build("api", window()).expect("a limit");
    admit(&limit, 1).await;
    pass(3).await;
    let before = limit.counts().exchanged;
    assert_eq!(before, 1);
    pass(100).await;
    assert_eq!(limit.counts().exchanged, before);
    assert_eq!(limit.lag(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_denied_key_learns_of_a_reset_by_another_machine() {
    let store = MemoryStore::new();
    let (a, b) = (machine(&store), machine(&store));
    assert_eq!(take_all(&a).await, 100);
    pass(3).await;
    let _ = b.apply("key", Op::Reset).await.expect("a reset");
    pass(3).await;
    assert!(take(&a, 1).await.is_denied(), "not asked yet");
    pass(3).await;
    assert!(take(&a, 1).await.is_admitted());
}

/// The exchanges of a denied key that is requested for twenty intervals.
async fn exchanged_while_denied(limit: &Synced<MemoryStore, FixedWindow>, cost: u64) -> u64 {
    let before = limit.counts().exchanged;
    for half in 0..40 {
        assert!(take(limit, cost).await.is_denied(), "{half}");
        tokio::time::sleep(INTERVAL / 2).await;
    }
    limit.counts().exchanged - before
}

/// Its denials cost nothing, so that the table does not show them.
#[tokio::test(start_paused = true)]
async fn a_denied_key_in_use_is_exchanged_in_each_interval() {
    let store = MemoryStore::new();
    let (a, b) = (machine(&store), machine(&store));
    assert_eq!(take_all(&b).await, 100);
    pass(3).await;
    // Later, so that it learns what the other one has admitted.
    admit(&a, 1).await;
    pass(3).await;
    let exchanged = exchanged_while_denied(&a, 60).await;
    assert!((19..=23).contains(&exchanged), "{exchanged}");
}

/// The fast path notes that it is in use.
#[tokio::test(start_paused = true)]
async fn a_denied_key_of_one_machine_is_exchanged_in_each_interval() {
    let store = MemoryStore::new();
    let limit = machine(&store);
    assert_eq!(take_all(&limit).await, 100);
    pass(3).await;
    let exchanged = exchanged_while_denied(&limit, 1).await;
    assert!((19..=23).contains(&exchanged), "{exchanged}");
    pass(3).await;
    let before = limit.counts().exchanged;
    pass(20).await;
    assert_eq!(limit.counts().exchanged, before);
}

#[tokio::test(start_paused = true)]
async fn a_refund_and_a_charge_reach_the_fleet() {
    let store = MemoryStore::new();
    let (a, b) = (machine(&store), machine(&store));
    let taken = take(&a, 40).await;
    pass(2).await;
    let refund = Op::Refund(15, taken.receipt());
    let _ = a.apply("key", refund).await.expect("a refund");
    let _ = a.apply("key", Op::Charge(7)).await.expect("a charge");
    pass(2).await;
    admit(&b, 1).await;
    pass(2).await;
    assert_eq!(remaining(&b).await, 100 - 40 + 15 - 7 - 1);
}

/// A cost that was admitted in one window and is sent in the next one counts in the first.
#[tokio::test(start_paused = true)]
async fn a_cost_is_counted_in_its_window_also_if_it_is_sent_later() {
    let store = Faulty::new(MemoryStore::new());
    let second = Duration::from_secs(1);
    let window = || FixedWindow::new(Quota::per(100, second));
    let limit = || {
        let builder = SyncedBuilder::new(store.clone()).interval(second * 2 / 5);
        builder.build("api", window()).expect("a limit")
    };
    let (a, b) = (limit(), limit());
    // From now on both know the store's time.
    for machine in [&a, &b] {
        let first = machine.decide("first", 1).await;
        assert!(first.expect("a decision").is_admitted());
        machine.close().await.expect("an exchange");
    }
    store.plan(outage());
    let until_end = take(&a, 60).await.reset_after;
    tokio::time::sleep(until_end).await;
    store.clear_plan();
    // Nothing of it is left in the new window, after the exchange too.
    admit(&b, 10).await;
    tokio::time::sleep(second * 4 / 5).await;
    admit(&b, 1).await;
    assert_eq!(remaining(&b).await, 89);
}

/// The reply is lost, so the report is sent again: it is counted once.
#[tokio::test(start_paused = true)]
async fn lost_requests_and_replies_neither_lose_nor_double_a_cost() {
    for faults in [
        [Fault::LostReply, Fault::None],
        [Fault::LostRequest, Fault::LostReply],
        [Fault::Late, Fault::None],
        [Fault::Late, Fault::LostReply],
    ] {
        let store = Faulty::new(MemoryStore::new());
        let limit = builder(&store).build("api", window()).expect("a limit");
        admit(&limit, 1).await;
        pass(2).await;
        store.plan(faults);
        admit(&limit, 20).await;
        pass(2).await;
        admit(&limit, 3).await;
        pass(4).await;
        let stored = Cas::new(store.clone(), "api", window());
        let left = stored.apply("key", Op::Peek(0)).await.expect("a decision");
        assert_eq!(left.remaining(), 76, "{faults:?}");
        assert_eq!(remaining(&limit).await, 76, "{faults:?}");
    }
}

/// While another machine admits nearly everything, this one has its share.
#[tokio::test(start_paused = true)]
async fn a_quiet_machine_may_use_its_share() {
    let store = MemoryStore::new();
    let limit = || {
        let builder = builder(&store).nodes(4);
        builder.build("api", window()).expect("a limit")
    };
    let (busy, quiet) = (limit(), limit());
    admit(&quiet, 5).await;
    assert_eq!(take_all(&busy).await, 100);
    pass(3).await;
    let _ = take(&quiet, 1).await;
    pass(3).await;
    // 25 for each of 4 machines. The busy one has used more than that.
    assert_eq!(take_all(&quiet).await, 25 - 6);
    assert_eq!(take_all(&busy).await, 0);
}

#[tokio::test(start_paused = true)]
async fn the_quota_is_changed_for_the_fleet() {
    let store = MemoryStore::new();
    let (a, b) = (machine(&store), machine(&store));
    admit(&a, 10).await;
    admit(&b, 10).await;
    let changed = Quota::per(50, Duration::from_secs(1_000_000));
    a.set_quota(changed).await.expect("changed");
    pass(30).await;
    admit(&b, 1).await;
    pass(30).await;
    assert_eq!(remaining(&b).await, 50 - 21);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_sent_when_a_limiter_is_closed_or_dropped() {
    let store = MemoryStore::new();
    let (a, b) = (machine(&store), machine(&store));
    admit(&a, 10).await;
    admit(&b, 20).await;
    a.close().await.expect("sent");
    drop(b);
    tokio::time::sleep(INTERVAL / 10).await;
    let stored = Cas::new(store.clone(), "api", window());
    let left = stored.apply("key", Op::Peek(0)).await.expect("a decision");
    assert_eq!(left.remaining(), 70);
}

/// The bucket refills while the report waits: what has been refilled is not counted.
#[tokio::test(start_paused = true)]
async fn machines_share_a_bucket() {
    let store = MemoryStore::new();
    let limit = || {
        let bucket = TokenBucket::new(Quota::per_second(100));
        builder(&store).build("api", bucket).expect("a limit")
    };
    let machines = [limit(), limit(), limit(), limit()];
    let mut admitted = 0;
    for _ in 0..1_000 {
        for machine in &machines {
            admitted += u64::from(take(machine, 1).await.is_admitted());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Ten seconds, the burst, and for each other machine the burst and an interval with a share.
    assert!(
        (1_000..=1_100 + 3 * (100 + 10)).contains(&admitted),
        "{admitted}"
    );
}
