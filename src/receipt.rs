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
    /// A word per backend: its moment, or for a fallback which of its backends took the cost.
    words: [u64; WORDS],
}

/// A chain of more backends does not give back costs of the last ones. With more words, `RateLimited`
/// would be a large error.
const WORDS: usize = 3;

/// The word of a backend whose word did not fit: the cost was taken long ago.
const LOST: u64 = 0;

impl Receipt {
    /// The cost was taken just now: all of it is given back.
    pub const NOW: Self = Self {
        words: [u64::MAX; WORDS],
    };

    /// The cost was taken long ago: only a limit for which requests queue gives it back, and only if
    /// the turn has not come.
    pub(crate) const LONG_AGO: Self = Self {
        words: [LOST; WORDS],
    };

    /// The receipt of a backend of your own that took a cost at `moment`, by its own clock and in
    /// its own unit.
    #[inline]
    pub const fn at(moment: u64) -> Self {
        let mut words = Self::NOW.words;
        words[0] = moment;
        Self { words }
    }

    /// The moment that the backend passed to [`at`](Self::at); `u64::MAX` for [`NOW`](Self::NOW).
    #[inline]
    pub const fn moment(&self) -> u64 {
        self.words[0]
    }

    /// This receipt in its first `len` words, then `next`. [`skip`](Self::skip) returns `next`.
    pub(crate) fn then(mut self, len: usize, next: Self) -> Self {
        let rest = self.words.get_mut(len..).unwrap_or_default();
        for (word, next) in rest.iter_mut().zip(next.words) {
            *word = next;
        }
        self
    }

    /// The receipt after the first `len` words.
    pub(crate) fn skip(&self, len: usize) -> Self {
        if *self == Self::NOW {
            return Self::NOW;
        }
        let mut words = Self::LONG_AGO.words;
        let rest = self.words.get(len..).unwrap_or_default();
        for (word, own) in words.iter_mut().zip(rest) {
            *word = *own;
        }
        Self { words }
    }

    /// The moment, if that is all it holds.
    #[inline]
    pub(crate) fn single(&self) -> Option<u64> {
        (self.words[1..] == Self::NOW.words[1..]).then_some(self.words[0])
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
    }
}
