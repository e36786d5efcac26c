//! User code that a table calls: it may panic, and it may call the table.

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, NotPacked};
use tower_throttle::{
    ConfigError, Decision, FixedWindow, Local, ManualClock, Quota, Verdict, algorithm::Inherit,
    clock::Tick,
};

/// An algorithm that panics at a cost of 13.
#[derive(Clone, Debug)]
struct PanicsAtCost13 {
    window: FixedWindow,
}

impl Algorithm for PanicsAtCost13 {
    type State = <FixedWindow as Algorithm>::State;
    type Packing = NotPacked;

    fn quota(&self) -> Quota {
        self.window.quota()
    }
    fn with_quota(&self, _: Quota) -> Result<Self, ConfigError> {
        Ok(self.clone())
    }
    fn fresh(&self, now: Tick) -> Self::State {
        self.window.fresh(now)
    }
    fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision {
        assert!(cost != 13, "a panic in user code");
        self.window.decide(state, now, cost)
    }
    fn refund(&self, state: &mut Self::State, taken_at: Tick, now: Tick, cost: u64) {
        self.window.refund(state, taken_at, now, cost);
    }
    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        self.window.charge(state, now, cost)
    }
    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick, inherit: Inherit) {
        self.window.rescale(state, &from.window, now, inherit);
    }
    fn forgettable_at(&self, state: &Self::State) -> Tick {
        self.window.forgettable_at(state)
    }
}

#[test]
fn a_panic_in_an_algorithm_changes_no_key() {
    let window = FixedWindow::new(Quota::per_day(100));
    let local = Local::new(PanicsAtCost13 { window })
        .with_clock(ManualClock::new())
        .capacity(20);
    for key in 0..20 {
        assert!(local.check_n(&key, 3).is_admitted());
    }
    for key in 0..25 {
        let panicked = catch_unwind(AssertUnwindSafe(|| local.check_n(&key, 13)));
        assert!(panicked.is_err());
    }
    for key in 0..20 {
        assert_eq!(local.check_n(&key, 7).remaining(), 90);
    }
}

/// A key whose `Hash` impl calls the limiter with another key, or panics if there is none.
struct ReentrantKey<'a>(&'a Local<FixedWindow, ManualClock>, Option<&'a str>);

impl Hash for ReentrantKey<'_> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        if let Some(other) = self.1 {
            let _ = self.0.check(other);
        } else {
            panic!("a panic in user code");
        }
        "reentrant".hash(hasher);
    }
}

#[test]
fn a_key_may_call_the_limiter_while_it_is_hashed() {
    let local = Local::new(FixedWindow::new(Quota::per_day(3)))
        .with_clock(ManualClock::new())
        .capacity(1);
    for _ in 0..2 {
        assert!(
            local
                .check(&ReentrantKey(&local, Some("other")))
                .is_admitted()
        );
    }
    assert!(
        local
            .check(&ReentrantKey(&local, Some("reentrant")))
            .is_denied()
    );
    assert_eq!(local.peek("other").remaining(), 1);
}

#[test]
fn a_panic_while_a_key_is_hashed_leaves_the_table_usable() {
    let local = Local::new(FixedWindow::new(Quota::per_day(1)))
        .with_clock(ManualClock::new())
        .capacity(1);
    for _ in 0..3 {
        assert!(
            catch_unwind(AssertUnwindSafe(|| local.check(&ReentrantKey(&local, None)))).is_err()
        );
    }
    assert_eq!(local.check("other").verdict, Verdict::Admit);
    assert_eq!(local.check("other").verdict, Verdict::Deny);
}
