//! What one machine holds of a key, and how it decides.
//!
//! No clock and no I/O: the moment is an argument. Moments are those of the machine's own clock, of
//! which only differences count.

use std::time::Duration;

use super::figures::{Figures, Rules, StoreTime};
use super::held::{Lot, Places, Rest, Ripening, Spending};
use super::record::{Reply, Report, Settled, Spent};
use super::shape::{MAX_UNITS, NEVER, Part, Shape, signed};
use crate::clock::{Tick, nanos};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Admit,
    /// `None` if the cost is above the limit.
    Deny(Option<Duration>),
    /// The next exchange decides; it is to be `now` if nothing is known of the key.
    Wait {
        now: bool,
    },
}

/// What one machine holds of a key: what most decisions need, and the rest.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    /// What can be admitted before `until`.
    usable: u64,
    /// When to look whether something begins or ends.
    until: Tick,
    last_use: Tick,
    /// Units asked for since the last report.
    demand: u64,
    /// Used units that are not yet taken off the lots.
    unassigned: u64,
    /// A cost of exactly `denied_cost` is denied before this moment.
    denied_until: Tick,
    denied_cost: u64,
    told: Stated,
    rest: Box<Rest>,
}

/// What a client is told.
#[derive(Clone, Copy, Debug, Default)]
struct Stated {
    /// Of the shape, and its limit.
    part: usize,
    limit: u64,
    /// Units that are free beside those of the budget.
    free: u64,
    /// When all is free, if nothing more is used.
    full_at: Tick,
    /// The least such moment if any unit is used now: of a window.
    renewed_at: Tick,
    /// By how many nanoseconds a unit delays it: of a level.
    unit: u64,
}

impl Budget {
    /// Takes a cost if the budget has it ready, and says whether it did.
    #[inline]
    pub(super) fn try_spend(&mut self, now: Tick, cost: u64) -> bool {
        if cost > self.usable || now >= self.until {
            return false;
        }
        self.demand = self.demand.saturating_add(cost);
        self.spend(now, cost);
        true
    }

    /// Decides on a cost.
    pub(super) fn decide(&mut self, rules: &Rules, now: Tick, cost: u64) -> Answer {
        self.demand = self.demand.saturating_add(cost);
        self.decide_slowly(rules, now, cost)
    }

    /// Decides, also again on a cost that has waited: it does not count as asked for.
    pub(super) fn decide_slowly(&mut self, rules: &Rules, now: Tick, cost: u64) -> Answer {
        if cost > rules.capacity {
            self.demand = self.demand.saturating_sub(cost);
            return Answer::Deny(None);
        }
        self.pass_time(rules, now);
        if cost <= self.usable {
            return self.spend(now, cost);
        }
        self.assign();
        let mut free = rules.capacity;
        let mut is_recent = false;
        if let Some(figures) = self.rest.figures {
            // The store does not know yet what this machine took itself, which is usable.
            let own = self.rest.own;
            free = figures.free(rules, now).saturating_sub(own);
            if free + self.usable < cost {
                let wait = figures.wait_for(rules, cost - self.usable + own, now);
                return self.deny(now, (cost, wait));
            }
            let age = nanos(now.since(figures.at));
            is_recent = age < rules.interval * 3 / 2;
            // A machine with so little traffic hardly holds a budget: its request waits.
            let is_quiet = self.demand.max(self.rest.last_demand) <= cost;
            if is_recent && figures.reply.over && !is_quiet {
                let rest = rules.interval.saturating_sub(age).max(1_000_000);
                return self.deny(now, (cost, Duration::from_nanos(rest)));
            }
        }
        if self.rest.figures.is_none() && self.rest.used() + cost > rules.capacity {
            // Of the fleet nothing is known, but this machine alone has used too much.
            return self.deny(now, (cost, Duration::from_nanos(rules.interval)));
        }
        let part = free.checked_div(rules.machines).unwrap_or(0);
        if rules.takes_ahead && !self.rest.has_taken && part + self.usable >= cost {
            self.rest.has_taken = true;
            self.rest.own += part;
            self.usable += part;
            return self.spend(now, cost);
        }
        self.rest.waiting = match self.rest.waiting {
            0 => cost,
            least => least.min(cost),
        };
        Answer::Wait { now: !is_recent }
    }

    /// Denies the same cost as before, if nothing has changed since.
    #[inline]
    pub(super) fn try_deny(&mut self, now: Tick, cost: u64) -> Option<Duration> {
        if cost != self.denied_cost || now >= self.denied_until.min(self.until) {
            return None;
        }
        self.demand = self.demand.saturating_add(cost);
        Some(self.denied_until.since(now))
    }

    /// Denies a cost, and the same until something changes.
    fn deny(&mut self, now: Tick, (cost, wait): (u64, Duration)) -> Answer {
        self.denied_cost = cost;
        // The time that a client is told ends no earlier.
        self.denied_until = if self.rest.ripening.left() > 0 {
            Tick::ZERO
        } else {
            now.plus(wait)
        };
        Answer::Deny(Some(wait))
    }

    #[inline]
    fn spend(&mut self, now: Tick, cost: u64) -> Answer {
        self.usable -= cost;
        self.unassigned += cost;
        self.last_use = now;
        Answer::Admit
    }

    /// Takes a cost even if it is not free.
    pub(super) fn charge(&mut self, rules: &Rules, now: Tick, cost: u64) {
        self.pass_time(rules, now);
        self.demand = self.demand.saturating_add(cost);
        self.unassigned += cost.min(MAX_UNITS);
        self.last_use = now;
        self.drop_units(cost);
    }

    /// Gives back a cost that was taken at `at`. What is not yet reported becomes a part of the budget
    /// again; the rest is given back in the next exchange.
    pub(super) fn refund(&mut self, rules: &Rules, now: Tick, cost: u64, at: Tick) {
        self.denied_until = Tick::ZERO;
        self.pass_time(rules, now);
        self.assign();
        let mut rest = cost.min(MAX_UNITS);
        if at >= self.rest.reported {
            for lot in self
                .rest
                .lots
                .iter_mut()
                .rev()
                .filter(|lot| now < lot.expires)
            {
                let units = rest.min(lot.used).min(self.rest.spent[1].units);
                lot.used -= units;
                lot.left += units;
                self.usable += units;
                self.rest.spent[1].units -= units;
                rest -= units;
            }
            if rules.takes_ahead {
                let units = rest
                    .min(self.rest.used_beside())
                    .min(self.rest.spent[1].units);
                self.rest.spent[1].units -= units;
                self.rest.own += units;
                self.usable += units;
                rest -= units;
                if let Some(figures) = &mut self.rest.figures {
                    figures.used = figures.used.saturating_sub(units);
                }
            }
            self.set_until();
        }
        if rest > 0 {
            let (units, first) = self.rest.given_back.unwrap_or((0, at));
            self.rest.given_back = Some((units.saturating_add(rest), first.min(at)));
        }
    }

    /// Forgets all that is used, here at once and for the fleet in the next exchange.
    pub(super) fn reset(&mut self) {
        *self.rest = Rest {
            reset: self.rest.reset,
            reported: self.rest.reported,
            resets: true,
            ..Rest::default()
        };
        *self = Self {
            rest: std::mem::take(&mut self.rest),
            ..Self::default()
        };
    }

    /// Whether there is something to report, to give back or to ask for.
    pub(super) fn is_due(&self) -> bool {
        let held = self.rest.lots.iter().any(|lot| lot.left + lot.used > 0);
        let [before, current] = self.rest.spent.map(|spending| spending.units);
        let used = [self.demand, self.unassigned, before, current];
        let asks = self.rest.resets || self.rest.waiting > 0;
        used.iter().any(|units| *units > 0) || held || asks || self.rest.given_back.is_some()
    }

    /// Whether nothing is known of the key.
    pub(super) const fn is_new(&self) -> bool {
        self.rest.figures.is_none()
    }

    /// Whether a machine that has forgotten the key decides alike.
    pub(super) fn is_forgettable(&self, rules: &Rules, now: Tick) -> bool {
        let is_full = |figures: Figures| figures.free(rules, now) >= rules.capacity;
        !self.is_due() && self.rest.figures.is_none_or(is_full)
    }

    /// Notes what clients are told, until something but the budget itself changes.
    pub(super) fn look(&mut self, rules: &Rules, shape: &Shape, now: Tick) {
        self.assign();
        let rest = &*self.rest;
        let since = rest.used();
        let (index, free, full, store_now) = match &rest.figures {
            None => (0, rules.capacity.saturating_sub(since + self.usable), 0, 0),
            Some(known) => {
                let elapsed = nanos(now.since(known.at)) / 1_000;
                let reply = &known.reply;
                let free = i128::from(reply.free) + i128::from(reply.refilled(elapsed));
                // The store does not know yet what this machine took itself.
                let free = u64::try_from(free - i128::from(known.used + rest.own)).unwrap_or(0);
                let full = reply.full.saturating_sub(elapsed);
                (reply.part, free, full, known.store_at + elapsed)
            }
        };
        let index = usize::try_from(index).unwrap_or(0);
        let part = shape.parts.get(index);
        let after = |micros: u64| now.plus(Duration::from_micros(micros));
        let (mut full_at, mut renewed_at, mut unit) = (after(full), Tick::ZERO, 0);
        match part {
            Some(part @ Part::Level(_)) => {
                full_at = after(full.saturating_add(part.time_to_renew(since, store_now)));
                unit = part.time_to_renew(1, store_now).saturating_mul(1_000);
            }
            Some(part @ Part::Cells(_)) => {
                renewed_at = after(part.time_to_renew(1, store_now));
                if since > 0 {
                    full_at = full_at.max(renewed_at);
                }
            }
            None => {}
        }
        let limit = shape.limit(index);
        self.told = Stated {
            part: index,
            limit,
            free,
            full_at,
            renewed_at,
            unit,
        };
    }

    /// What a client is told at `now`: the part of the shape, its limit, what remains of it, and the
    /// nanoseconds until it is full.
    #[inline]
    pub(super) fn told(&self, now: Tick) -> (usize, u64, u64, u64) {
        let (told, used) = (&self.told, self.unassigned);
        let renewed_at = if used > 0 {
            told.renewed_at
        } else {
            Tick::ZERO
        };
        let reset = nanos(told.full_at.max(renewed_at).since(now));
        let reset = reset.saturating_add(used.saturating_mul(told.unit));
        let remaining = (told.free + self.usable).min(told.limit);
        (told.part, told.limit, remaining, reset)
    }

    /// Takes out what is to be reported at `now`. What is not used until the reply comes, after about
    /// `round_trip` nanoseconds, is given back; or all if that is `None`.
    pub(super) fn collect(
        &mut self,
        rules: &Rules,
        time: Option<&StoreTime>,
        now: Tick,
        round_trip: Option<u64>,
    ) -> Report {
        self.pass_time(rules, now);
        self.assign();
        self.usable = self
            .usable
            .saturating_sub(std::mem::take(&mut self.rest.own));
        let elapsed = nanos(now.since(self.rest.reported))
            .min(2 * rules.interval)
            .max(1);
        self.rest.last_demand = self.demand;
        let is_quiet = self.demand == 0 || round_trip.is_none();
        let used = self.rest.used();
        let keep = u128::from(used) * 2 * u128::from(round_trip.unwrap_or(0)) / u128::from(elapsed);
        let keep = u64::try_from(keep + 1).unwrap_or(u64::MAX);
        let keep = if is_quiet || used == 0 {
            0
        } else {
            keep.min(self.usable)
        };
        let next_returned = if is_quiet {
            std::mem::take(&mut self.rest.next)
        } else {
            0
        };
        if is_quiet || !rules.ripens {
            self.rest.ripening = Ripening::default();
        }
        let left = self.rest.lots[0].left + self.rest.lots[1].left;
        let later = self.rest.next + self.rest.ripening.left();
        let mut excess = left.saturating_sub(keep + later);
        let lots = self.rest.lots.each_mut().map(|lot| {
            let returned = lot.left.min(excess);
            excess -= returned;
            lot.left -= returned;
            Settled {
                epoch: lot.epoch,
                used: std::mem::take(&mut lot.used),
                returned,
            }
        });
        if let Some(figures) = &mut self.rest.figures {
            // They are free again for the fleet, and so for a request here that waits for the exchange.
            let returned = lots.iter().map(|lot| lot.returned).sum::<u64>();
            figures.reply.free += signed(returned.saturating_sub(next_returned));
        }
        self.usable = keep;
        self.rest.reported = now;
        self.rest.settles_taken = self.rest.has_taken;
        let spent = std::mem::take(&mut self.rest.spent);
        let demand = std::mem::take(&mut self.demand);
        // A machine that gives all back gets nothing, unless a request waits.
        let wants_nothing = round_trip.is_none() && self.rest.waiting == 0;
        Report {
            reset: self.rest.reset,
            spent: spent.map(|Spending { units, at }| Spent {
                units,
                at: time.map_or(NEVER, |time| time.store_time_of(at)),
            }),
            lots,
            demand: if wants_nothing {
                0
            } else {
                demand.min(MAX_UNITS)
            },
            elapsed: elapsed / 1_000,
            waiting: std::mem::take(&mut self.rest.waiting),
            has_next: self.rest.next > 0,
            next_returned,
            given_back: self
                .rest
                .given_back
                .take()
                .map_or_else(Spent::default, |(units, at)| Spent {
                    units,
                    at: time.map_or(0, |time| time.store_time_of(at)),
                }),
            resets: std::mem::take(&mut self.rest.resets),
        }
    }

    /// Takes in the reply to a report.
    pub(super) fn adopt(&mut self, rules: &Rules, reply: &Reply, time: &StoreTime) {
        let now = time.received;
        self.denied_until = Tick::ZERO;
        self.pass_time(rules, now);
        self.assign();
        if self.rest.settles_taken {
            self.rest.has_taken = false;
        }
        let known = std::mem::replace(&mut self.rest.reset, reply.reset);
        if reply.reset > known {
            // What was granted before a reset does not count any more; what is used does.
            self.rest.lots = Default::default();
            (self.usable, self.rest.own, self.rest.next) = (0, 0, 0);
            self.rest.ripening = Ripening::default();
        }
        // The store does not know of it, and of what was taken: it granted the same units.
        let beside = self.rest.used_beside();
        let granted = reply.grant + reply.ahead + reply.next;
        if granted > 0 {
            // A little less than the store's time, whatever the rates of the clocks.
            let life = (reply.life - reply.life / 1_024).saturating_sub(1_000);
            self.add_lot(
                reply.epoch,
                time.sent.plus(Duration::from_micros(life)),
                granted,
            );
        }
        let covered = beside.min(reply.grant);
        let newest = &mut self.rest.lots[1];
        newest.left -= covered;
        newest.used += covered;
        let twice = self.rest.own.min(reply.grant - covered);
        self.rest.own -= twice;
        self.usable = self.usable + reply.grant - covered - twice;
        if !rules.ripens {
            self.rest.ripening = Ripening::new(reply.ahead, now, None);
        }
        if reply.next > 0 {
            self.rest.next += reply.next;
            let later = reply.next_in + reply.next_in / 1_024;
            self.rest.next_from = now.plus(Duration::from_micros(later));
            self.rest.places = Places::new(reply.first, reply.next, reply.places);
        }
        self.rest.window_end = time.sent.plus(Duration::from_micros(reply.window));
        self.rest.figures = Some(Figures {
            reply: *reply,
            at: now,
            store_at: time.at,
            used: beside - covered,
        });
        self.set_until();
    }

    fn add_lot(&mut self, epoch: u64, expires: Tick, units: u64) {
        let [oldest, newest] = &mut self.rest.lots;
        if newest.left + newest.used == 0 || newest.epoch == epoch {
            newest.expires = if newest.epoch == epoch {
                newest.expires.max(expires)
            } else {
                expires
            };
            newest.epoch = epoch;
            newest.left += units;
            return;
        }
        // The oldest is about to lapse, if there is anything left of it.
        let lapsed = oldest.left;
        *oldest = *newest;
        *newest = Lot {
            epoch,
            expires,
            left: units,
            used: 0,
        };
        self.drop_units(lapsed);
    }

    /// Units of a lot are no more: those that are usable first, and then those that would become so.
    fn drop_units(&mut self, mut units: u64) {
        let mut rest = self.rest.ripening.left();
        for held in [&mut self.usable, &mut self.rest.next, &mut rest] {
            let part = units.min(*held);
            *held -= part;
            units -= part;
        }
        self.rest.ripening.set_left(rest);
    }

    /// Takes what was used off the lots, oldest first.
    fn assign(&mut self) {
        let mut units = std::mem::take(&mut self.unassigned);
        if units == 0 {
            return;
        }
        self.rest.spent[1].units += units;
        self.rest.spent[1].at = self.last_use;
        for lot in &mut self.rest.lots {
            let part = units.min(lot.left);
            lot.left -= part;
            lot.used += part;
            units -= part;
        }
        self.rest.own = self.rest.own.saturating_sub(units);
        if let Some(figures) = &mut self.rest.figures {
            figures.used += units;
        }
    }

    /// Lets begin and end what is due at `now`.
    fn pass_time(&mut self, rules: &Rules, now: Tick) {
        if now >= self.until {
            self.begin_and_end(rules, now);
        }
        self.usable += self.rest.ripening.ripen(rules.interval, now);
    }

    fn begin_and_end(&mut self, rules: &Rules, now: Tick) {
        self.assign();
        if now >= self.rest.next_from {
            let next = std::mem::take(&mut self.rest.next);
            if rules.ripens && next > 0 {
                // What was to ripen in the slot before is free now.
                self.usable += self.rest.ripening.left();
                let places = Some(self.rest.places);
                self.rest.ripening = Ripening::new(next, self.rest.next_from, places);
            } else {
                self.usable += next;
            }
        }
        for index in 0..self.rest.lots.len() {
            if now >= self.rest.lots[index].expires {
                let lapsed = std::mem::take(&mut self.rest.lots[index].left);
                self.drop_units(lapsed);
            }
        }
        if now >= self.rest.window_end {
            let [before, current] = self.rest.spent;
            let at = before.at.max(current.at);
            self.rest.spent = [
                Spending {
                    units: before.units + current.units,
                    at,
                },
                Spending::default(),
            ];
            self.rest.window_end = Tick::MAX;
        }
        self.set_until();
    }

    fn set_until(&mut self) {
        let ends = self
            .rest
            .lots
            .iter()
            .filter(|lot| lot.left > 0)
            .map(|lot| lot.expires);
        let next = (self.rest.next > 0).then_some(self.rest.next_from);
        let first = ends.chain(next).chain([self.rest.window_end]).min();
        self.until = first.unwrap_or(Tick::MAX);
    }
}

#[cfg(test)]
mod tests;
