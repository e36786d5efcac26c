//! A fleet in virtual time: machines that crash and sleep, a store, and a network that delays, loses and
//! doubles messages.
//!
//! Some fleets decide by several clocks, are configured in two ways, or reset and close limits while they
//! run. `LEASE_SEEDS=125000 cargo test --release --features cas --lib simulation` runs a million fleets,
//! on all processors.

mod change;
mod conditions;
mod machine;
mod mistake;
mod store;
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::oneshot::Receiver;

use self::conditions::{Clocks, Conditions};
use self::mistake::Mistake;
use super::clock::LeaseClock;
use super::exchange::Outgoing;
use super::node::Node;
use super::plan::Settings;
use crate::algorithm::Portable;
use crate::clock::Tick;
use crate::error::StoreError;
use crate::store::{
    cas::{decider::Decider, lease::LeaseReply, record::Record},
    fleet::{
        Place, WhenCutOff,
        simulation::{Event, KEYS, LENGTH, Link, MS, Quotas, Timeline},
    },
};

const LIFE: u64 = 600 * MS;

struct Machine<A: Portable> {
    node: Node<A>,
    clock: LeaseClock,
    link: Link,
    /// How far its clock is ahead, in nanoseconds.
    ahead: i64,
    /// How far its wall clock is.
    wall: i64,
    /// How far the store's time is that it computes, after the first reply.
    store_time: Option<i64>,
    /// Counts restarts.
    life: u64,
    configuration: usize,
    asleep_until: u64,
    /// For how long its monotonic clock stands still while it is asleep.
    stands_still: u64,
    /// For how long it has.
    stood_still: u64,
    /// Exchanges that are.
    under_way: usize,
    /// The first of the keys that are due and could not be exchanged yet.
    next: Option<Place>,
    waiting: Vec<Waiting>,
}

/// A request that waits for an exchange.
struct Waiting {
    key: u64,
    cost: u64,
    receiver: Receiver<Result<(), StoreError>>,
}

struct Exchange<A: Portable> {
    outgoing: Outgoing,
    node: usize,
    /// The machine's number in the life in which it sent the report.
    id: u64,
    life: u64,
    configuration: usize,
    /// By the machine's monotonic clock.
    sent_at: u64,
    is_over: bool,
    reply: Option<Reply<A>>,
}

/// A reply, until it arrives.
#[derive(Clone)]
struct Reply<A: Portable> {
    reply: LeaseReply<A::State>,
    /// What the server's clock showed when the report arrived.
    server_time: u64,
}

/// A request that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Admitted {
    key: u64,
    /// By a clock that is right.
    at: u64,
    cost: u64,
    configuration: usize,
}

struct Simulation<A: Portable> {
    time: Timeline,
    machines: Vec<Machine<A>>,
    exchanges: Vec<Exchange<A>>,
    records: HashMap<String, Record>,
    /// The one that machines begin with, and another one.
    deciders: [Decider<A>; 2],
    settings: Settings,
    mistake: Mistake,
    load: u64,
    /// The most exchanges of a machine at the same time.
    most: usize,
    conditions: Conditions,
    /// How far the clock of the server of each key is ahead.
    servers: Vec<i64>,
    admitted: Vec<Admitted>,
    /// The keys that were reset, and when.
    resets: Vec<(u64, u64)>,
    /// The keys that were penalized, and by how much.
    penalties: Vec<(u64, u64)>,
    /// Requests that had to wait.
    waited: u64,
}

impl<A: Portable> Simulation<A> {
    /// `algorithms` are those that machines begin with, and another one.
    fn new(algorithms: &[A; 2], seed: u64, mistake: Mistake) -> Self {
        let mut time = Timeline::new(seed);
        let conditions = Conditions::random(&mut time);
        Self::with_conditions(algorithms, seed, mistake, time, conditions)
    }

    fn with_conditions(
        algorithms: &[A; 2],
        seed: u64,
        mistake: Mistake,
        mut time: Timeline,
        conditions: Conditions,
    ) -> Self {
        let clock_error = Self::random_clock_error(&mut time, conditions.clocks);
        let decider = |algorithm: &A| Decider::new(algorithm.clone()).expect("a valid algorithm");
        let mut simulation = Self {
            time,
            machines: Vec::new(),
            exchanges: Vec::new(),
            records: HashMap::new(),
            deciders: [decider(&algorithms[0]), decider(&algorithms[1])],
            settings: Settings {
                most: 1 + seed % 10,
                life: Duration::from_nanos(LIFE),
                clock_error,
                capacity: 64,
                when_cut_off: WhenCutOff::Fail,
                cut_off_after: 3,
                nodes: None,
            },
            mistake,
            load: 0,
            most: usize::MAX,
            conditions,
            servers: Vec::new(),
            admitted: Vec::new(),
            resets: Vec::new(),
            penalties: Vec::new(),
            waited: 0,
        };
        simulation.begin();
        simulation
    }

    fn random_clock_error(time: &mut Timeline, clocks: Clocks) -> Duration {
        match clocks {
            Clocks::Store => Duration::ZERO,
            _ => Duration::from_nanos(
                [100, 300, 1_000][usize::try_from(time.below(3)).expect("small")] * MS,
            ),
        }
    }

    fn begin(&mut self) {
        let nodes = usize::try_from(2 + self.time.below(15)).expect("small");
        self.load = 1 + self.time.below(30);
        if self.time.below(3) == 0 {
            self.most = 1 + usize::try_from(self.time.below(2)).expect("small");
        }
        self.servers = (0..KEYS).map(|_| self.clock_error()).collect();
        let is_deploying = self.conditions.quotas == Quotas::Deploying;
        for node in 0..nodes {
            let configuration = usize::from(is_deploying && node % 2 == 1);
            let machine = self.machine(configuration, 0);
            self.machines.push(machine);
            let at = self.time.below(LIFE / 12);
            self.time.after(at, Event::Tick { node });
            self.time.after(at, Event::Request { node });
            if self.conditions.quotas == Quotas::Changed {
                let at = LENGTH / 2 + self.time.below(LIFE);
                self.time.after(at, Event::Configure { node });
            }
            if self.conditions.is_changed {
                let at = self.time.below(LENGTH);
                self.time.after(at, Event::Change { node });
            }
            if self.conditions.is_reliable {
                continue;
            }
            let at = self.time.below(LENGTH);
            self.time.after(at, Event::Network { node });
            for (event, one_in) in [
                (Event::Crash { node }, 4),
                (Event::Sleep { node }, 2),
                (Event::SetClock { node }, 2),
            ] {
                if self.time.below(one_in) == 0 {
                    let at = self.time.below(LENGTH);
                    self.time.after(at, event);
                }
            }
        }
    }

    fn run(&mut self) {
        while let Some(event) = self.time.next_event() {
            let is_quiet = self.time.is_quiet();
            if let Some(node) = event.machine() {
                let asleep_until = self.machines[node].asleep_until;
                if asleep_until > self.time.now {
                    self.time.after(asleep_until - self.time.now, event);
                    continue;
                }
            }
            match event {
                Event::Request { node } if !is_quiet => self.request(node),
                Event::Tick { node } => self.tick(node, is_quiet),
                Event::Arrival { number } => self.arrive(number),
                Event::Reply { number, .. } => self.reply(number),
                Event::Timeout { number, .. } => self.time_out(number),
                Event::Crash { node } if !is_quiet => self.crash(node),
                Event::Sleep { node } if !is_quiet => self.sleep(node),
                Event::Wake { node } => self.wake(node),
                Event::SetClock { node } if !is_quiet => self.set_clock(node),
                Event::Network { node } => self.machines[node].link = self.time.next_link(node),
                Event::Configure { node } => self.configure(node),
                Event::Change { node } if !is_quiet => self.change(node),
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

    fn tick(&mut self, node: usize, is_quiet: bool) {
        self.send_due(node, true);
        if !is_quiet || self.machines[node].node.keys.len() > 0 {
            let jitter = self.time.below(LIFE / 120);
            self.time.after(LIFE / 12 - jitter, Event::Tick { node });
        }
    }

    /// Sends reports, as far as not too many exchanges are under way.
    fn send_due(&mut self, node: usize, is_tick: bool) {
        let now = self.time_of(node);
        let machine = &mut self.machines[node];
        let most = self.most.saturating_sub(machine.under_way);
        let due = machine
            .node
            .collect_due(now, &mut machine.next, is_tick, most);
        for outgoing in due {
            self.send(node, outgoing);
        }
    }

    fn send(&mut self, node: usize, outgoing: Outgoing) {
        let number = self.exchanges.len();
        let machine = &mut self.machines[node];
        machine.under_way += 1;
        self.exchanges.push(Exchange {
            outgoing,
            node,
            id: machine.node.id,
            life: machine.life,
            configuration: machine.configuration,
            sent_at: self.time.now - machine.stood_still,
            is_over: false,
            reply: None,
        });
        if machine.link == Link::Cut && self.time.below(2) == 0 {
            // It is known at once that there is no connection.
            return self.refuse(number);
        }
        let link = self.machines[node].link;
        self.time.send_report(link, node, number);
    }

    /// How much of a key the store would admit at the end to machines of a configuration.
    fn remaining(&self, key: u64, configuration: usize) -> u64 {
        let algorithm = &self.deciders[configuration].algorithm;
        let now = Tick::from_nanos(self.time.now);
        match self.records.get(&key.to_string()) {
            Some(record) => {
                let state = self.state_in_store(record, configuration, now);
                A::available(algorithm, &state, now)
            }
            None => A::available(algorithm, &algorithm.fresh(now), now),
        }
    }
}
