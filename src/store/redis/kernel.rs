//! The limits of an algorithm as the script knows them, and what its figures mean.

use std::{borrow::Cow, iter, time::Duration};

use super::{call::Call, send::packed};
use crate::algorithm::{Algorithm, Cells, Division, Kernel, Level, kernels, merge};
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::store::{
    apply::taken_at,
    remote::{layout, padding},
};

/// What a script can add two of exactly.
const MAX_EXACT: u64 = 1 << 52;
/// The most moments that a script keeps of a key. Each call reads and writes all of them.
const MAX_MOMENTS: u64 = 1_000;
/// The most numbers of a value that the script reads.
const MAX_NUMBERS: u64 = 4_000;
/// How long a key that began with less than a full bucket is kept after it is full: a month, in microseconds, and as
/// long as many fillings. After that the next request begins with the initial tokens again.
const MIN_KEPT: u64 = 30 * 86_400 * 1_000_000;
const FILLINGS: u64 = 1_000;

/// The limits that a script decides.
#[derive(Clone, Debug)]
pub(in crate::store) struct Kernels {
    limits: Vec<Kernel>,
    /// What the name of a key ends with: it says how the value is to be read, and so is all that processes must have
    /// in common which share the value.
    pub(super) layout: String,
}

/// The numbers of a limit in a reply.
#[derive(Clone)]
struct Part<'a> {
    limit: &'a Kernel,
    has_room: bool,
    used: Cow<'a, [i64]>,
}

/// The figures of a limit, as the script has counted them. Times are microseconds by the clock of the key.
#[derive(Clone, Copy)]
struct Figures<'a> {
    call: Call,
    now: u64,
    /// Whether the limit has room for the cost.
    has_room: bool,
    /// Whether the cost was taken after the script had counted.
    is_taken: bool,
    used: &'a [i64],
}

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
        let layouts: Vec<_> = limits
            .iter()
            .map(|limit| layout(limit, Duration::from_micros))
            .collect();
        Some(Self {
            layout: layouts.join("+"),
            limits,
        })
    }

    pub(in crate::store) fn layout(&self) -> String {
        self.layout.clone()
    }

    /// Whether its settings depend on the moment.
    pub(in crate::store) fn is_dated(&self) -> bool {
        let is_dated = |limit: &Kernel| matches!(limit, Kernel::Cells(cells) if matches!(cells.division, Division::Calendar { .. }));
        self.limits.iter().any(is_dated)
    }

    /// What the script reads of a call.
    pub(super) fn args(&self, call: Call) -> Vec<u8> {
        let limits = self.limits.iter().flat_map(|limit| limit_args(limit, call));
        let numbers = iter::once(call.number()).chain(limits);
        packed(numbers)
    }

    /// The time of the key and the decisions, by the numbers of a reply on `count` equal calls: the time of the key, and
    /// for each limit whether it has room and what is used. If some calls are admitted and then no more, how many, and the
    /// same after them. `None` if there are not as many.
    pub(super) fn decided(
        &self,
        call: Call,
        count: usize,
        reply: &[i64],
    ) -> Option<(u64, Vec<Decision>)> {
        let (now, rest) = reply.split_first()?;
        let now = u64::try_from(*now).ok()?;
        let (first, rest) = self.parts(rest)?;
        let takes = call.takes() && first.iter().all(|part| part.has_room);
        let (taken, last) = match rest.split_first() {
            None => (if takes { count } else { 0 }, None),
            Some((taken, rest)) => {
                let (last, []) = self.parts(rest)? else {
                    return None;
                };
                (usize::try_from(*taken).ok()?, Some(last))
            }
        };
        let cost = i64::try_from(call.cost()).unwrap_or(i64::MAX);
        let mut decisions = Vec::with_capacity(count);
        for index in 0..taken.min(count) {
            let taken = cost.saturating_mul(i64::try_from(index).ok()?);
            let parts = first.iter().map(|part| part.after(taken, now));
            decisions.push(decision((call, now), &parts.collect::<Vec<_>>(), true)?);
        }
        if decisions.len() < count {
            let denied = decision((call, now), last.as_ref().unwrap_or(&first), false)?;
            decisions.resize(count, denied);
        }
        Some((now, decisions))
    }

    /// The denial that the next equal call would get, if these have left too little. `None` if that is not known.
    pub(super) fn next_denial(&self, call: Call, count: usize, reply: &[i64]) -> Option<Decision> {
        let (now, rest) = reply.split_first()?;
        let now = u64::try_from(*now).ok()?;
        let (Call::Take(cost), (before, [])) = (call, self.parts(rest)?) else {
            return None;
        };
        let taken = i64::try_from(cost)
            .ok()?
            .saturating_mul(i64::try_from(count).ok()?);
        let after = before.iter().map(|part| {
            let mut after = part.after(taken, now);
            let decision = decision((call, now), std::slice::from_ref(&after), false)?;
            after.has_room = decision.remaining() >= cost;
            // Which moment of a log has to expire first is not known.
            let is_known = after.has_room || !matches!(part.limit, Kernel::Log { .. });
            (part.has_room && is_known).then_some(after)
        });
        let after = after.collect::<Option<Vec<_>>>()?;
        let has_room = after.iter().all(|part| part.has_room);
        if has_room {
            return None;
        }
        decision((call, now), &after, false)
    }

    /// The numbers of each limit, and those that are left.
    fn parts<'a>(&'a self, mut rest: &'a [i64]) -> Option<(Vec<Part<'a>>, &'a [i64])> {
        let mut parts = Vec::with_capacity(self.limits.len());
        for limit in &self.limits {
            let (has_room, numbers) = rest.split_first()?;
            let (used, after) = numbers.split_at_checked(match limit {
                Kernel::Level(_) => 2,
                Kernel::Cells(cells) => usize::try_from(cells.count).ok()? + 1,
                Kernel::Log { .. } => 3,
            })?;
            rest = after;
            parts.push(Part {
                limit,
                has_room: *has_room == 1,
                used: Cow::Borrowed(used),
            });
        }
        Some((parts, rest))
    }

    /// When the cost of this decision was taken: see [`taken_at`](crate::store::apply::taken_at).
    pub(super) fn taken_at(&self, verdict: Verdict, now: Tick) -> Tick {
        taken_at(self.limits.len(), verdict, now)
    }
}

impl Part<'_> {
    /// The same after a cost was taken.
    fn after(&self, cost: i64, now: u64) -> Self {
        let mut after = self.clone();
        if cost > 0 {
            let now = i64::try_from(now).unwrap_or(i64::MAX);
            match (self.limit, &mut after.used.to_mut()[..]) {
                (Kernel::Level(_), [units, _]) => *units = units.saturating_add(cost),
                (Kernel::Cells(_), [newest, count, ..]) => {
                    *newest = if *newest < 0 { now } else { *newest };
                    *count = count.saturating_add(cost);
                }
                (Kernel::Log { .. }, [sum, last, _]) => {
                    (*sum, *last) = (sum.saturating_add(cost), now);
                }
                _ => {}
            }
        }
        after
    }
}

/// The decision on a call at a moment, for which the limits have `parts`.
fn decision((call, now): (Call, u64), parts: &[Part<'_>], is_taken: bool) -> Option<Decision> {
    let decisions = parts.iter().enumerate().map(|(policy, part)| {
        let figures = Figures {
            call,
            now,
            has_room: part.has_room || call.cost() == 0 || !call.asks(),
            is_taken,
            used: &part.used,
        };
        let mut decision = figures.decision(part.limit);
        decision.policy = policy;
        decision
    });
    decisions.reduce(merge).map(ceil_to_micros)
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

/// The numbers of a limit in a call, as the script lists them.
fn limit_args(limit: &Kernel, call: Call) -> [i64; 12] {
    // Larger ones are never admitted.
    let number = |number: u64| i64::try_from(number.min(2 * MAX_EXACT - 1)).unwrap_or(i64::MAX);
    let cost = number(call.cost().min(MAX_EXACT));
    let taken = number(call.taken_at().unwrap_or_default());
    match limit {
        Kernel::Level(level) => {
            let period = u128::from(level.period);
            let (most, most_part) = match level.most(call) {
                None => (-1, 0),
                Some(most) => match u64::try_from(most / period) {
                    Ok(units) if units <= MAX_EXACT => (
                        number(units),
                        u64::try_from(most % period).map_or(0, number),
                    ),
                    _ => (number(u64::MAX), 0),
                },
            };
            let full = u128::from(level.capacity) * period / u128::from(level.rate);
            let kept = u64::try_from(full).map_or(MAX_EXACT, |full| full.saturating_mul(FILLINGS));
            let kept = number(kept.clamp(MIN_KEPT, MAX_EXACT));
            let [rate, period, initial] = [level.rate, level.period, level.initial].map(number);
            [
                1, cost, taken, rate, period, initial, kept, most, most_part, 0, 0, 0,
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

impl Level {
    /// The highest level that admits a cost with it, or that a turn leaves which is the last. `None` if the cost is
    /// never admitted, or given back whatever the level is.
    fn most(&self, call: Call) -> Option<u128> {
        let capacity = u128::from(self.capacity) * u128::from(self.period);
        match call {
            Call::Refund(..) | Call::Forgive(..) => None,
            Call::Cancel(..) => Some(capacity),
            _ if call.cost() > self.capacity => None,
            Call::Reserve(_, max_wait) if self.books_turns => {
                Some(capacity + u128::from(max_wait) * u128::from(self.rate) / 1_000)
            }
            _ => Some(capacity),
        }
    }

    /// Nanoseconds until as much has drained.
    fn time(&self, parts: i128) -> u64 {
        let parts = u128::try_from(parts).unwrap_or(0).saturating_mul(1_000);
        u64::try_from(parts.div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX)
    }
}

impl Figures<'_> {
    fn decision(&self, limit: &Kernel) -> Decision {
        match limit {
            Kernel::Level(level) => self.of_level(level),
            Kernel::Cells(cells) => self.of_cells(cells),
            Kernel::Log { limit, period } => self.of_log(*limit, *period),
        }
    }

    fn number(&self, place: usize) -> u64 {
        let number = self.used.get(place).copied().unwrap_or_default();
        u64::try_from(number).unwrap_or(0)
    }

    /// With the nanoseconds until there is room, of a cost that the limit may ever have room for.
    fn told(&self, limit: u64, remaining: u64, retry: Option<u64>, reset: u64) -> Decision {
        let (verdict, retry) = if self.has_room {
            (Verdict::Admit, None)
        } else {
            (Verdict::Deny, retry)
        };
        Decision::new(verdict, limit, remaining, retry, reset)
    }

    fn of_level(&self, level: &Level) -> Decision {
        let period = i128::from(level.period);
        let parts = |units: u64| i128::from(units) * period;
        let used = match *self.used {
            [units, part] => i128::from(units) * period + i128::from(part),
            _ => 0,
        };
        // In process a state ends at the last moment.
        let left = (Tick::MAX.as_nanos() / 1_000).saturating_sub(self.now);
        let longest = i128::from(left) * i128::from(level.rate);
        let used = used.min(longest);
        let (after, capacity) = (used + parts(self.call.cost()), parts(level.capacity));
        let at_end = if self.is_taken { after } else { used };
        let whole = |parts: i128| u64::try_from(parts.max(0) / period).unwrap_or(u64::MAX);
        let remaining = whole(capacity - at_end);
        let retry = level.most(self.call).map(|most| {
            let most = i128::try_from(most).unwrap_or(i128::MAX);
            level.time(after.min(longest) - most)
        });
        let mut decision = self.told(level.capacity, remaining, retry, level.time(at_end));
        let turn = after - capacity;
        let is_asked = self.call.asks();
        if self.has_room && is_asked && self.call.cost() > 0 && turn > 0 {
            decision.verdict = match level.time(turn) {
                0 => Verdict::Admit,
                wait => Verdict::Wait(Duration::from_nanos(wait)),
            };
        }
        decision
    }

    fn of_cells(&self, cells: &Cells) -> Decision {
        let mut counts: Vec<_> = (1..self.used.len())
            .map(|place| self.number(place))
            .collect();
        if let (true, Some(newest)) = (self.is_taken, counts.first_mut()) {
            *newest = newest.saturating_add(self.call.cost());
        }
        let (newest, cost) = match self.used {
            // No window is open.
            [-1, ..] => (self.now, self.call.cost()),
            _ => (self.number(0), self.call.cost()),
        };
        let used_at = |at: u64| used_at(cells, newest, &counts, at);
        // By then all of it is over.
        let end = match cells.division {
            Division::Calendar { .. } => newest,
            Division::Anchored => newest + cells.length,
            _ => self.now + (cells.count + 1) * cells.length,
        };
        let [now, end] = [self.now, end.max(self.now)].map(|us| us.saturating_mul(1_000));
        // The time until at most `most` counts.
        let until = |most: u64| {
            let (mut low, mut high) = (now, end);
            while low < high {
                let middle = u64::midpoint(low, high);
                if used_at(middle) > most {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            high - now
        };
        let left = cells.limit.saturating_sub(used_at(now));
        let retry = match cells.limit.checked_sub(cost) {
            Some(most) if !self.has_room => Some(until(most)),
            _ => None,
        };
        self.told(cells.limit, left, retry, until(0))
    }

    fn of_log(&self, limit: u64, period: u64) -> Decision {
        let [mut used, mut last, first] = [0, 1, 2].map(|place| self.number(place));
        if self.is_taken {
            (used, last) = (used.saturating_add(self.call.cost()), self.now);
        }
        let until = |moment: u64| {
            (moment + period)
                .saturating_sub(self.now)
                .saturating_mul(1_000)
        };
        let reset = if used == 0 { 0 } else { until(last) };
        let retry = (self.call.cost() <= limit).then(|| until(first));
        self.told(limit, limit.saturating_sub(used), retry, reset)
    }
}

/// What counts of cells at a nanosecond, which is not before the newest.
fn used_at(cells: &Cells, newest: u64, counts: &[u64], at: u64) -> u64 {
    match cells.division {
        Division::Calendar { .. } if at / 1_000 >= newest => return 0,
        Division::Anchored if at / 1_000 >= newest + cells.length => return 0,
        Division::Calendar { .. } | Division::Anchored => return counts.iter().sum(),
        Division::Even | Division::Weighted => {}
    }
    let (at, length) = (
        at.saturating_add(1_000 * padding(cells)),
        1_000 * cells.length,
    );
    let (cell, left) = (at / length, length - at % length);
    let weighted = |count: u64| {
        let weighted = u128::from(count) * u128::from(left) / u128::from(length);
        u64::try_from(weighted).unwrap_or(u64::MAX)
    };
    let steps = usize::try_from(cell.saturating_sub(newest)).unwrap_or(usize::MAX);
    let counting = counts.len().saturating_sub(steps);
    match (&cells.division, &counts[..counting]) {
        (Division::Weighted, [current, previous]) => current.saturating_add(weighted(*previous)),
        (Division::Weighted, [previous]) => weighted(*previous),
        (_, counting) => counting
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count)),
    }
}

/// Rounds waits up to microseconds, which is what Redis counts in.
pub(super) fn ceil_to_micros(decision: Decision) -> Decision {
    let whole = |span: Duration| {
        let ns = nanos(span);
        Duration::from_nanos(ns.checked_next_multiple_of(1_000).unwrap_or(ns))
    };
    Decision {
        verdict: match decision.verdict {
            Verdict::Wait(span) => Verdict::Wait(whole(span)),
            verdict => verdict,
        },
        retry_after: decision.retry_after.map(whole),
        reset_after: whole(decision.reset_after),
        ..decision
    }
}

#[cfg(test)]
use self::tests::now;
#[cfg(not(test))]
use crate::clock::unix_now as now;

#[cfg(test)]
pub(super) mod tests;
