//! What one machine holds of a key, and how it decides.
//!
//! No clock and no I/O: the moment is an argument. Moments are those of the machine's own clock, of
//! which only differences count.

use std::time::Duration;

use super::exchange::{Limit, Reply, Report};
use super::shape::{Figures, MAX_UNITS, NEVER, ShapePart, signed};
use crate::clock::{Tick, nanos};

/// For how many exchanges without a denial a machine that has denied asks for no other one.
const WARY: u8 = 8;
/// How many exchanges it asks for in an interval at most. Each brings up to three quarters of what is left.
const MORE: u8 = 12;

/// The store's clock as this machine knows it from an exchange: when that was sent first and last, when its reply came,
/// and the store's time, which it was between the last two, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StoreTime {
    pub(super) begun: Tick,
    pub(super) sent: Tick,
    pub(super) received: Tick,
    pub(super) at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Admit,
    /// `None` if the cost is above the limit.
    Deny(Option<Duration>),
    /// An exchange of the key, which is to be sent at once, decides.
    Wait,
}

/// What one machine holds of a key.
///
/// A unit that was granted is in exactly one of: `left`; `used`; a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// What can be admitted before `until`, when it lapses or a fixed window ends.
    left: u64,
    until: Tick,
    /// Units used since the last report: granted ones, and others.
    used: u64,
    charged: u64,
    last_use: Tick,
    /// Units asked for since the last report, and up to it since the one before.
    demand: u32,
    last_demand: u32,
    /// The cost that waits for an exchange; or the largest that was denied since the last report for want of units.
    waiting: u32,
    /// Whether one was denied since the last report; and for how many reports it is wary of that.
    denies: bool,
    wary: u8,
    /// How many exchanges there were in this interval, beside its own.
    more: u8,
    /// The epoch of what is held.
    epoch: u64,
    /// Used units, reported before, that are given back; and the first moment at which any was used.
    given_back: u64,
    given_back_at: Tick,
    pub(super) resets: bool,
    reported: Tick,
    /// The last reply, if there was one, and when it came.
    reply: Option<Figures>,
    known_at: Tick,
}

impl Budget {
    #[inline]
    fn spend(&mut self, now: Tick, cost: u64) {
        self.left -= cost;
        self.used += cost;
        self.last_use = now;
    }

    /// Decides on a cost, or `again` on one that has waited: it was counted as asked for before.
    pub(super) fn decide(&mut self, limit: &Limit, now: Tick, cost: u64, again: bool) -> Answer {
        if cost > limit.shape.capacity {
            return Answer::Deny(None);
        }
        if !again {
            self.demand = self.demand.saturating_add(units(cost));
        }
        let (is_known, missing) = (now < self.until, signed(cost) - signed(self.left));
        let at_once = self.reply.map_or(0, |figures| figures.free) - signed(self.charged);
        let is_free = |now| missing <= at_once || missing <= self.free(limit, now);
        // A lease may include what refills later: by this clock somewhat later, whatever its rate.
        let early = || now.minus(now.since(self.known_at) / 1_024);
        if is_known && missing <= 0 && (limit.ahead || is_free(early())) {
            self.spend(now, cost);
            return Answer::Admit;
        }
        let Some(figures) = self.reply.filter(|_| is_known) else {
            return self.wait(cost);
        };
        let (age, interval) = (self.age(now), limit.interval);
        let wait = if !is_free(now) {
            figures.wait_for(interval, missing, age)
        } else if (self.wary > 0 || self.more >= MORE)
            && self.last_demand > 0
            && age < interval * 3 / 2
        {
            // The fleet asks for more than there is, so the machine waits for the exchange of its interval.
            interval.saturating_sub(age).max(1_000)
        } else {
            return self.wait(cost);
        };
        self.denies = true;
        self.waiting = self.waiting.max(units(cost));
        Answer::Deny(Some(Duration::from_micros(wait)))
    }

    fn wait(&mut self, cost: u64) -> Answer {
        self.waiting = self.waiting.saturating_add(units(cost));
        Answer::Wait
    }

    /// Microseconds since the last reply.
    fn age(&self, now: Tick) -> u64 {
        nanos(now.since(self.known_at)) / 1_000
    }

    /// Units of the fleet that are free at `now`, as far as this machine knows; negative if a lease is ahead of that.
    fn free(&self, limit: &Limit, now: Tick) -> i64 {
        let free = self.reply.map(|figures| {
            let refilled = figures.refilled(self.age(now));
            figures.free.saturating_add(signed(refilled))
        });
        let free = free.unwrap_or_else(|| signed(MAX_UNITS));
        let least = if limit.ahead { 0 } else { i64::MIN / 2 };
        least.max(free - signed(self.charged))
    }

    /// Takes a cost even if it is not free: what is held first.
    pub(super) fn charge(&mut self, now: Tick, cost: u64) {
        let cost = cost.min(MAX_UNITS);
        let held = if now < self.until {
            cost.min(self.left)
        } else {
            0
        };
        self.demand = self.demand.saturating_add(units(cost));
        self.spend(now, held);
        self.charged = self.charged.saturating_add(cost - held);
    }

    /// Gives back a cost that was taken at `at`. What is not yet reported becomes a part of the budget
    /// again; the rest is given back in the next exchange.
    pub(super) fn refund(&mut self, now: Tick, cost: u64, at: Tick) {
        let mut rest = cost.min(MAX_UNITS);
        if at >= self.reported {
            let uncharged = rest.min(self.charged);
            self.charged -= uncharged;
            rest -= uncharged;
            if now < self.until {
                let units = rest.min(self.used);
                self.used -= units;
                self.left += units;
                rest -= units;
            }
        }
        if rest > 0 {
            let is_first = self.given_back == 0 || at < self.given_back_at;
            self.given_back_at = if is_first { at } else { self.given_back_at };
            self.given_back = self.given_back.saturating_add(rest);
        }
    }

    /// Forgets all that is used, here at once and for the fleet in the next exchange.
    pub(super) fn reset(&mut self) {
        *self = Self {
            resets: true,
            reported: self.reported,
            ..Self::default()
        };
    }

    /// Units that it can admit.
    #[cfg(test)]
    pub(super) fn held(&self, now: Tick) -> u64 {
        if now < self.until { self.left } else { 0 }
    }

    /// Whether there is something to report, to give back or to ask for.
    pub(super) const fn is_due(&self) -> bool {
        let held = self.left + self.used + self.charged + self.given_back;
        held > 0 || self.demand > 0 || self.waiting > 0 || self.resets
    }

    /// Its requests have failed.
    pub(super) const fn give_up(&mut self) {
        (self.demand, self.waiting) = (0, 0);
    }

    /// Whether a machine that has forgotten the key decides alike.
    pub(super) fn is_forgettable(&self, limit: &Limit, now: Tick) -> bool {
        let is_unknown = self.reply.is_none() || now >= self.until;
        !self.is_due() && (is_unknown || self.free(limit, now) >= signed(limit.shape.capacity))
    }

    /// What a client is told at `now`: the part of the shape, its limit, what remains of it, and the
    /// nanoseconds until it is full.
    pub(super) fn told(&self, limit: &Limit, now: Tick) -> (usize, u64, u64, u64) {
        let figures = self.reply.unwrap_or_default();
        let part = usize::from(figures.part);
        let known = limit.shape.parts.get(part);
        let most = known.map_or(MAX_UNITS, ShapePart::capacity);
        let remaining = self.free(limit, now).min(signed(most)) + signed(self.left);
        let remaining = u64::try_from(remaining).unwrap_or(0).min(most);
        let used = self.used + self.charged;
        let full = match known {
            _ if used == 0 => figures.full,
            Some(ShapePart::Level(_)) => figures
                .full
                .saturating_add(used.saturating_mul(figures.per_unit)),
            // It counts from now on.
            Some(ShapePart::Cells(cells)) if cells.count > 1 => figures.renew + self.age(now),
            _ => figures.full.max(figures.renew),
        };
        let full = full.saturating_sub(self.age(now)).min(NEVER);
        (part, most, remaining, full.saturating_mul(1_000))
    }

    /// Takes out what is to be reported at `now`. As much as was used is kept until the reply comes, and the rest is
    /// given back; or all of it.
    pub(super) fn collect(
        &mut self,
        time: Option<&StoreTime>,
        now: Tick,
        returns_all: bool,
    ) -> Report {
        let at = time.map_or(NEVER, |time| time.store_time_of(self.last_use));
        // Somewhat early: a refund that is told late may fall into the next window, and free units that others used there.
        let given_back_at = time.map_or(0, |time| time.earliest_of(self.given_back_at));
        let is_quiet = self.demand == 0 || returns_all;
        let keep = if is_quiet || now >= self.until {
            0
        } else {
            self.used.min(self.left)
        };
        let returned = self.left - keep;
        self.left = keep;
        if let Some(figures) = &mut self.reply {
            // They are free again for the fleet, and so for a request here that waits for the exchange.
            figures.free += i64::try_from(returned).unwrap_or(0);
        }
        self.reported = now;
        // A machine that gives all back gets nothing, unless a request waits.
        let wants_nothing = returns_all && self.waiting == 0;
        let demand = std::mem::take(&mut self.demand);
        // The first exchange of a window asks for as much as the one before.
        let wanted = if demand > 0 {
            demand.max(self.last_demand)
        } else {
            0
        };
        self.last_demand = demand;
        self.wary = if std::mem::take(&mut self.denies) {
            WARY
        } else {
            self.wary.saturating_sub(1)
        };
        Report {
            epoch: self.epoch,
            used: std::mem::take(&mut self.used),
            kept: keep,
            returned,
            charged: std::mem::take(&mut self.charged),
            at,
            demand: if wants_nothing { 0 } else { wanted.into() },
            waiting: std::mem::take(&mut self.waiting).into(),
            given_back: std::mem::take(&mut self.given_back),
            given_back_at,
            resets: std::mem::take(&mut self.resets),
        }
    }

    /// Takes in the reply to a report.
    pub(super) fn adopt(&mut self, limit: &Limit, reply: &Reply, time: &StoreTime) {
        if self.resets {
            // It is of what is to be forgotten.
            return;
        }
        let grant = reply.grant;
        if !grant.keeps {
            // It has lapsed, and what was used of it meanwhile is charged already.
            (self.left, self.used) = (0, 0);
        }
        self.left += grant.units;
        self.epoch = grant.epoch;
        // Those that still wait decide again.
        self.waiting = 0;
        // A little less than the store's time, whatever the rates of the clocks.
        let life = (limit.life - limit.life / 1_024).saturating_sub(1_000);
        let ends = time.begun.plus(Duration::from_micros(life));
        let window_ends = time.sent.plus(Duration::from_micros(reply.window));
        self.until = ends.min(window_ends);
        let is_soon = self.age(time.begun) < limit.interval / 2;
        self.more = if is_soon {
            self.more.saturating_add(1)
        } else {
            0
        };
        self.known_at = time.received;
        self.reply = Some(reply.figures);
    }
}

/// At most [`MAX_UNITS`].
fn units(cost: u64) -> u32 {
    u32::try_from(cost).unwrap_or(u32::MAX)
}

impl StoreTime {
    /// The store's time at `moment`, or somewhat later, in microseconds, whatever the rates of the clocks.
    pub(super) fn store_time_of(&self, moment: Tick) -> u64 {
        let before = nanos(self.sent.since(moment)) / 1_000;
        let after = nanos(moment.since(self.sent)).div_ceil(1_000);
        (self.at + after + after.div_ceil(1_024)).saturating_sub(before - before / 1_024)
    }

    /// The store's time at `moment`, or somewhat earlier.
    fn earliest_of(&self, moment: Tick) -> u64 {
        let before = nanos(self.received.since(moment)).div_ceil(1_000);
        let after = nanos(moment.since(self.received)) / 1_000;
        (self.at + after - after.div_ceil(1_024)).saturating_sub(before + before.div_ceil(1_024))
    }
}

#[cfg(test)]
mod tests;
