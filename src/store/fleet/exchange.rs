//! The exchange of one key: what a machine used is charged, and units are granted.
//!
//! For each part of the limit, the used units and the units *out* (granted and not yet reported) are at most what the
//! limit admits whenever units are granted. Time lowers what is used and never what is out. A unit that is used late
//! counts from then on, so it raises a level or a count by one at most, as it did while it was out.

use super::record::{Grant, Record, Reply, Report, Terms};
use super::shape::{Figures, MAX_USED, NEVER, Part, Shape, signed};

/// By how many microseconds the store's clock may step back before what is out is given up.
const PATIENCE: u64 = 1_000_000;
/// How many times what is asked of a machine it is granted at most, and beside.
const GAIN: u64 = 8;
/// For how many intervals the fleet's demand is remembered, and in how many parts of a unit.
const MEMORY: u64 = 4;
const SCALE: u64 = 64;
/// Where a demand stops to grow.
const MAX_DEMAND: u64 = 1 << 35;

/// Charges and grants at `now`, by the store's clock, or by the machine's if the store reports no time.
pub(super) fn exchange(
    terms: &Terms,
    shape: &Shape,
    record: &mut Record,
    report: &Report,
    (now, by_store): (u64, bool),
) -> Reply {
    // The time of the record may be a little later than now: or much later, if clocks of machines differ.
    let last = record.at;
    let at = record.settle(shape, terms, (now, by_store));
    if report.resets {
        *record = Record {
            reset: record.epoch + 2,
            epoch: record.epoch + 2,
            ..Record::new(shape, terms, at)
        };
    }
    let keeps = record.settle_report(report);
    if report.resets || report.epoch == 0 || report.epoch >= record.reset {
        let used = if keeps { report.used } else { 0 };
        let used_at = report.at.saturating_add(at - now).min(at);
        record.charge(shape, used + report.charged, used_at);
        record.advance(shape, at);
        for (part, used) in shape.parts.iter().zip(&mut record.used) {
            part.give_back(used, at, report.given_back, report.given_back_at.min(at));
        }
    }
    record.advance(shape, at);
    let units = record.grant(shape, terms, report, at.saturating_sub(last));
    let grant = Grant {
        epoch: record.epoch,
        units,
        keeps,
    };
    Reply {
        grant,
        ..record.figures(shape)
    }
}

/// The reply at `now` for a key whose exchange was executed before: the figures of now, and the same grant.
pub(super) fn repeated(shape: &Shape, record: &mut Record, now: u64, grant: Grant) -> Reply {
    record.advance(shape, now);
    Reply {
        grant,
        ..record.figures(shape)
    }
}

impl Record {
    /// Of a key never seen.
    pub(super) fn new(shape: &Shape, terms: &Terms, now: u64) -> Self {
        Self {
            at: now,
            reset: 0,
            epoch: now,
            ends: now + terms.life,
            length: terms.life,
            out: [0; 2],
            asked: 0,
            used: shape.parts.iter().map(Part::unused).collect(),
        }
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
    fn settle(&mut self, shape: &Shape, terms: &Terms, (now, by_store): (u64, bool)) -> u64 {
        // Another machine's clock may be ahead, and what it saw refilled is not refilled again.
        let patience = if by_store {
            PATIENCE
        } else {
            PATIENCE.max(shape.time_to_fill())
        };
        if now + patience < self.at {
            // The store's clock was set back. Levels and counts stay as they are, and go on from now.
            let out = self.out[0] + self.out[1];
            self.out = [0; 2];
            self.at = now;
            self.epoch += 2;
            (self.ends, self.length) = (now + terms.life, terms.life);
            self.charge(shape, out, now);
        }
        let now = now.max(self.at);
        for _ in 0..2 {
            if now >= self.ends {
                let [out, before] = self.out;
                self.charge(shape, before, self.ends);
                self.out = [0, out];
                self.epoch += 1;
                (self.ends, self.length) = (self.ends + self.length, terms.life);
            }
        }
        if now >= self.ends {
            // Nothing is out any more.
            self.ends = now + terms.life;
        }
        now
    }

    /// Subtracts the reported units from those that are out. Returns false if they have lapsed: then they are charged
    /// already.
    fn settle_report(&mut self, report: &Report) -> bool {
        let age = self.epoch.wrapping_sub(report.epoch);
        let Some(out) = usize::try_from(age)
            .ok()
            .and_then(|age| self.out.get_mut(age))
        else {
            return false;
        };
        *out = out.saturating_sub(report.used + report.kept + report.returned);
        self.out[0] += report.kept;
        true
    }

    /// A machine gets as much as its share of what is asked of the fleet, of what is free and refills in an interval;
    /// but an eighth of what is free at least and three quarters at most, and a few times what is asked of it.
    fn grant(&mut self, shape: &Shape, terms: &Terms, report: &Report, elapsed: u64) -> u64 {
        self.length = self.length.max(terms.life);
        let (demand, memory) = (report.demand.min(MAX_DEMAND), MEMORY * terms.interval);
        let asked = mul_div(self.asked, memory, memory + elapsed);
        self.asked = (asked + SCALE * demand).min(MAX_USED);
        if report.demand == 0 && report.waiting == 0 {
            return 0;
        }
        let out = signed(self.out[0] + self.out[1]);
        let most = shape.parts.iter().zip(&self.used).map(|(part, used)| {
            let ahead = if terms.ahead {
                part.ahead(used, self.at, terms.interval)
            } else {
                0
            };
            part.free(used) - out + signed(ahead)
        });
        let most = u64::try_from(most.min().unwrap_or(0)).unwrap_or(0);
        let refill = shape.parts.iter().map(|part| part.refill(terms.interval));
        let pool = most + refill.min().unwrap_or(0);
        let share = mul_div(pool, MEMORY * SCALE * demand, self.asked.max(1));
        let mut units = share
            .max(most / 8)
            .min(most - most / 4)
            .min(GAIN * demand + GAIN);
        // Who waits for more than is free gets something at least: else it would ask again and again.
        let least = if report.waiting <= most {
            report.waiting
        } else {
            most.min(1)
        };
        units = units.max(least);
        self.out[0] += units;
        units
    }

    /// A reply without a grant.
    fn figures(&self, shape: &Shape) -> Reply {
        let out = signed(self.out[0] + self.out[1]);
        let parts = || shape.parts.iter().zip(&self.used);
        let least = parts()
            .enumerate()
            .min_by_key(|(_, (part, used))| part.free(used));
        let Some((index, (part, used))) = least else {
            return Reply::default();
        };
        let windows = parts().filter_map(|(part, _)| part.window_rest(self.at));
        Reply {
            figures: Figures {
                free: part.free(used) - out,
                part: u8::try_from(index).unwrap_or(u8::MAX),
                full: part.time_to_full(used, self.at),
                renew: part.time_to_renew(self.at),
                ..part.more(used, self.at)
            },
            window: windows.min().unwrap_or(NEVER),
            ..Reply::default()
        }
    }
}

/// `a * b / c`
fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    let quotient = u128::from(a) * u128::from(b) / u128::from(c);
    u64::try_from(quotient).unwrap_or(NEVER)
}
