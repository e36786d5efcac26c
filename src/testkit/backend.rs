//! What every operation of a backend does.

use std::fmt::Write;
use std::time::Duration;

use super::is;
use super::random::Random;
use crate::algorithm::{Algorithm, Cost, GiveBack, reserve};
use crate::backend::{Backend, Op};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::quota::Quota;
use crate::receipt::Receipt;

/// The calls of a random trace.
const CALLS: u64 = 80;

/// Checks that a backend decides on two unused keys as `algorithm` does on two states, in a random trace of all
/// operations.
///
/// Before each operation it calls `pass` with a time that is to pass. `pass` returns the present moment, or `None` if
/// only the backend knows it: then the moment of a decision is that of its [`Receipt`](crate::store::Receipt), which
/// each decision has to have, and no operation books a turn. Waits may be rounded up to microseconds, if those of
/// `algorithm` are too.
///
/// ```
/// use tower_throttle::clock::Clock;
/// use tower_throttle::testkit::check_backend;
/// use tower_throttle::{Local, ManualClock, Quota, TokenBucket};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let bucket = TokenBucket::new(Quota::per_second(10));
/// for seed in 0..10 {
///     let clock = ManualClock::new();
///     let table = Local::new(bucket).with_clock(clock.clone());
///     let pass = async |span| {
///         clock.advance(span);
///         Some(clock.now())
///     };
///     assert_eq!(check_backend(&table, &bucket, ["ann", "bob"], pass, seed).await, Ok(()));
/// }
/// # }
/// ```
///
/// # Errors
/// If an operation does something else, or fails, with the operations until then.
pub async fn check_backend<K: ?Sized, B: Backend<K>, A: Algorithm>(
    backend: &B,
    algorithm: &A,
    keys: [&K; 2],
    mut pass: impl AsyncFnMut(Duration) -> Option<Tick>,
    seed: u64,
) -> Result<(), String> {
    let (limits, quotas) = (backend.limits(), backend.quotas());
    is(limits == quotas.len(), || {
        format!("limits() is {limits}, quotas() are {quotas:?}")
    })?;
    let mut random = Random::new(seed);
    let mut of_keys = [Expected::new(algorithm), Expected::new(algorithm)];
    let (mut moment, mut trace) = (Tick::ZERO, String::new());
    for _ in 0..CALLS {
        let which = usize::from(random.below(4) == 0);
        let gap = gap(&mut random, &algorithm.quota(), moment);
        let known = pass(gap).await;
        let op = of_keys[which].next_op(&mut random, known);
        let decision = backend.apply(keys[which], op).await;
        let decision = decision.map_err(|error| format!("{op:?}: {error}{trace}"))?;
        let receipt = decision.receipt();
        is(known.is_some() || receipt != Receipt::NOW, || {
            format!("{op:?} returns no receipt{trace}")
        })?;
        moment = known.unwrap_or_else(|| Tick::from_nanos(receipt.moment()));
        let _ = write!(trace, "\n  {moment:?}: {op:?} of key {which}: {decision:?}");
        let expected = of_keys[which].apply(op, moment);
        if let (Op::Take(cost) | Op::Reserve { cost, .. }, false) = (op, decision.is_denied()) {
            of_keys[which].taken.push((cost, receipt));
        }
        is(agree(&decision, &expected), || {
            format!("{op:?} of key {which} returns {decision:?}, not {expected:?}{trace}")
        })?;
    }
    Ok(())
}

/// Whether two decisions say the same, to the microsecond if one of them rounds to it.
fn agree(found: &Decision, expected: &Decision) -> bool {
    let figures = |decision: &Decision| (decision.limit, decision.remaining(), decision.policy);
    let same = |found: Duration, expected: Duration| {
        let micros = |span: Duration| span.as_nanos().div_ceil(1_000);
        found == expected || found.as_nanos() % 1_000 == 0 && micros(found) == micros(expected)
    };
    let same_or_none = |spans: [Option<Duration>; 2]| match spans {
        [Some(found), Some(expected)] => same(found, expected),
        spans => spans == [None; 2],
    };
    figures(found) == figures(expected)
        && found.is_denied() == expected.is_denied()
        && same_or_none([found.wait(), expected.wait()])
        && same_or_none([found.retry_after, expected.retry_after])
        && same(found.reset_after, expected.reset_after)
}

/// A time that is likely to matter. Most are short, as the end of a period makes an unused key.
fn gap(random: &mut Random, quota: &Quota, moment: Tick) -> Duration {
    let period = quota.period_ns();
    Duration::from_nanos(match random.below(8) {
        0..=3 => 0,
        4 => random.below(period / quota.limit() + 2),
        5 => period - moment.as_nanos() % period,
        6 => random.below(period / 4 + 1),
        _ => random.below(period + 1),
    })
}

/// What a key is expected to do.
struct Expected<'a, A: Algorithm> {
    algorithm: &'a A,
    /// `None` of an unused key.
    state: Option<A::State>,
    /// Costs that were taken, and when.
    taken: Vec<(u64, Receipt)>,
}

impl<'a, A: Algorithm> Expected<'a, A> {
    fn new(algorithm: &'a A) -> Self {
        Self {
            algorithm,
            state: None,
            taken: Vec::new(),
        }
    }

    /// A random operation. A turn is booked only if the present moment is known.
    fn next_op(&mut self, random: &mut Random, now: Option<Tick>) -> Op {
        let quota = self.algorithm.quota();
        let cost = match random.below(4) {
            0 => random.below(quota.capacity() + 2),
            _ => 1 + random.below(3),
        };
        let refund = |(cost, receipt): (u64, Receipt), random: &mut Random| {
            let part = 1 + random.below(cost.max(1));
            match random.below(4) {
                0 => Op::Cancel(cost, receipt),
                1 => Op::Forgive(part, receipt),
                _ => Op::Refund(part, receipt),
            }
        };
        match random.below(16) {
            0 | 1 if now.is_some() => Op::Reserve {
                cost,
                queue: u64::MAX,
                max_wait: Duration::from_nanos(random.below(2 * quota.period_ns())),
            },
            2 | 3 => Op::Peek(cost),
            4 => Op::Charge(cost),
            5 if self.state.is_some() && random.below(3) == 0 => Op::Reset,
            6..=8 if !self.taken.is_empty() => {
                let last = self.taken.len() - 1;
                // Often the last turn, which is the only one that a queue gives back.
                let index = random.below(2 * self.taken.len() as u64);
                let index = usize::try_from(index).map_or(last, |index| index.min(last));
                let taken = self.taken.swap_remove(index);
                refund(taken, random)
            }
            9 if now.is_some() => {
                let since = random.below(2 * quota.period_ns());
                let moment = now.map_or(0, Tick::as_nanos).saturating_sub(since);
                refund((cost, Receipt::at(moment)), random)
            }
            _ => Op::Take(cost),
        }
    }

    /// What the algorithm decides.
    fn apply(&mut self, op: Op, now: Tick) -> Decision {
        let algorithm = self.algorithm;
        let is_new = self.state.is_none();
        let state = self.state.get_or_insert_with(|| algorithm.fresh(now));
        let mut refund = |cost, receipt: Receipt, why| {
            let taken = Cost {
                units: cost,
                at: Tick::from_nanos(receipt.moment()),
            };
            algorithm.refund(state, now, taken, why);
        };
        let decision = match op {
            Op::Take(cost) => algorithm.decide(state, now, cost),
            Op::Reserve { cost, max_wait, .. } => reserve(algorithm, state, now, cost, max_wait),
            Op::Peek(cost) => algorithm.peek(state, now, cost),
            op => {
                match op {
                    Op::Refund(cost, receipt) => refund(cost, receipt, GiveBack::Refund),
                    Op::Cancel(cost, receipt) => refund(cost, receipt, GiveBack::Cancel),
                    Op::Forgive(cost, receipt) => refund(cost, receipt, GiveBack::Forgive),
                    Op::Charge(cost) => drop(algorithm.charge(state, now, cost)),
                    _ => *state = algorithm.fresh(now),
                }
                algorithm.peek(state, now, 0)
            }
        };
        // What takes nothing stores nothing, so an unused key begins later.
        let takes = match op {
            Op::Take(cost) | Op::Reserve { cost, .. } => cost > 0 && !decision.is_denied(),
            Op::Charge(cost) => cost > 0,
            _ => false,
        };
        if is_new && !takes {
            self.state = None;
        }
        decision
    }
}
