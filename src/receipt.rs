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
    /// A moment per limit that took the cost.
    moments: [u64; Receipt::MAX_WORDS],
    /// Which backends of fallbacks took it, per moment. Two bits per fallback, the outermost one in
    /// the lowest bits.
    takers: [u16; Receipt::MAX_WORDS],
}

/// Which backend of a fallback took a cost: two bits of a [`Receipt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// Not said: whichever decides now.
    Any = 0,
    Primary = 1,
    Secondary = 2,
    /// Taken by one of too many chained fallbacks.
    Lost = 3,
}

impl Taker {
    const BITS: u32 = 2;
    const ALL: [Self; 4] = [Self::Any, Self::Primary, Self::Secondary, Self::Lost];
}

/// The cost was taken long ago.
const LOST: u64 = 0;

impl Receipt {
    /// How many limits may take a cost together. With more, `RateLimited` would be a large error.
    pub(crate) const MAX_WORDS: usize = 4;

    /// The cost was taken just now: all of it is given back.
    pub const NOW: Self = Self {
        moments: [u64::MAX; Self::MAX_WORDS],
        takers: [0; Self::MAX_WORDS],
    };

    /// The cost was taken long ago: only a limit for which requests queue gives it back, and only if
    /// the turn has not come.
    pub(crate) const LONG_AGO: Self = Self {
        moments: [LOST; Self::MAX_WORDS],
        takers: [u16::MAX; Self::MAX_WORDS],
    };

    /// The receipt of a backend of your own that took a cost at `moment`, by its own clock and in
    /// its own unit.
    #[inline]
    pub const fn at(moment: u64) -> Self {
        let mut receipt = Self::NOW;
        receipt.moments[0] = moment;
        receipt
    }

    /// The moment that the backend passed to [`at`](Self::at); `u64::MAX` for [`NOW`](Self::NOW).
    #[inline]
    pub const fn moment(&self) -> u64 {
        self.moments[0]
    }

    /// This receipt in its first `len` words, then `next`. [`skip`](Self::skip) returns `next`.
    pub(crate) fn then(mut self, len: usize, next: Self) -> Self {
        for place in len..Self::MAX_WORDS {
            self.moments[place] = next.moments[place - len];
            self.takers[place] = next.takers[place - len];
        }
        self
    }

    /// The receipt after the first `len` words.
    pub(crate) fn skip(&self, len: usize) -> Self {
        if *self == Self::NOW {
            return Self::NOW;
        }
        let mut rest = Self::LONG_AGO;
        for place in len..Self::MAX_WORDS {
            rest.moments[place - len] = self.moments[place];
            rest.takers[place - len] = self.takers[place];
        }
        rest
    }

    /// The receipt of a fallback whose backend `taker` gave this one.
    pub(crate) const fn taken_by(mut self, taker: Taker) -> Self {
        let inner = self.takers[0];
        self.takers[0] = (inner << Taker::BITS) | taker as u16;
        if inner.leading_zeros() < Taker::BITS {
            // The innermost fallback does not fit: it must not give anything back.
            self.takers[0] |= (Taker::Lost as u16) << (u16::BITS - Taker::BITS);
        }
        self
    }

    /// Which backend of a fallback took the cost, and the receipt of that backend.
    pub(crate) const fn split_taker(mut self) -> (Taker, Self) {
        let takers = self.takers[0];
        self.takers[0] = takers >> Taker::BITS;
        (Taker::ALL[takers as usize % Taker::ALL.len()], self)
    }

    /// The moment, if that is all it holds.
    #[inline]
    pub(crate) fn single(&self) -> Option<u64> {
        (*self == Self::at(self.moments[0])).then_some(self.moments[0])
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
        let moments = [0, 2, 3, 4, 9].map(|len| full.skip(len).moment());
        assert_eq!(moments, [10, 12, 13, LOST, LOST]);
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
        assert_eq!((own.moment(), own.split_taker().0), (3, Taker::Any));
        let (taker, own) = both.skip(1).split_taker();
        assert_eq!((taker, own.moment()), (Taker::Secondary, 5));
        assert_eq!(a.taken_by(Taker::Primary).single(), None);
    }

    #[test]
    fn the_innermost_of_too_many_fallbacks_is_lost() {
        let takers = |depth: usize| {
            let full = (0..depth).fold(Receipt::at(3), |own, _| own.taken_by(Taker::Primary));
            let mut rest = full;
            let mut next = || {
                let (taker, own) = rest.split_taker();
                rest = own;
                taker
            };
            let takers: Vec<_> = (0..depth).map(|_| next()).collect();
            takers
        };
        assert_eq!(takers(8), [Taker::Primary; 8]);
        for depth in [9, 10] {
            assert_eq!(takers(depth)[..7], [Taker::Primary; 7]);
            assert_eq!(takers(depth)[7], Taker::Lost);
        }
    }
}
