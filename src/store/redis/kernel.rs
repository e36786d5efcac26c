//! The limits of an algorithm as the script knows them, and what its figures mean.

use std::{iter, time::Duration};

use super::send::packed;
use crate::algorithm::{Algorithm, Division, Kernel, Level, kernels, merge};
use crate::backend::Op;
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::receipt::Receipt;
use crate::store::{
    apply::{longest_wait, taken_at},
    remote::{layout, padding},
};

/// What a script can add two of exactly.
const MAX_EXACT: u64 = 1 << 52;
/// The most moments that a script keeps of a key. Each call reads and writes all of them.
const MAX_MOMENTS: u64 = 1_000;
/// The most numbers of a value that the script reads.
const MAX_NUMBERS: u64 = 4_000;
/// Operations of the script.
pub(super) const TAKE: i64 = 1;
pub(super) const PEEK: i64 = 2;
/// How many numbers a reply has of each limit.
const FIGURES: usize = 5;

/// The limits that a script decides.
#[derive(Clone, Debug)]
pub(in crate::store) struct Kernels {
    limits: Vec<Kernel>,
}

/// The decisions on some calls, and the denial of the next one.
pub(super) type Told = (Vec<Decision>, Option<Decision>);

impl Kernels {
    /// `None` if no script decides the algorithm, or not exactly.
    pub(in crate::store) fn of<A: Algorithm>(algorithm: &A) -> Option<Self> {
        let limits = kernels(algorithm, now())?;
        let limits: Vec<_> = limits.into_iter().map(in_micros).collect::<Option<_>>()?;
        let moments = |limit: &Kernel| match limit {
            Kernel::Log { limit, .. } => *limit,
            _ => 0,
        };
        let numbers = |limit: &Kernel| match limit {
            Kernel::Level(_) => 2,
            Kernel::Cells(cells) => cells.count + 1,
            Kernel::Log { .. } => 1,
        };
        let moments: u64 = limits.iter().map(moments).sum();
        let numbers = limits.iter().map(numbers).sum::<u64>() + 2 * moments;
        if moments > MAX_MOMENTS || numbers > MAX_NUMBERS {
            return None;
        }
        Some(Self { limits })
    }

    /// What the name of a key ends with: it says how the value is to be read, and so is all that processes must have
    /// in common which share the value.
    pub(in crate::store) fn layout(&self) -> String {
        layout(&self.limits, Duration::from_micros)
    }

    /// Whether its settings depend on the moment.
    pub(in crate::store) fn is_dated(&self) -> bool {
        let is_dated = |limit: &Kernel| matches!(limit, Kernel::Cells(cells) if matches!(cells.division, Division::Calendar { .. }));
        self.limits.iter().any(is_dated)
    }

    /// How many numbers a reply has.
    pub(super) fn figures(&self) -> usize {
        FIGURES * self.limits.len()
    }

    /// What the script reads of a call.
    pub(super) fn args<A: Algorithm>(&self, op: Op, algorithm: &A) -> Vec<u8> {
        let limits = self.limits.iter();
        let limits = limits.flat_map(|limit| limit_args(limit, op, algorithm));
        packed(iter::once(script_op(op).0).chain(limits))
    }

    /// The decisions that a reply on `count` equal calls is, and the denial of the next one if that is known.
    /// Those that are admitted are all told what is left after the last of them. `None` if the reply is of
    /// another form.
    pub(super) fn decided(&self, op: Op, count: usize, reply: &[i64]) -> Option<Told> {
        let &[now, taken, ..] = reply else {
            return None;
        };
        let now = Tick::from_nanos(u64::try_from(now).ok()?.saturating_mul(1_000));
        let (number, cost, _) = script_op(op);
        let told = |is_admitted| {
            let figures = self.limits.iter().zip(reply.chunks_exact(FIGURES));
            let decisions = figures.enumerate().map(|(policy, (limit, figures))| {
                let [left, retry, reset] = [figures[2], figures[3], figures[4]];
                let nanos = |us: i64| u64::try_from(us).ok().map(|us| us.saturating_mul(1_000));
                let (verdict, retry) = match (nanos(retry), nanos(left.wrapping_neg())) {
                    (_, Some(turn @ 1..)) if is_admitted && number == TAKE => {
                        (Verdict::Wait(Duration::from_nanos(turn)), None)
                    }
                    (Some(0), _) => (Verdict::Admit, None),
                    _ if is_admitted => (Verdict::Admit, None),
                    (retry, _) => (Verdict::Deny, retry),
                };
                let reset = nanos(reset).unwrap_or(0);
                let left = u64::try_from(left).unwrap_or(0);
                let mut decision = Decision::new(verdict, units_of(limit), left, retry, reset);
                decision.policy = policy;
                decision
            });
            let decision = decisions.reduce(merge)?;
            let taken_at = taken_at(self.limits.len(), decision.verdict, now);
            Some(decision.with_receipt(Receipt::at(taken_at.as_nanos())))
        };
        let admitted = match number {
            TAKE => usize::try_from(taken).ok()?,
            PEEK if cost > 0 => 0,
            _ => count,
        };
        let mut decisions = Vec::with_capacity(count);
        if admitted > 0 {
            decisions.resize(admitted.min(count), told(true)?);
        }
        let last = told(false)?;
        let next = (number == TAKE && admitted >= count && last.is_denied()).then_some(last);
        decisions.resize(count, last);
        Some((decisions, next))
    }
}

/// The same limit with all times in microseconds. `None` if a script cannot represent it exactly.
fn in_micros(limit: Kernel) -> Option<Kernel> {
    let is_exact = |number: u64| number <= MAX_EXACT;
    let micros = |ns: u64| (ns % 1_000 == 0 && is_exact(ns / 1_000)).then_some(ns / 1_000);
    Some(match limit {
        Kernel::Level(level) => {
            // If the period is no whole number of microseconds, a thousand times as many units drain in a thousand
            // times as many.
            let (rate, period) = match micros(level.period) {
                Some(period) => (level.rate, period),
                None => (level.rate.checked_mul(1_000)?, level.period),
            };
            let numbers = [rate, period, level.capacity, level.initial];
            if !numbers.into_iter().all(is_exact) {
                return None;
            }
            Kernel::Level(Level {
                rate,
                period,
                ..level
            })
        }
        Kernel::Cells(mut cells) => {
            if cells.division == Division::Even && cells.count > 1 {
                // Cells are rounded up, as the algorithm in process rounds them to nanoseconds. If they do not divide
                // the period, an offset below a microsecond has no meaning.
                cells.length = cells.length.checked_next_multiple_of(1_000)?;
                cells.offset = cells.offset.checked_next_multiple_of(1_000)?;
            }
            (cells.length, cells.offset) = (micros(cells.length)?, micros(cells.offset)?);
            if !is_exact(cells.limit) {
                return None;
            }
            Kernel::Cells(cells)
        }
        Kernel::Log { limit, period } => Kernel::Log {
            limit,
            period: micros(period)?,
        },
    })
}

/// The most units that a limit admits at once.
const fn units_of(limit: &Kernel) -> u64 {
    match limit {
        Kernel::Level(level) => level.capacity,
        Kernel::Cells(cells) => cells.limit,
        Kernel::Log { limit, .. } => *limit,
    }
}

/// The number of an operation in the script, its cost, and when a cost that it gives back was taken, in microseconds.
pub(super) fn script_op(op: Op) -> (i64, u64, u64) {
    let micros = |receipt: Receipt| match receipt.moment() {
        u64::MAX => u64::MAX,
        ns => ns / 1_000,
    };
    let (number, cost, taken) = match op {
        Op::Reset => return (5, 0, 0),
        Op::Take(cost) | Op::Reserve { cost, .. } => (TAKE, cost, 0),
        Op::Peek(cost) => (PEEK, cost, 0),
        Op::Refund(cost, receipt) | Op::Forgive(cost, receipt) => (3, cost, micros(receipt)),
        // The turn, which is a whole number of them.
        Op::Cancel(cost, receipt) => (3, cost, receipt.moment().div_ceil(1_000)),
        Op::Charge(cost) => (4, cost, 0),
    };
    (if cost == 0 { PEEK } else { number }, cost, taken)
}

/// The numbers of a limit in a call, as the script lists them.
fn limit_args<A: Algorithm>(limit: &Kernel, op: Op, algorithm: &A) -> [i64; 12] {
    // Larger ones are never admitted.
    let number = |number: u64| i64::try_from(number.min(2 * MAX_EXACT - 1)).unwrap_or(i64::MAX);
    let (_, units, taken) = script_op(op);
    let (cost, taken) = (number(units.min(MAX_EXACT)), number(taken));
    match limit {
        Kernel::Level(level) => {
            let period = u128::from(level.period);
            let capacity = u128::from(level.capacity) * period;
            // The highest level that admits a cost with it, or that a turn leaves which is the last.
            let most = match op {
                // Given back whatever the level is, or never admitted.
                Op::Refund(..) | Op::Forgive(..) => None,
                Op::Cancel(..) => Some(capacity),
                _ if units > level.capacity => None,
                Op::Reserve {
                    queue, max_wait, ..
                } => {
                    let most = nanos(longest_wait(&algorithm.quotas(), queue, max_wait));
                    Some(capacity + u128::from(most) * u128::from(level.rate) / 1_000)
                }
                _ => Some(capacity),
            };
            let [most, most_part] = most.map_or([-1, 0], |most| {
                [most / period, most % period]
                    .map(|most| number(u64::try_from(most).unwrap_or(u64::MAX)))
            });
            let settings = [level.capacity, level.rate, level.period, level.initial];
            let [limit, rate, period, initial] = settings.map(number);
            [
                1, cost, taken, limit, rate, period, initial, most, most_part, 0, 0, 0,
            ]
        }
        Kernel::Cells(cells) => {
            let (division, starts) = match &cells.division {
                Division::Even => (0, [0; 4]),
                Division::Weighted => (1, [0; 4]),
                Division::Anchored => (2, [0; 4]),
                Division::Calendar { starts, .. } => (3, starts.map(|start| 1_000_000 * start)),
            };
            let [s1, s2, s3, s4] = starts.map(number);
            let settings = [cells.limit, cells.length, padding(cells), cells.count];
            let [limit, length, padding, count] = settings.map(number);
            [
                2, cost, taken, limit, length, padding, count, division, s1, s2, s3, s4,
            ]
        }
        Kernel::Log { limit, period } => {
            let (limit, period) = (number(*limit), number(*period));
            [3, cost, taken, limit, period, 0, 0, 0, 0, 0, 0, 0]
        }
    }
}

#[cfg(test)]
use self::tests::now;
#[cfg(not(test))]
use crate::clock::unix_now as now;

#[cfg(test)]
pub(super) mod tests;
