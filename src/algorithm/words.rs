//! States as words of a table.

use std::time::Duration;

use super::Algorithm;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::quota::Quota;

/// How the states of an algorithm are kept. An algorithm of your own takes the defaults:
/// `impl Words for Mine {}`.
///
/// The algorithms of this crate pack a state into one to four words, which a table keeps in the
/// slot itself and a [`Limiter`](crate::Limiter) in a single atomic. By default each state is allocated
/// separately, behind a lock that is held for one decision.
#[diagnostic::on_unimplemented(
    message = "it is not known how to keep the states of `{Self}`",
    label = "write `impl Words for {Self} {{}}`"
)]
pub trait Words: Algorithm {
    /// The largest [`words`](super::Facts::words) that a setting can have, if slots can hold it: 1
    /// to 4. Tables leave out the code for wider slots.
    #[doc(hidden)]
    const MAX_WORDS: usize = 1;

    /// The fewest words into which a state packs. Tables leave out the code for narrower slots too.
    #[doc(hidden)]
    const MIN_WORDS: usize = 1;

    /// The quotas of all its limits, in the order in which [`Decision::policy`] counts them.
    #[doc(hidden)]
    fn quotas(&self) -> Vec<Quota> {
        vec![self.quota()]
    }

    /// The decision that [`Algorithm::peek`] would return if there were only the limit with this number in
    /// [`Decision::policy`].
    #[doc(hidden)]
    fn peek_part(&self, state: &Self::State, now: Tick, cost: u64, part: usize) -> Decision {
        let _ = part;
        self.peek(state, now, cost)
    }

    /// The decision that [`Algorithm::reserve`] would return, taking nothing.
    #[doc(hidden)]
    #[inline]
    fn peek_reserve(
        &self,
        state: &Self::State,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        self.reserve(&mut state.clone(), now, cost, max_wait)
    }

    /// Denies everything for `length` from now on, if the algorithm has bans.
    #[doc(hidden)]
    fn ban(&self, state: &mut Self::State, now: Tick, length: Duration) {
        let _ = (self, state, now, length);
    }

    /// What a state holds at `now`.
    ///
    /// ```
    /// use tower_throttle::algorithm::{Algorithm, Report, Words};
    /// use tower_throttle::{Quota, TokenBucket, clock::Tick};
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(10));
    /// let report: Report = bucket.report(&bucket.fresh(Tick::ZERO), Tick::ZERO);
    /// assert_eq!((report.available, report.is_blocked, report.heap_bytes), (10, false, 0));
    /// ```
    #[inline]
    fn report(&self, state: &Self::State, now: Tick) -> Report {
        Report {
            available: self.peek(state, now, 0).remaining(),
            is_blocked: false,
            heap_bytes: 0,
        }
    }

    /// Packs the state into [`words`](super::Facts::words) words, if it fits. The first word
    /// stays below 2^63; words beyond the count stay zero.
    #[doc(hidden)]
    #[inline]
    fn pack_into(&self, state: &Self::State, words: &mut [u64]) -> bool {
        let _ = (self, state, words);
        false
    }

    /// The state that [`pack_into`](Self::pack_into) turned into `words`; any state for any other
    /// words.
    #[doc(hidden)]
    #[inline]
    fn unpack_from(&self, words: &[u64]) -> Self::State {
        let _ = words;
        self.fresh(Tick::ZERO)
    }

    /// Makes packed words count time from shortly before `now`, so that fewer bits hold it.
    ///
    /// Words that were packed before must be unpacked with the algorithm as it was.
    #[doc(hidden)]
    fn rebase(&mut self, now: Tick) {
        let _ = (self, now);
    }

    /// [`Algorithm::decide`] on the state in `words`. `None` if the state that it leaves does not
    /// pack; `words` is then unspecified.
    ///
    /// An algorithm whose states are expensive to unpack decides on the words themselves.
    #[doc(hidden)]
    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed"
    )]
    #[inline(always)]
    fn decide_packed(&self, words: &mut [u64], now: Tick, cost: u64) -> Option<Decision> {
        let mut state = Self::unpack_from(self, words);
        let decision = self.decide(&mut state, now, cost);
        Self::pack_into(self, &state, words).then_some(decision)
    }
}

/// What a state holds at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The largest cost that is admitted at once.
    pub available: u64,
    /// Whether a block or a ban holds.
    pub is_blocked: bool,
    /// The bytes that the state has allocated, besides its own size.
    pub heap_bytes: usize,
}

impl Report {
    /// That of two limits that decide together.
    #[must_use]
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            available: self.available.min(other.available),
            is_blocked: self.is_blocked | other.is_blocked,
            heap_bytes: self.heap_bytes + other.heap_bytes,
        }
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests {
    use super::*;
    use crate::algorithm::{
        FixedWindow, LeakyBucket, SlidingGrid, SlidingWindow, TokenBucket, math::TIME_BITS,
    };

    /// Quotas with the smallest and largest numbers.
    fn quotas() -> impl Iterator<Item = Quota> {
        let limits = [1, 3, 1_000_000, (1 << 32) - 1, (1 << 62) - 1, (1 << 63) - 1];
        let periods = [1, 7, 1_000_000_000, 86_400_000_000_007, 1 << 62];
        limits.into_iter().flat_map(move |limit| {
            periods.map(|period| Quota::per(limit, Duration::from_nanos(period)))
        })
    }

    /// The fewest and the most words of a state, over quotas with the smallest and largest numbers.
    fn word_counts<A: Words>(make: impl Fn(Quota) -> A) -> (usize, usize) {
        let counts = quotas().map(|quota| make(quota).facts().words);
        counts.fold((usize::MAX, 0), |(least, most), count| {
            (least.min(count), most.max(count))
        })
    }

    /// A smaller `MAX_WORDS` would keep states outside of the slots, a larger one would add code for
    /// slots that no state needs. `MIN_WORDS` is the reverse.
    fn assert_bounds<A: Words>(make: impl Fn(Quota) -> A) {
        let stated = (A::MIN_WORDS, A::MAX_WORDS);
        assert_eq!(word_counts(make), stated, "{}", std::any::type_name::<A>());
    }

    #[test]
    fn states_take_as_many_words_as_tables_have_code_for() {
        assert_bounds(TokenBucket::new);
        assert_bounds(LeakyBucket::new);
        assert_bounds(FixedWindow::new);
        assert_bounds(SlidingWindow::new);
        assert_bounds(|quota| (FixedWindow::new(quota), TokenBucket::new(quota)));
    }

    /// The fullest states that count, from the move of a base until the next.
    fn assert_packs_until_the_base_moves<A: Words>(mut limit: A)
    where
        A::State: PartialEq,
    {
        let period = limit.quota().period();
        let now = Tick::from_nanos(1 << (TIME_BITS - 1));
        A::rebase(&mut limit, now);
        let due = limit.facts().rebase_at;
        let lasts = due.since(now).saturating_add(period);
        assert!(
            lasts >= Duration::from_nanos(1 << 41),
            "{limit:?}: {lasts:?}"
        );
        let end = due.min(Tick::from_nanos(1 << TIME_BITS)).as_nanos();
        for at in [now, Tick::from_nanos(end - 1)] {
            let mut state = limit.fresh(at);
            for ago in [limit.quota().period_ns(), 0] {
                let at = Tick::from_nanos(at.as_nanos() - ago);
                let _ = limit.charge(&mut state, at, limit.quota().limit());
            }
            let mut words = vec![0; limit.facts().words];
            let fits = A::pack_into(&limit, &state, &mut words);
            assert!(fits, "{limit:?}: {state:?} at {at:?}");
            assert_eq!(A::unpack_from(&limit, &words), state, "{limit:?}");
        }
    }

    #[test]
    fn states_pack_until_the_base_moves() {
        for bits in 1..=40 {
            for period in (0..TIME_BITS - 2).map(|power| 1_u64 << power) {
                let quota = Quota::per((1 << bits) - 1, Duration::from_nanos(period));
                assert_packs_until_the_base_moves(FixedWindow::new(quota));
                assert_packs_until_the_base_moves(FixedWindow::new(quota).anchored());
                assert_packs_until_the_base_moves(SlidingWindow::new(quota));
            }
        }
    }

    #[test]
    fn two_counts_of_31_bits_share_a_word() {
        let words = |limit| SlidingWindow::new(Quota::per_second(limit)).facts().words;
        assert_eq!([(1 << 31) - 1, 1 << 31].map(words), [2, 3]);
    }

    #[test]
    fn a_full_grid_packs() {
        let now = Tick::from_nanos(1 << (TIME_BITS - 1));
        // The widest takes four words.
        for limit in (1..=20).map(|bits| (1 << bits) - 1) {
            let grid = SlidingGrid::new(Quota::per_minute(limit));
            let mut state = grid.fresh(now);
            let _ = grid.charge(&mut state, now, limit);
            let mut words = vec![0; grid.facts().words];
            assert!(SlidingGrid::pack_into(&grid, &state, &mut words), "{limit}");
            assert_eq!(SlidingGrid::unpack_from(&grid, &words), state);
        }
    }

    #[test]
    fn a_base_moves_when_a_quarter_of_its_range_is_over() {
        let now = Tick::from_nanos(1 << (TIME_BITS - 1));
        let moves = |mut limit: FixedWindow| {
            FixedWindow::rebase(&mut limit, now);
            limit.facts().rebase_at
        };
        let window = |limit| FixedWindow::new(Quota::per_minute(limit));
        for (limit, quarter) in [(1 << 18, 1 << 42), (1 << 19, 1 << 41)] {
            let moved = moves(window(limit).anchored());
            assert_eq!(moved, now.plus(Duration::from_nanos(quarter)), "{limit}");
            assert_eq!(moves(window(limit)), Tick::MAX);
        }
        // 42 bits would move too often.
        assert_eq!(moves(window(1 << 20).anchored()), Tick::MAX);
    }
}
