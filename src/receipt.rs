//! When a backend took a cost.

/// When a backend took a cost, for the refund of that cost.
///
/// A backend attaches it to its decision ([`Decision::receipt`](crate::Decision::receipt)), and
/// [`Op::Refund`](crate::store::Op::Refund) and [`Op::Cancel`](crate::store::Op::Cancel) hand it
/// back. What time has returned since then is not given back again. It counts by the clock of the
/// backend, so the clocks of a client and a server never mix.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::store::{Backend, Op};
/// use tower_throttle::{FixedWindow, Local, ManualClock, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_throttle::StoreError> {
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_secs(59));
/// let limit = Local::new(FixedWindow::new(Quota::per_minute(10))).with_clock(clock.clone());
/// let old = limit.decide("alice", 10).await?;
/// clock.advance(Duration::from_secs(1));
/// let new = limit.decide("alice", 10).await?;
/// // The window of the first cost is over.
/// limit.apply("alice", Op::Refund(10, old.receipt())).await?;
/// assert_eq!(limit.peek("alice").remaining(), 0);
/// limit.apply("alice", Op::Refund(4, new.receipt())).await?;
/// assert_eq!(limit.peek("alice").remaining(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// A moment per limit that took the cost. One that passed a fallback also says which backend of
    /// the fallback took the cost; see [`Receipt::taken_by`].
    moments: [u64; WORDS],
}

/// With more limits, `RateLimited` would be a large error.
const WORDS: usize = 3;

/// Which backend of a fallback took a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// Not said: whichever decides now.
    Any,
    Primary,
    Secondary,
    /// The moment is lost.
    Lost,
}

/// The cost was taken long ago.
const LOST: u64 = 0;

/// [`Receipt::NOW`] in the moment of a fallback.
const NOW_IN_FALLBACK: u64 = (u64::MAX >> 1) - 1;

impl Receipt {
    /// How many limits may take a cost together. The last one of them may have no word: then it keeps
    /// what it has taken of a request that was admitted.
    pub(crate) const MOST_LIMITS: usize = WORDS + 1;

    /// The cost was taken just now: all of it is given back.
    pub const NOW: Self = Self {
        moments: [u64::MAX; WORDS],
    };

    /// The cost was taken long ago: only a limit for which requests queue gives it back, and only if
    /// the turn has not come.
    pub(crate) const LONG_AGO: Self = Self {
        moments: [LOST; WORDS],
    };

    /// The receipt of a backend of your own that took a cost at `moment`, by its own clock and in
    /// its own unit.
    #[inline]
    pub const fn at(moment: u64) -> Self {
        let mut moments = Self::NOW.moments;
        moments[0] = moment;
        Self { moments }
    }

    /// The moment that the backend passed to [`at`](Self::at); `u64::MAX` for [`NOW`](Self::NOW).
    #[inline]
    pub const fn moment(&self) -> u64 {
        self.moments[0]
    }

    /// This receipt in its first `len` words, then `next`. [`skip`](Self::skip) returns `next`.
    pub(crate) fn then(mut self, len: usize, next: Self) -> Self {
        let rest = self.moments.get_mut(len..).unwrap_or_default();
        for (moment, next) in rest.iter_mut().zip(next.moments) {
            *moment = next;
        }
        self
    }

    /// The receipt after the first `len` words.
    pub(crate) fn skip(&self, len: usize) -> Self {
        if *self == Self::NOW {
            return Self::NOW;
        }
        let mut moments = Self::LONG_AGO.moments;
        let rest = self.moments.get(len..).unwrap_or_default();
        for (moment, own) in moments.iter_mut().zip(rest) {
            *moment = *own;
        }
        Self { moments }
    }

    /// The receipt of a fallback whose backend `taker` gave this one.
    ///
    /// The moment is one more than that of the backend, moved left by a bit. The lowest bit is set if
    /// the primary backend took the cost. A moment that does not fit is lost, so the cost stays
    /// taken: after eight chained fallbacks if the clock has run for a year of nanoseconds, and after
    /// twelve for the microseconds of a server.
    pub(crate) const fn taken_by(mut self, taker: Taker) -> Self {
        let own = match self.moments[0] {
            u64::MAX => NOW_IN_FALLBACK,
            moment => moment.saturating_add(1),
        };
        self.moments[0] = match taker {
            Taker::Any => u64::MAX,
            _ if self.moments[0] < u64::MAX && own >= NOW_IN_FALLBACK => LOST,
            Taker::Primary => own << 1 | 1,
            Taker::Secondary => own << 1,
            Taker::Lost => LOST,
        };
        self
    }

    /// Which backend of a fallback took the cost, and the receipt of that backend.
    pub(crate) const fn split_taker(mut self) -> (Taker, Self) {
        let taker = match self.moments[0] {
            u64::MAX => return (Taker::Any, self),
            0 | 1 => return (Taker::Lost, self),
            moment if moment % 2 == 1 => Taker::Primary,
            _ => Taker::Secondary,
        };
        self.moments[0] = match self.moments[0] >> 1 {
            NOW_IN_FALLBACK => u64::MAX,
            own => own - 1,
        };
        (taker, self)
    }

    /// The moment, if that is all it holds.
    #[inline]
    pub(crate) fn single(&self) -> Option<u64> {
        let [moment, rest @ ..] = self.moments;
        rest.iter().all(|next| *next == u64::MAX).then_some(moment)
    }
}

impl Default for Receipt {
    fn default() -> Self {
        Self::NOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_of_several_backends_are_taken_apart_again() {
        let [a, b, c] = [3, 5, 7].map(Receipt::at);
        let (left, right) = (a.then(1, b.then(1, c)), a.then(1, b).then(2, c));
        assert_eq!(left, right);
        let moments = [0, 1, 2].map(|len| left.skip(len).moment());
        assert_eq!(moments, [3, 5, 7]);
        assert_eq!((a.single(), left.single()), (Some(3), None));
    }

    #[test]
    fn a_word_that_does_not_fit_counts_as_long_ago() {
        let full = (0..6).rev().fold(Receipt::NOW, |next, moment| {
            Receipt::at(10 + moment).then(1, next)
        });
        let moments = [0, 2, 3, 9].map(|len| full.skip(len).moment());
        assert_eq!(moments, [10, 12, LOST, LOST]);
        assert_eq!(Receipt::NOW.skip(9), Receipt::NOW);
        assert_eq!(Receipt::LONG_AGO.split_taker().0, Taker::Lost);
    }

    #[test]
    fn each_of_two_chained_fallbacks_finds_its_own_taker() {
        let [a, b] = [3, 5].map(Receipt::at);
        let first = a.taken_by(Taker::Primary).taken_by(Taker::Secondary);
        let both = first.then(1, b.taken_by(Taker::Secondary));
        let (outer, inner) = both.split_taker();
        let (inner, own) = inner.split_taker();
        assert_eq!((outer, inner), (Taker::Secondary, Taker::Primary));
        assert_eq!(own.moment(), 3);
        let (taker, own) = both.skip(1).split_taker();
        assert_eq!((taker, own.moment()), (Taker::Secondary, 5));
    }

    #[test]
    fn every_fallback_of_a_chain_finds_its_taker_or_that_it_is_lost() {
        let year = 365 * 86_400 * 1_000_000_000;
        for (moment, least_depth) in [
            (0, 60),
            (1, 60),
            (year, 8),
            (1_763_000_000_000_000, 12),
            (u64::MAX - 1, 0),
            (u64::MAX, 1),
        ] {
            for depth in 0..70 {
                let taker = |level: usize| match level % 3 {
                    0 => Taker::Primary,
                    _ => Taker::Secondary,
                };
                let mut rest =
                    (0..depth).fold(Receipt::at(moment), |own, level| own.taken_by(taker(level)));
                let is_known = (0..depth).rev().all(|level| {
                    let (found, own) = rest.split_taker();
                    rest = own;
                    assert!([taker(level), Taker::Lost].contains(&found), "{moment}");
                    found == taker(level)
                });
                assert!(is_known || depth > least_depth, "{moment} at {depth}");
                assert!(
                    !is_known || rest == Receipt::at(moment),
                    "{moment} at {depth}"
                );
            }
        }
    }
}
