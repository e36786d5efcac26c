//! At most so many in each window.

use std::time::Duration;

use super::{Algorithm, Inherit, packing, windows::Windows};
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::Quota;

/// At most L in each window of length W.
///
/// Windows are aligned to the clock (see [`MonotonicClock`](crate::clock::MonotonicClock) for where they
/// begin) or, [`anchored`](Self::anchored), open at a key's first admitted request.
///
/// The cheapest algorithm and the roughest: a client may use one window's limit at its end and the
/// next one's at its start, 2L within an instant.
///
/// ```text
/// limit 3        |·········W·········|···················|
/// requests        x      x  x x  x    x x x x
/// admitted        ✓      ✓  ✓         ✓ ✓ ✓
/// denied                      ✗  ✗          ✗  retry_after: to the next |
/// ```
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{FixedWindow, Limiter, ManualClock, Quota};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::with_clock(FixedWindow::new(Quota::per_minute(2)), clock.clone());
/// clock.advance(Duration::from_secs(59));
/// assert_eq!(limiter.check_n(2).reset_after, Duration::from_secs(1));
/// assert!(limiter.check().is_denied());
/// clock.advance(Duration::from_secs(1));
/// assert!(limiter.check().is_admitted());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    quota: Quota,
    windows: Windows,
    anchored: bool,
}

/// What [`FixedWindow`] remembers of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedWindowState {
    /// The window that `used` belongs to: its number if aligned, its first nanosecond plus one if
    /// anchored; 0 is "none yet".
    window: u64,
    used: u64,
}

/// The window that a request falls into.
struct OpenWindow {
    state: FixedWindowState,
    /// Nanoseconds until that window is over.
    left: u64,
}

impl FixedWindow {
    /// Windows aligned to the clock, each with the quota's limit. The burst is not used.
    pub const fn new(quota: Quota) -> Self {
        Self {
            windows: Windows::new(quota.period_ns(), 0),
            quota,
            anchored: false,
        }
    }

    /// Opens a key's window at its first admitted request instead, and the next one at the first
    /// request admitted after its end.
    #[must_use]
    pub const fn anchored(mut self) -> Self {
        self.anchored = true;
        self
    }

    /// Lets aligned windows begin at `offset + k * period`: a user's midnight instead of UTC's.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{FixedWindow, Quota};
    ///
    /// let from_six = FixedWindow::new(Quota::per_day(1_000)).offset(Duration::from_secs(6 * 3600));
    /// # let _ = from_six;
    /// ```
    #[must_use]
    pub fn offset(mut self, offset: Duration) -> Self {
        self.windows = Windows::new(self.windows.length(), nanos(offset));
        self
    }

    /// The state carried to `now`: the open window, or a new and empty one.
    #[inline]
    fn place(&self, state: FixedWindowState, now: Tick) -> OpenWindow {
        if self.anchored {
            let end = state.window.saturating_add(self.windows.length()) - 1;
            return if state.window > 0 && now.as_nanos() < end {
                OpenWindow {
                    state,
                    left: end - now.as_nanos(),
                }
            } else {
                OpenWindow {
                    state: FixedWindowState {
                        window: now.as_nanos() + 1,
                        used: 0,
                    },
                    left: self.windows.length(),
                }
            };
        }
        let (window, elapsed) = self.windows.locate(now);
        // Numbers start at 1, so that 0 stays free for "none yet".
        let window = window + 1;
        if state.window > window {
            // `now` is older than the state: the newer window counts.
            OpenWindow {
                state,
                left: self.windows.until(state.window, 0, now),
            }
        } else {
            OpenWindow {
                state: FixedWindowState {
                    window,
                    used: if state.window == window {
                        state.used
                    } else {
                        0
                    },
                },
                left: self.windows.length() - elapsed,
            }
        }
    }

    #[inline]
    fn answer(&self, verdict: Verdict, place: &OpenWindow, retry_after: Option<u64>) -> Decision {
        Decision::new(
            verdict,
            self.quota.limit(),
            self.quota.limit().saturating_sub(place.state.used),
            retry_after,
            if place.state.used == 0 { 0 } else { place.left },
        )
    }

    /// Counts take as many bits as the limit does.
    #[inline]
    const fn count_bits(&self) -> u32 {
        u64::BITS - self.quota.limit().leading_zeros()
    }
}

impl Algorithm for FixedWindow {
    type State = FixedWindowState;

    fn quota(&self) -> Quota {
        self.quota
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        Ok(Self {
            quota,
            windows: self.windows.with_length(quota.period_ns()),
            anchored: self.anchored,
        })
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> FixedWindowState {
        FixedWindowState::default()
    }

    #[expect(clippy::inline_always, reason = "as for the token bucket")]
    #[inline(always)]
    fn decide(&self, state: &mut FixedWindowState, now: Tick, cost: u64) -> Decision {
        let mut place = self.place(*state, now);
        let limit = self.quota.limit();
        if cost > 0 && cost > limit.saturating_sub(place.state.used) {
            let retry_after = (cost <= limit).then_some(place.left);
            return self.answer(Verdict::Deny, &place, retry_after);
        }
        if cost > 0 {
            place.state.used += cost;
            *state = place.state;
        }
        self.answer(Verdict::Admit, &place, None)
    }

    fn refund(&self, state: &mut FixedWindowState, now: Tick, cost: u64) {
        let place = self.place(*state, now);
        if place.state.window == state.window {
            state.used = place.state.used.saturating_sub(cost);
        }
    }

    fn charge(&self, state: &mut FixedWindowState, now: Tick, cost: u64) -> Duration {
        let mut place = self.place(*state, now);
        if cost > 0 {
            place.state.used = place
                .state
                .used
                .saturating_add(cost)
                .min(Tick::MAX.as_nanos());
            *state = place.state;
        }
        let in_debt = place.state.used > self.quota.limit();
        Duration::from_nanos(if in_debt { place.left } else { 0 })
    }

    fn rescale(&self, state: &mut FixedWindowState, from: &Self, now: Tick, inherit: Inherit) {
        if inherit == Inherit::Reset {
            *state = self.fresh(now);
            return;
        }
        let open = from.place(*state, now).state;
        if open.window != state.window {
            // Its window was over already; a longer one must not open it again.
            *state = self.fresh(now);
        } else if self.anchored != from.anchored || (!self.anchored && self.windows != from.windows)
        {
            // An anchored window keeps its start; so does an aligned one of the same grid.
            *state = FixedWindowState {
                used: open.used,
                ..self.place(self.fresh(now), now).state
            };
        }
    }

    fn forgettable_at(&self, state: &FixedWindowState) -> Tick {
        if state.used == 0 && !self.anchored {
            Tick::ZERO
        } else if self.anchored {
            let end = state.window.saturating_add(self.windows.length()) - 1;
            Tick::from_nanos(if state.window == 0 { 0 } else { end })
        } else {
            self.windows.start(state.window)
        }
    }

    #[inline]
    fn pack(&self, state: &FixedWindowState) -> Option<u64> {
        let bits = self.count_bits();
        // The last word stays free.
        if state.used > self.quota.limit() || state.window >= u64::MAX >> bits {
            return None;
        }
        Some(state.window << bits | state.used)
    }

    #[inline]
    fn unpack(&self, word: u64) -> FixedWindowState {
        let bits = self.count_bits();
        FixedWindowState {
            window: word >> bits,
            used: word & ((1 << bits) - 1),
        }
    }

    fn words(&self) -> usize {
        let window = if self.anchored {
            packing::TIME_BITS
        } else {
            packing::bits((1 << packing::TIME_BITS) / self.windows.length())
        };
        packing::words(window + self.count_bits())
    }

    #[inline]
    fn pack_into(&self, state: &FixedWindowState, words: &mut [u64]) -> bool {
        match words {
            [word] => {
                let bits = self.count_bits();
                *word = state.window << bits | state.used;
                state.used >> bits == 0 && state.window >> (63 - bits) == 0
            }
            [window, used, ..] => {
                (*window, *used) = (state.window, state.used);
                state.window >> 63 == 0
            }
            [] => false,
        }
    }

    #[inline]
    fn unpack_from(&self, words: &[u64]) -> FixedWindowState {
        match *words {
            [word] => self.unpack(word),
            [window, used, ..] => FixedWindowState { window, used },
            [] => FixedWindowState::default(),
        }
    }
}

/// For a store elsewhere that decides by a script.
#[cfg(feature = "redis")]
impl FixedWindow {
    /// The length and the offset of its windows, and whether they are anchored.
    pub(crate) const fn shape(&self) -> (u64, u64, bool) {
        (self.windows.length(), self.windows.offset(), self.anchored)
    }

    pub(crate) const fn state(window: u64, used: u64) -> FixedWindowState {
        FixedWindowState { window, used }
    }
}
