use std::time::Duration;

use test_support::random::Random;

use super::super::{
    Algorithm, All, AnyAlgorithm, CalendarWindow, Cost, FixedWindow, GiveBack, Lockout,
    SlidingGrid, SlidingLog, SlidingWindow, TokenBucket, WarmUp,
};
use super::*;

/// Algorithms that differ in one setting each.
fn different() -> Vec<AnyAlgorithm> {
    let quota = Quota::per_minute(10);
    let second = Duration::from_secs(1);
    let warm = |factor| WarmUp::new(quota, second).cold_factor(factor);
    let bucket = TokenBucket::new(quota);
    let lockout = Lockout::new(quota);
    let mut all = vec![
        AnyAlgorithm::new(bucket),
        AnyAlgorithm::new(TokenBucket::new(Quota::per_minute(11))),
        AnyAlgorithm::new(TokenBucket::new(Quota::per_hour(10))),
        AnyAlgorithm::new(TokenBucket::new(quota.burst(20))),
        AnyAlgorithm::new(bucket.initial(0)),
        AnyAlgorithm::new(bucket.initial(1)),
        AnyAlgorithm::new(bucket.debt(3)),
        AnyAlgorithm::new(bucket.refill_every(60 * second)),
        AnyAlgorithm::new(FixedWindow::new(quota)),
        AnyAlgorithm::new(FixedWindow::new(quota).offset(second)),
        AnyAlgorithm::new(FixedWindow::new(quota).anchored()),
        AnyAlgorithm::new(SlidingWindow::new(quota)),
        AnyAlgorithm::new(SlidingWindow::new(quota).offset(second)),
        AnyAlgorithm::new(SlidingLog::new(quota)),
        AnyAlgorithm::new(SlidingLog::new(Quota::per_day(10))),
        AnyAlgorithm::new(lockout),
        AnyAlgorithm::new(lockout.block(second)),
        AnyAlgorithm::new(lockout.max_block(61 * second)),
        AnyAlgorithm::new(lockout.forget(second)),
        AnyAlgorithm::new(lockout.forget(Duration::from_secs(5))),
        AnyAlgorithm::new(lockout.clear_on_success()),
        AnyAlgorithm::new(lockout.after_denials_of(bucket)),
        AnyAlgorithm::new(lockout.block(second).after_denials_of(bucket)),
        AnyAlgorithm::new(lockout.after_denials_of(bucket.debt(3))),
        AnyAlgorithm::new(SlidingGrid::new(quota)),
        AnyAlgorithm::new(SlidingGrid::new(quota).cells(7)),
        AnyAlgorithm::new(SlidingGrid::new(quota).strict()),
        AnyAlgorithm::new(SlidingGrid::new(quota).offset(second)),
        AnyAlgorithm::new(warm(3)),
        AnyAlgorithm::new(warm(4)),
        AnyAlgorithm::new(WarmUp::new(quota, 2 * second)),
        AnyAlgorithm::new((bucket, SlidingLog::new(quota))),
        AnyAlgorithm::new((SlidingLog::new(quota), bucket)),
        AnyAlgorithm::new(All::new([bucket])),
        AnyAlgorithm::new(All::new([bucket, bucket])),
        AnyAlgorithm::new(All::<Vec<TokenBucket>>::new([])),
    ];
    #[cfg(feature = "governor")]
    let gcra = [10, 11].map(|limit| crate::algorithm::Gcra::try_new(Quota::per_minute(limit)));
    #[cfg(feature = "governor")]
    all.extend(gcra.into_iter().flatten().map(AnyAlgorithm::new));
    let calendar = |quota, zone| CalendarWindow::new(quota, zone).ok();
    let utc = |quota| calendar(quota, "UTC");
    let month = Quota::per_month(10);
    let calendars = [
        utc(month),
        utc(Quota::per_month(11)),
        utc(Quota::per_week(10)),
        calendar(month, "Europe/Berlin"),
        utc(month).map(|month| month.anchor(1)),
        utc(month).map(|month| month.anchor(2)),
    ];
    all.extend(calendars.into_iter().flatten().map(AnyAlgorithm::new));
    all
}

#[test]
fn settings_are_read_as_they_were_written_and_are_all_different() {
    let all = different();
    let bytes: Vec<_> = all
        .iter()
        .map(|algorithm| settings_to_bytes(algorithm).expect("one of this crate"))
        .collect();
    for (place, (algorithm, own)) in all.iter().zip(&bytes).enumerate() {
        let read = settings_from_bytes(algorithm, own).expect("own settings");
        assert_eq!(format!("{read:?}"), format!("{algorithm:?}"));
        assert!(!bytes[..place].contains(own), "{algorithm:?}");
        for cut in 0..own.len() {
            let read = settings_from_bytes(algorithm, &own[..cut]);
            assert!(read.is_none(), "{algorithm:?} cut at {cut}");
        }
        // Those of another kind are read as they are, or refused.
        for like in &all {
            let read = settings_from_bytes(like, own).unwrap_or_else(|| algorithm.clone());
            assert_eq!(format!("{read:?}"), format!("{algorithm:?}"));
        }
    }
}

#[test]
fn a_fraction_is_less_than_a_nanosecond() {
    let thirds = TokenBucket::new(Quota::per_second(3));
    let mut state = thirds.fresh(Tick::ZERO);
    let _ = thirds.decide(&mut state, Tick::ZERO, 1);
    let mut bytes = state_to_bytes(&thirds, &state).expect("a state");
    let third = bytes.split_off(8);
    assert_eq!(third, 1_u64.to_le_bytes());
    let is_read = |fraction: u64| {
        let bytes = [&*bytes, &fraction.to_le_bytes()].concat();
        state_from_bytes(&thirds, &bytes).is_some()
    };
    assert_eq!([1, 2, 3].map(is_read), [true, true, false]);
}

#[test]
fn a_log_keeps_no_moment_without_a_cost_and_none_after_the_newest_one() {
    let log = SlidingLog::new(Quota::per_minute(10));
    let is_read = |numbers: &[u64]| {
        let bytes: Vec<_> = numbers.iter().flat_map(|one| one.to_le_bytes()).collect();
        state_from_bytes(&log, &bytes).is_some()
    };
    assert!(is_read(&[5, 2, 1, 1, 5, 1]));
    assert!(!is_read(&[5, 2, 1, 1, 6, 1]), "after the newest one");
    assert!(!is_read(&[5, 2, 1, 1, 5, 0]), "without a cost");
    assert!(!is_read(&[5, 2, 3, 1, 2, 1]), "before the one before it");
    assert!(!is_read(&[5, 0x7f, 1, 1, 5, 1]), "more than there are");
}

#[test]
fn a_state_that_is_read_on_another_clock_decides_there_as_before() {
    // A whole number of their periods, so that the windows lie alike.
    let [from, to] = [20, 10].map(|days| Tick::from_nanos(days * 86_400_000_000_000));
    for algorithm in &different()[..33] {
        let mut state = algorithm.fresh(from);
        let _ = algorithm.decide(&mut state, from, 3);
        let bytes = state_to_bytes(algorithm, &state).expect("a state");
        let read = read_moved_state(algorithm, &mut &*bytes, Moved { from, to });
        let seconds = |state: &_, at: Tick| {
            let later = algorithm.peek(state, at.plus(Duration::from_millis(2_500)), 9);
            (later.remaining(), later.reset_after.as_secs())
        };
        let read = read.map(|state| seconds(&state, to));
        assert_eq!(read, Some(seconds(&state, from)), "{algorithm:?}");
    }
}

/// A number of any length, as one of a state: each of its bits is set with the same chance.
fn any_number(random: &mut impl FnMut(u64) -> u64) -> u64 {
    let bits = random(65);
    random(u64::MAX) >> (64 - bits.max(1))
}

/// Reads states that are those of traffic with some bytes changed, on a clock of another zero, and goes on with each that
/// is accepted. Returns one that can then not be written, or whose bytes are refused.
fn unwritable<A: Algorithm>(algorithm: &A, others: &[A]) -> Option<String> {
    let mut numbers = Random::new(11);
    let mut random = |below| numbers.below(below);
    let some = |random: &mut dyn FnMut(u64) -> u64, moments: &[u64; 5]| {
        let moment = moments[usize::try_from(random(5)).unwrap_or(0)];
        Tick::from_nanos(moment.saturating_add(random(90_000_000_000)))
    };
    for round in 0..600_u32 {
        let mut moments = [0, 1 << 40, 1 << 60, Tick::MAX.as_nanos() - 1, 0];
        moments[4] = any_number(&mut random);
        let mut state = algorithm.fresh(Tick::ZERO);
        let start = some(&mut random, &moments).as_nanos();
        for _ in 0..random(25) {
            let now = Tick::from_nanos(start.saturating_add(random(20_000_000_000)));
            let _ = algorithm.decide(&mut state, now, random(3));
            if random(9) == 0 {
                let _ = algorithm.charge(&mut state, now, any_number(&mut random));
            }
        }
        let Some(mut bytes) = state_to_bytes(algorithm, &state) else {
            return Some(format!("{state:?}"));
        };
        for _ in 0..random(4) {
            let place = usize::try_from(random(bytes.len().max(1) as u64)).unwrap_or(0);
            let number = any_number(&mut random).to_le_bytes();
            let len = usize::try_from(random(3)).unwrap_or(0);
            bytes.splice(place..(place + len).min(bytes.len()), number);
        }
        let moved = match random(3) {
            0 => Moved::default(),
            _ => Moved {
                from: some(&mut random, &moments),
                to: some(&mut random, &moments),
            },
        };
        let Some(mut state) = read_moved_state(algorithm, &mut &bytes[..], moved) else {
            continue;
        };
        let read = format!("{bytes:?} of {algorithm:?} moved by {moved:?}: {state:?}");
        let mut last = algorithm;
        for step in 0..random(12) {
            let now = some(&mut random, &moments);
            let (cost, at) = (any_number(&mut random), some(&mut random, &moments));
            match random(7) {
                0 => algorithm.refund(&mut state, now, Cost { units: cost, at }, GiveBack::Refund),
                1 => algorithm.refund(&mut state, now, Cost { units: cost, at }, GiveBack::Cancel),
                2 => drop(algorithm.charge(&mut state, now, cost)),
                4 if round % 2 == 0 && !others.is_empty() => {
                    let place = usize::try_from(step).unwrap_or(0) % others.len();
                    others[place].rescale(&mut state, last, now);
                    last = &others[place];
                    algorithm.rescale(&mut state, last, now);
                    last = algorithm;
                }
                _ => drop(algorithm.decide(&mut state, now, cost % 12)),
            }
            let _ = (
                algorithm.forgettable_at(&state),
                algorithm.peek(&state, now, 2),
            );
        }
        let written = state_to_bytes(algorithm, &state);
        let bytes = written.as_deref().unwrap_or_default();
        let again = state_from_bytes(algorithm, bytes);
        let again = again.and_then(|again| state_to_bytes(algorithm, &again));
        if again.is_none() || again != written {
            return Some(format!("{read}, then {state:?}"));
        }
    }
    None
}

/// Shows promise 397.
#[test]
fn a_state_that_is_accepted_can_be_written_whatever_happens_then() {
    let all = different();
    let kind = |algorithm| settings_to_bytes(algorithm).map(|bytes| bytes[0]);
    for algorithm in &all {
        let others = all.iter().filter(|other| kind(*other) == kind(algorithm));
        let others: Vec<_> = others.cloned().collect();
        let found = unwritable(algorithm, &others);
        assert_eq!(found, None);
    }
}
