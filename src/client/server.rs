//! What is known of one server, as a pure transition: the time is an argument.
//!
//! ```text
//! unknown --send--> probing --response--> known --a window resets, or is no longer believed--> unknown
//!                      | lost: unknown      | denied: blocked until the time stated, then unknown
//!                      | PROBE: known, without limits
//! ```
//! While it is probing, no other request is sent. While it is known, a request takes one of what remains
//! in each window. As long as more than half remains it is sent at once; then requests are spaced over the
//! time until the reset, and if nothing remains they wait for it. A server that denies and states no limit
//! gets requests with a space between them, which grows with its denials.

use std::{mem, time::Duration};

use super::feedback::{Feedback, Window};
use crate::clock::Tick;
use crate::respond::spread;

/// How long others wait for the response to the first request.
const PROBE: Duration = Duration::from_secs(1);
/// What a server says is believed for at most so long. Then one request is sent to find out.
const BELIEVED: Duration = Duration::from_secs(3_600);
/// The wait after a denial that states none. It doubles with each denial in a row.
const BACKOFF: Duration = Duration::from_secs(1);
/// The least and the largest space between requests to a server that denies and states no limit.
const SPACES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

#[derive(Debug, Default)]
pub(super) struct KnownServer {
    /// No request is sent before.
    blocked: Tick,
    /// What the newest response stated, less the requests that were in flight and those sent since.
    windows: Vec<Window<Tick>>,
    /// When the windows are no longer believed.
    believed: Tick,
    is_known: bool,
    /// Until when others wait for a request that is in flight. Only while nothing is known.
    probe: Option<Tick>,
    /// Requests sent.
    sent: u64,
    /// Requests sent without a response so far.
    in_flight: u64,
    /// The number of the request whose response was the newest.
    newest: u64,
    /// When the last request was sent.
    pub(super) last: Tick,
    /// Denials in a row. Those that arrive while the server is blocked already are not counted.
    denials: u32,
    /// Between requests, if no limit is stated: doubled by a denial, and reduced by each success.
    space: Duration,
    /// How many percent longer than it has to the client waits at most, and a number that differs from those of
    /// other clients, so that they do not come back together.
    pub(super) jitter: (u32, u64),
    /// When the newest response came.
    told: Tick,
}

impl KnownServer {
    /// Forgets what no longer holds.
    pub(super) fn refresh(&mut self, now: Tick) {
        let count = self.windows.len();
        let mut windows = mem::take(&mut self.windows);
        windows.retain(|window| self.end(window) > now);
        self.is_known &= windows.len() == count;
        self.windows = windows;
        if self.probe.is_some_and(|until| until <= now) {
            (self.probe, self.is_known) = (None, true);
        }
    }

    /// Whether it has denied a request, and nothing is sent yet.
    pub(super) fn is_blocked(&self, now: Tick) -> bool {
        self.blocked > now
    }

    /// The earliest moment for a request that has `ahead` others before it.
    pub(super) fn turn(&self, ahead: u64) -> Tick {
        let windows = self.windows.iter();
        let turns = windows.map(|window| self.turn_in(window, ahead));
        let others = u32::try_from(ahead).unwrap_or(u32::MAX).saturating_add(1);
        let spaced = self.last.plus(self.space.saturating_mul(others));
        let blocked = self.blocked.max(self.probe.unwrap_or_default());
        turns.fold(blocked.max(spaced), Tick::max)
    }

    /// Until when a window counts.
    fn end(&self, window: &Window<Tick>) -> Tick {
        let end = match window.remaining {
            0 => self.told.plus(self.spread(window.reset.since(self.told))),
            _ => window.reset,
        };
        end.min(self.believed)
    }

    fn spread(&self, wait: Duration) -> Duration {
        let (percent, number) = self.jitter;
        spread(wait, percent, number.wrapping_add(self.newest))
    }

    fn turn_in(&self, window: &Window<Tick>, ahead: u64) -> Tick {
        let left = window.remaining.saturating_sub(ahead);
        if left == 0 {
            return self.end(window);
        }
        if window.limit.is_some_and(|limit| left > limit / 2) {
            return Tick::ZERO;
        }
        let span = window.reset.since(self.last).as_nanos();
        let share = span * u128::from(ahead + 1) / u128::from(window.remaining);
        let share = Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX));
        self.last.plus(share).min(self.believed)
    }

    /// Counts a request that is sent now, and returns its number.
    pub(super) fn send(&mut self, now: Tick) -> u64 {
        for window in &mut self.windows {
            window.remaining = window.remaining.saturating_sub(1);
        }
        if !self.is_known && self.probe.is_none() {
            self.probe = Some(now.plus(PROBE));
        }
        (self.sent, self.in_flight, self.last) = (self.sent + 1, self.in_flight + 1, now);
        self.sent
    }

    /// The request has ended without a response.
    pub(super) const fn lose(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.probe = None;
    }

    /// The response to request `number`. What it says is believed for an hour.
    pub(super) fn learn(&mut self, number: u64, feedback: &Feedback, now: Tick) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if number > self.newest {
            // The server may not have counted the others yet, whichever was sent first.
            let uncounted = self.in_flight;
            let windows = feedback.windows.iter().map(|window| Window {
                remaining: window.remaining.saturating_sub(uncounted),
                reset: now.plus(window.reset),
                limit: window.limit,
            });
            self.windows = windows.collect();
            (self.newest, self.told, self.believed) = (number, now, now.plus(BELIEVED));
            (self.is_known, self.probe) = (true, None);
        }
        if !feedback.windows.is_empty() {
            self.space = Duration::ZERO;
        } else if !feedback.is_denied {
            self.space -= self.space / 32;
        } else if self.blocked <= now {
            self.space = self.space.saturating_mul(2).clamp(SPACES[0], SPACES[1]);
        }
        if feedback.is_denied {
            let mut backoff = Duration::ZERO;
            if self.blocked <= now {
                backoff = BACKOFF.saturating_mul(1 << self.denials.min(20));
                self.denials = self.denials.saturating_add(1);
            }
            let wait = self.spread(feedback.wait.unwrap_or(backoff)).min(BELIEVED);
            self.blocked = self.blocked.max(now.plus(wait));
            // `Retry-After` outranks what remains.
            self.windows.clear();
            (self.is_known, self.probe) = (false, None);
        } else if number == self.newest {
            self.denials = 0;
        }
    }
}

#[cfg(test)]
mod tests;
