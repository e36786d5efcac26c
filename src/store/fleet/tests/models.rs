//! All that can happen to a key that a few machines exchange: a breadth-first search of every state that messages which
//! are lost, repeated, late or overtaken, machines that die and come back, a clock that is set back, and refunds,
//! charges and resets at any moment can lead to.

use std::{collections::BTreeMap, sync::Arc};

use super::super::batch::{Batch, Replies, lists_of, text_of};
use super::super::exchange::{Limit, Record};
use super::super::machine::{Answer, Budget, StoreTime};
use super::super::shape::{Level, Shape, ShapePart};
use crate::clock::Tick;
use crate::store::cas::Program;
use crate::store::tests::{left_after, search};

use Event::*;

const CAPACITY: u64 = 4;
const LIFE: u64 = 1_000_000;
/// How long a step of time is; the third one is past a life and the fourth past two.
const STEP: u64 = 600_000;

/// A planted mistake, which the search must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// A batch whose reply was lost counts again.
    CountsTwice,
    /// The store forgets what is out.
    ForgetsOut,
    /// What lapses is not charged.
    ForgetsLapsed,
    /// A machine takes in the reply to a batch that is answered already.
    AdoptsTwice,
    /// A machine gives units back and uses them.
    KeepsReturned,
    /// A batch counts for the first time if the store has lost the record of its machine.
    TrustsLostRecord,
    /// A machine takes in a reply that was asked for before a reset.
    AdoptsAfterReset,
    ForgetsRefund,
    RefundsTwice,
    /// The store grants without what has come back.
    ForgetsRefill,
    /// What has come back comes back again after the store's clock was set back.
    RefillsTwice,
    /// The store remembers the last batches of two machines only.
    ForgetsThird,
}

/// What happens once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    Request,
    Loss,
    Repeat,
    Death,
    Step,
    SetBack,
    /// The store loses the records of machines.
    Forget,
    /// Of what a machine has admitted last.
    Refund,
    Charge,
    Reset,
    /// A machine gives all back.
    Close,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Machine {
    id: u64,
    budget: Budget,
    sequence: u64,
    /// The batch without a reply, and when it was sent first.
    flight: Option<(Batch, u64)>,
    /// When it has admitted a request that may be given back.
    admitted_at: Option<u64>,
    /// By how much the store's time is behind, as far as it knows.
    behind: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    /// The number of a batch in `sent`.
    Batch(usize),
    /// Of a machine, for its batch of this number: that of the replies in `told`.
    Replies(u64, u64, usize),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    left: Vec<Event>,
    /// The time of the machines, and by how much that of the store is behind.
    now: u64,
    behind: u64,
    values: BTreeMap<String, Vec<u8>>,
    machines: Vec<Machine>,
    /// In no order.
    wire: Vec<Message>,
    sent: Vec<Batch>,
    told: Vec<Replies>,
    /// Units, but for those that have come back since.
    admitted: u64,
    charged: u64,
    /// Units that have come back since the store's clock was set back: of those that were out then, too.
    late: u64,
    has_refund: bool,
    /// Whether what was granted may have lapsed, or will.
    may_lapse: bool,
    /// Whether what was used may count twice.
    may_count_twice: bool,
}

struct Model {
    limit: Arc<Limit>,
    /// How many units come back in a step, none or one.
    refill: u64,
    mistake: Option<Mistake>,
}

impl Model {
    fn new(mistake: Option<Mistake>, refill: u64) -> Self {
        let level = Level {
            capacity: CAPACITY,
            rate: 1,
            period: if refill > 0 { STEP } else { 1 << 50 },
        };
        let limit = Limit {
            shape: Shape::new(vec![ShapePart::Level(level)]),
            interval: 100_000,
            life: LIFE,
            ahead: true,
        };
        Self {
            limit: Arc::new(limit),
            refill,
            mistake,
        }
    }

    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// All states that follow.
    fn next(&self, state: &State) -> Vec<State> {
        let mut all = Vec::new();
        let mut then = |event: Option<Event>, change: &dyn Fn(&mut State)| {
            let Some(left) = left_after(&state.left, event) else {
                return;
            };
            let mut next = state.clone();
            next.left = left;
            change(&mut next);
            next.wire.sort();
            next.forget_the_answered();
            all.push(next);
        };
        let is_new = |machine: &Machine| *machine == Machine::new(machine.id);
        for (index, machine) in state.machines.iter().enumerate() {
            // Those that have done nothing are alike.
            if is_new(machine) && state.machines[..index].iter().any(is_new) {
                continue;
            }
            then(Some(Request), &|next| self.request(next, index));
            then(Some(Death), &|next| next.die(index));
            if machine.flight.is_none() && machine.budget.is_due() {
                then(None, &|next| self.send(next, index, false));
                then(Some(Close), &|next| self.send(next, index, true));
            }
            if machine.admitted_at.is_some() {
                then(Some(Refund), &|next| self.refund(next, index));
            }
            then(Some(Charge), &|next| next.charge(index));
            then(Some(Reset), &|next| next.reset(index));
            if machine.flight.is_some() {
                then(Some(Repeat), &|next| next.send_again(index));
            }
        }
        for index in 0..state.wire.len() {
            then(None, &|next| self.deliver(next, index));
            then(Some(Loss), &|next| _ = next.wire.remove(index));
        }
        then(Some(Step), &|next| {
            next.now += STEP;
            next.admitted = next.admitted.saturating_sub(self.refill);
            next.late += self.refill * u64::from(next.behind > 0);
            next.may_lapse = true;
        });
        then(Some(SetBack), &|next| {
            next.behind += 10 * LIFE;
            next.may_lapse = true;
        });
        then(Some(Forget), &|next| {
            next.values.retain(|key, _| key == "key");
            (next.may_lapse, next.may_count_twice) = (true, true);
        });
        all
    }

    fn request(&self, state: &mut State, index: usize) {
        let machine = &mut state.machines[index];
        if machine
            .budget
            .decide(&self.limit, tick(state.now), 1, false)
            == Answer::Admit
        {
            machine.admitted_at = Some(state.now);
            state.admitted += 1;
        }
    }

    fn refund(&self, state: &mut State, index: usize) {
        let machine = &mut state.machines[index];
        if let Some(at) = machine.admitted_at.take() {
            let times = match self.mistake {
                Some(Mistake::ForgetsRefund) => 0,
                Some(Mistake::RefundsTwice) => 2,
                _ => 1,
            };
            for _ in 0..times {
                machine.budget.refund(tick(state.now), 1, tick(at));
            }
            state.admitted -= 1;
            state.has_refund = true;
        }
    }

    fn send(&self, state: &mut State, index: usize, returns_all: bool) {
        let (machine, now) = (&mut state.machines[index], tick(state.now));
        machine.sequence += 1;
        let time = machine.behind.map(|behind| StoreTime {
            begun: now,
            sent: now,
            received: now,
            at: state.now - behind,
        });
        let mut report = machine.budget.collect(time.as_ref(), now, returns_all);
        if self.is(Mistake::KeepsReturned) && report.returned > 0 {
            report.returned += 1;
        }
        let batch = Batch {
            machine: machine.id,
            sequence: machine.sequence,
            limit: Arc::clone(&self.limit),
            sequence_key: format!("machine {}", machine.id).into(),
            keys: vec![("key".into(), report)],
        };
        machine.flight = Some((batch.clone(), state.now));
        state.wire.push(Message::Batch(state.sent.len()));
        state.sent.push(batch);
    }

    fn deliver(&self, state: &mut State, index: usize) {
        match state.wire.remove(index) {
            Message::Batch(number) => {
                let batch = state.sent[number].clone();
                let replies = self.execute(state, &batch);
                let reply = Message::Replies(batch.machine, batch.sequence, state.told.len());
                state.told.push(replies);
                state.wire.push(reply);
            }
            Message::Replies(id, sequence, number) => {
                let replies = state.told[number].clone();
                let machines = &mut state.machines;
                let Some(machine) = machines.iter_mut().find(|machine| machine.id == id) else {
                    return;
                };
                let begun = match &machine.flight {
                    Some((batch, begun)) if batch.sequence == sequence => *begun,
                    _ if self.is(Mistake::AdoptsTwice) => state.now,
                    _ => return,
                };
                machine.flight = None;
                machine.behind = Some(state.behind);
                let time = StoreTime {
                    begun: tick(begun),
                    sent: tick(begun),
                    received: tick(state.now),
                    at: replies.now,
                };
                let reply = replies.keys[0].as_ref().expect("a reply");
                let resets = machine.budget.resets;
                machine.budget.resets &= !self.is(Mistake::AdoptsAfterReset);
                machine.budget.adopt(&self.limit, reply, &time);
                machine.budget.resets = resets;
            }
        }
    }

    fn execute(&self, state: &mut State, batch: &Batch) -> Replies {
        let now = state.now - state.behind;
        let first = || b"0".to_vec();
        if self.is(Mistake::CountsTwice) {
            state.values.insert(batch.sequence_key.to_string(), first());
        }
        if self.is(Mistake::TrustsLostRecord) {
            let last = state.values.entry(batch.sequence_key.to_string());
            last.or_insert_with(first);
        }
        if self.is(Mistake::ForgetsThird) && !state.values.contains_key(&*batch.sequence_key) {
            let mut known = state.values.keys().filter(|key| *key != "key");
            let first = known.clone().min().filter(|_| known.nth(1).is_some());
            first.cloned().map(|first| state.values.remove(&first));
        }
        self.change(state, |record| match self.mistake {
            Some(Mistake::ForgetsLapsed) if now >= record.ends => record.out = [0; 2],
            Some(Mistake::ForgetsRefill) => record.at = record.at.max(now),
            Some(Mistake::RefillsTwice) if now < record.at => {
                record.advance(&self.limit.shape, record.at + 10 * LIFE);
            }
            _ => {}
        });
        let keys: Vec<_> = batch.keys().into_iter().map(str::to_owned).collect();
        let values = keys
            .iter()
            .map(|key| state.values.get(key).map(Vec::as_slice));
        let (writes, replies) = batch.execute_at(values, (now, true));
        for write in writes {
            let key = keys[write.index].clone();
            state.values.insert(key, write.value.bytes);
        }
        if self.is(Mistake::ForgetsOut) {
            self.change(state, |record| record.out = [0; 2]);
        }
        replies
    }

    /// A mistake of the store.
    fn change(&self, state: &mut State, change: impl FnOnce(&mut Record)) {
        if let Some(mut record) = self.record(state).filter(|_| self.mistake.is_some()) {
            change(&mut record);
            let text = text_of(&record.lists()).into_bytes();
            state.values.insert("key".to_owned(), text);
        }
    }

    fn record(&self, state: &State) -> Option<Record> {
        let lists = lists_of(state.values.get("key")?)?;
        Record::of_lists(lists, &self.limit.shape)
    }

    fn used(&self, record: &Record) -> u64 {
        let free = self.limit.shape.parts[0].free(&record.used[0], record.at);
        CAPACITY.saturating_add_signed(-free)
    }

    /// What is wrong with a state.
    fn fault_of(&self, state: &State) -> Option<&'static str> {
        if state.admitted > CAPACITY {
            return Some("more was admitted than the limit");
        }
        let mut record = self.record(state)?;
        record.advance(&self.limit.shape, state.now - state.behind);
        let (used, out) = (self.used(&record), record.out[0] + record.out[1]);
        if used + out > CAPACITY + state.charged && !state.may_count_twice {
            return Some("more is used and out than the limit");
        }
        if state.admitted > used + out + state.late {
            return Some("a unit that was admitted is neither used nor out");
        }
        let held = state
            .machines
            .iter()
            .map(|one| one.budget.held(tick(state.now)));
        if state.admitted + held.sum::<u64>() > used + out + state.late {
            return Some("a unit that a machine can admit is neither used nor out");
        }
        // Every state leads to one in which nothing is under way.
        let is_quiet = state.wire.is_empty();
        let is_settled = |one: &Machine| one.flight.is_none() && !one.budget.is_due();
        let are_settled = state.machines.iter().all(is_settled);
        let is_known = !state.has_refund || are_settled;
        if !state.may_lapse && is_known && used > state.admitted + state.charged {
            return Some("a unit was charged that was not used, or was given back");
        }
        if !state.may_lapse && is_quiet && are_settled && out > 0 {
            return Some("a unit is out that no machine has");
        }
        is_quiet.then(|| self.lost_of(state)).flatten()
    }

    /// Whether a unit is lost for ever: after two lives, another machine must be granted half of what is not used.
    fn lost_of(&self, state: &State) -> Option<&'static str> {
        let (mut later, mut replies) = (state.clone(), Replies::default());
        // What is out when the store finds out that its clock was set back comes back from then on.
        for id in 0..=self.refill {
            later.now += 4 * LIFE;
            later.machines.push(Machine::new(98 + id));
            let index = later.machines.len() - 1;
            self.request(&mut later, index);
            self.send(&mut later, index, false);
            let batch = later.sent[later.sent.len() - 1].clone();
            replies = self.execute(&mut later, &batch);
        }
        let used = self.used(&self.record(&later)?) * (1 - self.refill);
        let free = CAPACITY.saturating_sub(used);
        let granted = replies.keys[0].expect("a reply").grant.units;
        (granted < free.div_ceil(2)).then_some("a unit is lost for ever")
    }

    /// The first fault that is found, and how many states there are.
    fn search(&self, left: &[Event], machines: u64) -> (Option<&'static str>, usize) {
        let first = State {
            left: left.to_vec(),
            now: 1_000 * LIFE,
            behind: 0,
            values: BTreeMap::new(),
            machines: (1..=machines).map(Machine::new).collect(),
            wire: Vec::new(),
            sent: Vec::new(),
            told: Vec::new(),
            admitted: 0,
            charged: 0,
            late: 0,
            has_refund: false,
            may_lapse: false,
            may_count_twice: false,
        };
        search(
            first,
            |state| self.next(state),
            |state| self.fault_of(state),
        )
    }
}

impl Machine {
    fn new(id: u64) -> Self {
        Self {
            id,
            budget: Budget::default(),
            sequence: 0,
            flight: None,
            admitted_at: None,
            behind: None,
        }
    }
}

fn tick(micros: u64) -> Tick {
    Tick::from_nanos(micros * 1_000)
}

impl State {
    /// It comes back as another one.
    fn die(&mut self, index: usize) {
        let id = self.machines[index].id + 10;
        self.machines[index] = Machine::new(id);
        self.may_lapse = true;
    }

    fn charge(&mut self, index: usize) {
        self.machines[index].budget.charge(tick(self.now), 1);
        self.charged += 1;
    }

    /// What was used before counts no more, at the store once that has heard of it.
    fn reset(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        machine.budget.reset();
        machine.admitted_at = None;
        (self.admitted, self.may_lapse) = (0, true);
    }

    fn send_again(&mut self, index: usize) {
        let flight = self.machines[index].flight.as_ref();
        let number = self
            .sent
            .iter()
            .position(|batch| flight.is_some_and(|(own, _)| own == batch));
        self.wire.extend(number.map(Message::Batch));
    }

    /// States that differ only in what nothing refers to are one.
    fn forget_the_answered(&mut self) {
        let wire = std::mem::take(&mut self.wire);
        let sent = std::mem::take(&mut self.sent);
        let told = std::mem::take(&mut self.told);
        let flights = self.machines.iter();
        let flights = flights.filter_map(|machine| machine.flight.as_ref());
        self.sent = flights.map(|(batch, _)| batch.clone()).collect();
        for message in wire {
            self.wire.push(match message {
                Message::Batch(number) => {
                    let known = self.sent.iter().position(|batch| *batch == sent[number]);
                    Message::Batch(known.unwrap_or_else(|| {
                        self.sent.push(sent[number].clone());
                        self.sent.len() - 1
                    }))
                }
                Message::Replies(id, sequence, number) => {
                    self.told.push(told[number].clone());
                    Message::Replies(id, sequence, self.told.len() - 1)
                }
            });
        }
    }
}

/// What is searched: how many machines there are, how many units come back in a step, and what happens.
const SEARCHES: [(u64, u64, &[Event]); 18] = [
    (2, 0, &[Request, Request, Request]),
    (2, 0, &[Request, Request, Loss, Repeat]),
    (2, 0, &[Request, Request, Step, Step]),
    (2, 0, &[Request, Request, Death, Step]),
    (2, 0, &[Request, Request, Step, SetBack]),
    (2, 0, &[Request, Request, Repeat, Forget]),
    // A machine alone with more requests than units.
    (1, 0, &[Request, Request, Request, Request, Request, Repeat]),
    (2, 0, &[Request, Request, Refund, Charge]),
    (1, 0, &[Request, Request, Request, Refund, Close, Step]),
    // What other machines hold outlives a reset.
    (1, 0, &[Request, Request, Request, Reset, Charge]),
    (1, 0, &[Request, Request, Reset, Refund, Repeat]),
    (3, 0, &[Request, Request, Request, Repeat]),
    (3, 0, &[Request, Request, Loss, Step]),
    (3, 0, &[Request, Request, Death, Step]),
    (2, 1, &[Request, Request, Step, SetBack]),
    (1, 1, &[Request, Request, Request, Request, SetBack]),
    (2, 1, &[Request, Request, Step, Repeat]),
    (
        1,
        1,
        &[Request, Request, Request, Request, Request, Step, Step],
    ),
];

/// Shows promises 200, 202.
#[test]
fn no_state_of_a_few_machines_breaks_the_limit_or_loses_a_unit() {
    for (machines, refill, events) in SEARCHES {
        let (fault, states) = Model::new(None, refill).search(events, machines);
        assert_eq!(fault, None, "{machines} machines, {refill}, {events:?}");
        assert!(states > 100);
    }
}

/// Each in the one of the searches that is over first.
///
/// Shows promises 200, 202.
#[test]
fn the_search_finds_every_planted_mistake() {
    for (mistake, search) in [
        (Mistake::CountsTwice, 1),
        (Mistake::ForgetsOut, 0),
        (Mistake::ForgetsLapsed, 2),
        (Mistake::AdoptsTwice, 1),
        (Mistake::KeepsReturned, 0),
        (Mistake::TrustsLostRecord, 5),
        (Mistake::AdoptsAfterReset, 10),
        (Mistake::ForgetsRefund, 8),
        (Mistake::RefundsTwice, 8),
        (Mistake::ForgetsThird, 11),
        (Mistake::RefillsTwice, 15),
        (Mistake::ForgetsRefill, 14),
    ] {
        let (machines, refill, events): (_, _, &[Event]) = SEARCHES[search];
        let (found, _) = Model::new(Some(mistake), refill).search(events, machines);
        assert!(found.is_some(), "{mistake:?}");
    }
}
