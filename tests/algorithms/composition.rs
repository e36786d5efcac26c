//! Combined limits return for each operation what follows from their parts.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Cost, GiveBack, take_up_to};
use tower_throttle::clock::Tick;
use tower_throttle::{
    All, ConfigError, Decision, FixedWindow, LeakyBucket, Quota, SlidingLog, TokenBucket, Verdict,
};

const SECOND: Duration = Duration::from_secs(1);

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

/// The names of the functions between the line that begins with `start` and the line `end`.
fn functions(source: &str, start: &str, end: &str) -> Vec<String> {
    let block = source.lines().skip_while(|line| !line.starts_with(start));
    let names: Vec<_> = block
        .take_while(|line| *line != end)
        .filter_map(|line| line.trim_start().strip_prefix("fn "))
        .map(|rest| rest.split(['(', '<']).next().unwrap_or_default().to_owned())
        .collect();
    assert!(!names.is_empty(), "no functions after {start:?}");
    names
}

/// A method left to its default would not reach the parts.
///
/// Shows promise 16.
#[test]
fn combinators_forward_every_method() {
    let read = |path: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        fs::read_to_string(path).expect("a source file")
    };
    let methods = functions(&read("src/algorithm/mod.rs"), "pub trait Algorithm", "}");
    assert!(methods.len() <= 21, "{methods:?}");
    for (path, name, bounds) in [
        ("combined/pair.rs", "(A, B)", "<A: Algorithm, B: Algorithm>"),
        ("combined/all.rs", "All<A>", "<A: Algorithm>"),
        ("any.rs", "AnyAlgorithm", ""),
    ] {
        let source = read(&format!("src/algorithm/{path}"));
        let own = functions(&source, &format!("impl{bounds} Algorithm for {name} "), "}");
        for method in &methods {
            // Another quota follows from the settings, of which a set has several.
            let is_derived = method == "with_quota" && name != "AnyAlgorithm";
            let is_forwarded = own.contains(method);
            assert!(
                is_forwarded || is_derived,
                "{name} does not implement `{method}`"
            );
        }
    }
}

/// A queue and a window: one part that makes requests wait, and one that does not.
fn mixed() -> (LeakyBucket, FixedWindow) {
    (
        LeakyBucket::new(Quota::per_second(1)).queue(10),
        FixedWindow::new(Quota::per_day(2)),
    )
}

/// Shows promise 16.
#[test]
fn a_denied_pair_takes_nothing_in_either_order() {
    let (line, window) = mixed();
    let (pair, swapped) = ((line, window), (window, line));
    let mut states = (pair.fresh(at(0)), swapped.fresh(at(0)));
    for _ in 0..2 {
        assert!(!pair.decide(&mut states.0, at(0), 1).is_denied());
        assert!(!swapped.decide(&mut states.1, at(0), 1).is_denied());
    }
    let before = states;
    for cost in 1..4 {
        assert!(pair.decide(&mut states.0, at(0), cost).is_denied());
        assert!(swapped.decide(&mut states.1, at(0), cost).is_denied());
        let wait = Duration::from_secs(100);
        assert!(pair.reserve(&mut states.0, at(0), cost, wait).is_denied());
        assert!(
            swapped
                .reserve(&mut states.1, at(0), cost, wait)
                .is_denied()
        );
        assert_eq!(states, before);
    }
}

/// Shows promise 16.
#[test]
fn a_pair_reserves_what_each_part_would() {
    let pair = mixed();
    let mut state = pair.fresh(at(0));
    let wait = |decision: Decision| decision.wait();
    assert_eq!(
        wait(pair.reserve(&mut state, at(0), 1, SECOND)),
        Some(Duration::ZERO)
    );
    assert_eq!(
        wait(pair.reserve(&mut state, at(0), 1, SECOND)),
        Some(SECOND)
    );
    assert_eq!(pair.0.peek(&state.0, at(0), 0).reset_after, 2 * SECOND);
    assert_eq!(pair.1.peek(&state.1, at(0), 0).remaining(), 0);
}

/// Shows promise 16.
#[test]
fn figures_are_those_of_the_limit_with_the_least_remaining_share() {
    let pair = (
        TokenBucket::new(Quota::per_second(2)),
        FixedWindow::new(Quota::per_day(1_000)),
    );
    let mut state = pair.fresh(at(0));
    let first = pair.decide(&mut state, at(0), 1);
    assert_eq!((first.policy, first.remaining()), (0, 1));
    let second = pair.decide(&mut state, at(0), 1);
    assert_eq!((second.policy, second.limit, second.remaining()), (0, 2, 0));
    assert_eq!(second.reset_after, SECOND);
    // 400 of 1,000 left for the day is a smaller share than 1 of 2 left for the second.
    pair.1.charge(&mut state.1, at(0), 598);
    let third = pair.decide(&mut state, at(1_000_000_000), 1);
    assert_eq!((third.policy, third.remaining()), (1, 399));
    assert_eq!(third.reset_after, Duration::from_secs(86_399));
    // A denial reports the limit to wait for.
    pair.1.charge(&mut state.1, at(1_000_000_000), 399);
    let denied = pair.decide(&mut state, at(1_000_000_000), 1);
    assert!(denied.is_denied());
    assert_eq!((denied.policy, denied.limit), (1, 1_000));
    assert_eq!(denied.retry_after, Some(Duration::from_secs(86_399)));
    assert_eq!(denied.reset_after, Duration::from_secs(86_399));
}

#[test]
fn equal_shares_report_the_limit_that_resets_last() {
    let tiers = [
        Quota::per_second(1),
        Quota::per_hour(1),
        Quota::per_minute(1),
    ];
    let all = All::new(tiers.map(TokenBucket::new));
    let mut state = all.fresh(at(0));
    let decision = all.decide(&mut state, at(0), 1);
    assert_eq!((decision.policy, decision.remaining()), (1, 0));
    assert_eq!(decision.reset_after, 3_600 * SECOND);
}

/// `take_up_to` takes all that is available, at most the given number; of several limits what all of
/// them have.
#[test]
fn take_up_to_takes_what_all_parts_have() {
    // The first part has the smallest share left, the second one the smallest number.
    let pair = (
        TokenBucket::new(Quota::per_hour(1_000)),
        TokenBucket::new(Quota::per_hour(10)),
    );
    let mut state = pair.fresh(at(0));
    pair.0.charge(&mut state.0, at(0), 900);
    assert_eq!(pair.peek(&state, at(0), 0).remaining(), 100);
    let (taken, decision) = take_up_to(&pair, &mut state, at(0), 50);
    assert_eq!(taken, 10);
    assert!(decision.is_admitted());
}

/// Shows promise 16.
#[test]
fn policies_of_nested_lists_are_numbered_consecutively() {
    let hour = |limit| TokenBucket::new(Quota::per_hour(limit));
    let inner = |limits: [u64; 2]| All::new(limits.map(hour));
    let nested = All::new([inner([50, 40]), inner([30, 20])]);
    let expected: Vec<_> = [50, 40, 30, 20].map(Quota::per_hour).into();
    assert_eq!(nested.quotas(), expected);
    assert_eq!(AnyAlgorithm::new(nested.clone()).quotas(), expected);
    let mut state = nested.fresh(at(0));
    for (policy, limit) in [50, 40, 30, 20].into_iter().enumerate() {
        let (outer, part) = (policy / 2, policy % 2);
        let mut state = state.clone();
        let list = &nested.parts()[outer];
        list.parts()[part].charge(&mut state[outer][part], at(0), limit);
        let decision = nested.decide(&mut state, at(0), 1);
        assert!(decision.is_denied());
        assert_eq!((decision.policy, decision.limit), (policy, limit));
    }
    let decision = nested.decide(&mut state, at(0), 1);
    assert_eq!((decision.policy, decision.limit), (3, 20));
    let mixed = ((hour(50), hour(40)), (hour(30), hour(20)));
    let mut state = mixed.fresh(at(0));
    assert_eq!(mixed.decide(&mut state, at(0), 1).policy, 3);
}

/// Shows promise 16.
#[test]
fn rescale_reaches_every_part() {
    let window = |limit| FixedWindow::new(Quota::per_hour(limit));
    let log = |limit| SlidingLog::new(Quota::per_minute(limit));
    let used = |decision: Decision| decision.limit - decision.remaining();

    let (before, after) = (
        All::new([10, 20].map(window)),
        All::new([40, 80].map(window)),
    );
    let mut state = before.fresh(at(0));
    let _ = before.decide(&mut state, at(0), 5);
    let mut changed = state.clone();
    after.rescale(&mut changed, &before, at(0));
    for (part, state) in after.parts().iter().zip(&changed) {
        assert_eq!(used(part.peek(state, at(0), 0)), 5);
    }
    // To more parts, and to fewer.
    let longer = All::new([40, 80, 160].map(window));
    let mut grown = state.clone();
    longer.rescale(&mut grown, &before, at(0));
    assert_eq!(grown.len(), 3);
    assert_eq!(used(longer.parts()[2].peek(&grown[2], at(0), 0)), 0);
    before.rescale(&mut grown, &longer, at(0));
    assert_eq!(grown, state);

    let (before, after) = ((window(10), log(10)), (window(40), log(40)));
    let mut state = before.fresh(at(0));
    let _ = before.decide(&mut state, at(0), 5);
    after.rescale(&mut state, &before, at(0));
    assert_eq!(used(after.0.peek(&state.0, at(0), 0)), 5);
    assert_eq!(used(after.1.peek(&state.1, at(0), 0)), 5);
}

/// Shows promise 16.
#[test]
fn refund_and_charge_reach_every_part() {
    let (line, window) = mixed();
    let set = ((line, window), All::new([line, line]));
    let mut state = set.fresh(at(0));
    assert_eq!(
        set.charge(&mut state, at(0), 3),
        Duration::from_secs(86_400)
    );
    assert_eq!(state.0.0, state.1[1]);
    assert_eq!(window.peek(&state.0.1, at(0), 0).remaining(), 0);
    set.refund(&mut state, at(0), Cost::new(3, at(0)), GiveBack::Refund);
    let decision = set.decide(&mut state, at(0), 1);
    assert_eq!(decision.verdict, Verdict::Admit);
    assert_eq!(window.peek(&state.0.1, at(0), 0).remaining(), 1);
}

/// A log whose state panics if it is cloned.
#[derive(Clone, Debug)]
struct NeverCopied(SlidingLog);

#[derive(Debug)]
struct Uncopied(<SlidingLog as Algorithm>::State);

impl Clone for Uncopied {
    fn clone(&self) -> Self {
        panic!("the log was cloned");
    }
}

impl Algorithm for NeverCopied {
    type State = Uncopied;

    fn quota(&self) -> Quota {
        self.0.quota()
    }
    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        self.0.with_quota(quota).map(Self)
    }
    fn fresh(&self, now: Tick) -> Uncopied {
        Uncopied(self.0.fresh(now))
    }
    fn decide(&self, state: &mut Uncopied, now: Tick, cost: u64) -> Decision {
        self.0.decide(&mut state.0, now, cost)
    }
    fn peek(&self, state: &Uncopied, now: Tick, cost: u64) -> Decision {
        self.0.peek(&state.0, now, cost)
    }
    fn refund(&self, state: &mut Uncopied, now: Tick, cost: Cost, why: GiveBack) {
        self.0.refund(&mut state.0, now, cost, why);
    }
    fn charge(&self, state: &mut Uncopied, now: Tick, cost: u64) -> Duration {
        self.0.charge(&mut state.0, now, cost)
    }
    fn rescale(&self, state: &mut Uncopied, from: &Self, now: Tick) {
        self.0.rescale(&mut state.0, &from.0, now);
    }
    fn forgettable_at(&self, state: &Uncopied) -> Tick {
        self.0.forgettable_at(&state.0)
    }
}

#[test]
fn a_pair_does_not_clone_a_log() {
    let log = NeverCopied(SlidingLog::new(Quota::per_hour(1_000)));
    let pair = (TokenBucket::new(Quota::per_hour(1_000)), log);
    let mut state = pair.fresh(at(0));
    let _ = pair.decide(&mut state, at(0), 1);
    let _ = pair.peek(&state, at(0), 1);
}
