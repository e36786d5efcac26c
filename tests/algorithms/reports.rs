//! What an algorithm reports about itself: alone, in a combination, as `AnyAlgorithm`, and with
//! another quota.

#![expect(
    clippy::needless_pass_by_value,
    reason = "the algorithms are built where they are checked"
)]

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Charge, Cost, GiveBack, Words};
use tower_throttle::clock::Tick;
use tower_throttle::{
    All, FixedWindow, LeakyBucket, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
    WarmUp,
};

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

fn quota(limit: u64) -> Quota {
    Quota::per(limit, Duration::from_micros(1))
}

fn span(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

#[test]
fn a_changed_quota_builds_what_the_constructor_builds() {
    fn check<A: Words>(build: impl Fn(Quota) -> A) {
        let changed = build(quota(10)).with_quota(quota(7)).expect("valid");
        assert_eq!(format!("{changed:?}"), format!("{:?}", build(quota(7))));
    }
    check(FixedWindow::new);
    check(|quota| FixedWindow::new(quota).anchored());
    check(|quota| FixedWindow::new(quota).offset(span(300)));
    check(SlidingLog::new);
    check(|quota| SlidingWindow::new(quota).offset(span(300)));
    check(|quota| SlidingGrid::new(quota).cells(5).strict());
    check(|quota| TokenBucket::new(quota).initial(2).queue(5));
    check(|quota| TokenBucket::new(quota).queue(5).max_wait(span(300)));
    check(LeakyBucket::new);
    check(|quota| LeakyBucket::new(quota).queue(5).max_cost(3));
    check(|quota| LeakyBucket::new(quota).queue(5).max_wait(span(300)));
    check(|quota| LeakyBucket::new(quota).queue(5).charge_mode(Charge::Before));
    check(|quota| WarmUp::new(quota, span(5_000)).queue(5).max_cost(3));
    check(|quota| WarmUp::new(quota, span(5_000)).queue(5).max_wait(span(9)));
    check(|quota| All::new([TokenBucket::new(quota)]));
    #[cfg(feature = "governor")]
    check(tower_throttle::Gcra::new);
}

/// What the stores and the queue ask an algorithm.
fn report<A: Words>(algorithm: &A, state: &A::State, words: usize) -> String {
    let mut packed = vec![0; words];
    let packs = A::pack_into(algorithm, state, &mut packed);
    let unpacked = packs.then(|| {
        let state = A::unpack_from(algorithm, &packed);
        algorithm.peek(&state, at(9_100), 1)
    });
    format!(
        "{:?}",
        (
            algorithm.quota(),
            algorithm.facts().replans_line,
            algorithm.forgettable_at(state),
            A::quotas(algorithm),
            algorithm.facts().limits,
            algorithm.facts().words,
            unpacked,
        )
    )
}

#[test]
fn any_algorithm_reports_what_the_algorithm_in_it_reports() {
    fn check<A: Words + Into<AnyAlgorithm>>(algorithm: A) {
        let any = AnyAlgorithm::new(algorithm.clone());
        let mut state = algorithm.fresh(at(9_000));
        let mut any_state = any.fresh(at(9_000));
        assert_eq!(
            algorithm.decide(&mut state, at(9_000), 1),
            any.decide(&mut any_state, at(9_000), 1)
        );
        // The state of an `AnyAlgorithm` is in a box, and that of each part of a set too.
        if algorithm.facts().limits == 1 {
            let boxed = size_of::<A::State>();
            let heap = algorithm.report(&state, at(9_000)).heap_bytes;
            assert_eq!(
                any.report(&any_state, at(9_000)).heap_bytes,
                heap + boxed,
                "{algorithm:?}"
            );
            assert_eq!(
                any.facts().max_heap_bytes,
                algorithm.facts().max_heap_bytes + boxed,
                "{algorithm:?}"
            );
        }
        for words in 0..=4 {
            assert_eq!(
                report(&any, &any_state, words),
                report(&algorithm, &state, words),
                "{algorithm:?} in {words} words"
            );
        }
    }
    check(FixedWindow::new(quota(10)));
    check(FixedWindow::new(quota(1 << 60)));
    check(SlidingLog::new(quota(10)));
    check(SlidingWindow::new(quota(10)));
    check(SlidingWindow::new(quota(1 << 40)));
    check(SlidingGrid::new(quota(10)).cells(20));
    check(TokenBucket::new(quota(7)));
    check(LeakyBucket::new(quota(10)).queue(5));
    check(WarmUp::new(quota(10), span(5_000)));
    check((TokenBucket::new(quota(10)), SlidingWindow::new(quota(4))));
    check(All::new([
        FixedWindow::new(quota(10)),
        FixedWindow::new(quota(20)),
        FixedWindow::new(quota(30)),
    ]));
}

#[test]
fn buckets_reschedule_their_queue_and_windows_do_not() {
    fn replans<A: Words + Into<AnyAlgorithm>>(algorithm: &A) -> bool {
        let alone = algorithm.facts().replans_line;
        assert_eq!(
            AnyAlgorithm::new(algorithm.clone()).facts().replans_line,
            alone,
            "{algorithm:?}"
        );
        alone
    }
    assert!(replans(&TokenBucket::new(quota(10))));
    assert!(replans(&LeakyBucket::new(quota(10))));
    assert!(!replans(&FixedWindow::new(quota(10))));
    assert!(!replans(&SlidingLog::new(quota(10))));
    assert!(!replans(&SlidingWindow::new(quota(10))));
}

#[test]
fn a_combination_has_the_quota_of_its_first_part() {
    let pair = (FixedWindow::new(quota(10)), TokenBucket::new(quota(7)));
    assert_eq!(pair.quota(), quota(10));
    assert_eq!((pair, SlidingLog::new(quota(3))).quota(), quota(10));
    let all = All::new([TokenBucket::new(quota(7)), TokenBucket::new(quota(10))]);
    assert_eq!(all.quota(), quota(7));
}

#[test]
fn a_tie_of_two_limits_reports_the_first() {
    fn limit<A: Words>(algorithm: A, taken: u64, cost: u64) -> u64 {
        let mut state = algorithm.fresh(at(9_000));
        assert!(algorithm.decide(&mut state, at(9_000), taken).is_admitted());
        algorithm.peek(&state, at(9_000), cost).limit
    }
    let (small, large) = (quota(10), quota(20));
    // Both have as much room relative to their limits and reset at the same time.
    assert_eq!(
        limit((FixedWindow::new(small), FixedWindow::new(large)), 0, 0),
        10
    );
    assert_eq!(
        limit((FixedWindow::new(large), FixedWindow::new(small)), 0, 0),
        20
    );
    // Both deny until the same time.
    let (small, large) = (quota(10), Quota::per(11, span(1_000)));
    assert_eq!(
        limit((FixedWindow::new(small), FixedWindow::new(large)), 9, 3),
        10
    );
    assert_eq!(
        limit((FixedWindow::new(large), FixedWindow::new(small)), 9, 3),
        11
    );
}

#[test]
fn a_bucket_by_at_most_splits_n_between_burst_and_rate() {
    let minute = Duration::from_secs(60);
    let bucket = TokenBucket::at_most(101).in_any(minute);
    assert_eq!(bucket.quota(), Quota::per_minute(50).burst(51));
    let bucket = TokenBucket::at_most(5).burst(2).in_any(minute);
    assert_eq!(bucket.quota(), Quota::per_minute(3).burst(2));
    for (burst, message) in [(0, "burst: 0 "), (6, "burst: 6 ")] {
        let error = TokenBucket::at_most(5).burst(burst).try_in_any(minute);
        let error = error.expect_err("out of range").to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

/// The state in one word, if it fits.
fn packed<A: Words>(algorithm: &A, state: &A::State) -> Option<u64> {
    let mut words = [0];
    A::pack_into(algorithm, state, &mut words).then_some(words[0])
}

#[test]
fn states_within_the_limit_pack_into_one_word_and_back() {
    fn check<A: Words>(algorithm: A) {
        let capacity = algorithm.quota().capacity();
        for taken in [0, 1, capacity / 2, capacity - 1, capacity] {
            let mut state = algorithm.fresh(at(9_000));
            let _ = algorithm.decide(&mut state, at(8_500), capacity);
            assert!(algorithm.decide(&mut state, at(9_500), taken).is_admitted());
            let word = packed(&algorithm, &state).expect("fits");
            let unpacked = A::unpack_from(&algorithm, &[word]);
            for now in [9_500, 10_001, 11_000] {
                assert_eq!(
                    algorithm.peek(&unpacked, at(now), 1),
                    algorithm.peek(&state, at(now), 1),
                    "{algorithm:?} after {taken} at {now}"
                );
            }
        }
    }
    for limit in [10, 15, 16] {
        let quota = Quota::per(limit, span(500));
        check(FixedWindow::new(quota));
        check(FixedWindow::new(quota).anchored());
        check(SlidingWindow::new(Quota::per(limit, span(450))));
        check(TokenBucket::new(quota));
        check(LeakyBucket::new(quota));
        #[cfg(feature = "governor")]
        check(tower_throttle::Gcra::new(quota));
    }
}

#[test]
fn a_state_that_does_not_fit_one_word_is_not_packed() {
    fn check<A: Words>(algorithm: &A, now: u64, charge: u64, packs: bool) {
        let mut state = algorithm.fresh(at(now));
        let _ = algorithm.charge(&mut state, at(now), charge);
        let word = packed(algorithm, &state);
        assert_eq!(word.is_some(), packs, "{algorithm:?}: {charge} at {now}");
        let has_high_bit = word.is_some_and(|word| word >> 63 > 0);
        assert!(!has_high_bit, "{algorithm:?}: {charge} at {now}");
    }
    // Four bits hold a usage up to 10. More would run into the next field.
    for charge in [10, 11, 15, 16, 1 << 40] {
        check(&FixedWindow::new(quota(10)), 9_000, charge, charge < 16);
        check(&SlidingWindow::new(quota(10)), 9_000, charge, charge < 16);
    }
    let window = SlidingWindow::new(quota(10));
    let mut state = window.fresh(at(9_000));
    assert!(window.decide(&mut state, at(8_000), 10).is_admitted());
    let _ = window.charge(&mut state, at(9_000), 1);
    assert!(packed(&window, &state).is_some());
    let mut state = window.fresh(at(9_000));
    let _ = window.charge(&mut state, at(9_000), 16);
    assert!(window.peek(&state, at(10_000), 1).is_denied());
    let _ = window.charge(&mut state, at(10_500), 1);
    let word = packed(&window, &state);
    assert_eq!(word, None, "{state:?}");
    // One bit is left for the number of the window, which begins at 1.
    let large = FixedWindow::new(quota((1 << 62) - 1));
    for (now, packs) in [(0, true), (1_000, false), (2_000, false), (9_000, false)] {
        check(&large, now, (1 << 62) - 1, packs);
    }
    // Three bits are left, and windows begin at 0.
    let large = SlidingWindow::new(quota((1 << 30) - 1));
    for (now, packs) in [(7_000, true), (8_000, false), (16_000, false)] {
        check(&large, now, 5, packs);
    }
    check(&SlidingWindow::new(quota(1 << 31)), 1_000, 5, false);
}

#[test]
fn states_take_as_few_words_as_the_largest_one_needs() {
    /// Returns the number of words.
    fn check<A: Words>(algorithm: A, limit: u64) -> usize {
        let words = algorithm.facts().words;
        // A table with one word per state counts time from an origin, which is zero here.
        let now = at(if words == 1 { 9_000 } else { (1 << 56) - 2 });
        let mut state = algorithm.fresh(now);
        assert!(algorithm.decide(&mut state, now, limit).is_admitted());
        let fits = |words| A::pack_into(&algorithm, &state, &mut vec![0; words]);
        assert!(fits(words), "{algorithm:?} in {words} words");
        assert!(!fits(words - 1), "{algorithm:?} in {} words", words - 1);
        words
    }
    for bits in 0..=30 {
        for period in [1_000_000, 1_000_000_000, 3_600_000_000_000] {
            let limit = 1 << bits;
            let quota = Quota::per(limit, span(period));
            check(FixedWindow::new(quota), limit);
            let words = check(FixedWindow::new(quota).anchored(), limit);
            assert!(bits > 10 || words == 1, "{limit}: {words} words");
            assert!(bits < 20 || words == 2, "{limit}: {words} words");
            check(SlidingWindow::new(quota), limit);
        }
    }
    for (limit, words) in [(1, 1), (3, 1), (1_000, 1), (1_000_003, 1), (999_999_937, 2)] {
        let quota = Quota::per_second(limit);
        assert_eq!(check(TokenBucket::new(quota), limit), words, "{limit}");
        assert_eq!(check(LeakyBucket::new(quota), limit), words, "{limit}");
    }
}

/// The state packs into `words` words exactly if it `fits`, and unpacks to the same.
fn check_packing<A: Words>(algorithm: &A, state: &A::State, words: usize, fits: bool, case: &str) {
    let mut packed = vec![0; words];
    let is_packed = A::pack_into(algorithm, state, &mut packed);
    assert_eq!(is_packed, fits, "{case}");
    if fits {
        let unpacked = A::unpack_from(algorithm, &packed);
        assert_eq!(format!("{unpacked:?}"), format!("{state:?}"), "{case}");
    }
}

#[test]
fn a_sliding_window_packs_exactly_the_usage_that_its_words_hold() {
    let window = SlidingWindow::new(quota(10));
    let usages = [
        0,
        5,
        15,
        16,
        (1 << 31) - 1,
        1 << 31,
        (1 << 32) - 1,
        1 << 32,
        1 << 62,
    ];
    for previous in usages {
        for current in usages {
            let mut state = window.fresh(at(9_000));
            let _ = window.charge(&mut state, at(9_000), previous);
            // Brings the state to the next window even if nothing is charged.
            let _ = window.charge(&mut state, at(10_000), current.max(1));
            window.refund(
                &mut state,
                at(10_000),
                Cost::new(1 - current.min(1), at(10_000)),
                GiveBack::Refund,
            );
            let fits = [
                false,
                previous < 16 && current < 16,
                previous < 1 << 31 && current < 1 << 32,
                true,
                true,
            ];
            for (words, fits) in fits.into_iter().enumerate() {
                let case = format!("{previous} and {current} in {words} words");
                check_packing(&window, &state, words, fits, &case);
            }
        }
    }
}

#[test]
fn a_fixed_window_packs_exactly_the_usage_that_its_words_hold() {
    let window = FixedWindow::new(quota(10));
    for used in [1, 15, 16, 1 << 62] {
        let mut state = window.fresh(at(9_000));
        let _ = window.charge(&mut state, at(9_000), used);
        for (words, fits) in [(0, false), (1, used < 16), (2, true), (4, true)] {
            let case = format!("{used} in {words} words");
            check_packing(&window, &state, words, fits, &case);
        }
    }
}

#[test]
fn a_late_moment_of_a_bucket_with_a_remainder_is_packed_exactly_or_not_at_all() {
    type Packed = TokenBucket;
    for limit in [1, 3, 7, 1_000_003] {
        let bucket = TokenBucket::new(Quota::per_second(limit));
        for bits in 30..63 {
            let now = at((1 << bits) + 1);
            let mut state = bucket.fresh(now);
            assert!(bucket.decide(&mut state, now, 1).is_admitted());
            if let Some(word) = packed(&bucket, &state) {
                let unpacked = Packed::unpack_from(&bucket, &[word]);
                assert_eq!(unpacked, state, "{limit} at 2^{bits}");
            }
        }
    }
}

#[cfg(feature = "governor")]
#[test]
fn a_gcra_state_takes_one_word_of_a_table() {
    type Packed = tower_throttle::Gcra;
    let gcra = tower_throttle::Gcra::new(quota(10));
    assert_eq!(gcra.facts().words, 1);
    let mut state = gcra.fresh(at(9_000));
    assert!(gcra.decide(&mut state, at(9_000), 10).is_admitted());
    let mut words = [0];
    assert!(Packed::pack_into(&gcra, &state, &mut words));
    let unpacked = Packed::unpack_from(&gcra, &words);
    assert!(gcra.peek(&unpacked, at(9_000), 1).is_denied());
    assert!(!Packed::pack_into(&gcra, &state, &mut []));
}

/// Packs into as many words as the algorithm needs, and back. `None` if the state does not fit.
fn repacked<A: Words>(algorithm: &A, state: &A::State) -> Option<A::State> {
    let mut words = vec![0; algorithm.facts().words];
    let packs = A::pack_into(algorithm, state, &mut words);
    packs.then(|| A::unpack_from(algorithm, &words))
}

#[test]
fn a_combination_packs_if_every_part_does() {
    type Pair = (FixedWindow, TokenBucket);
    let pair = (FixedWindow::new(quota(10)), TokenBucket::new(quota(7)));
    assert_eq!(pair.facts().words, 2);
    let mut state = pair.fresh(at(9_000));
    assert!(pair.decide(&mut state, at(9_000), 5).is_admitted());
    let back = repacked(&pair, &state).expect("fits");
    assert_eq!(
        pair.peek(&back, at(9_000), 1),
        pair.peek(&state, at(9_000), 1)
    );
    assert!(!Pair::pack_into(&pair, &state, &mut [0]), "one word");
    let _ = pair.0.charge(&mut state.0, at(9_000), 1 << 40);
    assert!(repacked(&pair, &state).is_none(), "the first does not fit");

    let windows = [10, 20, 30].map(|limit| FixedWindow::new(quota(limit)));
    let all = All::new(windows);
    assert_eq!(all.facts().words, 3);
    let mut state = all.fresh(at(9_000));
    assert!(all.decide(&mut state, at(9_000), 5).is_admitted());
    let back = repacked(&all, &state).expect("fits");
    assert_eq!(
        all.peek(&back, at(9_000), 1),
        all.peek(&state, at(9_000), 1)
    );
    let shorter = All::new([windows[0], windows[1]]);
    let state = shorter.fresh(at(9_000));
    assert!(repacked(&all, &state).is_none(), "a state is missing");
    let empty = All::<FixedWindow>::new([]);
    assert!(repacked(&empty, &empty.fresh(at(0))).is_none(), "no part");
}

#[test]
fn a_combination_allocates_what_its_parts_do_and_its_list() {
    fn bytes<A: Words>(algorithm: &A) -> (usize, usize) {
        let mut state = algorithm.fresh(at(9_000));
        for moment in 9_000..9_005 {
            assert!(algorithm.decide(&mut state, at(moment), 1).is_admitted());
        }
        (
            algorithm.report(&state, at(9_005)).heap_bytes,
            algorithm.facts().max_heap_bytes,
        )
    }
    let log = SlidingLog::new(quota(10));
    let (heap, most) = bytes(&log);
    assert!(heap > 0 && most >= heap, "{heap} of {most} bytes");
    assert_eq!(bytes(&FixedWindow::new(quota(10))), (0, 0));
    assert_eq!(bytes(&(log, FixedWindow::new(quota(10)))), (heap, most));
    assert_eq!(bytes(&(log, log)), (2 * heap, 2 * most));
    let list = 2 * size_of::<<SlidingLog as Algorithm>::State>();
    assert_eq!(
        bytes(&All::new([log, log])),
        (2 * heap + list, 2 * most + list)
    );
    #[cfg(feature = "governor")]
    assert_eq!(bytes(&tower_throttle::Gcra::new(quota(10))), (0, 0));
}
