//! The laws in the documentation of `algorithm`, in random traces.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::backend::check_backend;
use super::random::Random;
use crate::algorithm::{Algorithm, Cost, GiveBack};
use crate::clock::{Clock, ManualClock, Tick, nanos};
use crate::decision::Decision;
use crate::store::local::Local;

/// Checks an algorithm against its promise and the [laws](crate::algorithm), and that a [`Local`] table decides by it, in
/// random traces.
///
/// `most` is the promise: the most that is admitted from one nanosecond to another, both included. Where a large cost
/// passes at once and later ones pay for it, as in a line, it is that for costs of 1. Its times must not be longer than
/// ten years.
///
/// ```
/// use tower_throttle::testkit::check_algorithm;
/// use tower_throttle::{FixedWindow, Quota};
///
/// let window = FixedWindow::new(Quota::per_second(10));
/// let windows = |from: u64, to: u64| to / 1_000_000_000 - from / 1_000_000_000 + 1;
/// for seed in 0..50 {
///     assert_eq!(check_algorithm(&window, |from, to| 10 * windows(from, to), seed), Ok(()));
/// }
///
/// // It admits twice its limit around the end of a window, which no log does.
/// let log = |from: u64, to: u64| 10 * ((to - from) / 1_000_000_000 + 1);
/// assert!((0..50).any(|seed| check_algorithm(&window, log, seed).is_err()));
/// ```
///
/// # Errors
/// If it breaks a law: which one, how, and the operations that led there.
///
/// # Panics
/// If a table refuses the settings of the algorithm.
pub fn check_algorithm<A: Algorithm>(
    algorithm: &A,
    most: impl Fn(u64, u64) -> u64,
    seed: u64,
) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut case = Case::new(algorithm);
    for (law, kind) in [
        ("Promise", TraceKind::StepsBack),
        ("Refunds", TraceKind::Refunds),
        ("Promise", TraceKind::AnyCost),
    ] {
        case.run(kind, &mut random);
        // A line takes a cost above what its promise is for.
        if kind != TraceKind::AnyCost || !case.is_line {
            case.fail(law, case.broken_interval(&most))?;
        }
    }
    case.fail("Undo", case.refunds_otherwise(&mut random))?;
    case.fail("Charge", case.charges_otherwise(&mut random))?;
    case.fail("RetryAfter", case.inexact_retry(&mut random))?;
    case.fail("ResetAfter", case.inexact_reset())?;
    case.fail("StepBack", case.admits_more_in_the_past(&mut random))?;
    case.fail("Forgettable", case.early_forget(&mut random))?;
    case.fail("Remaining", case.inexact_remaining())?;
    case.fail("Denial", case.changed_without_admission(&mut random))?;
    in_table(algorithm, seed).map_err(|fault| format!("in a table: {fault}\n  of {algorithm:?}"))
}

/// Checks that a table decides by the algorithm.
fn in_table<A: Algorithm>(algorithm: &A, seed: u64) -> Result<(), String> {
    let clock = ManualClock::new();
    let table = Local::new(algorithm.clone())
        .capacity(16)
        .with_clock(clock.clone());
    let pass = async |span| {
        clock.advance(span);
        Some(clock.now())
    };
    let checking = pin!(check_backend(&table, algorithm, ["a", "b"], pass, seed));
    match checking.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(checked) => checked,
        Poll::Pending => Err("it does not decide at once".to_owned()),
    }
}

/// What a random trace is made of, beside requests.
#[derive(Clone, Copy, PartialEq)]
enum TraceKind {
    /// Bursts, also at moments older than the state.
    StepsBack,
    /// Refunds of what was admitted.
    Refunds,
    /// Costs from 0 to more than is ever admitted.
    AnyCost,
}

/// A cost that was admitted, and what of it was not refunded.
struct Kept {
    passes_at: u64,
    cost: u64,
    decided_at: u64,
}

/// What is wrong, if anything.
type Fault = Option<String>;

/// The state of a key after a random trace.
struct Case<'a, A: Algorithm> {
    algorithm: &'a A,
    period: u64,
    limit: u64,
    /// The largest cost that may be admitted at once.
    burst: u64,
    /// Whether a cost passes at once, and those behind it pay for it.
    is_line: bool,
    state: A::State,
    /// The newest moment.
    now: u64,
    kept: Vec<Kept>,
    /// The operations as text.
    trace: String,
}

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

impl<'a, A: Algorithm> Case<'a, A> {
    fn new(algorithm: &'a A) -> Self {
        let quota = algorithm.quota();
        let mut state = algorithm.fresh(at(0));
        let left = algorithm.peek(&state, at(0), 0).remaining();
        let accepts_more = algorithm.peek(&state, at(0), left + 1).is_admitted();
        let rest = algorithm.decide(&mut state, at(0), 1).remaining();
        let is_line = accepts_more || left > 1 && rest == 0;
        Self {
            algorithm,
            period: quota.period_ns(),
            limit: quota.limit(),
            burst: quota.capacity().max(quota.limit()),
            is_line,
            state,
            now: 0,
            kept: Vec::new(),
            trace: String::new(),
        }
    }

    /// Runs a trace from a fresh state on, with requests at the moments most likely to break a promise.
    fn run(&mut self, kind: TraceKind, random: &mut Random) {
        let (period, interval) = (self.period, (self.period / self.limit).max(1));
        self.now = random.log_uniform(41);
        self.state = self.algorithm.fresh(at(self.now));
        self.kept.clear();
        self.trace.clear();
        // The newest moment of an admission, which is all that a state records.
        let mut seen = 0;
        let length = match kind {
            TraceKind::AnyCost => random.below(60),
            _ => 120,
        };
        for _ in 0..length {
            let next = match random.below(9) {
                0..=2 => 0,
                3 => random.below(interval + 1),
                4 => interval,
                // To the next boundary of a window, or just before it.
                5 => period - self.now % period,
                6 => (period - self.now % period).saturating_sub(1),
                7 => random.below(2 * period),
                _ => random.log_uniform(42),
            };
            let mut moment = self.now + next;
            if kind == TraceKind::StepsBack && random.below(8) == 0 {
                moment = self.now.saturating_sub(random.log_uniform(43));
            }
            self.now = self.now.max(moment);
            if kind == TraceKind::Refunds && random.below(3) == 0 {
                self.refund_some(moment, random);
                continue;
            }
            let (cost, times) = match kind {
                TraceKind::AnyCost => (random.below(self.burst + 3), 1),
                _ if self.is_line => (1, 1 + random.below(3)),
                TraceKind::StepsBack => (
                    1 + random.below(3),
                    1 + random.below(self.burst + 2).min(40),
                ),
                TraceKind::Refunds => (1 + random.below(self.limit.min(20)), 1),
            };
            for _ in 0..times {
                let decision = self.algorithm.decide(&mut self.state, at(moment), cost);
                let (verdict, left) = (decision.verdict, decision.remaining());
                let text = format_args!("{moment} ns: take {cost}: {verdict:?}, {left} left");
                let _ = write!(self.trace, "\n  {text}");
                if let Some(wait) = decision.wait().filter(|_| cost > 0) {
                    seen = seen.max(moment);
                    self.kept.push(Kept {
                        passes_at: seen.max(moment + nanos(wait)),
                        cost,
                        decided_at: moment,
                    });
                } else {
                    break;
                }
            }
        }
    }

    /// Gives back a part of a cost that was taken. Queued requests keep their moments, so a line frees only the last turn.
    fn refund_some(&mut self, moment: u64, random: &mut Random) {
        let Some(last) = self.kept.len().checked_sub(1) else {
            return;
        };
        let which = usize::try_from(random.below(self.kept.len() as u64)).unwrap_or(last);
        let index = if self.is_line { last } else { which };
        let kept = &mut self.kept[index];
        let part = 1 + random.below(kept.cost);
        let taken_at = if kept.passes_at > moment {
            moment
        } else {
            kept.decided_at
        };
        let taken = Cost {
            units: part,
            at: at(taken_at),
        };
        self.algorithm
            .refund(&mut self.state, at(moment), taken, GiveBack::Refund);
        let (cost, then) = (kept.cost, kept.decided_at);
        let text = format_args!("{moment} ns: refund {part} of the {cost} taken at {then} ns");
        let _ = write!(self.trace, "\n  {text}");
        kept.cost -= part;
        self.kept.retain(|kept| kept.cost > 0);
    }

    fn fail(&self, law: &str, fault: Fault) -> Result<(), String> {
        let Some(fault) = fault else {
            return Ok(());
        };
        let (trace, algorithm) = (&self.trace, self.algorithm);
        Err(format!("{law}: {fault}{trace}\n  of {algorithm:?}"))
    }

    /// The decision on a cost so long after the trace.
    fn peek(&self, after: u64, cost: u64) -> Decision {
        let now = at(self.now + after);
        self.algorithm.peek(&self.state, now, cost)
    }

    /// What a state leaves at the end of the trace.
    fn left(&self, state: &A::State) -> u64 {
        self.algorithm.peek(state, at(self.now), 0).remaining()
    }

    /// What a state decides in the next one and a half periods.
    fn decisions(&self, state: &A::State) -> Vec<Decision> {
        let moments = (0..30).map(|index| at(self.now + index * (self.period / 20 + 1)));
        let peek = |moment| self.algorithm.peek(state, moment, 1);
        moments.map(peek).collect()
    }

    /// The cost admitted and kept in any interval stays within the promise.
    fn broken_interval(&self, most: impl Fn(u64, u64) -> u64) -> Fault {
        let mut sums = BTreeMap::new();
        for kept in &self.kept {
            *sums.entry(kept.passes_at).or_insert(0) += kept.cost;
        }
        let kept: Vec<_> = sums.into_iter().collect();
        kept.iter().enumerate().find_map(|(first, (start, _))| {
            let (mut sum, mut bound) = (0, 0);
            kept[first..].iter().find_map(|(end, cost)| {
                sum += cost;
                // A later end has no lower bound.
                if sum > bound {
                    bound = most(*start, *end);
                }
                (sum > bound).then(|| {
                    format!("{sum} admitted from {start} ns to {end} ns, at most {bound} promised")
                })
            })
        })
    }

    /// A request that is refunded at once has taken nothing.
    fn refunds_otherwise(&self, random: &mut Random) -> Fault {
        let costs: Vec<_> = (0..=random.below(3))
            .map(|_| 1 + random.below(self.limit.min(3)))
            .collect();
        let refunded = usize::try_from(random.below(costs.len() as u64)).unwrap_or_default();
        let (mut with, mut without) = (self.state.clone(), self.state.clone());
        for (index, cost) in costs.iter().enumerate() {
            let decision = self.algorithm.decide(&mut with, at(self.now), *cost);
            if decision.is_denied() {
                return None;
            }
            if index != refunded {
                let _ = self.algorithm.decide(&mut without, at(self.now), *cost);
            }
        }
        let cost = costs[refunded];
        let taken = Cost {
            units: cost,
            at: at(self.now),
        };
        self.algorithm
            .refund(&mut with, at(self.now), taken, GiveBack::Refund);
        (self.decisions(&with) != self.decisions(&without)).then(|| {
            let (with, without, now) = (self.left(&with), self.left(&without), self.now);
            format!(
                "costs of {costs:?} are taken at {now} ns, and the {cost} is refunded then: {with} are left, \
                 and {without} if it is not taken"
            )
        })
    }

    /// A charge takes as much as an admitted request, and all that is left if it is more than that.
    fn charges_otherwise(&self, random: &mut Random) -> Fault {
        let most = if self.is_line { 1 } else { self.burst + 2 };
        let cost = 1 + random.below(most);
        let (mut charged, mut taken) = (self.state.clone(), self.state.clone());
        self.algorithm.charge(&mut charged, at(self.now), cost);
        let is_admitted = self.peek(0, cost).is_admitted();
        let is_right = if is_admitted {
            let _ = self.algorithm.decide(&mut taken, at(self.now), cost);
            self.decisions(&charged) == self.decisions(&taken)
        } else {
            self.left(&charged) == 0
        };
        (!is_right).then(|| {
            let (before, now) = (self.left(&self.state), self.now);
            let (charged, taken) = (self.left(&charged), self.left(&taken));
            let than = if is_admitted {
                format!("not {taken} as after a request")
            } else {
                "not 0".to_owned()
            };
            format!("a charge of {cost} at {now} ns leaves {charged} of {before}, {than}")
        })
    }

    /// The request passes at `retry_after` and is denied one nanosecond earlier. Without a `retry_after` it
    /// is denied also when the whole limit is available.
    fn inexact_retry(&self, random: &mut Random) -> Fault {
        let cost = 1 + random.below(self.burst);
        let decision = self.peek(0, cost);
        let passes = |after: u64| !self.peek(after, cost).is_denied();
        let retry_after = decision.retry_after.map(nanos);
        let wrong = match retry_after {
            None if decision.is_denied() && passes(nanos(decision.reset_after)) => "passes later",
            Some(retry) if !passes(retry) => "is denied then too",
            Some(retry) if retry == 0 || passes(retry - 1) => "passes earlier",
            _ => return None,
        };
        let now = self.now;
        Some(format!(
            "a cost of {cost} is denied at {now} ns, its retry_after is {retry_after:?} ns, and it {wrong}"
        ))
    }

    /// The whole limit is available from `reset_after` on, and not earlier.
    fn inexact_reset(&self) -> Fault {
        let reset_after = nanos(self.peek(0, 0).reset_after);
        let full = |after: u64| {
            let rest = self.peek(after, 0);
            rest.remaining() == rest.limit
        };
        let is_exact = full(reset_after) && (reset_after == 0 || !full(reset_after - 1));
        let now = self.now;
        (!is_exact)
            .then(|| format!("reset_after at {now} ns is {reset_after} ns, which is not exact"))
    }

    /// A moment older than the state admits no more than the newest one.
    fn admits_more_in_the_past(&self, random: &mut Random) -> Fault {
        // The state only records the newest moment if it admits something then.
        let mut state = self.state.clone();
        let _ = self.algorithm.decide(&mut state, at(self.now), 1);
        let older = self.now.saturating_sub(random.log_uniform(42));
        let admits = |moment: u64, cost| {
            let decision = self.algorithm.peek(&state, at(moment), cost);
            decision.is_admitted()
        };
        let now = self.now;
        let mut costs = 1..=self.burst.min(20);
        let cost = costs.find(|cost| admits(older, *cost) && !admits(now, *cost))?;
        Some(format!(
            "a cost of {cost} is admitted at {older} ns but not at {now} ns"
        ))
    }

    /// A forgettable state decides like a fresh one, then and at all later times.
    fn early_forget(&self, random: &mut Random) -> Fault {
        let due = self.algorithm.forgettable_at(&self.state).as_nanos();
        let mut now = self.now.max(due);
        let (mut kept, mut fresh) = (self.state.clone(), self.algorithm.fresh(at(now)));
        (0..20).find_map(|_| {
            let (cost, then) = (random.below(self.burst + 2), now);
            let kept = self.algorithm.decide(&mut kept, at(then), cost);
            let forgotten = self.algorithm.decide(&mut fresh, at(then), cost);
            now += random.below(self.period);
            (kept != forgotten).then(|| {
                format!("a cost of {cost} at {then} ns: a fresh state returns {forgotten:?}, the kept one {kept:?}")
            })
        })
    }

    /// `remaining` is the largest cost that is admitted. A line accepts more.
    fn inexact_remaining(&self) -> Fault {
        let rest = self.peek(0, 0);
        let remaining = rest.remaining();
        let admitted = |cost| self.peek(0, cost).is_admitted();
        let is_right = admitted(remaining) && (self.is_line || !admitted(remaining + 1));
        let now = self.now;
        (!is_right).then(|| format!("remaining at {now} ns is {remaining}, which is not exact"))
    }

    /// A denied request, a peek and a cost of zero change nothing.
    fn changed_without_admission(&self, random: &mut Random) -> Fault {
        let mut asked = self.state.clone();
        let mut costs = Vec::new();
        for _ in 0..5 {
            let cost = match random.below(2) {
                0 => 0,
                _ => 1 + random.below(2 * self.burst),
            };
            if cost == 0 || self.peek(0, cost).is_denied() {
                let _ = self.algorithm.decide(&mut asked, at(self.now), cost);
                costs.push(cost);
            }
        }
        (self.decisions(&self.state) != self.decisions(&asked)).then(|| {
            let (now, before, left) = (self.now, self.left(&self.state), self.left(&asked));
            format!("costs of {costs:?}, none admitted at {now} ns, leave {left} of {before} or change what comes")
        })
    }
}
