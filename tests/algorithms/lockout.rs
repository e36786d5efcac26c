//! What a lockout does, event by event. Times are in seconds.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Cost, GiveBack};
use tower_throttle::clock::Tick;
use tower_throttle::store::{Backend, Op, Receipt};
use tower_throttle::{Local, Lockout, ManualClock, Quota, TokenBucket};

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

/// Five failures in 15 minutes, with the default blocks: a minute, doubled up to an hour.
fn lockout() -> Lockout {
    Lockout::new(Quota::per(5, Duration::from_secs(900)))
}

/// The attempts of one key at given seconds.
struct Key<A: Algorithm> {
    algorithm: A,
    state: A::State,
}

impl Key<Lockout> {
    fn new() -> Self {
        Self::of(lockout())
    }
}

impl<A: Algorithm> Key<A> {
    fn of(algorithm: A) -> Self {
        Self {
            state: algorithm.fresh(Tick::ZERO),
            algorithm,
        }
    }

    /// An attempt that fails, unless it is refunded later.
    fn attempt(&mut self, second: u64) -> bool {
        let now = Tick::from_nanos(second * SECOND);
        self.algorithm.decide(&mut self.state, now, 1).is_admitted()
    }

    fn succeeds(&mut self, taken_at: u64, second: u64) {
        let [taken_at, now] = [taken_at, second].map(|at| Tick::from_nanos(at * SECOND));
        self.algorithm.refund(
            &mut self.state,
            now,
            Cost::new(1, taken_at),
            GiveBack::Refund,
        );
    }

    fn fails(&mut self, seconds: impl IntoIterator<Item = u64>) {
        for second in seconds {
            assert!(self.attempt(second), "at {second}");
        }
    }

    /// For how long the key is denied, in nanoseconds.
    fn denied_for(&self, ns: u64) -> Option<u64> {
        let decision = self.algorithm.peek(&self.state, Tick::from_nanos(ns), 1);
        let retry = decision.retry_after?;
        Some(u64::try_from(retry.as_nanos()).expect("short"))
    }

    fn denied_at(&self, second: u64) -> Option<u64> {
        self.denied_for(second * SECOND).map(|ns| ns / SECOND)
    }
}

/// Shows promise 190.
#[test]
fn a_block_ends_at_its_nanosecond() {
    let mut key = Key::new();
    key.fails(0..5);
    assert_eq!(key.denied_for(64 * SECOND - 1), Some(1));
    assert_eq!(key.denied_for(64 * SECOND), None);
}

/// Shows promise 190.
#[test]
fn a_failure_expires_after_the_period() {
    let mut key = Key::new();
    key.fails(0..4);
    key.fails([900]);
    assert_eq!(key.denied_at(900), None);
}

/// Shows promise 190.
#[test]
fn attempts_during_a_block_neither_count_nor_extend_it() {
    let mut key = Key::new();
    key.fails(0..5);
    let before = key.state.clone();
    for n in 0..1_000 {
        assert!(!key.attempt(4 + n * 59 / 1_000));
    }
    assert_eq!(key.state, before);
    assert_eq!(key.denied_at(4), Some(60));
}

/// Shows promise 190.
#[test]
fn of_a_hundred_attempts_at_once_five_are_admitted() {
    let mut key = Key::new();
    let admitted = (0..100).filter(|_| key.attempt(7)).count();
    assert_eq!(admitted, 5);
}

/// Shows promise 190.
#[test]
fn a_success_frees_the_earlier_failures_only_if_that_is_set() {
    for (lockout, is_blocked) in [(lockout(), true), (lockout().clear_on_success(), false)] {
        let clock = ManualClock::new();
        let local = Local::new(lockout).with_clock(clock.clone());
        let attempt = || local.check("ann").is_admitted();
        assert!((0..4).all(|_| attempt()));
        let decided = at_once(local.decide("ann", 1));
        let _ = at_once(local.apply("ann", Op::Forgive(1, decided.receipt())));
        assert!(attempt());
        assert_eq!(local.peek("ann").is_denied(), is_blocked);
    }
}

/// Shows promise 190.
#[test]
fn a_success_from_before_the_block_changes_nothing() {
    let mut key = Key::new();
    key.fails([0]);
    key.fails(901..906);
    let before = key.state.clone();
    key.succeeds(0, 906);
    assert_eq!(key.state, before);
    // The same after the block, and for an attempt of the block itself.
    key.fails([1_000]);
    let before = key.state.clone();
    for taken_at in [0, 901, 905] {
        key.succeeds(taken_at, 1_000);
        assert_eq!(key.state, before);
    }
}

/// Shows promise 190.
#[test]
fn a_success_among_the_attempts_of_a_block_ends_it() {
    let mut key = Key::new();
    key.fails(0..5);
    key.succeeds(2, 10);
    assert_eq!(key.denied_at(10), None);
    key.fails([11]);
    assert_eq!(key.denied_at(11), Some(60), "it is the first block");
}

/// Shows promise 190.
#[test]
fn a_success_ends_its_block_however_late_it_is() {
    let slow = Lockout::new(Quota::per_minute(5)).block(Duration::from_secs(600));
    let mut key = Key::of(slow);
    key.fails(0..5);
    key.succeeds(4, 74);
    assert_eq!(key.denied_at(74), None);
    // So does one among failures that are older than the period.
    let mut key = Key::of(slow);
    key.fails(0..5);
    key.succeeds(0, 599);
    assert_eq!(key.denied_at(599), None);
}

/// Shows promise 190.
#[test]
fn a_success_frees_its_attempt_if_a_later_one_was_counted_first() {
    let left_at = |key: &Key<Lockout>, second: u64| {
        let now = Tick::from_nanos(second * SECOND);
        key.algorithm.peek(&key.state, now, 0).remaining()
    };
    let mut key = Key::new();
    key.fails([130, 100]);
    key.succeeds(100, 140);
    assert_eq!(left_at(&key, 140), 4);
    key.succeeds(100, 140);
    assert_eq!(left_at(&key, 140), 4, "only once");
    // The one that began first ends a block of both.
    let mut key = Key::new();
    key.fails([1, 130, 110, 120, 100]);
    assert_eq!(key.denied_at(130), Some(60), "from the newest attempt on");
    key.succeeds(100, 131);
    assert_eq!((key.denied_at(131), left_at(&key, 131)), (None, 1));
    key.succeeds(120, 132);
    key.succeeds(110, 132);
    key.succeeds(130, 132);
    assert_eq!(left_at(&key, 132), 4);
}

#[test]
fn a_late_attempt_is_freed_at_the_moment_at_which_it_counts() {
    let mut key = Key::of(Lockout::new(Quota::per(9, Duration::from_secs(900))));
    let at = |second: u64| Tick::from_nanos(second * SECOND);
    let remaining = |key: &Key<Lockout>, second| {
        let decision = key.algorithm.peek(&key.state, at(second), 0);
        decision.remaining()
    };
    // 400 counts at 500, and 450 at 600.
    key.fails([0, 500, 400, 600, 450]);
    key.fails([950]);
    assert_eq!(remaining(&key, 950), 4, "the first has expired");
    key.algorithm.refund(
        &mut key.state,
        at(960),
        Cost::new(0, at(450)),
        GiveBack::Refund,
    );
    key.succeeds(450, 960);
    assert_eq!(remaining(&key, 960), 5);
    assert_eq!(
        remaining(&key, 1_400),
        7,
        "one of 600 and one of 950 are left"
    );
    key.succeeds(400, 1_000);
    assert_eq!(remaining(&key, 1_000), 6);
    assert_eq!(remaining(&key, 1_400), 7);
}

/// Shows promise 190.
#[test]
fn blocks_double_up_to_the_longest() {
    let mut key = Key::new();
    key.fails([0; 5]);
    let mut now = 60;
    let mut lengths = Vec::new();
    for _ in 0..1_000 {
        key.fails([now, now]);
        let length = key.denied_at(now).expect("a block");
        lengths.push(length);
        now += length;
    }
    assert_eq!(lengths[..7], [120, 240, 480, 960, 1_920, 3_600, 3_600]);
    assert!(lengths[7..].iter().all(|length| *length == 3_600));
}

#[test]
fn a_limit_of_one_leaves_one_attempt_on_parole() {
    let mut key = Key::of(Lockout::new(Quota::per(1, Duration::from_secs(900))));
    key.fails([0]);
    assert_eq!(key.denied_at(0), Some(60));
    key.fails([60]);
    assert_eq!(key.denied_at(60), Some(120));
}

/// Shows promise 190.
#[test]
fn earlier_blocks_are_forgotten_after_their_time_to_the_nanosecond() {
    let places = |ns: u64| {
        let mut key = Key::new();
        key.fails([0; 5]);
        let now = Tick::from_nanos(ns);
        key.algorithm.peek(&key.state, now, 0).remaining()
    };
    let end = 60 * SECOND;
    assert_eq!(places(end), 2);
    assert_eq!(places(end + DAY * SECOND - 1), 2);
    assert_eq!(places(end + DAY * SECOND), 5);
}

/// Shows promise 190.
#[test]
fn a_cost_above_the_parole_waits_until_the_blocks_are_forgotten() {
    let mut key = Key::new();
    key.fails([0; 5]);
    for (cost, retry) in [(2, 60), (3, 60 + DAY), (5, 60 + DAY)] {
        let denied = key.algorithm.peek(&key.state, Tick::ZERO, cost);
        assert_eq!(denied.retry_after, Some(Duration::from_secs(retry)));
    }
    let denied = key.algorithm.peek(&key.state, Tick::ZERO, 6);
    assert_eq!(denied.retry_after, None);
}

/// Shows promise 190.
#[test]
fn a_hundred_attempts_that_are_neither_leave_nothing() {
    let mut key = Key::new();
    for second in 0..100 {
        key.fails([second]);
        key.succeeds(second, second);
    }
    let rest = key
        .algorithm
        .peek(&key.state, Tick::from_nanos(99 * SECOND), 0);
    assert_eq!((rest.remaining(), rest.reset_after), (5, Duration::ZERO));
}

/// Shows promise 190.
#[test]
fn a_moment_older_than_the_state_counts_as_its_newest() {
    let mut key = Key::new();
    key.fails([1_000; 5]);
    assert_eq!(key.denied_at(1_000), Some(60));
    assert_eq!(key.denied_at(0), Some(1_060));
    assert!(!key.attempt(0));
    assert_eq!(key.denied_at(1_060), None);
    // Two failures before the clock stepped back, and one after it, which expires with them.
    let mut key = Key::new();
    key.fails([1_000, 1_000, 10, 10]);
    assert_eq!(key.denied_at(1_899), None);
    key.fails([1_899]);
    assert_eq!(key.denied_at(1_899), Some(60));
}

/// Shows promise 190.
#[test]
fn a_report_from_before_a_pardon_or_a_ban_is_ignored() {
    let clock = ManualClock::new();
    let local = Local::new(lockout()).with_clock(clock.clone());
    let decided = at_once(local.decide("ann", 1));
    clock.advance(Duration::from_secs(1));
    local.reset("ann");
    assert!(local.check_n("ann", 3).is_admitted());
    let _ = at_once(local.apply("ann", Op::Refund(1, decided.receipt())));
    assert_eq!(local.peek("ann").remaining(), 2);
    let _ = at_once(local.apply("ann", Op::Ban(Duration::from_secs(10))));
    let _ = at_once(local.apply("ann", Op::Refund(1, Receipt::NOW)));
    let retry_after = local.peek("ann").retry_after;
    assert_eq!(retry_after, Some(Duration::from_secs(10)));
    clock.advance(Duration::from_secs(10));
    assert_eq!(local.peek("ann").remaining(), 5);
}

/// Shows promise 190.
#[test]
fn a_ban_lasts_at_least_as_long_as_the_block_and_is_not_shortened() {
    let clock = ManualClock::new();
    let local = Local::new(lockout()).with_clock(clock.clone());
    assert!(local.check_n("ann", 5).is_admitted());
    for (ban, retry) in [(30, 60), (90, 90), (20, 90)] {
        let _ = at_once(local.apply("ann", Op::Ban(Duration::from_secs(ban))));
        let retry_after = local.peek("ann").retry_after;
        assert_eq!(retry_after, Some(Duration::from_secs(retry)));
        assert_eq!(local.blocked(), 1);
    }
    clock.advance(Duration::from_secs(90));
    assert_eq!((local.blocked(), local.peek("ann").remaining()), (0, 2));
}

/// Shows promise 190.
#[test]
fn a_ban_of_a_key_never_seen_holds() {
    let local = Local::new((lockout(), TokenBucket::new(Quota::per_second(10))));
    let _ = at_once(local.apply("ann", Op::Ban(Duration::from_secs(3_600))));
    assert!(local.check("ann").is_denied());
    assert!(local.check("bob").is_admitted());
    assert_eq!(local.blocked(), 1);
}

/// Shows promise 190.
#[test]
fn keys_are_locked_out_one_by_one() {
    let local = Local::new(lockout());
    let pair = |address: &'static str| (address, "alice");
    assert!(local.check_n(&pair("192.0.2.1"), 5).is_admitted());
    assert!(local.check(&pair("192.0.2.1")).is_denied());
    assert!(local.check(&pair("192.0.2.2")).is_admitted());
}

/// Shows promise 190.
#[test]
fn a_charge_during_a_block_counts_without_extending_it() {
    let mut key = Key::new();
    key.fails(0..5);
    let now = Tick::from_nanos(10 * SECOND);
    let owed = key.algorithm.charge(&mut key.state, now, 3);
    assert_eq!(owed, Duration::from_secs(54));
    key.succeeds(4, 10);
    assert_eq!(key.denied_at(10), Some(54), "seven failures are left");
}

/// Shows promise 190.
#[test]
fn a_change_of_settings_keeps_the_end_of_a_block() {
    let mut key = Key::new();
    key.fails(0..5);
    let next = lockout().block(Duration::from_secs(1));
    let now = Tick::from_nanos(10 * SECOND);
    next.rescale(&mut key.state, &lockout(), now);
    key.algorithm = next;
    assert_eq!(key.denied_at(10), Some(54));
    key.fails([64, 64]);
    assert_eq!(key.denied_at(64), Some(2), "it is the second block");
}

/// Shows promise 190.
#[test]
fn a_lower_limit_starts_no_block() {
    let mut key = Key::new();
    key.fails(0..4);
    let next = lockout().with_quota(Quota::per(3, Duration::from_secs(900)));
    let next = next.expect("a valid quota");
    let now = Tick::from_nanos(600 * SECOND);
    next.rescale(&mut key.state, &lockout(), now);
    key.algorithm = next;
    assert_eq!(key.algorithm.peek(&key.state, now, 0).remaining(), 1);
    key.fails([902]);
    assert_eq!(key.denied_at(902), None, "one of the newest two is left");
    key.fails([902]);
    assert_eq!(key.denied_at(902), Some(60), "the first block");
}

#[test]
fn settings_that_have_no_meaning_are_refused() {
    let message = |lockout: Lockout| lockout.validate().expect_err("refused").to_string();
    let zero = message(lockout().block(Duration::ZERO));
    assert_eq!(
        zero,
        "block: 0ns is not allowed; give a time from 1ns to 10 years"
    );
    let short = message(lockout().max_block(Duration::from_secs(59)));
    assert!(short.starts_with("max_block: 59s is"), "{short}");
    assert!(message(lockout().forget(Duration::ZERO)).starts_with("forget: 0ns"));
    let most = Duration::from_secs(120 * 2_629_746);
    lockout().forget(most).validate().expect("the longest time");
    let long = message(lockout().forget(most + Duration::from_nanos(1)));
    assert!(long.starts_with("forget: 315569520."), "{long}");
    let none = message(lockout().parole(0));
    assert_eq!(
        none,
        "parole: 0 is not allowed; give a number from 1 to the limit, 5"
    );
    assert!(message(lockout().parole(6)).starts_with("parole: 6 is"));
    assert_eq!(lockout().parole(5).validate(), Ok(()));
    assert!(lockout().with_quota(Quota::per_hour(1)).is_ok());
    let burst = Lockout::new(Quota::per_hour(5).burst(9));
    assert!(message(burst).starts_with("burst: 9 is"));
    // The longest block follows a longer first one.
    assert_eq!(
        lockout().block(Duration::from_secs(2 * DAY)).validate(),
        Ok(())
    );
}

/// Shows promise 190.
#[test]
fn a_lockout_of_any_kind_forgives_and_bans() {
    let any = AnyAlgorithm::from(lockout().clear_on_success());
    let clock = ManualClock::new();
    let local = Local::new((any, TokenBucket::new(Quota::per_second(9)))).with_clock(clock);
    for _ in 0..4 {
        assert!(local.check("ann").is_admitted());
    }
    let decided = at_once(local.decide("ann", 1));
    let _ = at_once(local.apply("ann", Op::Forgive(1, decided.receipt())));
    assert_eq!(local.peek("ann").remaining(), 5, "of both");
    let _ = at_once(local.apply("ann", Op::Ban(Duration::from_secs(5))));
    assert_eq!(local.peek("ann").retry_after, Some(Duration::from_secs(5)));
}

/// The output of a future of a backend in this process, which is ready at once.
fn at_once<T, E: std::fmt::Debug>(future: impl Future<Output = Result<T, E>>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => output.expect("a decision"),
        std::task::Poll::Pending => panic!("decides at once"),
    }
}
