//! The laws of `tests/laws`, by the clock of the store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::clock::Tick;
use tower_throttle::store::{Backend, Op};

use super::{Store, connected};
use crate::place::{Mistake, Mistaken, Outcome, Place, Step};
use crate::random::{Random, seeds};
use crate::subjected::Subjected;
use crate::subjects::{Promise, Subject, quota, subjects};

const KEY: &str = "key";
const DAY: u64 = 86_400_000_000_000;

/// A key in a store.
struct InStore<'a, S: Store> {
    store: &'a S,
    policy: String,
    limit: S::Limit,
    runtime: Runtime,
    moment: u64,
    /// Whether its values can be compared, because none of them expires.
    is_lasting: bool,
}

impl<'a, S: Store> InStore<'a, S> {
    fn new(store: &'a S, subject: &Subject) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let policy = format!("law-{}-", NUMBER.fetch_add(1, Ordering::Relaxed));
        let deadline = Duration::from_secs(10);
        let mut place = Self {
            limit: store.limit(&policy, subject.algorithm.clone(), deadline),
            store,
            policy,
            runtime: Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime"),
            moment: 0,
            is_lasting: subject.period >= DAY,
        };
        let limit = place.limit.clone();
        place.runtime.block_on(connected(limit));
        // Its moment is the present one.
        let _ = place.decided(Op::Peek(0));
        place
    }

    fn decided(&mut self, op: Op) -> Outcome {
        let limit = &self.limit;
        let decided = self.runtime.block_on(async { limit.apply(KEY, op).await });
        let decision = decided.expect("a decision");
        self.moment = self.store.moment(&decision);
        match op {
            Op::Take(_) | Op::Peek(_) => Outcome::Decided(decision),
            _ => Outcome::Done,
        }
    }
}

impl<S: Store> Place<AnyAlgorithm> for InStore<'_, S> {
    fn apply(&mut self, now: Tick, step: &Step<AnyAlgorithm>) -> Option<Outcome> {
        let op = match step {
            Step::Take(cost) => Op::Take(*cost),
            Step::Peek(cost) => Op::Peek(*cost),
            Step::Refund(cost, receipt) => Op::Refund(*cost, *receipt),
            Step::Charge(cost) => Op::Charge(*cost),
            Step::Reset => Op::Reset,
            _ => return None,
        };
        let span = now.as_nanos().saturating_sub(self.moment);
        self.store.advance(Duration::from_nanos(span));
        Some(self.decided(op))
    }

    fn moment(&self) -> u64 {
        self.moment
    }

    fn bytes(&mut self) -> Option<String> {
        let bytes = || self.store.bytes(&self.policy);
        self.is_lasting.then(bytes).flatten()
    }
}

/// Short periods, of which a trace takes several, and days, in which nothing expires.
fn some(random: &mut Random) -> Vec<Subject> {
    let limit = 1 + random.below(12);
    let period = match random.below(3) {
        0 => DAY,
        _ => 1_000 * (500 + random.below(20_000)),
    };
    let burst = 1 + random.below(2 * limit);
    let all = subjects(quota(limit, period), burst, 2 + random.below(8));
    // A cell of a grid may have to be a whole number of microseconds; what is admitted by a queue is
    // reported in microseconds, rounded up.
    let fits = |subject: &Subject| {
        !matches!(subject.promise, Promise::Paced(_)) && subject.name != "sliding grid"
    };
    all.into_iter().filter(fits).collect()
}

fn fault_in<S: Store>(
    place: &mut impl Place<AnyAlgorithm>,
    subject: &Subject,
    seed: u64,
) -> Option<String> {
    let law = Subjected {
        subjects: std::slice::from_ref(subject),
        exact_time: false,
        nanos_per_moment: S::NANOS_PER_MOMENT,
    };
    let found = law.fault(place, &mut Random::new(seed))?;
    Some(format!("seed {seed}: {:?}: {found}", subject.algorithm))
}

/// What is wrong with a store in so many traces.
pub(crate) fn fault<S: Store>(traces: u64) -> Option<String> {
    let store = S::start();
    seeds(traces).find_map(|seed| {
        some(&mut Random::new(seed)).iter().find_map(|subject| {
            let mut place = InStore::new(&store, subject);
            fault_in::<S>(&mut place, subject, seed)
        })
    })
}

/// The mistakes of single operations that the laws do not find.
pub(crate) fn unseen<S: Store>() -> Vec<Mistake> {
    let store = S::start();
    let mistakes = [
        Mistake::RefundForgetsMoment,
        Mistake::DenialCharges,
        Mistake::PeekTakes,
    ];
    let is_unseen = |mistake: &Mistake| {
        // A refund that forgets its moment is seen only if time has passed in between.
        !(0..400).any(|seed| {
            some(&mut Random::new(seed)).iter().any(|subject| {
                let place = InStore::new(&store, subject);
                let mistake = *mistake;
                fault_in::<S>(&mut Mistaken { place, mistake }, subject, seed).is_some()
            })
        })
    };
    // Only what is stored shows that a denial charges.
    let is_visible = store.bytes("").is_some();
    let mistakes = mistakes.into_iter().filter(|_| is_visible);
    mistakes.filter(is_unseen).collect()
}
