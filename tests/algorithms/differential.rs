//! Compares the library with the oracle after each step of random traces.

use std::thread;
use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Cost, GiveBack, reserve, take_up_to};
use tower_throttle::{
    All, Decision, FixedWindow, LeakyBucket, Lockout, Quota, SlidingGrid, SlidingLog,
    SlidingWindow, TokenBucket, WarmUp, clock::Tick,
};

use crate::failures::Blocks;
use crate::oracle::{Kind, Model, Rate};
use crate::random::{Random, seeds};

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

fn span(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("spans fit")
}

fn quota(rate: Rate) -> Quota {
    Quota::per(rate.limit, span(rate.period)).burst(rate.burst)
}

/// The library's algorithm of a kind.
fn algorithm(kind: Kind, rate: Rate) -> AnyAlgorithm {
    let quota = quota(rate);
    match kind {
        Kind::FixedWindow { offset } => {
            AnyAlgorithm::new(FixedWindow::new(quota).offset(span(offset)))
        }
        Kind::AnchoredWindow => AnyAlgorithm::new(FixedWindow::new(quota).anchored()),
        Kind::SlidingLog => AnyAlgorithm::new(SlidingLog::new(quota)),
        Kind::SlidingWindow { offset } => {
            AnyAlgorithm::new(SlidingWindow::new(quota).offset(span(offset)))
        }
        Kind::SlidingGrid {
            cells,
            strict,
            offset,
        } => {
            let cells = usize::try_from(cells).expect("few cells");
            let grid = SlidingGrid::new(quota).cells(cells).offset(span(offset));
            AnyAlgorithm::new(if strict { grid.strict() } else { grid })
        }
        Kind::TokenBucket { initial } => {
            AnyAlgorithm::new(TokenBucket::new(quota).initial(initial))
        }
        Kind::LeakyMeter => AnyAlgorithm::new(LeakyBucket::new(quota)),
        Kind::Lockout(Blocks {
            block,
            max_block,
            forget,
            ..
        }) => AnyAlgorithm::new(
            Lockout::new(quota)
                .block(span(block))
                .max_block(span(max_block))
                .forget(span(forget)),
        ),
        Kind::WarmUp {
            over,
            factor,
            max_cost,
        } => {
            let line = WarmUp::new(quota, span(over)).cold_factor(factor);
            AnyAlgorithm::new(max_cost.map_or(line, |most| line.max_cost(most)))
        }
    }
}

const KINDS: usize = 10;

/// A random policy of the kind `number`: 1 per day to 1e9 per second, with periods that the limit
/// divides and periods that it does not.
fn policy(number: usize, random: &mut Random) -> (Kind, Rate) {
    let rate = rate(random);
    let offset = *random.pick(&[0, 0, 1, 12_345_678]);
    let max_cost = match random.below(2) {
        0 => None,
        _ => Some(1 + random.below(2 * rate.limit)),
    };
    let kind = match number {
        0 => Kind::FixedWindow { offset },
        1 => Kind::AnchoredWindow,
        2 => Kind::SlidingLog,
        3 => Kind::SlidingWindow { offset },
        4 | 5 => Kind::SlidingGrid {
            cells: match random.below(4) {
                0 => 1 + random.below(60),
                _ => 1 + random.below(12),
            },
            strict: number == 5,
            offset,
        },
        6 => Kind::TokenBucket {
            initial: random.below(rate.burst + 1),
        },
        7 => Kind::LeakyMeter,
        8 => {
            let block = 1 + random.below(2 * rate.period);
            Kind::Lockout(Blocks {
                block,
                max_block: block + random.below(6 * block),
                forget: 1 + random.below(8 * rate.period),
                ..Blocks::default()
            })
        }
        _ => Kind::WarmUp {
            over: 1 + random.below((20 * rate.period).min((1 << 60) / rate.limit)),
            factor: *random.pick(&[1, 2, 3, 10]),
            max_cost,
        },
    };
    (kind, rate)
}

fn rate(random: &mut Random) -> Rate {
    let second = 1_000_000_000;
    let (limit, period) = match random.below(8) {
        0 => (1, 86_400 * second),
        1 => (second, second),
        2 => (999_999_937, second),
        3 => (777, second + 1),
        4 => (1 + random.below(20), 7_000_013),
        5 => (1 + random.log_uniform(30), 1 + random.log_uniform(45)),
        _ => (
            1 + random.below(30),
            *random.pick(&[10, 1_000, second, 60 * second]),
        ),
    };
    // A quota bounds the time that a burst is worth.
    let most = (u128::from(limit) << 58) / u128::from(period);
    let most = u64::try_from(most.clamp(1, 1 << 40)).expect("clamped");
    let burst = match random.below(3) {
        0 => limit,
        1 => 1 + random.below(5),
        _ => 1 + random.below(3 * limit),
    };
    Rate {
        limit,
        period,
        burst: burst.min(most),
    }
}

/// The library's state and the model of the same key.
struct Pair {
    algorithm: AnyAlgorithm,
    state: <AnyAlgorithm as Algorithm>::State,
    model: Model,
    now: u64,
}

impl Pair {
    fn new(kind: Kind, rate: Rate, now: u64) -> Self {
        let algorithm = algorithm(kind, rate);
        Self {
            state: algorithm.fresh(at(now)),
            algorithm,
            model: Model::new(kind, rate, now),
            now,
        }
    }

    /// Advances by a gap that is likely to matter. Time never goes back, as with a `Clock`.
    fn pass(&mut self, random: &mut Random) {
        let Rate { limit, period, .. } = self.model.rate;
        let unit = (period / limit).max(1);
        let gap = match random.below(12) {
            0..=3 => 0,
            4 => unit * random.below(5) + random.below(3),
            5 => (unit * (1 + random.below(5))).saturating_sub(1),
            6 => period - self.now % period,
            7 => (period - self.now % period).saturating_sub(1) + 2 * random.below(2),
            8 => period,
            9 => random.below(period),
            10 => random.below(3 * period),
            _ => random.log_uniform(62),
        };
        // Stays away from `Tick::MAX`, where results saturate.
        self.now = self.now.saturating_add(gap).min(1 << 62);
    }

    /// Returns the figure of a decision that the model contradicts on either side of it.
    fn wrong_figures(&self, decision: &Decision) -> Option<String> {
        let (model, now) = (&self.model, self.now);
        let goes = |now, cost| model.check(now, cost) == Some(0);
        let remaining = decision.remaining();
        // An idle queue without a maximum cost accepts more than it reports.
        let exact = remaining < model.capacity() || model.largest() == model.capacity();
        if !goes(now, remaining) || exact && goes(now, remaining + 1) {
            return Some(format!("remaining {remaining}"));
        }
        let reset = nanos(decision.reset_after);
        let full = |after| goes(now + after, model.capacity());
        if !full(reset) || (reset > 0 && full(reset - 1)) {
            return Some(format!("reset_after {reset}"));
        }
        None
    }

    fn wrong_decision(&self, decision: &Decision, expected: Option<u64>) -> Option<String> {
        let wait = decision.wait().map(nanos);
        if wait != expected {
            return Some(format!("wait {wait:?}, expected {expected:?}"));
        }
        if decision.limit != self.model.capacity() {
            return Some(format!("limit {}", decision.limit));
        }
        None
    }

    fn wrong_retry(
        &self,
        decision: &Decision,
        passes: impl Fn(u64) -> bool,
        never: bool,
    ) -> Option<String> {
        let retry = decision.retry_after.map(nanos);
        let right = match retry {
            None => !decision.is_denied() || never,
            Some(0) => false,
            Some(wait) => {
                decision.is_denied() && passes(self.now + wait) && !passes(self.now + wait - 1)
            }
        };
        (!right).then(|| format!("retry_after {retry:?}"))
    }

    /// Applies one operation to both. Returns how they differ.
    fn step(&mut self, random: &mut Random) -> Option<String> {
        self.pass(random);
        let (now, capacity, largest) = (self.now, self.model.capacity(), self.model.largest());
        let cost = match random.below(8) {
            0 => 0,
            1 => capacity,
            2 => capacity + 1 + random.below(2),
            3 => 1 + random.below(capacity),
            _ => 1 + random.below(3.min(capacity)),
        };
        let (tick, state) = (at(now), &mut self.state);
        let fault = match random.below(20) {
            0..=11 => {
                let expected = self.model.check(now, cost);
                let looked = self.algorithm.peek(state, tick, cost);
                let before = self.model.clone();
                let decision = self.algorithm.decide(state, tick, cost);
                if expected.is_some() {
                    self.model.take(now, cost);
                }
                let passes = |then| before.check(then, cost).is_some();
                (looked.verdict != decision.verdict)
                    .then(|| format!("peek returned {looked:?}"))
                    .or_else(|| self.wrong_decision(&decision, expected))
                    .or_else(|| self.wrong_retry(&decision, passes, cost > largest))
                    .or_else(|| self.wrong_figures(&decision))
                    .map(|fault| format!("check {cost}: {fault} in {decision:?}"))
            }
            12 | 13 => {
                let rate = self.model.rate;
                let most = random.below(4) * (rate.period / rate.limit + 1);
                // The time that these costs are worth stays far from `Tick::MAX`.
                let cost = cost.min(1_000 + rate.burst);
                let expected = self.model.reserve(now, cost, most);
                let before = self.model.clone();
                let decision = reserve(&self.algorithm, state, tick, cost, span(most));
                if expected.is_some() {
                    self.model.take(now, cost);
                }
                let passes = |then| before.reserve(then, cost, most).is_some();
                self.wrong_decision(&decision, expected)
                    .or_else(|| self.wrong_retry(&decision, passes, cost > largest))
                    .or_else(|| self.wrong_figures(&decision))
                    .map(|fault| format!("reserve {cost} within {most}: {fault} in {decision:?}"))
            }
            14 => {
                let (taken, decision) = take_up_to(&self.algorithm, state, tick, cost);
                let bounded = largest == capacity || taken < capacity;
                let wrong = self.model.check(now, taken) != Some(0)
                    || (taken < cost && bounded && self.model.check(now, taken + 1) == Some(0));
                self.model.take(now, taken);
                (wrong || taken > cost)
                    .then(|| format!("took {taken}"))
                    .or_else(|| self.wrong_figures(&decision))
                    .map(|fault| format!("take up to {cost}: {fault} in {decision:?}"))
            }
            15 | 16 => {
                let taken_at = match random.below(3) {
                    0 => now,
                    1 => now.saturating_sub(random.below(2 * self.model.rate.period)),
                    _ => now
                        .saturating_add(random.below(self.model.rate.period))
                        .min(1 << 62),
                };
                self.algorithm.refund(
                    state,
                    tick,
                    Cost {
                        units: cost,
                        at: at(taken_at),
                    },
                    GiveBack::Refund,
                );
                self.model.refund(taken_at, now, cost);
                let rest = self.algorithm.peek(&self.state, tick, 0);
                self.wrong_figures(&rest)
                    .map(|fault| format!("refund {cost} of {taken_at}: {fault}"))
            }
            17 => {
                let owed = nanos(self.algorithm.charge(state, tick, cost));
                self.model.take(now, cost);
                let owes = |after| self.model.owes(now + after);
                let wrong = owes(owed) || (owed > 0 && !owes(owed - 1));
                let rest = self.algorithm.peek(&self.state, tick, 0);
                wrong
                    .then(|| format!("owes for {owed}"))
                    .or_else(|| self.wrong_figures(&rest))
                    .map(|fault| format!("charge {cost}: {fault}"))
            }
            18 => {
                *state = self.algorithm.fresh(tick);
                self.model.reset(now);
                None
            }
            _ => self.retune(random),
        };
        fault.map(|fault| format!("at {now}, {fault}"))
    }

    fn retune(&mut self, random: &mut Random) -> Option<String> {
        let (kind, old) = (self.model.kind, self.model.rate);
        // A store is kept in units of its policy, so rescaling it is exact to one unit only.
        if matches!(kind, Kind::WarmUp { .. }) {
            return None;
        }
        let rate = match random.below(3) {
            0 => Rate {
                burst: (old.burst / 2).max(1),
                ..old
            },
            1 => Rate {
                limit: old.limit + 1 + random.below(old.limit),
                ..old
            },
            _ => rate(random),
        };
        // At a much lower rate the used part of a bucket may be worth more than `Tick::MAX`.
        let reset = self
            .algorithm
            .peek(&self.state, at(self.now), 0)
            .reset_after;
        let used = reset.as_nanos() * u128::from(old.limit) / u128::from(old.period) + 1;
        let used = used.max(u128::from(self.model.capacity()));
        if used * u128::from(rate.period) / u128::from(rate.limit) > 1 << 58 {
            return None;
        }
        let next = algorithm(kind, rate);
        let tick = at(self.now);
        next.rescale(&mut self.state, &self.algorithm, tick);
        self.algorithm = next;
        self.model.retune(rate, self.now);
        let rest = self.algorithm.peek(&self.state, tick, 0);
        self.wrong_figures(&rest).map(|fault| {
            format!(
                "retune from {old:?} to {rate:?}: {fault} in {:?}",
                self.state
            )
        })
    }
}

/// Runs one random trace. Returns how the library and the oracle differ.
fn disagreement(number: usize, seed: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let (kind, rate) = policy(number, &mut random);
    let mut pair = Pair::new(kind, rate, random.log_uniform(61));
    let steps = match random.below(10) {
        0 => 400,
        _ => 1 + random.below(60),
    };
    (0..steps).find_map(|step| {
        let fault = pair.step(&mut random)?;
        Some(format!(
            "seed {seed}, step {step}: {kind:?} at {rate:?}: {fault}"
        ))
    })
}

/// Shows promises 10, 23, 26.
#[test]
fn every_algorithm_agrees_with_the_oracle() {
    thread::scope(|scope| {
        for number in 0..KINDS {
            scope.spawn(move || {
                let found = seeds(300).find_map(|seed| disagreement(number, seed));
                assert_eq!(found, None, "kind {number}");
            });
        }
    });
}

/// Shows promise 16.
#[test]
fn combined_limits_do_what_all_oracles_do_and_denials_charge_none() {
    for seed in seeds(300) {
        let mut random = Random::new(seed);
        let policies: Vec<_> = (0..=random.below(3))
            .map(|_| {
                // Only kinds that never make a request wait.
                let number = *random.pick(&[0, 1, 2, 3, 4, 5, 7, 9]);
                policy(number, &mut random)
            })
            .collect();
        let now = random.log_uniform(61);
        let mut all = All::new(policies.iter().map(|(kind, rate)| algorithm(*kind, *rate)));
        let mut state = all.fresh(at(now));
        let mut pairs: Vec<_> = policies
            .iter()
            .map(|(kind, rate)| Pair::new(*kind, *rate, now))
            .collect();
        for _ in 0..random.below(60) {
            pairs[0].pass(&mut random);
            let now = pairs[0].now;
            let cost = 1 + random.below(4);
            match random.below(12) {
                0 => {
                    all.charge(&mut state, at(now), cost);
                    for pair in &mut pairs {
                        pair.model.take(now, cost);
                    }
                }
                1 => {
                    let taken_at = now.saturating_sub(random.below(pairs[0].model.rate.period));
                    let back = Cost {
                        units: cost,
                        at: at(taken_at),
                    };
                    all.refund(&mut state, at(now), back, GiveBack::Refund);
                    for pair in &mut pairs {
                        pair.model.refund(taken_at, now, cost);
                    }
                }
                2 => {
                    // A warm-up of another quota is cold.
                    let more = |Pair { model, .. }: &Pair| Rate {
                        limit: model.rate.limit
                            + u64::from(!matches!(model.kind, Kind::WarmUp { .. })),
                        ..model.rate
                    };
                    let kind = |pair: &Pair| algorithm(pair.model.kind, more(pair));
                    let next = All::new(pairs.iter().map(kind));
                    next.rescale(&mut state, &all, at(now));
                    all = next;
                    for pair in &mut pairs {
                        pair.model.retune(more(pair), now);
                    }
                }
                _ => {}
            }
            let passes = |now, cost| {
                pairs
                    .iter()
                    .all(|pair| pair.model.check(now, cost) == Some(0))
            };
            let decision = all.decide(&mut state, at(now), cost);
            assert_eq!(
                decision.is_admitted(),
                passes(now, cost),
                "seed {seed}: {decision:?}"
            );
            if let Some(retry) = decision.retry_after.map(nanos) {
                assert!(passes(now + retry, cost), "seed {seed}: {decision:?}");
                assert!(!passes(now + retry - 1, cost), "seed {seed}: {decision:?}");
            }
            if decision.is_admitted() {
                for pair in &mut pairs {
                    pair.model.take(now, cost);
                }
            }
            // The figures are those of the limit with the smallest remaining share.
            let shares: Vec<_> = pairs
                .iter()
                .map(|pair| {
                    let goes = |cost| pair.model.check(now, cost) == Some(0);
                    let limit = pair.model.capacity();
                    (largest_that(goes, limit), limit)
                })
                .collect();
            let (remaining, limit) = shares[decision.policy];
            let reported = (decision.remaining(), decision.limit);
            assert_eq!(reported, (remaining, limit), "seed {seed}: {decision:?}");
            if decision.is_admitted() {
                let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
                let least = shares
                    .iter()
                    .all(|(other, most)| product(remaining, *most) <= product(*other, limit));
                assert!(least, "seed {seed}: {decision:?} of {shares:?}");
            }
        }
    }
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

/// Checks that the comparison finds a difference of one unit.
///
/// Shows promises 1, 10.
#[test]
fn a_planted_difference_is_found_in_every_kind() {
    for number in 0..KINDS {
        let found = (0..50).any(|seed| {
            let mut random = Random::new(seed);
            let (kind, rate) = policy(number, &mut random);
            let mut pair = Pair::new(kind, rate, random.log_uniform(61));
            // The library counts one unit that the oracle does not.
            pair.algorithm.charge(&mut pair.state, at(pair.now), 1);
            (0..20).any(|_| pair.step(&mut random).is_some())
        });
        assert!(found, "kind {number}");
    }
}
