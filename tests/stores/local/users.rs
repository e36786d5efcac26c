//! User code that a table calls: it may panic, and the hash of a key may call the table.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Cost, GiveBack};
use tower_throttle::{
    ConfigError, Decision, FixedWindow, Local, ManualClock, Quota, SlidingLog, Verdict,
    clock::Tick, store::local::Overflow,
};

thread_local! {
    /// Whether to panic when asked how long a state counts.
    static FORGETS_NOTHING: Cell<bool> = const { Cell::new(false) };
}

/// An algorithm that panics at a cost of 13.
#[derive(Clone, Debug)]
pub(crate) struct PanicsAtCost13 {
    pub(crate) window: FixedWindow,
}

impl Algorithm for PanicsAtCost13 {
    type State = <FixedWindow as Algorithm>::State;

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
        let decision = self.window.decide(state, now, cost);
        assert!(cost != 13, "a panic in user code");
        decision
    }
    fn refund(&self, state: &mut Self::State, now: Tick, cost: Cost, why: GiveBack) {
        self.window.refund(state, now, cost, why);
    }
    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        self.window.charge(state, now, cost)
    }
    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick) {
        self.window.rescale(state, &from.window, now);
    }
    fn forgettable_at(&self, state: &Self::State) -> Tick {
        assert!(!FORGETS_NOTHING.get(), "a panic in user code");
        self.window.forgettable_at(state)
    }
}

/// Shows promise 38.
#[test]
fn a_panic_in_an_algorithm_changes_no_key() {
    let window = FixedWindow::new(Quota::per_day(100));
    let of_crate = Local::new(AnyAlgorithm::new(window));
    let own = AnyAlgorithm::new(PanicsAtCost13 { window });
    assert!(of_crate.set_algorithm(own).is_err());
    let local = Local::new(PanicsAtCost13 { window })
        .with_clock(ManualClock::new())
        .capacity(20);
    for key in 0..20 {
        assert!(local.check(&key, 3).is_admitted());
    }
    let panics = |key, cost| {
        let panicked = catch_unwind(AssertUnwindSafe(|| local.check(&key, cost)));
        panicked.is_err()
    };
    assert!((0..25).all(|key| panics(key, 13)));
    FORGETS_NOTHING.set(true);
    for key in 20..25 {
        assert!(panics(key, 10), "after the decision of a new key");
    }
    FORGETS_NOTHING.set(false);
    for key in 0..20 {
        assert_eq!(local.check(&key, 7).remaining(), 90);
    }
}

/// Uses a key in two windows of a second, fills the table with others in the second window, and returns
/// what is left of the key's quota.
fn left_after_a_flood<A: Algorithm>(algorithm: A) -> u64 {
    let clock = ManualClock::new();
    let local = Local::new(algorithm)
        .with_clock(clock.clone())
        .overflow(Overflow::Deny)
        .capacity(1);
    assert!(local.check("key", 1).is_admitted());
    clock.advance(Duration::from_millis(1_500));
    assert!(local.check("key", 2).is_admitted());
    clock.advance(Duration::from_millis(400));
    let admitted = (0..1_000).filter(|key| local.check(key, 1).is_admitted());
    assert!(admitted.count() < 100, "the table is full");
    local.peek("key", 1).remaining()
}

/// Shows promise 46.
#[test]
fn a_key_keeps_its_slot_as_long_as_its_latest_usage_counts() {
    let quota = Quota::per_second(100);
    let window = FixedWindow::new(quota);
    assert_eq!(left_after_a_flood(PanicsAtCost13 { window }), 98);
    assert_eq!(left_after_a_flood(SlidingLog::new(quota)), 98);
    assert_eq!(left_after_a_flood(window), 98);
}

/// A key whose `Hash` impl calls the limiter with another key, or panics if there is none.
struct ReentrantKey<'a>(&'a Local<FixedWindow, ManualClock>, Option<&'a str>);

impl Hash for ReentrantKey<'_> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        if let Some(other) = self.1 {
            let _ = self.0.check(other, 1);
        } else {
            panic!("a panic in user code");
        }
        "reentrant".hash(hasher);
    }
}

/// Shows promise 38.
#[test]
fn a_key_may_call_the_limiter_while_it_is_hashed() {
    let local = Local::new(FixedWindow::new(Quota::per_day(3)))
        .with_clock(ManualClock::new())
        .capacity(1);
    for _ in 0..2 {
        assert!(
            local
                .check(&ReentrantKey(&local, Some("other")), 1)
                .is_admitted()
        );
    }
    assert!(
        local
            .check(&ReentrantKey(&local, Some("reentrant")), 1)
            .is_denied()
    );
    assert_eq!(local.peek("other", 1).remaining(), 1);
}

/// Shows promise 38.
#[test]
fn a_panic_while_a_key_is_hashed_leaves_the_table_usable() {
    let local = Local::new(FixedWindow::new(Quota::per_day(1)))
        .with_clock(ManualClock::new())
        .capacity(1);
    for _ in 0..3 {
        assert!(
            catch_unwind(AssertUnwindSafe(
                || local.check(&ReentrantKey(&local, None), 1)
            ))
            .is_err()
        );
    }
    assert_eq!(local.check("other", 1).verdict, Verdict::Admit);
    assert_eq!(local.check("other", 1).verdict, Verdict::Deny);
}
