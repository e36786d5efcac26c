//! User code that a table calls: it may panic, and it may call the table.

use std::cell::Cell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, Cost, GiveBack};
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
    for key in 0..25 {
        assert!(panics(key, 13));
    }
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

thread_local! {
    /// Whether an algorithm of this thread is asking its table.
    static ASKING: Cell<bool> = const { Cell::new(false) };
    /// How often it was admitted there, and by the other table.
    static ADMITTED: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

/// An algorithm that asks its own table about `key` each time it runs, and another table.
#[derive(Clone)]
struct Asks {
    window: FixedWindow,
    table: Arc<OnceLock<Local<Self, ManualClock>>>,
    other: Local<FixedWindow>,
    key: &'static str,
}

impl fmt::Debug for Asks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.window.fmt(f)
    }
}

impl Asks {
    fn ask(&self) {
        let Some(table) = self.table.get().filter(|_| !ASKING.replace(true)) else {
            return;
        };
        let _ = table.peek(self.key, 1);
        table.charge(self.key, 1);
        table.reset(self.key);
        let _ = table.stats();
        assert!(table.set_quota(Quota::per_day(7)).is_err());
        let [own, other] = ADMITTED.get();
        let own = own + u64::from(table.check(self.key, 1).is_admitted());
        ADMITTED.set([
            own,
            other + u64::from(self.other.check("key", 1).is_admitted()),
        ]);
        ASKING.set(false);
    }
}

impl Algorithm for Asks {
    type State = <FixedWindow as Algorithm>::State;

    fn quota(&self) -> Quota {
        self.window.quota()
    }
    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        let window = self.window.with_quota(quota)?;
        Ok(Self {
            window,
            ..self.clone()
        })
    }
    fn fresh(&self, now: Tick) -> Self::State {
        self.ask();
        self.window.fresh(now)
    }
    fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision {
        self.ask();
        self.window.decide(state, now, cost)
    }
    fn refund(&self, state: &mut Self::State, now: Tick, cost: Cost, why: GiveBack) {
        self.ask();
        self.window.refund(state, now, cost, why);
    }
    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        self.ask();
        self.window.charge(state, now, cost)
    }
    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick) {
        self.ask();
        self.window.rescale(state, &from.window, now);
    }
    fn forgettable_at(&self, state: &Self::State) -> Tick {
        self.ask();
        self.window.forgettable_at(state)
    }
}

/// A table whose algorithm asks it about `key`.
fn asking(key: &'static str, overflow: Overflow, capacity: usize) -> Local<Asks, ManualClock> {
    let asks = Asks {
        window: FixedWindow::new(Quota::per_day(20)),
        table: Arc::default(),
        other: Local::new(FixedWindow::new(Quota::per_day(5))),
        key,
    };
    let local = Local::new(asks.clone())
        .with_clock(ManualClock::new())
        .overflow(overflow)
        .capacity(capacity);
    let _ = asks.table.set(local.clone());
    local
}

/// Fails if `run` does not return, instead of waiting for ever.
fn must_return<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || send.send(run()));
    let returned = receive.recv_timeout(Duration::from_secs(120));
    returned.expect("a call that returns")
}

/// Shows promise 38.
#[test]
fn a_table_whose_algorithm_uses_it_returns() {
    for overflow in [Overflow::EvictLeast, Overflow::Deny, Overflow::Shared] {
        for (capacity, keys) in [(1, 2), (1, 30), (1_000, 30)] {
            let admitted = must_return(move || {
                let local = asking("asked", overflow, capacity);
                for key in 0..keys {
                    let _ = local.check(&key, 1);
                    let _ = local.peek(&key, 1);
                    let _ = local.reserve(&key, 2, Duration::ZERO);
                    let _ = local.check(&key, 1).is_admitted();
                    let _ = local.take_up_to(&key, 2);
                    local.charge(&key, 1);
                    local.refund(&key, 1);
                }
                let quota = Quota::per_day(10);
                local.set_quota(quota).expect("the same type");
                for key in 0..keys {
                    let _ = local.check(&key, 1);
                    local.reset(&key);
                }
                (0..100)
                    .filter(|_| local.check("asked", 1).is_admitted())
                    .count()
            });
            assert!(admitted <= 10, "{overflow:?}, {capacity}: {admitted}");
        }
    }
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
