//! The exchange of one key: what a machine used is charged, and units are granted.
//!
//! For each part of the limit, the used units and the units *out* (granted and not yet reported) are at most what the
//! limit admits whenever units are granted, but for those that refill later. Time lowers what is used and never what is
//! out. A unit that is used late counts from then on, so it raises a level or a count by one at most, as it did while it
//! was out.

use super::shape::{Figures, MAX_USED, NEVER, Shape, ShapePart, Used, mul_div, signed};

/// By how many microseconds the store's clock may step back before what is out is given up.
const PATIENCE: u64 = 1_000_000;
/// How many times what is asked of a machine it is granted at most, and beside.
const GAIN: u64 = 8;
/// For how many intervals the fleet's demand is remembered, and in how many parts of a unit.
const MEMORY: u64 = 4;
const SCALE: u64 = 64;
/// Where a demand stops to grow.
const MAX_DEMAND: u64 = 1 << 35;

/// A limit, and what a machine has set. Times are microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::store) struct Limit {
    pub(super) shape: Shape,
    /// Between two exchanges.
    pub(super) interval: u64,
    /// For how long a grant is good.
    pub(super) life: u64,
    /// Whether the refill of the coming interval is granted.
    pub(super) ahead: bool,
}

/// What the store keeps of a key. It does not name machines, and does not grow with their number.
///
/// A unit that was granted is in exactly one of: `out`, until it is reported, given back or lapses;
/// `used`, once it is reported or has lapsed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Record {
    /// The time of the last exchange: all else is as of then.
    pub(super) at: u64,
    /// The number of the current epoch, which begins with the time of the first exchange: so no other value of the
    /// key had the same. When it ends, and how long the next one is at least: as long as what is granted now is good.
    pub(super) epoch: u64,
    pub(super) ends: u64,
    pub(super) length: u64,
    /// Units granted and not yet reported: those of the current epoch, and of the one before.
    pub(super) out: [u64; 2],
    /// What was asked of the fleet lately: the less, the longer ago.
    pub(super) asked: u64,
    /// From when on levels are as good as unused, by the limits of those that took what is in them.
    pub(super) full_at: u64,
    /// Per part of the shape.
    pub(super) used: Vec<Used>,
}

/// What a machine reports of a key, and wants of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::store) struct Report {
    /// The epoch of what the machine holds; 0 if it knows none.
    pub(super) epoch: u64,
    /// What becomes of it: units that were used, that it goes on to hold, and that it gives back.
    pub(super) used: u64,
    pub(super) kept: u64,
    pub(super) returned: u64,
    /// Units that were taken beside what was granted.
    pub(super) charged: u64,
    /// The last moment at which any was used or taken. A moment after the exchange counts as the exchange.
    pub(super) at: u64,
    /// Units asked for, admitted or not.
    pub(super) demand: u64,
    /// The largest cost that was not admitted for want of units; 0 if none.
    pub(super) waiting: u64,
    /// Used units, reported before, that are given back; and the first moment at which any was used.
    pub(super) given_back: u64,
    pub(super) given_back_at: u64,
    /// Whether all that was used and out before this report is to be forgotten.
    pub(super) resets: bool,
}

/// What is granted of a key: it is the same if a batch is sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Grant {
    pub(super) epoch: u64,
    pub(super) units: u64,
    /// Whether what the machine kept is granted anew. If not, it has lapsed.
    pub(super) keeps: bool,
}

/// The reply for a key: a grant, and the figures of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::store) struct Reply {
    pub(super) grant: Grant,
    pub(super) figures: Figures,
    /// Microseconds until a fixed window ends; [`NEVER`] if none does.
    pub(super) window: u64,
}

impl Grant {
    pub(super) fn list(self) -> Vec<u64> {
        vec![self.epoch, self.units, self.keeps.into()]
    }

    pub(super) fn of(list: &[u64]) -> Option<Self> {
        let [epoch, units, keeps]: [u64; 3] = list.try_into().ok()?;
        let keeps = keeps > 0;
        Some(Self {
            epoch,
            units,
            keeps,
        })
    }
}

impl Record {
    /// Of a key never seen.
    pub(super) fn new(limit: &Limit, now: u64) -> Self {
        Self {
            at: now,
            epoch: now,
            ends: now + limit.life,
            length: limit.life,
            out: [0; 2],
            asked: 0,
            full_at: now,
            used: limit.shape.parts.iter().map(ShapePart::unused).collect(),
        }
    }

    /// The numbers of its value: of itself, and of each part.
    pub(super) fn lists(&self) -> Vec<Vec<u64>> {
        let [out, before] = self.out;
        let head = [
            self.at,
            self.epoch,
            self.ends,
            self.length,
            out,
            before,
            self.asked,
            self.full_at,
        ];
        let mut lists = vec![head.to_vec()];
        lists.extend(self.used.iter().cloned());
        lists
    }

    /// `None` if they are not those of a record.
    pub(super) fn of_lists(mut lists: Vec<Vec<u64>>, shape: &Shape) -> Option<Self> {
        let head: [u64; 8] = std::mem::take(lists.first_mut()?).try_into().ok()?;
        let [at, epoch, ends, length, out, before, asked, full_at] = head;
        let used = lists.split_off(1);
        let mut parts = shape.parts.iter().zip(&used);
        let is_valid =
            used.len() == shape.parts.len() && parts.all(|(part, used)| part.is_valid(used));
        is_valid.then_some(Self {
            at,
            epoch,
            ends,
            length,
            out: [out, before],
            asked,
            full_at,
            used,
        })
    }

    /// Charges and grants at `now`, by the store's clock, or by the machine's if the store reports no time. If it
    /// `is_unsure`, the report may have been executed before: what was used counts again, and nothing else happens twice.
    /// What is not taken from what is out lapses.
    pub(super) fn exchange(
        &mut self,
        limit: &Limit,
        report: &Report,
        (now, by_store): (u64, bool),
        is_unsure: bool,
    ) -> Reply {
        let mut report = *report;
        if is_unsure {
            report.charged += report.used;
            (report.used, report.returned, report.given_back) = (0, 0, 0);
        }
        // The time of the record may be a little later than now: or much later, if clocks of machines differ.
        let last = self.at;
        let at = self.settle(limit, (now, by_store));
        if report.resets {
            let epoch = self.epoch + 2;
            *self = Self {
                epoch,
                ..Self::new(limit, at)
            };
        }
        let keeps = self.settle_report(&report);
        let shape = &limit.shape;
        let used = if keeps { report.used } else { 0 };
        let used_at = report.at.saturating_add(at - now).min(at);
        self.charge(shape, used + report.charged, used_at);
        self.advance(shape, at);
        for (part, used) in shape.parts.iter().zip(&mut self.used) {
            part.give_back(used, at, report.given_back, report.given_back_at.min(at));
        }
        let units = self.grant(limit, &report, at.saturating_sub(last));
        self.extend(shape, units + report.kept + report.charged);
        let grant = Grant {
            epoch: self.epoch,
            units,
            keeps,
        };
        self.reply(shape, grant)
    }

    /// Lets time pass up to `to`.
    pub(super) fn advance(&mut self, shape: &Shape, to: u64) {
        if to > self.at {
            for (part, used) in shape.parts.iter().zip(&mut self.used) {
                part.advance(used, self.at, to);
            }
            self.at = to;
        }
    }

    /// Counts units that were used at a moment, which is at most that of the exchange.
    fn charge(&mut self, shape: &Shape, units: u64, at: u64) {
        if units > 0 {
            self.advance(shape, at);
            for (part, used) in shape.parts.iter().zip(&mut self.used) {
                part.charge(used, self.at, units, at);
            }
        }
    }

    /// Charges what has lapsed up to `now`. Returns that, or the time of the record if it is a little later.
    fn settle(&mut self, limit: &Limit, (now, by_store): (u64, bool)) -> u64 {
        // Another machine's clock may be ahead, and what it saw refilled is not refilled again.
        let shape = &limit.shape;
        let patience = if by_store { 0 } else { shape.time_to_fill() }.max(PATIENCE);
        if now + patience < self.at {
            // The store's clock was set back. Levels and counts stay as they are, and go on from now.
            let out = self.out[0] + self.out[1];
            self.out = [0; 2];
            self.full_at = (self.full_at + now).saturating_sub(self.at);
            self.at = now;
            self.epoch += 2;
            (self.ends, self.length) = (now + limit.life, limit.life);
            self.charge(shape, out, now);
        }
        let now = now.max(self.at);
        for _ in 0..2 {
            if now >= self.ends {
                let [out, before] = self.out;
                self.charge(shape, before, self.ends);
                self.out = [0, out];
                self.epoch += 1;
                (self.ends, self.length) = (self.ends + self.length, limit.life);
            }
        }
        if now >= self.ends {
            // Nothing is out any more.
            self.ends = now + limit.life;
        }
        if now >= self.full_at {
            let parts = shape.parts.iter().zip(&mut self.used);
            let levels = parts.filter(|(part, _)| matches!(part, ShapePart::Level(_)));
            levels.for_each(|(part, used)| *used = part.unused());
        }
        now
    }

    /// These units were taken or granted: they drain as this limit says, after those before. Another limit may be lower.
    fn extend(&mut self, shape: &Shape, units: u64) {
        let out = self.out[0] + self.out[1];
        // Until then what is out may begin to drain.
        let from = if out > 0 {
            self.ends + self.length
        } else {
            self.at
        };
        let parts = shape.parts.iter().zip(&self.used);
        let all = parts.map(|(part, used)| part.drains_in(part.taken(used, self.at) + out));
        let more = shape.parts.iter().map(|part| part.drains_in(units));
        let [all, more] = [all.max(), more.max()].map(Option::unwrap_or_default);
        self.full_at = (from + all).min(self.full_at.max(from) + more);
    }

    /// Subtracts the reported units from those that are out. Returns false if they have lapsed: then they are charged
    /// already.
    fn settle_report(&mut self, report: &Report) -> bool {
        let age = usize::try_from(self.epoch.wrapping_sub(report.epoch));
        let Some(out) = age.ok().and_then(|age| self.out.get_mut(age)) else {
            return false;
        };
        *out = out.saturating_sub(report.used + report.kept + report.returned);
        self.out[0] += report.kept;
        true
    }

    /// A machine gets as much as its share of what is asked of the fleet, of what is free and refills in an interval;
    /// but an eighth of what is free at least and three quarters at most, and a few times what is asked of it.
    fn grant(&mut self, limit: &Limit, report: &Report, elapsed: u64) -> u64 {
        self.length = self.length.max(limit.life);
        let (demand, memory) = (report.demand.min(MAX_DEMAND), MEMORY * limit.interval);
        let asked = mul_div(self.asked, memory, memory + elapsed);
        self.asked = (asked + SCALE * demand).min(MAX_USED);
        if report.demand == 0 && report.waiting == 0 {
            return 0;
        }
        let out = signed(self.out[0] + self.out[1]);
        let parts = &limit.shape.parts;
        let span = match (limit.ahead, &parts[..]) {
            (true, _) => limit.interval,
            // Until the next exchange, if that comes after as long a time as this one did. The machine uses the units
            // as they refill.
            (false, [ShapePart::Cells(_)]) => elapsed.min(limit.interval),
            _ => 0,
        };
        let most = parts.iter().zip(&self.used).map(|(part, used)| {
            let refill = part.refill(limit.interval);
            let ahead = part.ahead(used, self.at, span).min(refill);
            part.free(used, self.at) - out + signed(ahead)
        });
        let most = u64::try_from(most.min().unwrap_or(0)).unwrap_or(0);
        let refill = parts.iter().map(|part| part.refill(limit.interval));
        let pool = most + refill.min().unwrap_or(0);
        let share = mul_div(pool, MEMORY * SCALE * demand, self.asked.max(1));
        let units = share
            .max(most / 8)
            .min(most - most / 4)
            .min(GAIN * demand + GAIN);
        // Who waits for more than is free gets something at least: else it would ask again and again.
        let least = if report.waiting <= most {
            report.waiting
        } else {
            most.min(1)
        };
        let units = units.max(least);
        self.out[0] += units;
        units
    }

    /// The reply with a grant.
    pub(super) fn reply(&self, shape: &Shape, grant: Grant) -> Reply {
        let parts = || shape.parts.iter().zip(&self.used);
        let figures = parts().map(|(part, used)| part.figures(used, self.at));
        let least = (0..).zip(figures).min_by_key(|(_, figures)| figures.free);
        let (part, mut figures) = least.unwrap_or_default();
        if let Some(ShapePart::Level(_)) = shape.parts.get(usize::from(part)) {
            let rest = self.full_at.saturating_sub(self.at);
            (figures.full, figures.longest) = (figures.full.min(rest), figures.longest.min(rest));
        }
        let windows = parts().filter_map(|(part, _)| part.window_rest(self.at));
        Reply {
            grant,
            figures: Figures {
                free: figures.free - signed(self.out[0] + self.out[1]),
                part,
                ..figures
            },
            window: windows.min().unwrap_or(NEVER),
        }
    }
}
