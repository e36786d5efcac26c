//! The laws in a store with a compare-and-swap, by the clock of a store in memory.

use tokio::runtime::{Builder, Runtime};
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::clock::Tick;
use tower_throttle::store::cas::{Cas, CasBuilder, Fault, Faulty, MemoryStore};
use tower_throttle::store::{Backend, Op};
use tower_throttle::{Decision, ManualClock};

use crate::place::{Mistake, Mistaken, Outcome, Place, Plain, Step};
use crate::places::difference;
use crate::random::{Random, seeds};
use crate::subjected::Subjected;
use crate::subjects::{Subject, random_subjects};

const KEY: &str = "key";

type Store = Faulty<MemoryStore<ManualClock>>;

/// A key in a store, used by two machines in turn.
struct InCas {
    machines: [Cas<Store, AnyAlgorithm>; 2],
    store: Store,
    memory: MemoryStore<ManualClock>,
    clock: ManualClock,
    runtime: Runtime,
    now: Tick,
    turn: usize,
    /// What goes wrong with the operations of the store.
    faults: Vec<Fault>,
}

impl InCas {
    fn new(algorithm: &AnyAlgorithm, now: Tick) -> Self {
        let clock = ManualClock::new();
        clock.set(now);
        let memory = MemoryStore::with_clock(clock.clone());
        let store = Faulty::new(memory.clone());
        // Without a kept record each decision is at the store's time.
        let machine = || {
            let builder = CasBuilder::new(store.clone());
            let builder = builder
                .cached_keys(0)
                .without_deny_cache()
                .without_quota_changes();
            builder.build("law", algorithm.clone()).expect("a limit")
        };
        Self {
            machines: [machine(), machine()],
            runtime: Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime"),
            store,
            memory,
            clock,
            now,
            turn: 0,
            faults: Vec::new(),
        }
    }

    fn decided(&mut self, step: &Step<AnyAlgorithm>) -> Option<Decision> {
        self.turn += 1;
        if !self.faults.is_empty() {
            let fault = self.faults[self.turn % self.faults.len()];
            // The load before a swap succeeds.
            self.store.plan([Fault::None, fault]);
        }
        let machine = &self.machines[self.turn % 2];
        let decided = self.runtime.block_on(async {
            match step {
                Step::Take(cost) => machine.apply(KEY, Op::Take(*cost)),
                Step::Reserve(cost, most) => machine.reserve(KEY, *cost, *most),
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
        decided
    }
}

impl Place<AnyAlgorithm> for InCas {
    fn apply(&mut self, now: Tick, step: &Step<AnyAlgorithm>) -> Option<Outcome> {
        self.clock.set(now);
        self.now = self.now.max(now);
        let decision = self.decided(step)?;
        Some(match step {
            Step::Take(_) | Step::Reserve(..) | Step::Peek(_) => Outcome::Decided(decision),
            _ => Outcome::Done,
        })
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
