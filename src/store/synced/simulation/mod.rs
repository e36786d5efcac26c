//! A fleet in virtual time: machines, a store, and a network that delays, loses and doubles messages.
//!
//! In some fleets each machine has a clock of its own, machines are configured in two ways, or keys are
//! reset. `SYNCED_SEEDS=50000 cargo test --release --features cas --lib simulation` runs a million fleets,
//! on all processors.

mod conditions;
mod tests;
mod twins;

use std::collections::HashMap;

use super::clock::FleetClock;
use super::collect::{Due, Outgoing};
use super::fleet::PRESENT_INTERVALS;
use super::node::Node;
use super::rules::Rules;
use crate::algorithm::{Inherit, Portable};
use crate::clock::{Tick, nanos};
use crate::error::StoreError;
use crate::store::{
    cas::{
        decider::Decider,
        record::Record,
        report::{Change, Report, Reported},
    },
    fleet::{
        Slow,
        simulation::{Event, KEYS, LENGTH, Link, MS, Quotas, Timeline},
    },
};

const INTERVAL: u64 = 50 * MS;
/// How long a machine that has reported counts as present.
const PRESENT: u64 = PRESENT_INTERVALS as u64 * INTERVAL;

/// A mistake that the checks have to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// A report that is sent again is counted again.
    ResendWithoutSequence,
    /// What was admitted in a window that is over is not sent.
    DropAtTurn,
    /// Costs beyond the limit are not counted.
    ClampDebt,
    /// A state that contains the report is adopted, and the report is counted once more.
    AdoptTwice,
    /// A lost reply counts as received.
    ForgetLostReports,
    /// Machines admit without a budget.
    NoBudget,
    /// A reset that is sent again undoes what has happened since.
    ResetTwice,
    /// A report counts in the state of the other configuration.
    ReportToOther,
    /// Costs count as of a moment that is earlier by what they are worth.
    CountTooEarly,
}

/// What is particular about a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Conditions {
    /// Whether the network is never disturbed.
    is_reliable: bool,
    /// How far the clocks of two machines differ at most, if the store does not report its time.
    clock_error: u64,
    quotas: Quotas,
    /// Whether keys are reset.
    is_changed: bool,
}

struct Machine<A: Portable> {
    node: Node<A>,
    clock: FleetClock,
    link: Link,
    /// How far its clock is ahead of the fleet's time, in nanoseconds.
    ahead: i64,
    /// How far its wall clock is.
    wall: i64,
    /// Whether it has had a reply.
    knows_time: bool,
    configuration: usize,
    /// Counts restarts.
    life: u64,
    /// The cost that it has admitted in this life and that the store has not counted.
    unreported: i128,
}

struct Exchange<A: Portable> {
    outgoing: Outgoing,
    node: usize,
    /// The machine's number in the life in which it sent the report.
    id: u64,
    life: u64,
    configuration: usize,
    is_over: bool,
    reply: Option<(A::State, usize, u64)>,
}

/// A request that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Admitted {
    key: u64,
    /// By the clock of the machine.
    at: u64,
    /// By a clock that is right.
    really_at: u64,
    cost: u64,
    configuration: usize,
}

struct Simulation<A: Portable> {
    time: Timeline,
    machines: Vec<Machine<A>>,
    exchanges: Vec<Exchange<A>>,
    /// What the store holds, and until when.
    records: HashMap<String, (Record, u64)>,
    /// What the store does not hold any more. A report in it that is sent again counts again.
    forgotten: HashMap<String, Vec<Record>>,
    /// The one that machines begin with, and another one.
    deciders: [Decider<A>; 2],
    conditions: Conditions,
    mistake: Mistake,
    strict: Option<u32>,
    load: u64,
    admitted: Vec<Admitted>,
    /// The keys that were reset, and when.
    resets: Vec<(u64, u64)>,
    /// The keys of resets that a crashed machine may not have reported.
    lost_resets: Vec<u64>,
    /// A state per key in which every admitted request was counted, once.
    oracles: HashMap<u64, A::State>,
    crashes: u64,
}

impl<A: Portable> Simulation<A> {
    /// `algorithms` are those that machines begin with, and another one.
    fn new(algorithms: &[A; 2], seed: u64, strict: Option<u32>, mistake: Mistake) -> Self {
        let decider = |algorithm: &A| Decider::new(algorithm.clone()).expect("a valid algorithm");
        let mut time = Timeline::new(seed);
        let conditions = Conditions::random(&mut time);
        let mut simulation = Self {
            time,
            machines: Vec::new(),
            exchanges: Vec::new(),
            records: HashMap::new(),
            forgotten: HashMap::new(),
            deciders: [decider(&algorithms[0]), decider(&algorithms[1])],
            conditions,
            mistake,
            strict,
            load: 0,
            admitted: Vec::new(),
            resets: Vec::new(),
            lost_resets: Vec::new(),
            oracles: HashMap::new(),
            crashes: 0,
        };
        let nodes = usize::try_from(2 + simulation.time.below(15)).expect("small");
        simulation.load = 1 + simulation.time.below(30);
        let is_deploying = conditions.quotas == Quotas::Deploying;
        for node in 0..nodes {
            let configuration = usize::from(is_deploying && node % 2 == 1);
            let machine = simulation.machine(configuration, 0);
            simulation.machines.push(machine);
            let at = simulation.time.below(INTERVAL);
            simulation.time.after(at, Event::Tick { node });
            simulation.time.after(at, Event::Request { node });
            if mistake == Mistake::None && simulation.time.below(4) == 0 {
                let at = simulation.time.below(LENGTH);
                simulation.time.after(at, Event::Crash { node });
            }
            simulation.plan_changes(node);
            if !conditions.is_reliable {
                let at = simulation.time.below(LENGTH);
                simulation.time.after(at, Event::Network { node });
            }
        }
        simulation
    }

    fn machine(&mut self, configuration: usize, life: u64) -> Machine<A> {
        let rules = Rules {
            strict_budget: self.strict.map(|strict| match self.mistake {
                Mistake::NoBudget => u32::MAX,
                _ => strict,
            }),
            nodes: None,
        };
        let wall = self.conditions.random_clock(&mut self.time);
        let ahead = match self.conditions.clock_error {
            0 => self.time.wrong_clock(),
            _ => wall,
        };
        let clock = FleetClock::of_this_machine();
        clock.simulate(Tick::from_nanos(self.time.now));
        let algorithm = self.deciders[configuration].algorithm.clone();
        let mut node = Node::new(algorithm, rules, &clock, 64).expect("a valid limit");
        node.id = self.time.random();
        Machine {
            node,
            clock,
            link: Link::Good,
            ahead,
            wall,
            knows_time: false,
            configuration,
            life,
            unreported: 0,
        }
    }

    /// The time by the clock of a machine.
    fn time_of(&self, node: usize) -> Tick {
        let machine = &self.machines[node];
        let now = Tick::from_nanos(self.time.now.saturating_add_signed(machine.ahead));
        machine.clock.simulate(now);
        now
    }

    fn run(&mut self) {
        while let Some(event) = self.time.next_event() {
            let is_quiet = self.time.is_quiet();
            match event {
                Event::Request { node } if !is_quiet => self.request(node),
                Event::Tick { node } => self.flush(node, is_quiet),
                Event::Arrival { number } => self.arrive(number),
                Event::Reply { number, .. } => self.reply(number),
                Event::Timeout { number, .. } => self.time_out(number),
                Event::Crash { node } if !is_quiet => self.crash(node),
                Event::SetClock { node } if !is_quiet => {
                    let wall = self.conditions.random_clock(&mut self.time);
                    self.machines[node].wall = wall;
                }
                Event::Configure { node } => self.configure(node),
                Event::Change { node } if !is_quiet => self.change(node),
                Event::Network { node } => self.machines[node].link = self.time.next_link(node),
                _ => {}
            }
        }
    }

    fn request(&mut self, node: usize) {
        let (key, cost) = (self.time.below(KEYS), 1 + self.time.below(2));
        self.ask(node, key, cost);
        let pause = self.time.below(2_000 * MS / (self.load * self.load)) + 1;
        self.time.after(pause, Event::Request { node });
    }

    fn ask(&mut self, node: usize, key: u64, cost: u64) {
        let now = self.time_of(node);
        let machine = &self.machines[node].node;
        let mut waits = false;
        let quickly = machine.table.try_decide_hashed(key << 32 | key, now, cost);
        let decision = quickly.unwrap_or_else(|| {
            let name = || key.to_string().into();
            match machine.decide_slow(key << 32 | key, name, now, cost, false) {
                Slow::Decided(decision) => decision,
                Slow::Wait(_) => {
                    waits = true;
                    machine.peek(key << 32 | key, now, u64::MAX)
                }
            }
        });
        for outgoing in self.machines[node]
            .node
            .collect(now, Due::Urgent, usize::MAX)
        {
            self.send(node, outgoing);
        }
        if waits {
            return;
        }
        if !decision.is_denied() && cost > 0 {
            self.machines[node].unreported += i128::from(cost);
            // A wrong clock says nothing about when it was.
            let at = if self.machines[node].knows_time {
                now.as_nanos()
            } else {
                self.time.now
            };
            self.admitted.push(Admitted {
                key,
                at,
                really_at: self.time.now,
                cost,
                configuration: self.machines[node].configuration,
            });
            let algorithm = &self.deciders[0].algorithm;
            let oracle = self.oracles.entry(key);
            let oracle = oracle.or_insert_with(|| algorithm.fresh(now));
            A::charge_late(algorithm, oracle, now.into(), now, cost);
        }
    }

    fn flush(&mut self, node: usize, is_quiet: bool) {
        let now = self.time_of(node);
        self.machines[node].node.begin_round();
        for outgoing in self.machines[node]
            .node
            .collect(now, Due::Round, usize::MAX)
        {
            self.send(node, outgoing);
        }
        self.machines[node].node.end_round().expect("a share");
        if !is_quiet || self.machines[node].node.pending.len() > 0 {
            let jitter = self.time.below(INTERVAL / 5);
            self.time.after(INTERVAL - jitter, Event::Tick { node });
        }
    }

    fn send(&mut self, node: usize, mut outgoing: Outgoing) {
        let number = self.exchanges.len();
        if self.mistake == Mistake::DropAtTurn {
            let length = self.deciders[0].algorithm.quota().period().as_nanos();
            let window = |at: Tick| u128::from(at.as_nanos()) / length;
            let is_over = |change: &&Change| {
                matches!(change, Change::Charge { taken_at, .. }
                    if window(taken_at.last) < window(Tick::from_nanos(self.time.now)))
            };
            let kept = outgoing.changes.iter().filter(|change| !is_over(change));
            outgoing.changes = kept.copied().collect();
        }
        if self.mistake == Mistake::CountTooEarly {
            let unit = self.deciders[0].algorithm.quota().period().as_nanos()
                / u128::from(self.deciders[0].algorithm.quota().limit());
            let unit = u64::try_from(unit).expect("short");
            let earlier = |change: &Change| match *change {
                Change::Charge { taken_at, cost } => Change::Charge {
                    taken_at: taken_at
                        .map(|at| Tick::from_nanos(at.as_nanos().saturating_sub(cost * unit))),
                    cost,
                },
                other => other,
            };
            outgoing.changes = outgoing.changes.iter().map(earlier).collect();
        }
        self.exchanges.push(Exchange {
            outgoing,
            node,
            id: self.machines[node].node.id,
            life: self.machines[node].life,
            configuration: self.machines[node].configuration,
            is_over: false,
            reply: None,
        });
        let link = self.machines[node].link;
        self.time.send_report(link, node, number);
    }

    fn arrive(&mut self, number: usize) {
        let Exchange {
            outgoing,
            node,
            id,
            configuration,
            ..
        } = &self.exchanges[number];
        let (outgoing, node, mut id) = (outgoing.clone(), *node, *id);
        let mut configuration = *configuration;
        let resets = outgoing.changes.contains(&Change::Reset);
        let now = self
            .time
            .now
            .saturating_add_signed(self.machines[node].wall);
        let now = Tick::from_nanos(now);
        let mut changes = outgoing.changes.to_vec();
        let kept = self.records.entry(outgoing.name.to_string()).or_default();
        let forgotten = self.forgotten.entry(outgoing.name.to_string()).or_default();
        if kept.1 <= self.time.now {
            forgotten.push(std::mem::take(&mut kept.0));
        }
        let is_forgotten = forgotten
            .iter()
            .any(|record| record.has_report(id, outgoing.sequence));
        let (record, kept_until) = kept;
        let is_new = !record.has_report(id, outgoing.sequence);
        match self.mistake {
            Mistake::ResendWithoutSequence => id = self.time.random(),
            Mistake::ResetTwice if resets && !is_new => id = self.time.random(),
            Mistake::ReportToOther => configuration = 1 - configuration,
            _ => {}
        }
        let decider = &self.deciders[configuration];
        let mut report = Report {
            node: id,
            sequence: outgoing.sequence,
            changes: &[],
            present_since: Tick::from_nanos(now.as_nanos() - PRESENT),
            clocks_differ: self.conditions.clock_error > 0,
        };
        if self.mistake == Mistake::ClampDebt {
            let before = decider.report(record, now, &report);
            let before = before.expect("a readable record").state;
            let mut left = A::available(&decider.algorithm, &before, now);
            for change in &mut changes {
                if let Change::Charge { cost, .. } = change {
                    *cost = left.min(*cost);
                    left -= *cost;
                }
            }
        }
        report.changes = &changes;
        let reported = decider.report(record, now, &report);
        let Reported {
            state,
            nodes,
            record: after,
        } = reported.expect("a readable record");
        if let Some(after) = after {
            // As `Fleet::send`.
            let ttl = nanos(Decider::<A>::time_to_live(&after, now)) + PRESENT;
            *kept_until = self.time.now + ttl;
            *record = after;
            if self.machines[node].life == self.exchanges[number].life && !is_forgotten {
                self.machines[node].unreported -= cost_of(&changes);
            }
            if resets && is_new {
                let key = outgoing.hash >> 32;
                self.resets.push((key, self.time.now));
            }
        }
        let sent_at = self.time.now;
        self.exchanges[number].reply = Some((state, nodes, sent_at));
        let link = self.machines[node].link;
        self.time.send_reply(link, node, number);
    }

    fn reply(&mut self, number: usize) {
        let exchange = &mut self.exchanges[number];
        let node = exchange.node;
        if exchange.is_over || exchange.life != self.machines[node].life {
            return;
        }
        exchange.is_over = true;
        let Some((mut state, nodes, sent_at)) = exchange.reply.clone() else {
            return;
        };
        let outgoing = exchange.outgoing.clone();
        // The reply tells the time at which it was sent.
        let late = i64::try_from(self.time.now - sent_at).expect("in range");
        let configuration = exchange.configuration;
        let machine = &mut self.machines[node];
        let ahead = match self.conditions.clock_error {
            0 => -late,
            _ => machine.wall,
        };
        // As `FleetClock::learn`.
        machine.ahead = if machine.knows_time {
            machine.ahead.max(ahead)
        } else {
            ahead
        };
        machine.knows_time = true;
        machine.node.set_time_known();
        let now = self.time_of(node);
        if self.mistake == Mistake::AdoptTwice {
            for change in &*outgoing.changes {
                change.apply(&self.deciders[configuration].algorithm, &mut state, now);
            }
        }
        let machine = &self.machines[node].node;
        let (current, decided_by) = (machine.algorithm(), &self.deciders[configuration].algorithm);
        let is_of_current = current.quota() == decided_by.quota();
        if !is_of_current {
            current.rescale(&mut state, decided_by, now, Inherit::AsIs);
        }
        machine.adopt(outgoing.hash, now, &state, nodes);
        let shard = machine.pending.shard(outgoing.hash);
        let key = shard.get(&outgoing.hash);
        let is_reported = key.is_none_or(|key| !machine.is_in_use(outgoing.hash, key, now));
        drop(shard);
        if is_reported && is_of_current {
            let (stored, ..) = self.exchanges[number].reply.as_ref().expect("a reply");
            let stored = current.peek(stored, now, 0);
            let adopted = machine.peek(outgoing.hash, now, 0);
            assert_eq!(adopted, stored, "a machine without unsent costs");
        }
    }

    fn time_out(&mut self, number: usize) {
        let exchange = &mut self.exchanges[number];
        let node = exchange.node;
        if exchange.is_over || exchange.life != self.machines[node].life {
            return;
        }
        exchange.is_over = true;
        let hash = exchange.outgoing.hash;
        if self.mistake == Mistake::ForgetLostReports {
            let mut shard = self.machines[node].node.pending.shard(hash);
            if let Some(key) = shard.get_mut(&hash) {
                key.sent = None;
            }
        }
        let error = StoreError::new("no reply", true);
        let now = self.time_of(node);
        self.machines[node].node.fail(hash, now, &error);
    }

    fn crash(&mut self, node: usize) {
        self.crashes += 1;
        let pending = &self.machines[node].node.pending;
        let may_lose_reset = |key: &u64| {
            let hash = key << 32 | key;
            let shard = pending.shard(hash);
            let Some(key) = shard.get(&hash) else {
                return false;
            };
            let sent = key.sent.iter().flat_map(|sent| &*sent.changes);
            sent.chain(&key.unsent)
                .any(|change| *change == Change::Reset)
        };
        self.lost_resets.extend((0..KEYS).filter(may_lose_reset));
        let Machine {
            life,
            configuration,
            ..
        } = self.machines[node];
        // In a rolling deploy, it begins again with the other configuration.
        let configuration = if self.conditions.quotas == Quotas::Deploying {
            1 - configuration
        } else {
            configuration
        };
        self.machines[node] = self.machine(configuration, life + 1);
    }
}

fn cost_of(changes: &[Change]) -> i128 {
    let costs = changes.iter().map(|change| match change {
        Change::Charge { cost, .. } => i128::from(*cost),
        _ => 0,
    });
    costs.sum()
}
