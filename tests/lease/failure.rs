//! What happens while the store is not reached.

use std::time::Duration;

use tower_throttle::store::cas::{CasStore, Fault, Faulty, MemoryStore};
use tower_throttle::store::lease::{Leased, LeasedBuilder};
use tower_throttle::store::synced::WhenCutOff;
use tower_throttle::store::{Backend, Op};
use tower_throttle::{FixedWindow, Quota, TokenBucket};

use crate::altered_store::{Altered, Change};
use crate::memory_fleet::{a_call_outside_of_a_runtime_fails, paused_runtime};
use crate::overwrite::overwrite;
use crate::{LIFE, admit, admit_units, builder, machine, outage, pass, take, take_all, window};

/// Requests until one is not admitted. Returns how many were.
async fn held<S: CasStore>(limit: &Leased<S, FixedWindow>) -> u64 {
    let mut admitted = 0;
    while limit
        .decide("key", 1)
        .await
        .is_ok_and(|decision| decision.is_admitted())
    {
        admitted += 1;
    }
    admitted
}

#[tokio::test(start_paused = true)]
async fn a_machine_uses_what_it_holds_and_then_fails() {
    let store = Faulty::new(MemoryStore::new());
    let limit = machine(&store);
    admit_units(&limit, 10).await;
    pass(1).await;
    store.plan(outage());
    let used = held(&limit).await;
    assert!((1..=20).contains(&used), "{used}");
    pass(10).await;
    assert!(limit.is_cut_off());
    let error = limit.decide("key", 1).await.unwrap_err();
    assert!(error.is_transient());
    let text = error.to_string();
    assert!(
        text.starts_with("memory: no exchange for 300ms: "),
        "{text}"
    );
    store.clear_plan();
    pass(200).await;
    assert!(!limit.is_cut_off());
    let rest = take_all(&limit).await;
    assert!((70..=90).contains(&(rest + used)), "{rest} and {used}");
}

/// The keys are on several servers.
#[derive(Clone, Debug)]
struct ManyServers;

impl<S: CasStore> Change<S> for ManyServers {
    fn has_one_clock(&self, _: &S) -> bool {
        false
    }
}

/// Whether the units of a machine that has crashed are over a fourth of a life after the end of its lease.
async fn is_over_after_a_life<S: CasStore + Clone>(store: S) -> bool {
    let wire = Faulty::new(store.clone());
    let bucket = TokenBucket::new(Quota::per_second(1_000).burst(100));
    let build = |builder: LeasedBuilder<_>| builder.build("api", bucket).expect("a limit");
    let crashed = build(builder(&wire));
    admit_units(&crashed, 30).await;
    pass(1).await;
    wire.plan(outage());
    pass(15).await;
    let other = build(builder(&Faulty::new(store)));
    take(&other, 100).await.is_admitted()
}

#[tokio::test(start_paused = true)]
async fn a_lease_lasts_longer_in_a_store_with_several_clocks() {
    assert!(is_over_after_a_life(MemoryStore::new()).await);
    let many_servers = Altered(MemoryStore::new(), ManyServers);
    assert!(!is_over_after_a_life(many_servers).await);
}

/// What it uses after a report that was lost counts when its lease ends, and not once more.
#[tokio::test(start_paused = true)]
async fn what_was_used_of_a_lease_that_has_ended_counts_once() {
    let store = Faulty::new(MemoryStore::new());
    let limit = machine(&store);
    admit_units(&limit, 30).await;
    pass(1).await;
    store.plan(outage());
    admit(&limit, 1).await;
    pass(5).await;
    assert!(limit.counts().failed > 0, "a report was lost");
    let later = held(&limit).await;
    assert!(later > 1, "{later}");
    pass(14).await;
    store.clear_plan();
    // The breaker's next probe may be 312 ms away.
    pass(4).await;
    limit.close().await.expect("a reply");
    let rest = take_all(&machine(&store)).await;
    assert_eq!(31 + later + rest, 100, "{later} and {rest}");
}

/// The name under which the leases of the only key are stored.
fn name_of_leases(store: &MemoryStore) -> String {
    let mut names = store.keys().into_iter();
    names.find(|name| name.contains("leases")).expect("a key")
}

#[tokio::test(start_paused = true)]
async fn a_report_that_was_stored_before_an_error_is_counted_once() {
    let store = MemoryStore::new();
    let wire = Faulty::new(store.clone());
    let limit = machine(&wire);
    admit(&limit, 1).await;
    limit.close().await.expect("a reply");
    wire.plan([Fault::LostReply]);
    let charged = limit.apply("key", Op::Charge(30)).await;
    assert!(charged.is_ok());
    tokio::task::yield_now().await;
    tokio::time::sleep(Duration::from_nanos(1)).await;
    assert_eq!(limit.counts().failed, 1);
    let name = name_of_leases(&store);
    let (value, _) = store.get(&name).expect("a value");
    overwrite(&store, &name, 1, b"damaged").await;
    pass(3).await;
    assert!(limit.counts().failed > 1);
    overwrite(&store, &name, 2, &value.bytes).await;
    pass(3).await;
    limit.close().await.expect("a reply");
    assert_eq!(take_all(&machine(&store)).await, 69);
}

/// A machine that was suspended finds the end of its lease past.
#[tokio::test(start_paused = true)]
async fn nothing_is_used_of_a_lease_that_has_ended() {
    let store = Faulty::new(MemoryStore::new());
    let limit = machine(&store);
    admit_units(&limit, 30).await;
    store.plan(outage());
    // No task runs meanwhile.
    tokio::time::advance(LIFE + LIFE / 12).await;
    assert!(limit.decide("key", 1).await.is_err());
    store.clear_plan();
    let rest = take_all(&machine(&store)).await;
    assert!((40..70).contains(&rest), "what it held counts: {rest}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_cut_off_denies_or_admits_its_share_as_configured() {
    for behavior in [WhenCutOff::Deny, WhenCutOff::Share] {
        let store = Faulty::new(MemoryStore::new());
        let limit = builder(&store)
            .when_cut_off(behavior, 3)
            .nodes(4)
            .build("api", window());
        let limit = limit.expect("a limit");
        store.plan(outage());
        assert!(limit.decide("key", 1).await.is_err());
        pass(20).await;
        assert!(limit.is_cut_off());
        let expected = if behavior == WhenCutOff::Deny { 0 } else { 25 };
        assert_eq!(held(&limit).await, expected, "{behavior:?}");
        assert!(take(&limit, 1).await.is_denied());
        store.clear_plan();
        pass(200).await;
        assert!(!limit.is_cut_off());
        assert_eq!(take_all(&limit).await, 100 - expected, "it was reported");
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_value_is_an_error_until_a_reset() {
    let store = MemoryStore::new();
    let limit = machine(&store);
    admit(&limit, 1).await;
    limit.close().await.expect("a reply");
    overwrite(&store, &name_of_leases(&store), 1, b"damaged").await;
    pass(5).await;
    let error = machine(&store).decide("key", 1).await.unwrap_err();
    assert!(!error.is_transient());
    let reset = limit.apply("key", Op::Reset).await;
    assert!(reset.is_ok());
    pass(5).await;
    assert_eq!(take_all(&limit).await, 100);
}

/// The task of a runtime that is shut down is replaced by one on the runtime of the next call.
#[test]
fn a_runtime_that_is_shut_down_is_replaced() {
    let store = MemoryStore::new();
    let limit = machine(&store);
    paused_runtime().block_on(admit(&limit, 1));
    paused_runtime().block_on(async {
        admit_units(&limit, 30).await;
        limit.close().await.expect("a reply");
    });
    assert_eq!(limit.counts().keys, 0);
}

#[test]
fn a_call_outside_of_a_runtime_is_an_error() {
    a_call_outside_of_a_runtime_fails(&machine(&MemoryStore::new()));
}
