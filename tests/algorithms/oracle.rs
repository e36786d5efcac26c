//! A naive model of each algorithm.
//!
//! The model shares no code with the library: it packs no state and solves for no moment. It only
//! decides whether a request passes at a given moment, and after which wait. [`Naive`] finds
//! `retry_after`, `reset_after` and `remaining` by trying, so that the test kit compares the model with any place.

use std::collections::BTreeMap;
use std::time::Duration;

use num_bigint::BigInt;
use num_rational::BigRational;
use tower_throttle::algorithm::{Algorithm, Cost, GiveBack};
use tower_throttle::{Decision, Quota, Verdict, clock::Tick};

use crate::calendar::Windows;
use crate::failures::{Blocks, Failures};
use crate::nanos;

/// The quota of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) limit: u64,
    pub(crate) period: u64,
    pub(crate) burst: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    FixedWindow {
        offset: u64,
    },
    AnchoredWindow,
    SlidingLog,
    SlidingWindow {
        offset: u64,
    },
    SlidingGrid {
        cells: u64,
        strict: bool,
        offset: u64,
    },
    TokenBucket {
        initial: u64,
    },
    LeakyMeter,
    Lockout(Blocks),
    WarmUp {
        over: u64,
        factor: u64,
    },
    Calendar(Windows),
}

/// The state of one key under one policy.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    kind: Kind,
    rate: Rate,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Units by the moment of their admission, or by the number of their window or cell.
    Counts(BTreeMap<u64, u64>),
    /// The first moment of the open window, and the units counted in it.
    Anchored(Option<(u64, u64)>),
    /// The tokens times the period (negative if there is a debt), and when that was.
    Tokens(i128, u64),
    Lockout(Failures),
    /// Stored permits, below zero if more was taken than was there, and when the queue is free.
    StoredPermits(BigRational, BigRational),
}

fn ratio(dividend: impl Into<BigInt>, divisor: impl Into<BigInt>) -> BigRational {
    BigRational::new(dividend.into(), divisor.into())
}

fn whole(number: u64) -> BigRational {
    BigRational::from_integer(number.into())
}

fn to_u64(number: &BigRational) -> u64 {
    u64::try_from(number.ceil().to_integer()).expect("waits fit")
}

impl Model {
    fn new(kind: Kind, rate: Rate, now: u64) -> Self {
        let mut model = Self {
            kind,
            rate,
            state: State::Anchored(None),
        };
        model.reset(now);
        model
    }

    /// Resets to the state of a key never seen.
    fn reset(&mut self, now: u64) {
        self.state = match self.kind {
            Kind::AnchoredWindow => State::Anchored(None),
            Kind::TokenBucket { initial } => State::Tokens(
                i128::from(initial.min(self.rate.burst)) * self.period(),
                now,
            ),
            Kind::LeakyMeter => State::Tokens(i128::from(self.rate.burst) * self.period(), now),
            Kind::Lockout(_) => State::Lockout(Failures::default()),
            Kind::WarmUp { .. } => State::StoredPermits(self.full(), whole(0)),
            _ => State::Counts(BTreeMap::new()),
        };
    }

    fn limit(&self) -> i128 {
        i128::from(self.rate.limit)
    }

    fn period(&self) -> i128 {
        i128::from(self.rate.period)
    }

    /// The limit that decisions report: what an unused key is granted at once.
    fn capacity(&self) -> u64 {
        match self.kind {
            Kind::TokenBucket { .. } | Kind::LeakyMeter => self.rate.burst,
            _ => self.rate.limit,
        }
    }

    /// The largest cost that is ever admitted. A warm-up accepts any cost.
    fn largest(&self) -> u64 {
        match self.kind {
            Kind::WarmUp { .. } => u64::MAX,
            _ => self.capacity(),
        }
    }

    /// The length of a window or cell, how many of them count, and their offset.
    fn cells(&self) -> (u64, u64, u64) {
        match self.kind {
            Kind::SlidingGrid {
                cells,
                strict,
                offset,
            } => (
                self.rate.period.div_ceil(cells),
                cells + u64::from(strict),
                offset,
            ),
            Kind::FixedWindow { offset } => (self.rate.period, 1, offset),
            Kind::SlidingWindow { offset } => (self.rate.period, 2, offset),
            _ => (self.rate.period, 1, 0),
        }
    }

    /// The number of the cell that contains `now`; never negative.
    fn cell(&self, now: u64) -> u64 {
        if let Kind::Calendar(windows) = self.kind {
            return windows.starts.partition_point(|start| *start <= now) as u64;
        }
        let (length, _, offset) = self.cells();
        let since = i128::from(now) - i128::from(offset % length);
        u64::try_from(since.div_euclid(i128::from(length)) + 1).expect("not negative")
    }

    /// The usage of a window at `now`.
    fn used(&self, now: u64) -> u64 {
        match &self.state {
            State::Anchored(Some((start, used))) if now < start + self.rate.period => *used,
            State::Counts(counts) => match self.kind {
                Kind::SlidingLog => counts
                    .iter()
                    .filter(|(at, _)| now < **at + self.rate.period)
                    .map(|(_, units)| units)
                    .sum(),
                Kind::SlidingWindow { offset } => {
                    let cell = self.cell(now);
                    let of = |cell| i128::from(*counts.get(&cell).unwrap_or(&0));
                    let since = i128::from(now) - i128::from(offset % self.rate.period);
                    let elapsed = since.rem_euclid(self.period());
                    let carried = cell.checked_sub(1).map_or(0, |before| {
                        of(before) * (self.period() - elapsed) / self.period()
                    });
                    u64::try_from(carried + of(cell)).expect("counts fit")
                }
                _ => {
                    let (_, counted, _) = self.cells();
                    let newest = self.cell(now);
                    counts
                        .iter()
                        .filter(|(cell, _)| **cell + counted > newest)
                        .map(|(_, units)| units)
                        .sum()
                }
            },
            _ => 0,
        }
    }

    fn blocks(&self) -> Blocks {
        match self.kind {
            Kind::Lockout(blocks) => Blocks {
                limit: self.rate.limit,
                period: self.rate.period,
                ..blocks
            },
            _ => unreachable!("only called for a lockout"),
        }
    }

    /// The failures of a lockout at `now`.
    fn failures(&self, now: u64) -> Failures {
        match &self.state {
            State::Lockout(failures) => failures.clone().under(self.blocks()).at(now),
            _ => unreachable!("only called for a lockout"),
        }
    }

    /// Tokens at `now`, times the period.
    fn tokens(&self, now: u64) -> i128 {
        let State::Tokens(tokens, at) = self.state else {
            unreachable!("only called for buckets");
        };
        let earned = i128::from(now.saturating_sub(at)) * self.limit();
        (tokens + earned).min(i128::from(self.rate.burst) * self.period())
    }

    /// The exact wait after which a request of `cost` goes, in nanoseconds times the limit.
    fn wait(&self, now: u64, cost: u64) -> BigRational {
        let cost = i128::from(cost);
        let wait = match &self.state {
            State::Tokens(..) => cost * self.period() - self.tokens(now),
            State::StoredPermits(_, free) => {
                return ((free - whole(now)) * whole(self.rate.limit)).max(whole(0));
            }
            _ => 0,
        };
        ratio(wait.max(0), 1)
    }

    /// The wait in whole nanoseconds, as reported.
    fn reported(&self, wait: &BigRational) -> u64 {
        to_u64(&(wait / whole(self.rate.limit)))
    }

    /// The wait of a checked request; `None` if it is denied.
    fn check(&self, now: u64, cost: u64) -> Option<u64> {
        if cost == 0 {
            return Some(0);
        }
        if cost > self.largest() {
            return None;
        }
        match self.kind {
            Kind::TokenBucket { .. } | Kind::LeakyMeter => {
                (self.tokens(now) >= i128::from(cost) * self.period()).then_some(0)
            }
            Kind::WarmUp { .. } => (!self.owes(now)).then_some(0),
            Kind::Lockout(_) => self.failures(now).fits(now, cost).then_some(0),
            _ => (self.used(now).saturating_add(cost) <= self.rate.limit).then_some(0),
        }
    }

    /// The wait of a reservation; `None` if it is longer than `max_wait`.
    fn reserve(&self, now: u64, cost: u64, max_wait: u64) -> Option<u64> {
        match self.kind {
            _ if cost > self.largest() => None,
            Kind::TokenBucket { .. } | Kind::LeakyMeter | Kind::WarmUp { .. } if cost > 0 => {
                let wait = self.reported(&self.wait(now, cost));
                (wait <= max_wait).then_some(wait)
            }
            _ => self.check(now, cost),
        }
    }

    /// Counts `cost` as admitted at `now`, after its wait, even above the limit.
    fn take(&mut self, now: u64, cost: u64) {
        if cost == 0 {
            return;
        }
        if let State::Lockout(_) = self.state {
            self.state = State::Lockout(self.failures(now).take(now, cost));
            return;
        }
        let (cell, tokens) = (self.cell(now), i128::from(cost) * self.period());
        let level = matches!(self.state, State::Tokens(..)).then(|| self.tokens(now));
        let rate = self.rate;
        match (&mut self.state, self.kind) {
            (State::Counts(counts), Kind::SlidingLog) => {
                let lives = |at: u64, units: u64| units > 0 && now < at + rate.period;
                let moments = counts.iter().filter(|(at, units)| lives(**at, **units));
                let newest = counts.iter().rev().find(|(at, units)| lives(**at, **units));
                // A log holds at most `limit` moments; later costs are added to the newest one.
                let joined = match newest {
                    Some((newest, _)) if moments.count() as u64 >= rate.limit => {
                        counts.remove(&{ *newest }).unwrap_or(0)
                    }
                    _ => 0,
                };
                *counts.entry(now).or_default() += cost + joined;
            }
            (State::Counts(counts), _) => *counts.entry(cell).or_default() += cost,
            (State::Anchored(open), _) => match open {
                Some((start, used)) if now < *start + rate.period => *used += cost,
                _ => *open = Some((now, cost)),
            },
            (State::Tokens(level_then, at), _) => {
                *level_then = level.expect("a bucket") - tokens;
                *at = now;
            }
            (State::StoredPermits(..), _) => self.take_stored(now, cost),
            (State::Lockout(_), _) => unreachable!("handled above"),
        }
    }

    /// The permits of a full store, and the threshold.
    fn store(&self) -> (BigRational, BigRational) {
        let Kind::WarmUp { over, factor, .. } = self.kind else {
            unreachable!("only called for a warm-up");
        };
        let stable = ratio(self.rate.period, self.rate.limit);
        let threshold = whole(over) / (whole(2) * &stable);
        let full = &threshold + whole(2 * over) / (&stable + whole(factor) * &stable);
        (full, threshold)
    }

    fn full(&self) -> BigRational {
        self.store().0
    }

    /// The store and the free moment at `now`, with the idle time stored.
    fn rested(&self, now: u64) -> (BigRational, BigRational) {
        let (State::StoredPermits(stored, free), Kind::WarmUp { over, .. }) =
            (&self.state, self.kind)
        else {
            unreachable!("only called for a warm-up");
        };
        if *free >= whole(now) {
            return (stored.clone(), free.clone());
        }
        let idle = whole(now) - free.ceil();
        let full = self.full();
        let stored = stored.max(&whole(0)) + idle * &full / whole(over);
        (stored.min(full), whole(now))
    }

    /// The time of a cost that takes the store from `before` to `after`.
    fn price(&self, cost: u64, before: &BigRational, after: &BigRational) -> BigRational {
        let Kind::WarmUp { factor, .. } = self.kind else {
            unreachable!("only called for a warm-up");
        };
        let (full, threshold) = self.store();
        let stable = ratio(self.rate.period, self.rate.limit);
        let slope = (whole(factor) - whole(1)) * &stable / (&full - &threshold);
        let extra = |stored: &BigRational| {
            let above = (stored - &threshold).max(whole(0));
            (&slope * &above * &above / whole(2)).floor()
        };
        whole(cost) * &stable + extra(before) - extra(after)
    }

    fn take_stored(&mut self, now: u64, cost: u64) {
        let (stored, free) = self.rested(now);
        let left = &stored - whole(cost);
        let price = self.price(cost, &stored, &left);
        self.state = State::StoredPermits(left, free + price);
    }

    /// Whether a turn that was rounded down to `turn` is the last one, and has not come.
    fn is_last_turn(&self, turn: u64, now: u64, cost: u64) -> bool {
        let comes_at = turn + 1;
        let is_last = match &self.state {
            State::Tokens(..) => self.tokens(comes_at) >= 0,
            State::StoredPermits(..) => {
                let (stored, free) = self.rested(now);
                let back = (&stored + whole(cost)).min(self.full());
                free - self.price(cost, &back, &stored) <= whole(comes_at)
            }
            _ => return true,
        };
        comes_at > now && is_last
    }

    /// Gives back what is still taken of `cost`, which was taken at `taken_at`.
    fn refund(&mut self, taken_at: u64, now: u64, mut cost: u64) {
        if let State::Lockout(_) = self.state {
            self.state = State::Lockout(self.failures(now).refund(taken_at, now, cost));
            return;
        }
        // Since `taken_at` at most the refill has been returned already.
        let since = now.saturating_sub(taken_at);
        let earned = i128::from(since) * self.limit();
        let units = (i128::from(cost) * self.period() - earned).max(0);
        let taken_in = self.cell(taken_at);
        let newest = self.cell(now);
        let (_, counted, _) = self.cells();
        let period = self.rate.period;
        let level = matches!(self.state, State::Tokens(..)).then(|| self.tokens(now));
        let brim = i128::from(self.rate.burst) * self.period();
        let stable = ratio(self.rate.period, self.rate.limit);
        let rested = matches!(self.state, State::StoredPermits(..)).then(|| self.rested(now));
        match (&mut self.state, self.kind) {
            (State::Counts(counts), kind) => {
                for (at, units) in counts.iter_mut().rev() {
                    let counts_still = match kind {
                        Kind::SlidingLog => now < *at + period && *at <= taken_at,
                        _ => *at + counted > newest && *at <= taken_in,
                    };
                    let given = if counts_still { cost.min(*units) } else { 0 };
                    *units -= given;
                    cost -= given;
                }
            }
            (State::Anchored(Some((start, used))), _)
                if now < *start + period && taken_at >= *start =>
            {
                *used = used.saturating_sub(cost);
            }
            (State::Tokens(tokens, at), _) => {
                *tokens = (level.expect("a bucket") + units).min(brim);
                *at = now;
            }
            (State::Anchored(_), _) => {}
            (State::StoredPermits(..), _) => {
                let (stored, free) = rested.expect("a warm-up");
                self.state = State::StoredPermits(stored.clone(), free.clone());
                // Nothing is left after the time of a warm service.
                if whole(since) < whole(cost) * stable {
                    let back = (&stored + whole(cost)).min(self.full());
                    let before = &free - self.price(cost, &back, &stored);
                    let earlier = (before + whole(since)).max(whole(now).min(free));
                    self.state = State::StoredPermits(back, earlier);
                }
            }
            (State::Lockout(_), _) => unreachable!("handled above"),
        }
    }

    /// Whether there is a debt.
    fn owes(&self, now: u64) -> bool {
        match &self.state {
            State::Tokens(..) => self.tokens(now) < 0,
            State::StoredPermits(_, free) => *free > whole(now),
            State::Lockout(_) => self.failures(now).owes(),
            _ => self.used(now) > self.rate.limit,
        }
    }

    /// Changes the rate. What was used stays used, but of a bucket no longer than before, or than ten
    /// empty ones need. With another period parts of a unit are rounded up, and at most all of a window is used.
    fn retune(&mut self, rate: Rate, now: u64) {
        let old = self.clone();
        self.rate = rate;
        if let State::Lockout(_) = self.state {
            self.state = State::Lockout(old.failures(now).under(self.blocks()));
            return;
        }
        // A unit has as many parts as the period has nanoseconds.
        let in_parts = |units: BigRational| (units * whole(rate.period)).ceil();
        match (&old.state, self.kind) {
            (State::Counts(_), Kind::SlidingLog) => {
                if let State::Counts(counts) = &mut self.state {
                    counts.retain(|at, _| now < *at + old.rate.period);
                }
            }
            (State::Counts(_), _) if old.cells() != self.cells() => {
                let used = old.used(now).min(old.rate.limit).min(rate.limit);
                let cell = self.cell(now);
                self.state = State::Counts(BTreeMap::from([(cell, used)]));
            }
            (State::Anchored(Some(_)), _) if old.rate.period != rate.period => {
                let used = old.used(now).min(old.rate.limit).min(rate.limit);
                self.state = State::Anchored((used > 0).then_some((now, used)));
            }
            (State::Tokens(..), _) => {
                let used = whole(old.rate.burst) - ratio(old.tokens(now), old.rate.period);
                let reset_after = &used * whole(old.rate.period) / whole(old.rate.limit);
                let as_long_as_before = reset_after.ceil() * whole(rate.limit);
                let full = whole(rate.burst) * whole(rate.period);
                let used = in_parts(used).min(as_long_as_before.max(full.clone() * whole(10)));
                let left = full - used;
                let tokens = i128::try_from(left.to_integer()).expect("tokens fit");
                self.state = State::Tokens(tokens, now);
            }
            _ => {}
        }
    }
}

/// Limits that decide together, as their models say.
#[derive(Clone, Debug)]
pub(crate) struct Naive(pub(crate) Vec<(Kind, Rate)>);

impl Kind {
    pub(crate) fn quota(self, rate: Rate) -> Quota {
        let quota = Quota::per(rate.limit, Duration::from_nanos(rate.period));
        match self {
            Self::TokenBucket { .. } | Self::LeakyMeter => quota.burst(rate.burst),
            _ => quota,
        }
    }
}

/// The least number for which `holds` is true, which is true for all larger ones.
fn first(holds: impl Fn(u64) -> bool) -> Option<u64> {
    let mut high = 0;
    while !holds(high) {
        high = Some(2 * high + 1).filter(|high| *high < 1 << 62)?;
    }
    Some(high - largest_that(|less| holds(high - less), high / 2))
}

/// The largest number up to `most` for which `holds` is true. `holds` must be monotonic.
fn largest_that(holds: impl Fn(u64) -> bool, most: u64) -> u64 {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// The decision of several limits, given the wait of a request in each of them at a moment.
fn looked(models: &[Model], now: u64, wait: impl Fn(&Model, u64) -> Option<u64>) -> Decision {
    let each = models.iter().enumerate().map(|(policy, model)| {
        let goes = |now, cost| model.check(now, cost).is_some();
        let remaining = largest_that(|cost| goes(now, cost), model.capacity());
        let reset = first(|after| goes(now + after, model.capacity())).expect("it is unused once");
        let (verdict, retry) = match wait(model, now) {
            Some(0) => (Verdict::Admit, None),
            Some(wait) => (Verdict::Wait(Duration::from_nanos(wait)), None),
            None => (
                Verdict::Deny,
                first(|after| wait(model, now + after).is_some()),
            ),
        };
        let mut decision = Decision::new(verdict, model.capacity(), remaining, retry, reset);
        decision.policy = policy;
        decision
    });
    each.reduce(together).expect("a limit")
}

/// The decision of two limits is that of the one to wait for, or of the one with the least room.
fn together(one: Decision, other: Decision) -> Decision {
    let wait = one.wait().max(other.wait());
    let room =
        |one: &Decision, other: &Decision| u128::from(one.remaining()) * u128::from(other.limit);
    let takes_other = match (one.is_denied(), other.is_denied()) {
        (true, true) => {
            let retry = |denied: &Decision| denied.retry_after.unwrap_or(Duration::MAX);
            retry(&other) > retry(&one)
        }
        (false, false) => {
            let rooms = room(&other, &one).cmp(&room(&one, &other));
            rooms.then(one.reset_after.cmp(&other.reset_after)).is_lt()
        }
        (_, is_denied) => is_denied,
    };
    let mut both = if takes_other { other } else { one };
    if !both.is_denied() {
        both.verdict = match wait {
            Some(wait) if !wait.is_zero() => Verdict::Wait(wait),
            _ => Verdict::Admit,
        };
    }
    both
}

impl Algorithm for Naive {
    type State = Vec<Model>;

    fn quota(&self) -> Quota {
        let (kind, rate) = self.0[0];
        kind.quota(rate)
    }

    fn fresh(&self, now: Tick) -> Vec<Model> {
        let policies = self.0.iter();
        let fresh = policies.map(|(kind, rate)| Model::new(*kind, *rate, now.as_nanos()));
        fresh.collect()
    }

    fn decide(&self, models: &mut Vec<Model>, now: Tick, cost: u64) -> Decision {
        let looked = self.peek(models, now, cost);
        if looked.is_denied() {
            return looked;
        }
        for model in models.iter_mut() {
            model.take(now.as_nanos(), cost);
        }
        self.peek(models, now, 0)
    }

    fn peek(&self, models: &Vec<Model>, now: Tick, cost: u64) -> Decision {
        looked(models, now.as_nanos(), |model, now| model.check(now, cost))
    }

    fn peek_within(&self, models: &Vec<Model>, now: Tick, cost: u64, most: Duration) -> Decision {
        let reserve = |model: &Model, now| model.reserve(now, cost, nanos(most));
        looked(models, now.as_nanos(), reserve)
    }

    fn refund(&self, models: &mut Vec<Model>, now: Tick, cost: Cost, why: GiveBack) {
        let (now, at) = (now.as_nanos(), cost.at.as_nanos());
        for model in models {
            if why != GiveBack::Cancel || model.is_last_turn(at, now, cost.units) {
                model.refund(at, now, cost.units);
            }
        }
    }

    fn charge(&self, models: &mut Vec<Model>, now: Tick, cost: u64) -> Duration {
        let now = now.as_nanos();
        let owed = models.iter_mut().map(|model| {
            model.take(now, cost);
            first(|after| !model.owes(now + after)).expect("it is paid once")
        });
        Duration::from_nanos(owed.max().expect("a limit"))
    }

    fn rescale(&self, models: &mut Vec<Model>, _: &Self, now: Tick) {
        for (model, (_, rate)) in models.iter_mut().zip(&self.0) {
            model.retune(*rate, now.as_nanos());
        }
    }
}
