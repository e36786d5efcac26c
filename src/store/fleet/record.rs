//! What the store keeps of a key, and what machines tell it.

use std::fmt::Write as _;

use super::shape::{Figures, Part, Shape, Used};

/// What the store keeps of a key. It does not name machines, and does not grow with their number.
///
/// A unit that was granted is in exactly one of: `out`, until it is reported, given back or lapses;
/// `used`, once it is reported or has lapsed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    /// The time of the last exchange: all else is as of then.
    pub(super) at: u64,
    /// The first epoch since the last reset; 0 if there was none.
    pub(super) reset: u64,
    /// The number of the current epoch, which begins with the time of the first exchange: so no other value of the
    /// key had the same. When it ends, and how long the next one is at least: as long as what is granted now is good.
    pub(super) epoch: u64,
    pub(super) ends: u64,
    pub(super) length: u64,
    /// Units granted and not yet reported: those of the current epoch, and of the one before.
    pub(super) out: [u64; 2],
    /// What was asked of the fleet lately: the less, the longer ago.
    pub(super) asked: u64,
    /// Per part of the shape.
    pub(super) used: Vec<Used>,
}

/// What a machine reports of a key, and wants of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Report {
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
pub(crate) struct Grant {
    pub(super) epoch: u64,
    pub(super) units: u64,
    /// Whether what the machine kept is granted anew. If not, it has lapsed.
    pub(super) keeps: bool,
}

/// The reply for a key: a grant, and the figures of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Reply {
    pub(super) grant: Grant,
    pub(super) figures: Figures,
    /// Microseconds until a fixed window ends; [`NEVER`](super::shape::NEVER) if none does.
    pub(super) window: u64,
    /// Whether the value is damaged, so nothing was done.
    pub(super) is_damaged: bool,
}

/// What a machine has set, and all its exchanges have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    /// Microseconds between two exchanges.
    pub(super) interval: u64,
    /// For how many microseconds a grant is good.
    pub(super) life: u64,
    /// Whether the refill of the coming interval is granted.
    pub(super) ahead: bool,
}

impl Grant {
    pub(super) fn numbers(&self) -> [u64; 3] {
        [self.epoch, self.units, self.keeps.into()]
    }

    pub(super) const fn of([epoch, units, keeps]: [u64; 3]) -> Self {
        Self {
            epoch,
            units,
            keeps: keeps > 0,
        }
    }
}

impl Report {
    /// A report that may have been executed before: what was used counts again, and nothing else happens twice. What is
    /// not taken from what is out lapses.
    pub(super) fn unsure(&self) -> Self {
        Self {
            used: 0,
            charged: self.used + self.charged,
            returned: 0,
            given_back: 0,
            ..self.clone()
        }
    }
}

impl Reply {
    pub(super) fn damaged() -> Self {
        Self {
            is_damaged: true,
            ..Self::default()
        }
    }
}

impl Record {
    /// The value of a key in the store, in words that a person can read: after each semicolon what is used of a part.
    pub(super) fn to_text(&self) -> String {
        let [out, before] = self.out;
        let head = [
            self.at,
            self.reset,
            self.epoch,
            self.ends,
            self.length,
            out,
            before,
            self.asked,
        ];
        let mut text = head.map(|number| number.to_string()).join(" ");
        for used in &self.used {
            let counts: Vec<_> = used.iter().map(u64::to_string).collect();
            let _ = write!(text, ";{}", counts.join(","));
        }
        text
    }

    /// `None` if it is not the value of a record.
    pub(super) fn from_text(text: &str, shape: &Shape) -> Option<Self> {
        let mut fields = text.split(';');
        let head = numbers(fields.next()?, ' ')?;
        let &[at, reset, epoch, ends, length, out, before, asked] = &head[..] else {
            return None;
        };
        let parse = |part: &Part| part.parse(numbers(fields.next()?, ',')?);
        let used = shape.parts.iter().map(parse).collect::<Option<_>>()?;
        Some(Self {
            at,
            reset,
            epoch,
            ends,
            length,
            out: [out, before],
            asked,
            used,
        })
    }
}

/// Numbers with this character in between.
pub(super) fn numbers(text: &str, between: char) -> Option<Vec<u64>> {
    let words = text.split_terminator(between);
    let numbers: Option<Vec<_>> = words.map(|word| word.parse().ok()).collect();
    numbers.filter(|_| !text.ends_with(between))
}

#[cfg(test)]
mod tests {
    use super::super::shape::{Cells, Level};
    use super::*;
    use crate::quota::Quota;

    /// Shows promise 202.
    #[test]
    fn a_record_is_read_as_it_was_written() {
        let level = Part::Level(Level::new(9, 1_000_000, 1).unwrap());
        let cells = Cells::new(&Quota::per_second(9), 250_000_000, 0, 4).unwrap();
        let shape = Shape {
            parts: vec![level, Part::Cells(cells)],
        };
        let record = Record {
            at: 1,
            reset: 5,
            epoch: 6,
            ends: 7,
            length: 8,
            out: [9, 10],
            asked: 11,
            used: vec![vec![3, 500], vec![2, 0, 3]],
        };
        let text = record.to_text();
        assert_eq!(text, "1 5 6 7 8 9 10 11;3,500;2,0,3");
        assert_eq!(Record::from_text(&text, &shape), Some(record));
        assert!(Record::from_text("1 2 3 4 5 6 7 8;0,0;", &shape).is_some());
        for damaged in [
            "",
            "1 2",
            "1 2 3 4 5 6 7 8",
            "1 2 3 4 5 6 7 8;1;",
            "1 2 3 4 5 6 7 8;1,2;x",
            "1 2 3 4 5 6 7 8;1,2;3,",
            "a 2 3 4 5 6 7 8;1,2;",
            "1 2 3 4 5 6 7 8;1,2;1,2,3,4,5",
        ] {
            assert_eq!(Record::from_text(damaged, &shape), None, "{damaged:?}");
        }
    }
}
