//! What the store keeps of a key, and what machines tell it.

use std::fmt::Write as _;

use super::shape::{Shape, Used};

/// What the store keeps of a key. It does not name machines, and does not grow with their number.
///
/// A unit that was granted is in exactly one of: `out`, until it is reported, given back or lapses;
/// `used`, once it is reported or has lapsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The time of the last exchange: all else is as of then.
    pub(super) at: u64,
    /// The last reset; 0 if there was none.
    pub(super) reset: u64,
    /// Units granted and not yet reported: those of the epoch of `at`, and of the one before.
    pub(super) out: [u64; 2],
    /// Those of `out` that may be used from `next_at` on, when a fixed window begins. Or evenly in the slot of
    /// `next_for` microseconds after it, as the first ones of so many places.
    pub(super) next: u64,
    pub(super) next_at: u64,
    pub(super) next_for: u64,
    pub(super) next_places: u64,
    /// What was asked for in the interval of `at` so far, and in the one before.
    pub(super) demand: [u64; 2],
    /// Per part of the shape.
    pub(super) used: Vec<Used>,
}

/// What a machine reports of a key, and wants of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// The last reset that the machine knows.
    pub(super) reset: u64,
    /// Units used in up to two windows, oldest first, each as of the last use in it. A moment after
    /// the exchange counts as the exchange.
    pub(super) spent: [Spent; 2],
    /// Of the budgets that the machine holds: the units of `spent` that came from it, and unused units.
    pub(super) lots: [Settled; 2],
    /// Units asked for, admitted or not, since the last report.
    pub(super) demand: u64,
    /// Microseconds since the last report.
    pub(super) elapsed: u64,
    /// The smallest cost that waits for this exchange; 0 if none.
    pub(super) waiting: u64,
    /// Whether the machine holds units of the next window or slot already.
    pub(super) has_next: bool,
    /// Of the units it returns, those of the next window or slot.
    pub(super) next_returned: u64,
    /// Used units, reported before, that are given back; and the first moment at which any was used.
    pub(super) given_back: Spent,
    /// Whether all that was used and out before this report is to be forgotten.
    pub(super) resets: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    pub(super) units: u64,
    pub(super) at: u64,
}

/// What becomes of units that were granted in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    pub(super) epoch: u64,
    pub(super) used: u64,
    pub(super) returned: u64,
}

/// The reply for a key: a grant, and the figures of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(super) reset: u64,
    /// The epoch of the grant, and the microseconds until it lapses.
    pub(super) epoch: u64,
    pub(super) life: u64,
    /// Granted at once.
    pub(super) grant: u64,
    /// Granted evenly over the next interval.
    pub(super) ahead: u64,
    /// Granted from `next_in` microseconds on, at once or evenly over an interval.
    pub(super) next: u64,
    pub(super) next_in: u64,
    /// The first of its places in the slot, and how many places there are; without any, those of a slot are usable
    /// at its end.
    pub(super) first: u64,
    pub(super) places: u64,
    /// Units that are neither used nor out, after the grant; negative if more are.
    pub(super) free: i64,
    /// After how many microseconds how many more are free, and the microseconds for each one after.
    pub(super) wait: u64,
    pub(super) more: u64,
    pub(super) per_unit: u64,
    /// Whether the fleet asks for more than is refilled.
    pub(super) over: bool,
    /// Microseconds until a cost counts in another window; [`NEVER`] if never.
    pub(super) window: u64,
    /// The part of the shape that has the least free.
    pub(super) part: u64,
    /// Microseconds until nothing of that part is used.
    pub(super) full: u64,
    /// Whether the value is not one of this limit, or damaged: nothing was done.
    pub(super) is_damaged: bool,
}

/// What all machines of a limit have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Microseconds between two exchanges of a machine.
    pub(super) interval: u64,
    /// Microseconds of an epoch. A grant lapses at the end of the epoch after its own.
    pub(super) life: u64,
    /// Whether the refill of the coming interval is granted.
    pub(super) ahead: bool,
    /// How many machines there are at least.
    pub(super) machines: u64,
}

/// How many machines there are, counted once per heartbeat each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(super) beat: u64,
    pub(super) running: u64,
    pub(super) last: u64,
}

impl Reply {
    pub(super) fn damaged() -> Self {
        Self {
            is_damaged: true,
            ..Self::default()
        }
    }

    /// What it grants, in words: the units at once, evenly, and of the next window.
    pub(super) fn grants(&self) -> String {
        format!("{} {} {}", self.grant, self.ahead, self.next)
    }

    /// The same figures with what was granted in `epoch`, unless that has lapsed.
    pub(super) fn with_grants(
        mut self,
        terms: &Terms,
        epoch: u64,
        grants: &[u64],
        next_in: u64,
    ) -> Self {
        let left = (epoch + 2).saturating_sub(self.epoch) * terms.life;
        let passed = 2 * terms.life - self.life;
        if let ([grant, ahead, next], Some(life)) = (grants, left.checked_sub(passed)) {
            (self.grant, self.ahead, self.next) = (*grant, *ahead, *next);
            (self.epoch, self.life, self.next_in) = (epoch, life, next_in);
        }
        self
    }

    /// With the places of what was granted last in the next slot.
    pub(super) const fn with_places(mut self, record: &Record) -> Self {
        (self.first, self.places) = (record.next.saturating_sub(self.next), record.next_places);
        self
    }

    /// Of an exchange at `now`, without a grant.
    pub(super) fn of(terms: &Terms, now: u64) -> Self {
        let epoch = now / terms.life;
        Self {
            epoch,
            life: (epoch + 2) * terms.life - now,
            ..Self::default()
        }
    }
}

impl Reply {
    /// Units that are free in addition after so many microseconds, if nothing is used.
    pub(super) fn refilled(&self, elapsed: u64) -> u64 {
        match elapsed.checked_sub(self.wait) {
            Some(since) => self.more.saturating_add(since / self.per_unit.max(1)),
            None => 0,
        }
    }
}

impl Record {
    /// The value of a key in the store, in words that a person can read: after each semicolon a part of
    /// the shape, as its layout and the ticks of a level or the counts of cells, newest first.
    pub(super) fn to_text(&self, shape: &Shape) -> String {
        let [out, old_out] = self.out;
        let [running, last] = self.demand;
        let head = [
            self.at,
            self.reset,
            out,
            old_out,
            self.next,
            self.next_at,
            self.next_for,
            self.next_places,
            running,
            last,
        ];
        let mut text = head.map(|number| number.to_string()).join(" ");
        for (part, used) in shape.parts.iter().zip(&self.used) {
            let (kind, layout) = part.layout();
            let _ = write!(text, ";{kind}{layout}");
            for count in used {
                let _ = write!(text, ",{count}");
            }
        }
        text
    }

    /// `None` if it is not the value of a record. Parts of another shape are [converted](Part::adopt).
    pub(super) fn from_text(text: &str, shape: &Shape) -> Option<Self> {
        let mut fields = text.split(';');
        let head = numbers(fields.next()?)?;
        let [
            at,
            reset,
            out0,
            out1,
            next,
            next_at,
            next_for,
            next_places,
            running,
            last,
        ] = head[..]
        else {
            return None;
        };
        let mut used = Vec::with_capacity(shape.parts.len());
        for part in &shape.parts {
            used.push(match fields.next() {
                Some(text) => {
                    let kind = text.chars().next()?;
                    let counts = text.get(1..)?.split(',');
                    let counts = counts.map(|count| count.parse().ok());
                    let mut counts = counts.collect::<Option<Vec<u64>>>()?;
                    let layout = counts.remove(0);
                    part.adopt(kind, layout, counts)
                }
                None => part.unused(),
            });
        }
        Some(Self {
            at,
            reset,
            out: [out0, out1],
            next,
            next_at,
            next_for,
            next_places,
            demand: [running, last],
            used,
        })
    }
}

pub(super) fn numbers(text: &str) -> Option<Vec<u64>> {
    let words = text.split(' ').filter(|word| !word.is_empty());
    words.map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::shape::{Cells, Level, Part};
    use super::*;
    use crate::quota::Quota;

    fn level(burst: u64, ns: u64) -> Part {
        Part::Level(Level::new(burst, ns, 1).unwrap())
    }

    fn window(limit: u64) -> Part {
        Part::Cells(Cells::exact(&Quota::per_minute(limit), 0).unwrap())
    }

    fn grid(quota: Quota) -> Part {
        let cells = Cells::new(&quota, quota.period_ns() / 4, 0, 4).unwrap();
        Part::Cells(cells)
    }

    fn used(shape: &Shape) -> Record {
        let mut record = Record::new(shape, 1_700_000_000_000_000);
        for (part, used) in shape.parts.iter().zip(&mut record.used) {
            part.charge(used, record.at, 3, record.at);
        }
        Record {
            reset: 5,
            out: [7, 8],
            next: 2,
            next_at: 1_700_000_000_000_009,
            next_for: 4,
            next_places: 5,
            demand: [10, 11],
            ..record
        }
    }

    /// Shows promise 202.
    #[test]
    fn a_record_is_read_as_it_was_written() {
        let shape = Shape::of(level(9, 1_000_000)).and(Shape::of(grid(Quota::per_second(9))));
        let mut record = used(&shape);
        shape.parts[1].advance(&mut record.used[1], 0, 500_000);
        shape.parts[1].charge(&mut record.used[1], 500_000, 2, 500_000);
        let text = record.to_text(&shape);
        assert_eq!(Record::from_text(&text, &shape), Some(record));
        assert!(text.ends_with(";l1000,3000;c17112,2,0,3"), "{text}");
        for damaged in [
            "",
            "1 2",
            "1 2 3 4 5 6 7 8 9 10;",
            "1 2 3 4 5 6 7 8 9 10;l1,x",
            "1 2 3 4 5 6 7 8 9 10;l1,",
            "a 2 3 4 5 6 7 8 9 10",
        ] {
            assert_eq!(Record::from_text(damaged, &shape), None, "{damaged:?}");
        }
    }

    /// A batch that is sent again grants the same units, which lapse when they would have lapsed.
    ///
    /// Shows promise 202.
    #[test]
    fn grants_of_before_lapse_at_the_end_of_the_epoch_after_theirs() {
        let terms = Terms {
            interval: 100,
            life: 1_000,
            ahead: false,
            machines: 1,
        };
        let reply = Reply::of(&terms, 5_300);
        assert_eq!((reply.epoch, reply.life), (5, 1_700));
        for (epoch, life) in [(5, 1_700), (4, 700)] {
            let again = reply.with_grants(&terms, epoch, &[1, 2, 3], 9);
            let expected = Reply {
                epoch,
                life,
                grant: 1,
                ahead: 2,
                next: 3,
                next_in: 9,
                ..reply
            };
            assert_eq!(again, expected);
        }
        // Lapsed, and none.
        assert_eq!(reply.with_grants(&terms, 3, &[1, 2, 3], 9), reply);
        assert_eq!(reply.with_grants(&terms, 5, &[], 9), reply);
    }

    /// What is used is carried to another configuration, and never becomes less.
    ///
    /// Shows promise 202.
    #[test]
    fn a_record_of_another_shape_keeps_what_is_used() {
        let parts = [
            level(10, 1_000_000),
            level(20, 333),
            window(10),
            window(50),
            grid(Quota::per_second(10)),
            grid(Quota::per_hour(10)),
        ];
        for from in parts {
            let (old, text) = (
                Shape::of(from),
                used(&Shape::of(from)).to_text(&Shape::of(from)),
            );
            assert_eq!(old.parts.len(), 1);
            for to in parts {
                let record = Record::from_text(&text, &Shape::of(to)).unwrap();
                let free = to.free(&record.used[0], record.at);
                let taken = i64::try_from(to.capacity()).unwrap() - free;
                assert!((3..=4).contains(&taken), "{from:?} to {to:?}: {taken}");
                assert_eq!((record.out, record.reset), ([7, 8], 5));
            }
        }
    }
}
