//! The exchange of one key: what a machine used is charged, and units are granted.
//!
//! The fleet may use what the limit admits: for each part, the used units and the units *out* (granted
//! and not yet reported) are at most the limit whenever units are granted at once. Time lowers what is
//! used and never what is out. A unit that is used late counts from then on, so it raises a level or a
//! count by one at most, as it did while it was out.

use super::record::{Census, Record, Reply, Report, Settled, Spent, Terms};
use super::shape::{NEVER, Part, Shape, Used, signed};

/// Parts of a whole in which shares are counted.
const WHOLE: u64 = 1 << 16;
/// How many times its share of what is free a machine is granted, if the fleet asks for more than is
/// refilled: then less of the limit lies idle between the exchanges of many machines.
const GAIN: u64 = 4;
/// Where a demand stops to grow.
const MAX_DEMAND: u64 = 1 << 35;

/// The circumstances of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// By the store's clock, or the machine's if the store reports no time.
    pub(super) now: u64,
    pub(super) by_store: bool,
    /// The number of machines, at least 1.
    pub(super) machines: u64,
    /// A random number below 2^16.
    pub(super) dice: u64,
}

/// Charges and grants.
pub(super) fn exchange(
    (terms, shape): (&Terms, &Shape),
    record: &mut Record,
    report: &Report,
    moment: Moment,
) -> Reply {
    let mut key = Key {
        terms,
        shape,
        record,
        ahead: false,
    };
    let (now, mut lapsed) = key.settle(moment);
    let late = now.saturating_sub(moment.now);
    // A record that is lost knows no reset.
    let is_current = report.reset >= key.record.reset;
    let mut spent = [Spent::default(); 2];
    if is_current {
        key.record.reset = report.reset;
        if report.resets {
            key.record.reset(shape, now);
            lapsed = Default::default();
        }
        spent = key.settle_report(report, now, late);
    }
    // In their order: a cost counts in the window in which it was used.
    let mut charges = [lapsed[0], lapsed[1], spent[0], spent[1]];
    charges.sort_by_key(|charge| charge.at);
    for Spent { units, at } in charges.into_iter().filter(|charge| charge.units > 0) {
        key.charge(units, at);
    }
    key.advance(now);
    if is_current {
        let Spent { units, at } = report.given_back;
        key.parts()
            .for_each(|(part, used)| part.give_back(used, now, units, at.min(now)));
    }
    let mut reply = Reply {
        reset: key.record.reset,
        ..Reply::of(terms, now)
    };
    // A request may have waited since the report before.
    if report.demand > 0 || report.waiting > 0 {
        let share = key.share(report, moment.machines);
        if is_current {
            // A limit smaller than the fleet is decided by waiting for exchanges.
            key.ahead = terms.ahead && moment.machines <= shape.capacity();
            key.grant(&mut reply, report, (share, moment));
            key.grant_next(&mut reply, report, (share, moment.dice));
        }
    }
    key.add_figures(&mut reply);
    reply.with_places(record)
}

/// What is told at `now` of a key whose exchange was executed before, in `epoch`, and granted `grants`: the
/// figures of now, and the same grants.
pub(super) fn repeated(
    (terms, shape): (&Terms, &Shape),
    record: &mut Record,
    now: u64,
    (epoch, grants): (u64, &[u64]),
) -> Reply {
    let mut key = Key {
        terms,
        shape,
        record,
        ahead: false,
    };
    key.advance(now);
    let now = key.record.at;
    let mut reply = Reply {
        reset: key.record.reset,
        ..Reply::of(terms, now)
    };
    key.add_figures(&mut reply);
    let next_in = key.record.next_at.saturating_sub(now);
    reply.with_grants(terms, epoch, grants, next_in)
}

/// Counts a machine once per beat of ten intervals. Returns the beat and the number of machines.
pub(super) fn count_machine(terms: &Terms, census: &mut Census, beat: u64, now: u64) -> (u64, u64) {
    let current = now / (10 * terms.interval);
    if current != census.beat {
        let is_next = current == census.beat + 1;
        census.last = if is_next { census.running } else { 0 };
        census.running = 0;
        census.beat = current;
    }
    if beat != current {
        census.running += 1;
    }
    (
        current,
        census.running.max(census.last).max(terms.machines).max(1),
    )
}

impl Record {
    /// Of a key never seen.
    pub(super) fn new(shape: &Shape, now: u64) -> Self {
        Self {
            at: now,
            reset: 0,
            out: [0; 2],
            next: 0,
            next_at: 0,
            next_for: 0,
            next_places: 0,
            demand: [0; 2],
            used: shape.parts.iter().map(Part::unused).collect(),
        }
    }

    /// Forgets all that is used and out.
    pub(super) fn reset(&mut self, shape: &Shape, now: u64) {
        let reset = now.max(self.reset + 1);
        *self = Self {
            reset,
            ..Self::new(shape, now)
        };
    }
}

struct Key<'a> {
    terms: &'a Terms,
    shape: &'a Shape,
    record: &'a mut Record,
    ahead: bool,
}

impl Key<'_> {
    fn parts(&mut self) -> impl Iterator<Item = (&Part, &mut Used)> {
        self.shape.parts.iter().zip(&mut self.record.used)
    }

    /// Lets time pass up to `to`.
    fn advance(&mut self, to: u64) {
        let from = self.record.at;
        if to > from {
            self.parts()
                .for_each(|(part, used)| part.advance(used, from, to));
            self.record.at = to;
        }
    }

    fn charge(&mut self, units: u64, at: u64) {
        self.advance(at);
        let now = self.record.at;
        self.parts()
            .for_each(|(part, used)| part.charge(used, now, units, at));
    }

    /// Takes what has lapsed up to `now` from what is out. Returns it, and `now`, or the time of the
    /// record if that is a little later: or much later, if clocks of machines differ.
    fn settle(&mut self, Moment { now, by_store, .. }: Moment) -> (u64, [Spent; 2]) {
        let (life, interval) = (self.terms.life, self.terms.interval);
        // Another machine's clock may be ahead, and what it saw refilled is not refilled again.
        let patience = if by_store {
            0
        } else {
            self.shape.time_to_fill()
        };
        let Record {
            at,
            out,
            demand,
            next,
            next_at,
            next_for,
            next_places,
            ..
        } = &mut *self.record;
        let mut lapsed = [Spent::default(); 2];
        if now < *at {
            if *at - now <= interval.max(patience) {
                return (*at, lapsed);
            }
            // The store's clock was set back. Levels and counts stay as they are; the epochs of what is
            // out, which count by the clock, are over.
            lapsed[0] = Spent {
                units: out[0] + out[1],
                at: now,
            };
            (*out, *demand) = ([0; 2], [0; 2]);
            (*next, *next_at, *next_for, *next_places) = (0, 0, 0, 0);
            *at = now;
            return (now, lapsed);
        }
        *demand = match now / interval - *at / interval {
            0 => *demand,
            1 => [0, demand[0]],
            _ => [0, 0],
        };
        for (lapsed, end) in lapsed.iter_mut().zip([*at / life + 1, *at / life + 2]) {
            if now >= end * life {
                *lapsed = Spent {
                    units: out[1],
                    at: end * life,
                };
                *out = [0, out[0]];
            }
        }
        if *next_at <= now {
            (*next, *next_at, *next_for, *next_places) = (0, 0, 0, 0);
        }
        (now, lapsed)
    }

    /// Takes what is reported from what is out. Returns what is to be charged. The time of the record is
    /// `late` ahead.
    fn settle_report(&mut self, report: &Report, now: u64, late: u64) -> [Spent; 2] {
        let epoch = now / self.terms.life;
        let out = &mut self.record.out;
        // Units used of a grant that has lapsed: they are charged already.
        let mut charged = 0;
        for Settled {
            epoch: granted,
            used,
            returned,
        } in report.lots
        {
            let settled = used + returned;
            match epoch.checked_sub(granted) {
                Some(0) => out[0] = out[0].saturating_sub(settled),
                Some(1) => out[1] = out[1].saturating_sub(settled),
                _ => charged += used,
            }
        }
        if report.next_returned > 0 {
            self.record.next = self.record.next.saturating_sub(report.next_returned);
            // Which places are free is not known.
            self.record.next_places = 0;
        }
        report.spent.map(|Spent { units, at }| {
            let known = units.min(charged);
            charged -= known;
            Spent {
                units: units - known,
                at: at.saturating_add(late).min(now),
            }
        })
    }

    /// Notes the demand of a machine. Returns its share of the fleet's, in parts of `WHOLE`.
    fn share(&mut self, report: &Report, machines: u64) -> u64 {
        // As if it had reported after one interval.
        let interval = self.terms.interval;
        let elapsed = report.elapsed.clamp(interval / 2, 2 * interval);
        let demand = report.demand.min(MAX_DEMAND) * (WHOLE * interval / elapsed) / WHOLE;
        let demand = demand.max(1);
        let [running, last] = &mut self.record.demand;
        *running = (*running + demand).min(MAX_DEMAND);
        // Quiet machines would starve without the least; it is all while nothing is known of the others.
        let least = WHOLE.div_ceil(machines);
        match *last {
            0 => least,
            last => (demand * WHOLE / demand.max(last)).max(least),
        }
    }

    /// The units that are neither used nor out. Of the units out, those that may be used later do not count
    /// before; but all may be used then, and all places of a slot may be granted.
    fn free(&self, part: &Part, used: &Used) -> i64 {
        let Record {
            at,
            out,
            next,
            next_at,
            next_for,
            next_places,
            ..
        } = *self.record;
        let out = signed(out[0] + out[1]);
        let now = part.free(used, at) - out + signed(next);
        if next.max(next_places) == 0 {
            return now;
        }
        let places = signed(next_places.saturating_sub(next));
        now.min(part.free_at(next_at + next_for, used, at) - out - places)
    }

    /// The units that are free at `then`, if all that is out is used and nothing else.
    fn free_at(&self, then: u64) -> u64 {
        let Record { at, out, .. } = *self.record;
        let parts = self.shape.parts.iter().zip(&self.record.used);
        let free = parts.map(|(part, used)| part.free_at(then, used, at));
        unsigned(free.min().unwrap_or(0) - signed(out[0] + out[1]))
    }

    fn frees(&self) -> impl Iterator<Item = (&Part, &Used, i64)> {
        let parts = self.shape.parts.iter().zip(&self.record.used);
        parts.map(|(part, used)| (part, used, self.free(part, used)))
    }

    /// Whether the fleet asks for more than is refilled.
    fn is_over(&self) -> bool {
        self.record.demand[1] > self.shape.refill(self.terms.interval)
    }

    fn grant(&mut self, reply: &mut Reply, report: &Report, (share, moment): (u64, Moment)) {
        let Moment { machines, dice, .. } = moment;
        let (at, interval) = (self.record.at, self.terms.interval);
        // A machine gets no more than it is likely to use. Below the limit that is a guess: the rest stays
        // free for machines that have asked for nothing yet.
        let (share, cap) = if self.is_over() {
            // A machine that lies about its demand gets no more than it could use, or twice its equal part.
            let used = report.spent[0].units + report.spent[1].units;
            let usable = (4 * used + 8).max(2 * self.shape.capacity() / machines);
            ((share * GAIN).min(WHOLE), usable.min(2 * report.demand + 1))
        } else {
            (share, 8 * report.demand + 8)
        };
        let free = self.frees().map(|(_, _, free)| free).min().unwrap_or(0);
        let refill = if self.ahead {
            let all = self
                .frees()
                .map(|(part, used, _)| part.ahead(used, at, interval));
            all.min().unwrap_or(0)
        } else {
            0
        };
        let most = unsigned(free.saturating_add(signed(refill)));
        let free = unsigned(free);
        let mut total = most.min(cap).min((share * most + dice) / WHOLE);
        let mut grant = total.min((share * free).div_ceil(WHOLE));
        if report.waiting <= most {
            total = total.max(report.waiting);
            grant = grant.max(report.waiting);
        }
        (reply.grant, reply.ahead) = (grant, total - grant);
        self.record.out[0] += total;
    }

    /// Whether a fixed window begins before the exchange after the next one. Makes it that of the record, unless units
    /// are out that may be used from another moment on.
    fn begin_window(&mut self) -> bool {
        let at = self.record.at;
        let soon = at + self.terms.interval * 8 / 5;
        let ends = self
            .shape
            .parts
            .iter()
            .filter_map(|part| part.fixed_end(at));
        let Some(end) = ends.filter(|end| *end <= soon).max() else {
            return false;
        };
        if self.record.next == 0 {
            (
                self.record.next_at,
                self.record.next_for,
                self.record.next_places,
            ) = (end, 0, 0);
        }
        (self.record.next_at, self.record.next_for) == (end, 0)
    }

    /// Makes the next slot that of the record, unless that has another. Returns whether it is.
    fn begin_slot(&mut self) -> bool {
        let (at, interval) = (self.record.at, self.terms.interval);
        let start = self.shape.slot_end(at, interval);
        let end = self.shape.slot_end(start, interval);
        if self.record.next_at == 0 {
            self.record.next_places = self.free_at(end);
            (self.record.next_at, self.record.next_for) = (start, end - start);
        }
        (self.record.next_at, self.record.next_for) == (start, end - start)
    }

    /// Grants what is used later: in the next slot, or in a fixed window that begins soon.
    fn grant_next(&mut self, reply: &mut Reply, report: &Report, (share, dice): (u64, u64)) {
        if report.has_next {
            return;
        }
        let has_slots = self.shape.has_slots(self.terms.ahead);
        let begins = if has_slots {
            self.is_over() && self.begin_slot()
        } else {
            self.begin_window()
        };
        if !begins {
            return;
        }
        let free = self.free_at(self.record.next_at + self.record.next_for);
        let (all, left) = if has_slots {
            let all = self.record.next_places;
            (all, all.saturating_sub(self.record.next))
        } else {
            (self.shape.capacity(), free)
        };
        if left > free {
            // Something was charged where places are.
            return;
        }
        let next = left.min((share * all + dice) / WHOLE);
        if next > 0 {
            (reply.next, reply.next_in) = (next, self.record.next_at - self.record.at);
            self.record.out[0] += next;
            self.record.next += next;
        }
    }

    fn add_figures(&self, reply: &mut Reply) {
        let at = self.record.at;
        let least = (0..)
            .zip(self.frees())
            .min_by_key(|(_, (_, _, free))| *free);
        if let Some((index, (part, used, free))) = least {
            (reply.part, reply.full) = (index, part.time_to_full(used, at));
            let more = part.more(used, at);
            (reply.wait, reply.more, reply.per_unit) = (more.wait, more.units, more.per_unit);
            reply.free = free;
        }
        reply.over = self.is_over();
        // In cells shorter than an interval a cost counts as of the half of it in which it was used.
        let half = self.terms.interval / 2;
        let ends = self.shape.parts.iter().map(|part| match part {
            Part::Cells(grid) if grid.count == 1 || grid.is_weighted() => part.window_end(at),
            Part::Cells(_) => Some(at + half),
            Part::Level(_) => None,
        });
        reply.window = ends.flatten().min().map_or(NEVER, |end| end - at);
    }
}

fn unsigned(units: i64) -> u64 {
    u64::try_from(units).unwrap_or(0)
}

#[cfg(test)]
mod tests;
