//! The laws in a store with a compare-and-swap, by the clock of a store in memory.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::clock::{Clock, Tick};
use tower_throttle::store::cas::{Cas, CasBuilder, Fault, Faulty, MemoryStore};
use tower_throttle::store::{Backend, Op};
use tower_throttle::{Decision, ManualClock};

use crate::places::alike::difference;
use crate::places::place::{Mistake, Mistaken, Outcome, Place, Plain, Step};
use crate::places::subjected::Subjected;
use crate::random::{Random, seeds};
use crate::subjects::{Subject, random_subjects};

const KEY: &str = "key";
/// By how much a machine that keeps records may decide late.
const MAX_LATE: Duration = Duration::from_millis(6);

type Store = Faulty<MemoryStore<ManualClock>>;

/// A key in a store, used by two machines in turn.
pub(crate) struct InCas {
    machines: [Cas<Store, AnyAlgorithm>; 2],
    store: Store,
    memory: MemoryStore<ManualClock>,
    clock: ManualClock,
    runtime: Runtime,
    now: Tick,
    turn: usize,
    /// What goes wrong with the operations of the store.
    faults: Vec<Fault>,
    /// The moment of the last decision, if machines keep records. They decide on them by the store's
    /// time as they compute it.
    decided_at: Option<Rc<Cell<Tick>>>,
    /// The machine of the last decision. If it keeps records, its record is current.
    decided_by: Option<usize>,
    longest_pause: Duration,
}

impl InCas {
    /// Machines that keep no record, so that each decision is at the store's time.
    pub(crate) fn new(algorithm: &AnyAlgorithm, now: Tick) -> Self {
        Self::with(algorithm, now, 0)
    }

    /// Machines that keep records.
    fn with_records(algorithm: &AnyAlgorithm, now: Tick) -> Self {
        Self {
            decided_at: Some(Rc::new(Cell::new(now))),
            ..Self::with(algorithm, now, 100)
        }
    }

    fn with(algorithm: &AnyAlgorithm, now: Tick, cached_keys: usize) -> Self {
        let clock = ManualClock::new();
        clock.set(now);
        let memory = MemoryStore::with_clock(clock.clone());
        let store = Faulty::new(memory.clone());
        let machine = || {
            let builder = CasBuilder::new(store.clone());
            let builder = builder
                .cached_keys(cached_keys)
                // Which a busy machine does not exceed.
                .deadline(Duration::from_secs(20))
                .without_deny_cache();
            builder.build("law", algorithm.clone()).expect("a limit")
        };
        Self {
            machines: [machine(), machine()],
            runtime: Builder::new_current_thread()
                .enable_all()
                .start_paused(cached_keys > 0)
                .build()
                .expect("a runtime"),
            store,
            memory,
            clock,
            now,
            turn: 0,
            faults: Vec::new(),
            decided_at: None,
            decided_by: None,
            longest_pause: Duration::ZERO,
        }
    }

    /// Lets time pass for the store and for the machines.
    fn pass(&mut self, span: Duration) {
        self.runtime.block_on(tokio::time::advance(span));
        self.clock.advance(span);
        self.now = self.clock.now();
    }

    /// The time of the machines.
    fn paused_now(&self) -> tokio::time::Instant {
        self.runtime.block_on(async { tokio::time::Instant::now() })
    }

    /// When a decision was made. The receipt of a request that waits is its turn.
    fn decided_at(&self, step: &Step<AnyAlgorithm>, decision: &Decision) -> Tick {
        let moment = decision.receipt().moment();
        let is_request = matches!(step, Step::Take(_) | Step::Reserve(..));
        let has_turn = is_request && Backend::<str>::limits(&self.machines[0]) == 1;
        let wait = decision.wait().filter(|_| has_turn).unwrap_or_default();
        let until_turn = wait.saturating_sub(Duration::from_nanos(1));
        let until_turn = u64::try_from(until_turn.as_nanos()).expect("a turn in this century");
        Tick::from_nanos(moment - until_turn)
    }

    fn decided(&mut self, step: &Step<AnyAlgorithm>) -> Option<Decision> {
        self.turn += 1;
        // Each machine makes some calls in a row: the others of a row find its record current.
        let by = match self.decided_at {
            Some(_) => self.turn / 3 % 2,
            None => self.turn % 2,
        };
        if !self.faults.is_empty() {
            let fault = self.faults[self.turn / 2 % self.faults.len()];
            // A current record is swapped without a load. Half of these swaps fail, but none of a refund
            // or a reset: tried again a little later, it may change nothing.
            let is_direct = self.decided_at.is_some()
                && self.decided_by == Some(by)
                && self.turn / 12 % 2 == 0
                && matches!(step, Step::Take(_) | Step::Reserve(..) | Step::Charge(_));
            // Otherwise the load before a swap succeeds.
            let load = (!is_direct).then_some(Fault::None);
            self.store.plan(load.into_iter().chain([fault]));
        }
        let machine = &self.machines[by];
        let decided = self.runtime.block_on(async {
            match step {
                Step::Take(cost) => machine.apply(KEY, Op::Take(*cost)),
                Step::Reserve(cost, most) => {
                    let reserve = Op::Reserve {
                        cost: *cost,
                        queue: u64::MAX,
                        max_wait: *most,
                    };
                    machine.apply(KEY, reserve)
                }
                Step::Peek(cost) => machine.apply(KEY, Op::Peek(*cost)),
                Step::Refund(cost, receipt) => machine.apply(KEY, Op::Refund(*cost, *receipt)),
                Step::Charge(cost) => machine.apply(KEY, Op::Charge(*cost)),
                Step::Reset => machine.apply(KEY, Op::Reset),
                _ => return None,
            }
            .await
            .map(Some)
            .expect("a decision")
        });
        while self.store.planned() > 0 && decided.is_some() {
            // A denial writes nothing and leaves a fault of a swap.
            let peek = async { machine.apply(KEY, Op::Peek(0)).await };
            assert!(self.runtime.block_on(peek).is_ok());
        }
        if decided.is_some() {
            self.decided_by = Some(by);
        } else {
            self.store.clear_plan();
        }
        decided
    }
}

impl Place<AnyAlgorithm> for InCas {
    fn apply(&mut self, now: Tick, step: &Step<AnyAlgorithm>) -> Option<Outcome> {
        if let Some(decided_at) = self.decided_at.clone() {
            self.pass(now.since(self.now));
            let (called_at, begun) = (self.now, self.paused_now());
            let decision = self.decided(step)?;
            // A pause after a fault passes for the store too, but only now: a reply after the pause has
            // shown the time before it.
            let pause = self.paused_now() - begun;
            self.longest_pause = self.longest_pause.max(pause);
            self.clock.advance(pause);
            self.now = self.clock.now();
            let moment = self.decided_at(step, &decision);
            // A reply is used for ten seconds, and the clock is late by one part in 2,000 at most.
            assert!(
                moment <= self.now && called_at.since(moment) <= MAX_LATE + self.longest_pause,
                "{step:?} at {now:?}: {decision:?}"
            );
            decided_at.set(moment);
            return Some(outcome(step, decision));
        }
        self.clock.set(now);
        self.now = self.now.max(now);
        let decision = self.decided(step)?;
        Some(outcome(step, decision))
    }

    fn moment(&self) -> u64 {
        self.now.as_nanos()
    }

    fn bytes(&mut self) -> Option<String> {
        let keys = self.memory.keys();
        let values: Vec<_> = keys.iter().map(|key| self.memory.get(key)).collect();
        Some(format!("{values:?}"))
    }
}

/// What a step led to.
fn outcome(step: &Step<AnyAlgorithm>, decision: Decision) -> Outcome {
    match step {
        Step::Take(_) | Step::Reserve(..) | Step::Peek(_) => Outcome::Decided(decision),
        _ => Outcome::Done,
    }
}

/// A plain state that decides at the moments of another place.
struct PlainThen {
    plain: Plain<AnyAlgorithm>,
    at: Rc<Cell<Tick>>,
}

impl Place<AnyAlgorithm> for PlainThen {
    fn apply(&mut self, _: Tick, step: &Step<AnyAlgorithm>) -> Option<Outcome> {
        self.plain.apply(self.at.get(), step)
    }

    fn moment(&self) -> u64 {
        self.plain.moment()
    }

    fn bytes(&mut self) -> Option<String> {
        self.plain.bytes()
    }
}

fn fault_of(place: &mut impl Place<AnyAlgorithm>, subject: &Subject, seed: u64) -> Option<String> {
    let law = Subjected {
        subjects: std::slice::from_ref(subject),
        exact_time: true,
        nanos_per_moment: 1,
    };
    law.fault(place, &mut Random::new(seed))
}

/// What may happen to a swap without a decision being lost.
const FAULTS: [Fault; 6] = [
    Fault::LostRequest,
    Fault::LostReply,
    Fault::Late,
    Fault::Twice,
    Fault::Conflict,
    Fault::None,
];

/// Shows promise 83.
#[test]
fn two_machines_on_one_store_decide_like_a_plain_state() {
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        let start = Tick::from_nanos(random.log_uniform(41));
        for subject in random_subjects(&mut random) {
            let algorithm = subject.algorithm.clone();
            let mut plain = Plain::new(algorithm.clone(), start);
            let mut place = InCas::new(&algorithm, start);
            let mut random = Random::new(seed ^ 0xfeed);
            let variants = [algorithm];
            let found = difference(&mut plain, &mut place, &variants, &mut random);
            assert_eq!(found, None, "seed {seed}: {}, {variants:?}", subject.name);
        }
    }
}

/// How two machines that keep records differ from a plain state that decides at the same moments.
fn difference_with_records(seed: u64, faults: &[Fault]) -> Option<String> {
    let mut random = Random::new(seed);
    let start = Tick::from_nanos(random.log_uniform(41));
    random_subjects(&mut random)
        .into_iter()
        .find_map(|subject| {
            let algorithm = subject.algorithm;
            let mut place = InCas::with_records(&algorithm, start);
            place.faults = faults.to_vec();
            let at = place.decided_at.clone().expect("it keeps records");
            let plain = Plain::new(algorithm.clone(), start);
            let mut plain = PlainThen { plain, at };
            let mut random = Random::new(seed ^ 0xfeed);
            let found = difference(&mut plain, &mut place, &[algorithm], &mut random)?;
            Some(format!("seed {seed}: {}: {found:?}", subject.name))
        })
}

/// Shows promise 83.
#[test]
fn two_machines_that_keep_records_decide_like_a_plain_state() {
    for seed in seeds(60) {
        assert_eq!(difference_with_records(seed, &[]), None);
    }
}

/// Shows promise 83.
#[test]
fn faults_of_the_store_change_no_decision_of_machines_that_keep_records() {
    for seed in seeds(8) {
        assert_eq!(difference_with_records(seed, &FAULTS), None);
    }
}

/// Shows promise 83.
#[test]
fn every_algorithm_keeps_its_promise_in_a_store() {
    for seed in seeds(40) {
        for subject in random_subjects(&mut Random::new(seed)) {
            let mut place = InCas::new(&subject.algorithm, Tick::from_nanos(seed << 30));
            let found = fault_of(&mut place, &subject, seed);
            assert_eq!(found, None, "seed {seed}: {:?}", subject.algorithm);
        }
    }
}

/// Shows promise 87.
#[test]
fn faults_of_the_store_change_no_decision() {
    for seed in seeds(10) {
        for subject in random_subjects(&mut Random::new(seed)) {
            let start = Tick::from_nanos(seed << 30);
            let mut plain = Plain::new(subject.algorithm.clone(), start);
            let mut place = InCas::new(&subject.algorithm, start);
            place.faults = FAULTS.to_vec();
            let mut random = Random::new(seed);
            let variants = [subject.algorithm.clone()];
            let found = difference(&mut plain, &mut place, &variants, &mut random);
            assert_eq!(found, None, "seed {seed}: {}", subject.name);
        }
    }
}

#[test]
fn a_mistake_in_a_store_is_seen() {
    for mistake in [
        Mistake::RefundForgetsMoment,
        Mistake::DenialCharges,
        Mistake::PeekTakes,
    ] {
        let seen = (0..200).any(|seed| {
            random_subjects(&mut Random::new(seed))
                .iter()
                .any(|subject| {
                    let place = InCas::new(&subject.algorithm, Tick::from_nanos(seed << 30));
                    let mut place = Mistaken { place, mistake };
                    fault_of(&mut place, subject, seed).is_some()
                })
        });
        assert!(seen, "{mistake:?}");
    }
}
