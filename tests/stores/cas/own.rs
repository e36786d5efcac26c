//! An algorithm of a user's own, of the five required methods and its fields, works wherever the algorithms
//! of the crate do.

use std::time::Duration;

use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::algorithm::{Algorithm, Cost, Fields, GiveBack, reserve};
use tower_throttle::store::cas::{Cas, MemoryStore};
use tower_throttle::store::{Backend, Op};
use tower_throttle::{
    All, AsError, Decision, Limiter, Local, Quota, RateLimitLayer, RateLimited, TokenBucket,
    Verdict, clock::Tick,
};

/// So many units, and no more ever.
#[derive(Clone, Debug, PartialEq)]
struct Allowance(Quota);

impl Algorithm for Allowance {
    /// The units that were used.
    type State = u64;

    fn quota(&self) -> Quota {
        self.0
    }

    fn fresh(&self, _: Tick) -> u64 {
        0
    }

    fn decide(&self, used: &mut u64, _: Tick, cost: u64) -> Decision {
        let (limit, left) = (self.0.limit(), self.0.limit().saturating_sub(*used));
        assert!(cost < 100, "a cost of {cost}");
        if cost > left {
            return Decision::new(Verdict::Deny, limit, left, None, 0);
        }
        *used += cost;
        Decision::new(Verdict::Admit, limit, left - cost, None, 0)
    }

    fn refund(&self, used: &mut u64, _: Tick, cost: Cost, _: GiveBack) {
        *used = used.saturating_sub(cost.units);
    }

    fn charge(&self, used: &mut u64, _: Tick, cost: u64) -> Duration {
        *used = used.saturating_add(cost);
        Duration::ZERO
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(1_000);
        fields.quota(&mut self.0);
    }

    fn state_fields(&self, used: &mut u64, fields: &mut Fields<'_>) {
        fields.u64(used);
    }
}

fn three() -> Allowance {
    Allowance(Quota::per_second(3))
}

/// Three of the next four are admitted.
fn assert_three(mut check: impl FnMut() -> bool) {
    assert_eq!([(); 4].map(|()| check()), [true, true, true, false]);
}

/// Shows promise 18.
#[tokio::test(start_paused = true)]
async fn it_works_in_a_limiter_a_table_a_layer_a_tuple_a_list_and_a_store() {
    let limiter = Limiter::new(three());
    assert_three(|| limiter.check(1).is_admitted());
    let table = Local::new(three());
    assert_three(|| table.check("a", 1).is_admitted());
    assert!(table.check("b", 1).is_admitted(), "a key of its own");
    let tuple = Limiter::new((three(), TokenBucket::new(Quota::per_hour(10))));
    assert_three(|| tuple.check(1).is_admitted());
    let list = Limiter::new(All::new([three(), three()]));
    assert_three(|| list.check(1).is_admitted());

    let layer = RateLimitLayer::new(|user: &&str| (*user).to_owned(), three()).respond(AsError);
    let service = layer.layer(service_fn(|_| async { Ok::<_, RateLimited>(()) }));
    let mut admitted = Vec::new();
    for _ in 0..4 {
        admitted.push(service.clone().oneshot("ann").await.is_ok());
    }
    assert_eq!(admitted, [true, true, true, false]);

    // Two machines share what the store holds, also as a part of a tuple.
    let store = MemoryStore::new();
    let build = || Cas::new(store.clone(), "own", three());
    let machines = [build().expect("a limit"), build().expect("a limit")];
    for (turn, is_admitted) in [true, true, true, false].into_iter().enumerate() {
        let decision = machines[turn % 2].decide("a", 1).await.expect("a decision");
        assert_eq!(decision.is_admitted(), is_admitted, "{turn}");
    }
    // A panic is a mistake, and no outage.
    let error = machines[0].decide("b", 100).await.expect_err("it panics");
    assert!(!error.is_transient() && error.to_string().contains("a cost of 100"));
    let pair = (three(), TokenBucket::new(Quota::per_hour(10)));
    let pair = Cas::new(store.clone(), "pair", pair).expect("a limit");
    let decision = pair.decide("a", 2).await.expect("a decision");
    assert_eq!((decision.limit, decision.remaining()), (3, 1));
    let refunded = pair.apply("a", Op::Refund(1, decision.receipt())).await;
    assert_eq!(refunded.expect("a decision").remaining(), 2);
}

#[test]
fn what_it_leaves_out_keeps_the_laws() {
    let (limit, now) = (three(), Tick::from_nanos(1_000));
    let mut used = limit.fresh(now);
    let _ = limit.decide(&mut used, now, 2);
    assert_eq!(limit.peek(&used, now, 1).remaining(), 1);
    assert_eq!(used, 2, "a peek takes nothing");
    let booked = reserve(&limit, &mut used, now, 2, Duration::MAX);
    assert!(booked.is_denied(), "it has no turns");
    assert_eq!(
        limit.forgettable_at(&used),
        Tick::MAX,
        "a use is never forgotten"
    );
    // Its quota is listed. A change of it forgets nothing.
    let five = Quota::per_second(5);
    let larger = limit.with_quota(five).expect("another quota");
    assert_eq!(larger, Allowance(five));
    larger.rescale(&mut used, &limit, now);
    assert_eq!(larger.peek(&used, now, 1).remaining(), 3);
    let limiter = Limiter::new(limit);
    limiter.set_quota(five).expect("another quota");
    assert_eq!(limiter.peek(1).limit, 5);
}

/// An [`Allowance`] that lists its quota, and something else that has no form. Or nothing.
#[derive(Clone, Debug, PartialEq)]
struct Unlisted(Allowance, bool);

impl Algorithm for Unlisted {
    type State = u64;

    fn quota(&self) -> Quota {
        self.0.quota()
    }

    fn fresh(&self, now: Tick) -> u64 {
        self.0.fresh(now)
    }

    fn decide(&self, used: &mut u64, now: Tick, cost: u64) -> Decision {
        self.0.decide(used, now, cost)
    }

    fn refund(&self, used: &mut u64, now: Tick, cost: Cost, back: GiveBack) {
        self.0.refund(used, now, cost, back);
    }

    fn charge(&self, used: &mut u64, now: Tick, cost: u64) -> Duration {
        self.0.charge(used, now, cost)
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        if self.1 {
            self.0.settings_fields(fields);
        }
        fields.fail();
    }
}

#[test]
fn an_algorithm_that_does_not_list_its_fields_keeps_its_quota_and_says_so() {
    for begins in [false, true] {
        let limit = Unlisted(three(), begins);
        let error = limit
            .with_quota(Quota::per_second(5))
            .expect_err("no other quota");
        assert!(error.to_string().contains("set_algorithm"), "{error}");
        let limiter = Limiter::new(limit.clone());
        assert!(limiter.set_quota(Quota::per_second(5)).is_err());
        assert_eq!(limiter.peek(1).limit, limit.quota().limit());
        let table = Local::new(limit);
        assert!(table.set_quota(Quota::per_second(5)).is_err());
        assert_three(|| table.check("a", 1).is_admitted());
    }
}
