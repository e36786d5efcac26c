//! All that can happen to permits that a few machines share: a breadth-first search of every state that swaps and replies
//! which are lost, repeated, late or overtaken, machines that die and come back, and a clock that is set back can lead to.

use super::*;
use crate::clock::nanos;
use crate::store::{
    cas::{
        Loaded, MemoryStore, Value,
        swap::{Step, Swapping},
    },
    tests::{left_after, search},
};
use crate::sync::{Mutex, lock};

const LIMIT: u64 = 1;
const LIFE: Duration = Duration::from_secs(10);

/// A planted mistake, which the search must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// A machine admits what it has planned before the store knows of it.
    AdmitsFirst,
    /// It goes on to admit what it is about to leave to others.
    KeepsGrant,
    /// It takes no notice of what others hold.
    ForgetsOthers,
    /// The store swaps whatever it holds.
    SwapsBlindly,
    /// A machine admits for longer than a life.
    LivesTooLong,
    /// Machines renew what another one holds.
    RenewsOthers,
}

/// What happens once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    Request,
    Release,
    Loss,
    Repeat,
    /// A machine does not wait for a message that is on its way.
    Late,
    Death,
    Step,
    SetBack,
}

/// What a machine has of the key: requests in flight and in line, and its lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Holds {
    in_flight: u64,
    waiting: u64,
    granted: u64,
    others: u64,
    valid_until: Tick,
}

impl Holds {
    /// Requests of the line go on, if there is room.
    fn admit(&mut self, now: Tick) {
        let part = LIMIT.saturating_sub(self.others).min(self.granted);
        while self.waiting > 0 && now < self.valid_until && self.in_flight < part {
            (self.waiting, self.in_flight) = (self.waiting - 1, self.in_flight + 1);
        }
    }
}

impl LeaseHolder for Mutex<Holds> {
    fn plan(&self, view: &LeaseView, _: bool) -> LeasePlan {
        let holds = &mut *lock(self);
        let wants = holds.in_flight + holds.waiting;
        let share = view.share(LIMIT, wants);
        let room = share.min(LIMIT.saturating_sub(view.others));
        let plan = LeasePlan {
            holds: holds.in_flight.max(room.min(wants)),
            wants,
            grants: share.min(room.min(wants).max(holds.in_flight)),
        };
        holds.granted = holds.granted.min(plan.grants);
        plan
    }

    fn confirm(&self, plan: &LeasePlan, others: u64, valid_until: Tick) {
        let holds = &mut *lock(self);
        (holds.granted, holds.others, holds.valid_until) = (plan.grants, others, valid_until);
    }

    fn fail(&self, _: Option<StoreError>) {}

    fn end(&self) -> bool {
        false
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Machine {
    id: u64,
    holds: Holds,
    /// What it knows of the store; when it has read that, if nothing has come of it yet; and how far the store's clock is
    /// behind.
    known: Option<Known>,
    read_at: Option<Tick>,
    behind: Duration,
    sent: Vec<Sent<Done>>,
    written_at: Option<Tick>,
    /// The number of its last swap, and whether it waits for the reply.
    swaps: u64,
    waits: bool,
    /// Whether it was cut off for a life with requests in flight: then others may have had as many.
    was_cut_off: bool,
}

/// The version of a swap, and
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    /// the one that it expects, and what it writes; or
    Swap(u64, Option<u64>, Vec<u8>),
    /// whether it was done.
    Reply(u64, bool),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    left: Vec<Event>,
    /// The time of the machines, and by how much that of the store is behind.
    now: Tick,
    behind: Duration,
    value: Option<(u64, Vec<u8>)>,
    machines: Vec<Machine>,
    /// In no order.
    wire: Vec<Message>,
}

impl Machine {
    fn new(id: u64, waiting: u64) -> Self {
        let holds = Holds {
            waiting,
            ..Holds::default()
        };
        Self {
            id,
            holds,
            known: None,
            read_at: None,
            behind: Duration::ZERO,
            sent: Vec::new(),
            written_at: None,
            swaps: 0,
            waits: false,
            was_cut_off: false,
        }
    }

    /// Whether it waits for what comes of a message.
    fn awaits(&self, message: &Message) -> bool {
        let (Message::Swap(version, ..) | Message::Reply(version, _)) = message;
        self.waits && *version == 100 * self.id + self.swaps
    }
}

struct Model(Option<Mistake>, Duration);

impl Model {
    fn is(&self, mistake: Mistake) -> bool {
        self.0 == Some(mistake)
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
            next.settle();
            all.push(next);
        };
        for (index, machine) in state.machines.iter().enumerate() {
            then(Some(Event::Request), &|next| {
                next.machines[index].holds.waiting += 1;
            });
            if machine.holds.in_flight > 0 {
                then(Some(Event::Release), &|next| {
                    next.machines[index].holds.in_flight -= 1;
                });
            }
            then(Some(Event::Death), &|next| {
                next.machines[index] = Machine::new(machine.id + 10, 0);
            });
            let is_late = state.wire.iter().any(|message| machine.awaits(message));
            if machine.waits {
                then(is_late.then_some(Event::Late), &|next| {
                    (next.machines[index].waits, next.machines[index].known) = (false, None);
                });
            } else if *machine != Machine::new(machine.id, 0) {
                // There is no task without a request.
                then(None, &|next| self.go_on(next, index));
            }
        }
        for (index, message) in state.wire.iter().enumerate() {
            then(None, &|next| {
                next.wire.remove(index);
                self.deliver(next, message);
            });
            then(Some(Event::Repeat), &|next| self.deliver(next, message));
            then(Some(Event::Loss), &|next| drop(next.wire.remove(index)));
        }
        then(Some(Event::Step), &|next| next.now = next.now.plus(self.1));
        then(Some(Event::SetBack), &|next| next.behind += 10 * LIFE);
        all
    }

    /// A machine that waits for nothing reads, or decides on what it knows.
    fn go_on(&self, state: &mut State, index: usize) {
        let (now, machine) = (state.now, &mut state.machines[index]);
        let mut keeper = Self::keeper(machine, now);
        let Some(mut known) = machine.known.take() else {
            let value = state.value.clone();
            let loaded = Loaded {
                value: value.map(|(version, bytes)| Value { version, bytes }),
                server_time: Some(now),
            };
            (machine.behind, machine.read_at) = (state.behind, Some(now));
            let leases = Arc::clone(&keeper.leases);
            let mut swapping = Swapping {
                shared: &leases.shared,
                key: &"key".into(),
                sent: &mut machine.sent,
            };
            match swapping.adopt(&mut keeper, &loaded, now) {
                Ok(Step::Done(done, known)) => {
                    (machine.known, machine.read_at) = (Some(known), None);
                    self.confirm(machine, keeper, &done);
                }
                Ok(Step::Again(known, _)) => machine.known = Some(known),
                _ => panic!("it is not damaged"),
            }
            return;
        };
        let read_at = machine.read_at.take();
        let at = read_at.unwrap_or(now);
        let dated = Tick::from_nanos(at.as_nanos() - nanos(machine.behind));
        let mut others = Holdings::from_bytes(&known.record.state).unwrap_or_default();
        if self.is(Mistake::ForgetsOthers) {
            others.0.clear();
        }
        if self.is(Mistake::RenewsOthers) {
            let others = others.0.iter_mut();
            others.for_each(|lease| lease.expires_at = dated.plus(LIFE));
        }
        known.record.state = others.to_bytes();
        let held = Held {
            record: &known.record,
            has_value: known.version.is_some(),
            now: dated,
            asked_at: at,
        };
        let (record, done) = keeper.execute(&held, read_at.is_some()).expect("a plan");
        let Some(record) = record else {
            if read_at.is_some() || keeper.needs_no_read {
                machine.known = Some(known);
                self.confirm(machine, keeper, &done);
            }
            return;
        };
        (machine.swaps, machine.waits) = (machine.swaps + 1, true);
        let (version, expected) = (100 * machine.id + machine.swaps, known.version);
        let record = record.swapped_by(version).written_at(dated);
        let swap = Message::Swap(version, expected, record.to_bytes());
        state.wire.push(swap);
        machine.sent.push(Sent {
            version,
            expected,
            is_refused: false,
            reply: done,
        });
        let version = Some(version);
        machine.known = Some(Known { version, record });
        if !self.is(Mistake::KeepsGrant) {
            machine.holds = *lock(&keeper.holder);
        }
        if self.is(Mistake::AdmitsFirst) {
            self.confirm(machine, keeper, &done);
        }
    }

    fn keeper(machine: &Machine, now: Tick) -> Keeper<MemoryStore, Mutex<Holds>> {
        let deadline = Duration::from_secs(1);
        let leases = Leases::new(MemoryStore::new(), "exports", LIFE, deadline);
        let leases = Arc::new(Leases {
            machine: machine.id,
            ..leases
        });
        let holder = Mutex::new(machine.holds);
        let mut keeper = leases.keeper("key".to_owned(), Arc::default(), holder);
        (keeper.begun, keeper.has_ended) = (now, true);
        keeper.written_at = machine.written_at;
        // It never looks whether others wait: that is a read, and machines that wait read as well.
        keeper.seen_at = Some(Tick::MAX);
        keeper.is_open = !machine.sent.is_empty();
        keeper
    }

    /// The store knows of it.
    fn confirm(
        &self,
        machine: &mut Machine,
        mut keeper: Keeper<MemoryStore, Mutex<Holds>>,
        done: &Done,
    ) {
        keeper.confirm(done);
        machine.holds = *lock(&keeper.holder);
        machine.written_at = keeper.written_at;
        if self.is(Mistake::LivesTooLong) {
            machine.holds.valid_until = machine.holds.valid_until.plus(LIFE);
        }
    }

    fn deliver(&self, state: &mut State, message: &Message) {
        match message {
            Message::Swap(version, expected, bytes) => {
                let current = state.value.as_ref().map(|(version, _)| *version);
                let is_done = current == *expected || self.is(Mistake::SwapsBlindly);
                if is_done {
                    state.value = Some((*version, bytes.clone()));
                }
                state.wire.push(Message::Reply(*version, is_done));
            }
            Message::Reply(_, is_done) => {
                let mut machines = state.machines.iter_mut();
                let Some(machine) = machines.find(|machine| machine.awaits(message)) else {
                    return;
                };
                machine.waits = false;
                if !is_done {
                    machine.known = None;
                    machine.sent.last_mut().expect("a swap").is_refused = true;
                    return;
                }
                let own = machine.sent.drain(..).next_back().expect("a swap");
                let keeper = Self::keeper(machine, state.now);
                self.confirm(machine, keeper, &own.reply);
            }
        }
    }

    /// What is wrong with a state.
    fn fault_of(&self, state: &State) -> Option<&'static str> {
        let reached = state.machines.iter().filter(|one| !one.was_cut_off);
        if reached.map(|one| one.holds.in_flight).sum::<u64>() > LIMIT {
            return Some("more is in flight than the limit");
        }
        // Every state leads to one in which nothing is under way.
        let is_quiet = state.wire.is_empty() && state.machines.iter().all(|one| !one.waits);
        is_quiet.then(|| self.lost_of(state)).flatten()
    }

    /// Whether a permit is lost for ever: with enough requests, some lives later all are in flight.
    fn lost_of(&self, state: &State) -> Option<&'static str> {
        let mut later = state.clone();
        later.machines.push(Machine::new(99, LIMIT));
        for _ in 0..4 {
            later.now = later.now.plus(LIFE);
            for _ in 0..4 {
                for index in 0..later.machines.len() {
                    self.go_on(&mut later, index);
                    while let Some(message) = later.wire.pop() {
                        self.deliver(&mut later, &message);
                    }
                    later.settle();
                }
            }
            let in_flight = later.machines.iter().map(|one| one.holds.in_flight);
            if in_flight.sum::<u64>() >= LIMIT {
                return None;
            }
        }
        Some("a permit is lost for ever")
    }
}

impl State {
    fn settle(&mut self) {
        self.wire.sort();
        for machine in &mut self.machines {
            let is_over = self.now >= machine.holds.valid_until;
            machine.was_cut_off = machine.holds.in_flight > 0 && (machine.was_cut_off || is_over);
            machine.holds.admit(self.now);
        }
    }
}

/// The first fault that is found.
fn search_all(mistake: Option<Mistake>) -> Option<&'static str> {
    // The machines, and how many seconds a step of time is.
    use Event::{Death, Late, Loss, Release, Repeat, Request, SetBack, Step};
    let searches: [([u64; 2], &[Event]); 9] = [
        ([2, 0], &[Request, Release]),
        ([2, 0], &[Release, Loss]),
        ([2, 0], &[Loss, Late]),
        ([2, 0], &[Repeat, Late]),
        ([2, 6], &[Step, Step]),
        ([2, 0], &[Death, Request]),
        ([2, 12], &[Death, Step]),
        ([2, 12], &[SetBack, Step]),
        ([3, 0], &[Loss]),
    ];
    searches
        .into_iter()
        .find_map(|([machines, step], happens)| {
            let first = State {
                left: happens.to_vec(),
                now: Tick::ZERO.plus(1_000 * LIFE),
                behind: Duration::ZERO,
                value: None,
                machines: (1..=machines).map(|id| Machine::new(id, 1)).collect(),
                wire: Vec::new(),
            };
            let model = Model(mistake, Duration::from_secs(step));
            let (fault, states) = search(first, |it| model.next(it), |it| model.fault_of(it));
            assert!(fault.is_some() || states > 100);
            fault
        })
}

/// Shows promise 360.
#[test]
fn no_state_of_a_few_machines_breaks_the_limit_or_loses_a_permit() {
    assert_eq!(search_all(None), None);
}

/// Shows promise 360.
#[test]
fn the_search_finds_every_planted_mistake() {
    for mistake in [
        Mistake::AdmitsFirst,
        Mistake::KeepsGrant,
        Mistake::ForgetsOthers,
        Mistake::SwapsBlindly,
        Mistake::LivesTooLong,
        Mistake::RenewsOthers,
    ] {
        assert!(search_all(Some(mistake)).is_some(), "{mistake:?}");
    }
}

#[test]
fn the_store_is_told_what_changes_for_others() {
    let plan = |(holds, wants)| LeasePlan {
        holds,
        wants,
        grants: holds,
    };
    for (known, planned, is_told) in [
        (None, (0, 0), false),
        (None, (1, 0), true),
        (None, (0, 1), true),
        (Some((2, 2)), (2, 2), false),
        (Some((2, 2)), (1, 1), true),
        // It begins to wait, waits for more, and waits no more.
        (Some((2, 2)), (2, 3), true),
        (Some((2, 3)), (2, 4), false),
        (Some((2, 3)), (2, 2), true),
    ] {
        let own = known.map(|(holds, wants)| Holding {
            machine: 1,
            expires_at: Tick::ZERO,
            life: Duration::ZERO,
            holds,
            wants,
        });
        let is_due = is_due(own, &plan(planned));
        assert_eq!(is_due, is_told, "{known:?} to {planned:?}");
    }
}
