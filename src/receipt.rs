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
    /// One that passed a fallback also says which backend of the fallback took the cost; see
    /// [`Receipt::taken_by`].
    moment: u64,
}

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
    /// The cost was taken just now: all of it is given back.
    pub const NOW: Self = Self { moment: u64::MAX };

    /// The receipt of a backend of your own that took a cost at `moment`, by its own clock and in
    /// its own unit.
    #[inline]
    pub const fn at(moment: u64) -> Self {
        Self { moment }
    }

    /// The moment that the backend passed to [`at`](Self::at); `u64::MAX` for [`NOW`](Self::NOW).
    #[inline]
    pub const fn moment(&self) -> u64 {
        self.moment
    }

    /// The receipt of a fallback whose backend `taker` gave this one.
    ///
    /// The moment is one more than that of the backend, moved left by a bit. The lowest bit is set if
    /// the primary backend took the cost. A moment that does not fit is lost, so the cost stays
    /// taken: after eight chained fallbacks if the clock has run for a year of nanoseconds, and after
    /// three for the time of a server.
    pub(crate) const fn taken_by(mut self, taker: Taker) -> Self {
        let own = match self.moment {
            u64::MAX => NOW_IN_FALLBACK,
            moment => moment.saturating_add(1),
        };
        self.moment = match taker {
            Taker::Any => u64::MAX,
            _ if self.moment < u64::MAX && own >= NOW_IN_FALLBACK => LOST,
            Taker::Primary => own << 1 | 1,
            Taker::Secondary => own << 1,
            Taker::Lost => LOST,
        };
        self
    }

    /// Which backend of a fallback took the cost, and the receipt of that backend.
    pub(crate) const fn split_taker(mut self) -> (Taker, Self) {
        let taker = match self.moment {
            u64::MAX => return (Taker::Any, self),
            0 | 1 => return (Taker::Lost, self),
            moment if moment % 2 == 1 => Taker::Primary,
            _ => Taker::Secondary,
        };
        self.moment = match self.moment >> 1 {
            NOW_IN_FALLBACK => u64::MAX,
            own => own - 1,
        };
        (taker, self)
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

    /// Shows promise 12.
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
