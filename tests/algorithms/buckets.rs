//! Buckets that owe, and buckets that are refilled in steps.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, Cost, GiveBack, reserve};
use tower_throttle::{Limiter, ManualClock, Quota, TokenBucket};

use crate::at;
use crate::laws::leaves_more_in_the_past;
use crate::random::{Random, seeds};
use crate::subjects::{Subject, bucket as bucket_bound};

const MS: Duration = Duration::from_millis(1);

/// The first difference on a random trace to Guava's `RateLimiter` for bursts: permits that are stored are free, and a
/// request that takes more passes and makes the next one wait. A permit counts as the time that it is worth.
fn difference_to_guava(bucket: TokenBucket, seed: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let mut state = bucket.fresh(at(0));
    let unit = 1_000_000_000 / bucket.quota().limit();
    let full = unit * bucket.quota().capacity();
    let (mut stored, mut next_free, mut now) = (full, 0, 0);
    (0..60).find_map(|step| {
        now += random.below(4) * random.below(unit);
        let most = 1 + random.below(12);
        let cost = 1 + random.below(most);
        if now > next_free {
            stored = full.min(stored + now - next_free);
            next_free = now;
        }
        let expected = next_free - now;
        let free = stored.min(cost * unit);
        (stored, next_free) = (stored - free, next_free + cost * unit - free);
        let got = reserve(&bucket, &mut state, at(now), cost, Duration::MAX).wait();
        (got != Some(Duration::from_nanos(expected)))
            .then(|| format!("step {step}: {got:?} instead of {expected} ns for {cost} at {now}"))
    })
}

/// Shows promise 642.
#[test]
fn a_bucket_with_a_debt_waits_as_guava_does() {
    let bucket = TokenBucket::new(Quota::per_second(2));
    let waits = |bucket| {
        let limiter = Limiter::new(bucket).with_clock(ManualClock::new());
        [1, 1, 1, 1, 10, 1].map(|cost| limiter.reserve(cost, Duration::MAX).wait())
    };
    let guava = [0, 0, 0, 500, 1_000, 6_000].map(|ms| Some(MS * ms));
    assert_eq!(waits(bucket.debt(1_000)), guava);
    assert_ne!(waits(bucket), guava, "without a debt");
    for seed in seeds(50) {
        let limit = [1, 2, 5, 8][usize::try_from(seed % 4).expect("small")];
        let quota = Quota::per_second(limit).burst(1 + seed % 7);
        let bucket = TokenBucket::new(quota);
        let fault = difference_to_guava(bucket.debt(1_000), seed);
        assert_eq!(fault, None, "seed {seed}: {quota}");
    }
    let found = |seed| difference_to_guava(bucket, seed).is_some();
    assert!((0..20).all(found), "a bucket without a debt waits longer");
}

/// Shows promise 642.
#[test]
fn a_debt_is_bounded_and_paid_before_anything_passes() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::new(Quota::per_second(10).burst(5)).debt(20);
    let limiter = Limiter::new(bucket).with_clock(clock.clone());
    let never = limiter.check(26);
    assert!(
        never.is_denied() && never.retry_after.is_none(),
        "{never:?}"
    );
    assert!(limiter.check(25).is_admitted());
    assert_eq!(limiter.peek(1).remaining(), 0);
    // It owes 20, which take two seconds.
    assert_eq!(limiter.check(1).retry_after, Some(2_000 * MS));
    clock.advance(1_999 * MS);
    assert!(limiter.check(1).is_denied());
    clock.advance(MS);
    // What exceeds the debt waits for the rest.
    assert_eq!(limiter.check(22).retry_after, Some(200 * MS));
    assert!(limiter.check(20).is_admitted());
    assert_eq!(limiter.check(1).retry_after, Some(2_000 * MS));
}

/// What steps have brought back since a cost was taken is not given back, wherever in a step that was.
///
/// Shows promise 643.
#[test]
fn a_refund_leaves_out_what_steps_have_brought_back() {
    let bucket = TokenBucket::new(Quota::per_second(100)).refill_every(100 * MS);
    let ms = |ms: u64| at(ms * 1_000_000);
    for refunded in [99, 100, 199, 200, 299, 300] {
        let mut state = bucket.fresh(ms(0));
        for (taken, cost) in [(0, 1), (30, 20)] {
            assert!(bucket.decide(&mut state, ms(taken), cost).is_admitted());
        }
        let cost = Cost {
            units: 20,
            at: ms(30),
        };
        bucket.refund(&mut state, ms(refunded), cost, GiveBack::Refund);
        let left = bucket.peek(&state, ms(refunded), 0).remaining();
        assert_eq!(left, 99 + refunded / 300, "{refunded} ms");
    }
}

/// Shows promise 643.
#[test]
fn tokens_come_back_at_the_end_of_a_step() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(1_234_567_890));
    let bucket = TokenBucket::new(Quota::per_minute(60).burst(25)).refill_every(10_000 * MS);
    let limiter = Limiter::new(bucket).with_clock(clock.clone());
    assert!(limiter.check(25).is_admitted());
    // The next multiple of ten seconds.
    let [before, rest] = [8_765_432_109, 8_765_432_110].map(Duration::from_nanos);
    assert_eq!(limiter.peek(10).retry_after, Some(rest));
    let second = Some(rest + 10_000 * MS);
    assert_eq!(limiter.peek(11).retry_after, second, "of the second step");
    assert_eq!(limiter.peek(26).retry_after, None);
    clock.advance(before);
    assert!(limiter.check(1).is_denied());
    clock.advance(Duration::from_nanos(1));
    assert_eq!(limiter.peek(1).remaining(), 10);
    assert_eq!(limiter.peek(1).reset_after, 20_000 * MS);
    clock.advance(19_999 * MS);
    assert_eq!(limiter.peek(1).remaining(), 20);
    clock.advance(MS);
    assert_eq!(limiter.peek(1).remaining(), 25);
}

/// Shows promise 643.
#[test]
fn a_part_of_a_token_that_a_step_refills_is_kept() {
    let bucket = TokenBucket::new(Quota::per_second(3)).refill_every(500 * MS);
    let mut state = bucket.fresh(at(0));
    let mut refilled = Vec::new();
    for half in 0..6 {
        let now = at(half * 500_000_000);
        let left = bucket.peek(&state, now, 0).remaining();
        assert!(bucket.decide(&mut state, now, left).is_admitted());
        refilled.push(left);
    }
    assert_eq!(refilled, [3, 1, 2, 1, 2, 1]);
}

fn subjects(random: &mut Random) -> Vec<Subject<TokenBucket>> {
    let (limit, steps) = (1 + random.below(40), 1 + random.below(9));
    let (length, debt) = (1 + random.log_uniform(40), 1 + random.below(20));
    let quota = Quota::per(limit, Duration::from_nanos(length * steps));
    let quota = quota.burst(1 + random.below(30));
    let burst = quota.capacity();
    let bucket = TokenBucket::new(quota);
    let stepping = move |debt: u64| {
        move |from: u64, to: u64| {
            let ended = to / length - from / length;
            (burst + debt).saturating_add(ended.saturating_mul(limit) / steps)
        }
    };
    let every = bucket.refill_every(Duration::from_nanos(length));
    vec![
        Subject::new(
            "debt",
            bucket.debt(debt),
            bucket_bound(quota.burst(burst + debt)),
        ),
        Subject::new("steps", every, stepping(0)),
        Subject::new("steps and a debt", every.debt(debt), stepping(debt)),
    ]
}

/// Shows promises 1, 2, 7, 642, 643.
#[test]
fn buckets_that_owe_or_step_keep_the_laws() {
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        for subject in subjects(&mut random) {
            assert_eq!(subject.check(seed), Ok(()));
            if !subject.name.contains("steps") {
                assert_eq!(leaves_more_in_the_past(&subject, seed), None, "seed {seed}");
            }
        }
    }
}

/// Between all kinds of buckets.
///
/// Shows promise 17.
#[test]
fn a_change_of_steps_keeps_what_was_used() {
    let steady = TokenBucket::new(Quota::per_second(10).burst(50));
    let kinds = [
        steady,
        steady.debt(30),
        steady.refill_every(100 * MS),
        steady.refill_every(1_000 * MS),
        steady.refill_every(500 * MS).debt(30),
    ];
    for from in kinds {
        for to in kinds {
            let now = at(7_000_000_000);
            let mut state = from.fresh(now);
            assert!(from.decide(&mut state, now, 17).is_admitted());
            to.rescale(&mut state, &from, now);
            assert_eq!(
                to.peek(&state, now, 0).remaining(),
                33,
                "{from:?} to {to:?}"
            );
            let full = to.forgettable_at(&state);
            assert_eq!(to.peek(&state, full, 0).remaining(), 50);
        }
    }
}
