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
/// assert_eq!(limit.peek("alice", 1).remaining(), 0);
/// limit.apply("alice", Op::Refund(4, new.receipt())).await?;
/// assert_eq!(limit.peek("alice", 1).remaining(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    moment: u64,
    /// Which of the backends of a [`Fallback`](crate::store::Fallback) took the cost, counted through all that are
    /// nested in it. `None`: the one that decides now.
    backend: Option<u32>,
}

impl Receipt {
    /// The cost was taken just now: all of it is given back.
    pub const NOW: Self = Self::at(u64::MAX);

    /// The receipt of a backend of your own that took a cost at `moment`, by its own clock and in
    /// its own unit.
    #[inline]
    pub const fn at(moment: u64) -> Self {
        let backend = None;
        Self { moment, backend }
    }

    /// The moment that the backend passed to [`at`](Self::at); `u64::MAX` for [`NOW`](Self::NOW).
    #[inline]
    pub const fn moment(&self) -> u64 {
        self.moment
    }

    /// The receipt of a fallback, given that of one of its two backends, the primary of which consists of so many.
    pub(crate) fn of_one(self, is_secondary: bool, primaries: u32) -> Self {
        let own = self.backend.unwrap_or(0);
        if !is_secondary && own >= primaries {
            // A wrapper has not said of how many it consists. What was taken at this moment is not given back.
            return Self::at(0).of_one(false, 1);
        }
        let before = if is_secondary { primaries } else { 0 };
        let backend = Some(own.saturating_add(before));
        Self { backend, ..self }
    }

    /// Whether the secondary backend of a fallback took the cost, and its own receipt. The opposite of
    /// [`of_one`](Self::of_one).
    pub(crate) fn split(self, primaries: u32) -> (Option<bool>, Self) {
        let Some(own) = self.backend else {
            return (None, self);
        };
        let behind = own.checked_sub(primaries);
        let backend = Some(behind.unwrap_or(own));
        (Some(behind.is_some()), Self { backend, ..self })
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

    /// Two fallbacks as the backends of a third one.
    ///
    /// Shows promise 12.
    #[test]
    fn a_receipt_finds_the_backend_that_took_the_cost() {
        for moment in [0, 1, u64::MAX - 1, u64::MAX] {
            for (outer, inner, number) in [
                (false, false, 0),
                (false, true, 1),
                (true, false, 2),
                (true, true, 3),
            ] {
                let own = Receipt::at(moment);
                let of_inner = own.of_one(inner, 1);
                let of_outer = of_inner.of_one(outer, 2);
                assert_eq!((of_outer.moment, of_outer.backend), (moment, Some(number)));
                assert_eq!(of_outer.split(2), (Some(outer), of_inner));
                assert_eq!(of_inner.split(1).0, Some(inner));
                assert_eq!(own.split(1), (None, own));
            }
        }
        // The primary is a wrapper around a fallback, and says that it is one backend.
        let hidden = Receipt::at(7).of_one(true, 1).of_one(false, 1);
        assert_eq!((hidden.moment, hidden.split(1).0), (0, Some(false)));
    }
}
