//! Simulated fleets: machines, a network and a store, in simulated time.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a simulation of small numbers"
)]

mod joins;
mod judge;
mod scenario;
mod tests;
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "most of it is for stores that execute batches")
)]
pub(in crate::store) mod traces;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::Arc,
};

use test_support::random::Random;

use self::judge::Judge;
use self::scenario::{Fault, FleetOutcome, Mistake, SECOND, Scenario, Traffic};
use super::batch::{Batch, Replies};
use super::exchange::Limit;
use super::machine::{Answer, Budget, StoreTime};
use crate::clock::Tick;
use crate::store::cas::Program;

/// When a simulation begins; microseconds.
const START: u64 = 1_700_000_000 * SECOND;

struct Machine {
    id: u64,
    budgets: Vec<Budget>,
    /// Added to the true time; parts per million by which it runs fast.
    offset: i64,
    drift: i64,
    limit: Arc<Limit>,
    sequence: u64,
    time: Option<StoreTime>,
    /// The batch in flight, and when it was sent first and last.
    flight: Option<(Vec<usize>, Batch, [u64; 2])>,
    urgent: Vec<usize>,
    waiters: Vec<(usize, u64)>,
    stopped_until: u64,
    cut_off_until: u64,
    lies: u64,
    is_alive: bool,
}

#[derive(Clone)]
enum Event {
    Arrival(usize, usize),
    Exchange(usize, u64),
    Deliver(usize, Batch, u64),
    Reply(usize, u64, Replies, u64),
    Fault(usize),
}

struct Fleet<'a> {
    scenario: &'a Scenario,
    values: HashMap<String, Vec<u8>>,
    store_offset: i64,
    store_stopped_until: u64,
    /// The store's time of the last exchange.
    latest: u64,
    machines: Vec<Machine>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    queued: Vec<Option<Event>>,
    now: u64,
    random: Random,
    judges: Vec<Judge>,
    outcome: FleetOutcome,
}

impl Scenario {
    fn run(&self) -> FleetOutcome {
        let mut fleet = Fleet::new(self);
        fleet.run();
        fleet.outcome
    }

    /// Admitted per second of one key from the second `from` on, in thousandths of `rate`.
    fn mean(&self, outcome: &FleetOutcome, from: usize, rate: u64) -> u64 {
        let seconds = &outcome.seconds[from..];
        seconds.iter().sum::<u64>() * 1_000 / (seconds.len() * self.keys) as u64 / rate
    }
}

impl<'a> Fleet<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let mut fleet = Self {
            scenario,
            values: HashMap::new(),
            store_offset: 0,
            store_stopped_until: 0,
            latest: 0,
            machines: Vec::new(),
            events: BinaryHeap::new(),
            queued: Vec::new(),
            now: START,
            random: Random::new(scenario.seed),
            judges: (0..scenario.keys)
                .map(|_| Judge::new(&scenario.shape))
                .collect(),
            outcome: FleetOutcome {
                excess: i64::MIN,
                ..FleetOutcome::default()
            },
        };
        for _ in 0..scenario.machines {
            fleet.join();
        }
        for (index, (at, _)) in scenario.faults.iter().enumerate() {
            fleet.at(START + at, Event::Fault(index));
        }
        fleet
    }

    fn join(&mut self) {
        let index = self.machines.len();
        let (offset, drift) = (self.below(20 * SECOND), self.below(1_000));
        let interval = self.scenario.interval * [1, self.scenario.other_interval][index % 2];
        self.machines.push(Machine {
            id: index as u64 + 1,
            budgets: vec![Budget::default(); self.scenario.keys],
            offset: i64::try_from(offset).unwrap() - 10_000_000,
            drift: i64::try_from(drift).unwrap() - 500,
            limit: Arc::new(Limit {
                shape: self.scenario.shape.clone(),
                interval,
                life: 10 * interval,
                ahead: self.scenario.ahead,
            }),
            sequence: 0,
            time: None,
            flight: None,
            urgent: Vec::new(),
            waiters: Vec::new(),
            stopped_until: 0,
            cut_off_until: 0,
            lies: 1,
            is_alive: true,
        });
        for key in 0..self.scenario.keys {
            let spread = if self.scenario.together {
                100
            } else {
                self.scenario.interval
            };
            let first = self.now + self.below(spread);
            self.at(first, Event::Arrival(index, key));
        }
        let first = self.now + self.below(interval);
        self.at(first, Event::Exchange(index, 0));
    }

    fn below(&mut self, most: u64) -> u64 {
        self.random.below(most.max(1))
    }

    fn at(&mut self, time: u64, event: Event) {
        self.events.push(Reverse((time, self.queued.len() as u64)));
        self.queued.push(Some(event));
    }

    fn run(&mut self) {
        let end = START + self.scenario.seconds * SECOND;
        while let Some(Reverse((time, id))) = self.events.pop() {
            if time >= end {
                break;
            }
            self.now = time;
            let event = self.queued[usize::try_from(id).unwrap()].take().unwrap();
            self.handle(event);
        }
        for judge in &self.judges {
            self.outcome.excess = self.outcome.excess.max(judge.excess);
            self.outcome.admitted += judge.admitted;
            let seconds = &mut self.outcome.seconds;
            seconds.resize(usize::try_from(self.scenario.seconds).unwrap(), 0);
            for (sum, count) in seconds.iter_mut().zip(&judge.seconds) {
                *sum += count;
            }
        }
        let records = self.values.iter().filter(|(key, _)| !key.starts_with('m'));
        let bytes = records.map(|(_, value)| value.len());
        self.outcome.bytes = bytes.max().unwrap_or(0);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival(machine, key) => {
                if let Some(gap) = self.gap(machine) {
                    let next = self.now + 1 + self.below(2 * gap);
                    self.at(next, Event::Arrival(machine, key));
                    if self.is_busy(machine) {
                        self.request(machine, key);
                    }
                } else {
                    self.at(self.now + 10_000, Event::Arrival(machine, key));
                }
            }
            Event::Exchange(machine, round) => self.exchange(machine, round),
            Event::Deliver(machine, batch, sent) => self.deliver(machine, &batch, sent),
            Event::Reply(machine, sequence, replies, sent) => {
                self.reply(machine, sequence, &replies, sent);
            }
            Event::Fault(index) => self.fault(self.scenario.faults[index].1),
        }
    }

    /// Microseconds between two requests of a key to a machine.
    fn gap(&self, machine: usize) -> Option<u64> {
        let (all, machines) = (self.scenario.rate, self.machines.len() as u64);
        let thousandth = match self.scenario.traffic {
            Traffic::Even => all * 1_000 / machines,
            Traffic::Skewed => {
                let busy = machines.div_ceil(5);
                if (machine as u64) < busy {
                    all * 800 / busy
                } else {
                    all * 200 / (machines - busy)
                }
            }
            Traffic::OneQuiet if machine == 0 => all / 10,
            Traffic::OneQuiet => all * 1_000 / (machines - 1),
            Traffic::Moving(after) => {
                let turn = (self.now - START) / after % machines;
                if turn == machine as u64 {
                    all * 1_000
                } else {
                    0
                }
            }
        };
        (SECOND * 1_000).checked_div(thousandth)
    }

    fn is_busy(&self, machine: usize) -> bool {
        let machine = &self.machines[machine];
        machine.is_alive && self.now >= machine.stopped_until
    }

    fn tick(&self, machine: usize) -> Tick {
        self.tick_at(machine, self.now)
    }

    fn tick_at(&self, machine: usize, now: u64) -> Tick {
        let Machine { offset, drift, .. } = self.machines[machine];
        let elapsed = i64::try_from(now - START).unwrap();
        let local = i64::try_from(now).unwrap() + offset + elapsed * drift / 1_000_000;
        Tick::from_nanos(u64::try_from(local).unwrap() * 1_000)
    }

    fn limit(&self, machine: usize) -> Arc<Limit> {
        Arc::clone(&self.machines[machine].limit)
    }

    fn admit(&mut self, machine: usize, key: usize) {
        self.judges[key].admit(self.now, START);
        let served = &mut self.outcome.served;
        served.resize(served.len().max(machine + 1), 0);
        served[machine] += 1;
    }

    fn request(&mut self, machine: usize, key: usize) {
        let (limit, tick) = (self.limit(machine), self.tick(machine));
        if self.scenario.mistake == Some(Mistake::AdmitsFirst)
            && self.machines[machine].time.is_none()
        {
            self.machines[machine].budgets[key].charge(tick, 1);
            self.admit(machine, key);
        } else {
            self.decide(machine, key, &limit, tick);
        }
        if self.scenario.mistake == Some(Mistake::Chatty) {
            self.machines[machine].urgent = vec![key];
            self.send_urgent(machine);
        }
    }

    fn decide(&mut self, machine: usize, key: usize, limit: &Limit, tick: Tick) {
        let mut limit = limit.clone();
        limit.ahead |= self.scenario.mistake == Some(Mistake::UsesEarly);
        match self.machines[machine].budgets[key].decide(&limit, tick, 1, false) {
            Answer::Admit => self.admit(machine, key),
            Answer::Deny(_) => self.outcome.denied += 1,
            Answer::Wait => {
                let deadline = self.now + 2 * self.machines[machine].limit.interval;
                self.outcome.waited += 1;
                self.machines[machine].waiters.push((key, deadline));
                if !self.machines[machine].urgent.contains(&key) {
                    self.machines[machine].urgent.push(key);
                }
                self.send_urgent(machine);
            }
        }
    }

    fn send_urgent(&mut self, machine: usize) {
        let state = &mut self.machines[machine];
        if state.flight.is_none() && !state.urgent.is_empty() {
            let keys = std::mem::take(&mut state.urgent);
            self.send(machine, keys);
        }
    }

    /// The exchange of an interval, or another attempt at the one before.
    fn exchange(&mut self, machine: usize, round: u64) {
        let interval = self.machines[machine].limit.interval;
        let next = interval - interval / 10 + self.below(interval / 5);
        self.at(self.now + next, Event::Exchange(machine, round + 1));
        if !self.is_busy(machine) {
            return;
        }
        let now = self.now;
        let (kept, late): (Vec<_>, Vec<_>) = std::mem::take(&mut self.machines[machine].waiters)
            .into_iter()
            .partition(|(_, deadline)| *deadline > now);
        self.outcome.failed += late.len() as u64;
        self.machines[machine].waiters = kept;
        if let Some((_, batch, [_, sent])) = self.machines[machine].flight.clone() {
            if now >= sent + interval {
                self.transmit(machine, batch);
            }
            return;
        }
        let due = |key: &usize| self.machines[machine].budgets[*key].is_due();
        let keys: Vec<_> = (0..self.scenario.keys).filter(due).collect();
        self.outcome.in_use += keys.len() as u64;
        self.send(machine, keys);
    }

    fn send(&mut self, machine: usize, keys: Vec<usize>) {
        if keys.is_empty() {
            return;
        }
        let (limit, tick) = (self.limit(machine), self.tick(machine));
        self.outcome.exchanges += keys.len() as u64;
        let mistake = self.scenario.mistake;
        let state = &mut self.machines[machine];
        state.sequence += 1;
        let reports = keys.iter().map(|key| {
            let budget = &mut state.budgets[*key];
            let time = state.time.as_ref();
            let mut report = budget.collect(time, tick, false);
            if mistake == Some(Mistake::ChargesEarly) {
                report.at = report.at.clamp(START, 2 * START) - SECOND;
            }
            if mistake == Some(Mistake::TrustsMachineClock) {
                report.at = tick.as_nanos() / 1_000;
            }
            report.demand *= state.lies;
            (Arc::from(key.to_string()), report)
        });
        let batch = Batch {
            keys: reports.collect(),
            machine: state.id,
            sequence: state.sequence,
            limit,
            sequence_key: format!("m{}", state.id).into(),
        };
        state.flight = Some((keys, batch.clone(), [self.now; 2]));
        self.transmit(machine, batch);
    }

    fn transmit(&mut self, machine: usize, batch: Batch) {
        if let Some((.., [_, sent])) = &mut self.machines[machine].flight {
            *sent = self.now;
        }
        let arrives = self.now + 200 + self.below(self.scenario.delay);
        if self.is_reached(machine) {
            self.at(arrives, Event::Deliver(machine, batch, self.now));
        }
    }

    fn is_reached(&mut self, machine: usize) -> bool {
        self.now >= self.machines[machine].cut_off_until && self.below(1_000) >= self.scenario.lost
    }

    fn deliver(&mut self, machine: usize, batch: &Batch, sent: u64) {
        if self.now < self.store_stopped_until {
            let event = Event::Deliver(machine, batch.clone(), sent);
            self.at(self.store_stopped_until, event);
            return;
        }
        let mut now = u64::try_from(i64::try_from(self.now).unwrap() + self.store_offset).unwrap();
        if self.scenario.own_time {
            now = self.tick(machine).as_nanos() / 1_000;
        }
        if self.scenario.mistake == Some(Mistake::WaitsForClock) {
            now = now.max(self.latest);
        }
        self.latest = now;
        let mistake = self.scenario.mistake;
        let keys: Vec<_> = batch.keys().into_iter().map(str::to_owned).collect();
        let values = keys
            .iter()
            .map(|key| self.values.get(key).map(Vec::as_slice));
        let by_store = !self.scenario.own_time || mistake == Some(Mistake::FollowsEveryClock);
        let (writes, replies) = batch.execute_at(values, (now, by_store));
        for write in writes {
            self.values
                .insert(keys[write.index].clone(), write.value.bytes);
        }
        let arrives = self.now + 200 + self.below(self.scenario.delay);
        if self.is_reached(machine) {
            self.at(
                arrives,
                Event::Reply(machine, batch.sequence, replies, sent),
            );
        }
    }

    fn reply(&mut self, machine: usize, sequence: u64, replies: &Replies, sent: u64) {
        let state = &self.machines[machine];
        let flight = state.flight.as_ref();
        let Some((_, _, [begun, _])) = flight.filter(|(_, batch, _)| batch.sequence == sequence)
        else {
            return;
        };
        let begun = *begun;
        if !self.is_busy(machine) {
            let later = state.stopped_until;
            if state.is_alive {
                self.at(
                    later,
                    Event::Reply(machine, sequence, replies.clone(), sent),
                );
            }
            return;
        }
        let received = self.tick(machine);
        let time = StoreTime {
            begun: self.tick_at(machine, begun),
            sent: self.tick_at(machine, sent),
            received,
            at: replies.now,
        };
        let state = &mut self.machines[machine];
        let (keys, ..) = state.flight.take().unwrap();
        state.time = Some(time);
        let limit = self.limit(machine);
        for (key, reply) in keys.iter().zip(&replies.keys) {
            self.machines[machine].budgets[*key].adopt(&limit, &reply.unwrap(), &time);
        }
        for (key, deadline) in std::mem::take(&mut self.machines[machine].waiters) {
            if !keys.contains(&key) {
                self.machines[machine].waiters.push((key, deadline));
                continue;
            }
            match self.machines[machine].budgets[key].decide(&limit, received, 1, true) {
                Answer::Admit => self.admit(machine, key),
                Answer::Deny(_) => self.outcome.denied += 1,
                // It came after its exchange had begun.
                Answer::Wait => {
                    let state = &mut self.machines[machine];
                    state.waiters.push((key, deadline));
                    if !state.urgent.contains(&key) {
                        state.urgent.push(key);
                    }
                }
            }
        }
        if !self.machines[machine].urgent.is_empty() {
            self.send_urgent(machine);
        }
    }

    fn fault(&mut self, fault: Fault) {
        let now = self.now;
        match fault {
            Fault::Crash(machine) => self.machines[machine].is_alive = false,
            Fault::Stop(machine, length) => self.machines[machine].stopped_until = now + length,
            Fault::Lies(machine, times) => self.machines[machine].lies = times,
            Fault::CutOff(machine, length) => self.machines[machine].cut_off_until = now + length,
            Fault::ForgetKeys(machine) => {
                for budget in &mut self.machines[machine].budgets {
                    if !budget.is_due() {
                        *budget = Budget::default();
                    }
                }
            }
            Fault::StoreClock(offset) => self.store_offset = offset,
            Fault::MachineClock(machine, step) => self.machines[machine].offset += step,
            Fault::StoreEmptied => self.values.clear(),
            Fault::StoreStops(length) => self.store_stopped_until = now + length,
            Fault::SequencesLost => self.values.retain(|key, _| !key.starts_with('m')),
            Fault::Join(count) => (0..count).for_each(|_| self.join()),
        }
    }
}
