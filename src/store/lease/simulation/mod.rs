//! A fleet in virtual time: machines that crash and sleep, a store, and a network that delays, loses and
//! doubles messages.
//!
//! `LEASE_SEEDS=1000000 cargo test --release --features cas --lib lease` runs as many seeds.

mod store;
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::oneshot::{Receiver, error::TryRecvError};

use super::clock::LeaseClock;
use super::exchange::{Due, Outgoing};
use super::node::Node;
use super::plan::Settings;
use crate::algorithm::{Algorithm, Packing};
use crate::clock::Tick;
use crate::error::StoreError;
use crate::store::{
    cas::{decider::Decider, lease::LeaseReply, record::Record, report::Change},
    fleet::{
        Slow, WhenCutOff,
        simulation::{Event, KEYS, LENGTH, Link, MS, Timeline},
    },
};

const LIFE: u64 = 600 * MS;

/// A mistake that the checks have to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// A report that is sent again is counted again, and so returns units twice.
    ReturnTwice,
    /// A machine uses its lease for longer than it lasts.
    OutliveEnd,
    /// A reply that comes after the end of the lease is taken for a new one.
    UseLateReply,
    /// A machine that has slept goes on as if it had not.
    ClockStops,
    /// The units of a lease that has ended are free again.
    FreeExpired,
    /// Units count as used when they are granted, so that the bucket refills while they are out.
    GrantOnRefill,
    /// Units that others hold do not count.
    ForgetOthers,
}

struct Machine<A: Algorithm> {
    node: Node<A>,
    clock: LeaseClock,
    link: Link,
    /// How far its clock is ahead of the store's, in nanoseconds.
    ahead: i64,
    /// Whether it has had a reply.
    knows_time: bool,
    /// Counts restarts.
    life: u64,
    asleep_until: u64,
    waiting: Vec<Waiting>,
}

/// A request that waits for an exchange.
struct Waiting {
    key: u64,
    cost: u64,
    receiver: Receiver<Result<(), StoreError>>,
}

struct Exchange<A: Algorithm> {
    outgoing: Outgoing,
    node: usize,
    life: u64,
    sent_at: u64,
    is_over: bool,
    reply: Option<(LeaseReply<A::State>, u64)>,
}

/// A request that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Admitted {
    key: u64,
    /// By the store's clock.
    at: u64,
    cost: u64,
}

struct Simulation<A: Algorithm> {
    time: Timeline,
    machines: Vec<Machine<A>>,
    exchanges: Vec<Exchange<A>>,
    records: HashMap<String, Record>,
    decider: Decider<A>,
    settings: Settings,
    mistake: Mistake,
    load: u64,
    /// Whether nothing is disturbed: no machine crashes or sleeps, and no message is lost.
    is_reliable: bool,
    admitted: Vec<Admitted>,
    /// Requests that had to wait.
    waited: u64,
}

impl<A: Algorithm> Simulation<A> {
    fn new(algorithm: &A, seed: u64, mistake: Mistake) -> Self {
        let decider = Decider::new(algorithm.clone()).expect("a valid algorithm");
        let mut simulation = Self {
            time: Timeline::new(seed),
            machines: Vec::new(),
            exchanges: Vec::new(),
            records: HashMap::new(),
            decider,
            settings: Settings {
                most: 1 + seed % 10,
                life: Duration::from_nanos(LIFE),
                clock_error: Duration::ZERO,
                capacity: 64,
                when_cut_off: WhenCutOff::Fail,
                cut_off_after: 3,
                nodes: None,
            },
            mistake,
            load: 0,
            is_reliable: false,
            admitted: Vec::new(),
            waited: 0,
        };
        let nodes = usize::try_from(2 + simulation.time.below(15)).expect("small");
        simulation.load = 1 + simulation.time.below(30);
        simulation.is_reliable = simulation.time.below(3) == 0;
        for node in 0..nodes {
            let machine = simulation.machine(algorithm, 0);
            simulation.machines.push(machine);
            let at = simulation.time.below(LIFE / 12);
            simulation.time.after(at, Event::Tick { node });
            simulation.time.after(at, Event::Request { node });
            if simulation.is_reliable {
                continue;
            }
            let at = simulation.time.below(LENGTH);
            simulation.time.after(at, Event::Network { node });
            for (event, one_in) in [(Event::Crash { node }, 4), (Event::Sleep { node }, 2)] {
                if simulation.time.below(one_in) == 0 {
                    let at = simulation.time.below(LENGTH);
                    simulation.time.after(at, event);
                }
            }
        }
        simulation
    }

    fn machine(&mut self, algorithm: &A, life: u64) -> Machine<A> {
        let ahead = self.time.wrong_clock();
        let clock = LeaseClock::of_store(true);
        clock.simulate_store(Tick::from_nanos(self.time.now));
        let mut node =
            Node::new(algorithm.clone(), self.settings.clone(), &clock).expect("a valid limit");
        node.id = self.time.random();
        Machine {
            node,
            clock,
            link: Link::Good,
            ahead,
            knows_time: false,
            life,
            asleep_until: 0,
            waiting: Vec::new(),
        }
    }

    /// The time by the clock of a machine.
    fn time_of(&self, node: usize) -> Tick {
        let machine = &self.machines[node];
        let now = Tick::from_nanos(self.time.now.saturating_add_signed(machine.ahead));
        machine.clock.simulate_store(now);
        now
    }

    fn run(&mut self) {
        while let Some(event) = self.time.next_event() {
            let is_quiet = self.time.is_quiet();
            if let Event::Request { node }
            | Event::Tick { node }
            | Event::Reply { node, .. }
            | Event::Timeout { node, .. } = event
            {
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
                Event::Sleep { node } if !is_quiet => {
                    let length = self.time.below(3 * LIFE);
                    self.machines[node].asleep_until = self.time.now + length;
                    if self.mistake == Mistake::ClockStops {
                        self.machines[node].ahead -= i64::try_from(length).expect("in range");
                    }
                }
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
        let hash = key << 32 | key;
        let machine = &mut self.machines[node];
        let mut receiver = None;
        let decision = machine.node.decide(hash, now, cost, || {
            let name = || key.to_string().into();
            match machine.node.decide_slow(hash, name, now, cost) {
                Slow::Decided(decision) => decision,
                Slow::Wait(wait) => {
                    receiver = Some(wait);
                    machine.node.peek(hash, now, u64::MAX)
                }
            }
        });
        if let Some(receiver) = receiver {
            self.waited += 1;
            machine.waiting.push(Waiting {
                key,
                cost,
                receiver,
            });
        } else if !decision.is_denied() {
            let at = self.time.now;
            self.admitted.push(Admitted { key, at, cost });
            if self.time.below(12) == 0 {
                // It is given back at once, and was never used.
                let name = || key.to_string().into();
                let change = Change::Refund {
                    taken_at: now,
                    cost,
                };
                let _ = self.machines[node].node.change(hash, name, now, change);
                self.admitted.pop();
            }
        }
        self.send_due(node, Due::Urgent);
    }

    fn tick(&mut self, node: usize, is_quiet: bool) {
        self.send_due(node, Due::Round);
        if !is_quiet || self.machines[node].node.keys.len() > 0 {
            let jitter = self.time.below(LIFE / 120);
            self.time.after(LIFE / 12 - jitter, Event::Tick { node });
        }
    }

    fn send_due(&mut self, node: usize, due: Due) {
        let now = self.time_of(node);
        for outgoing in self.machines[node].node.collect(now, due, usize::MAX) {
            self.send(node, outgoing);
        }
    }

    fn send(&mut self, node: usize, outgoing: Outgoing) {
        let number = self.exchanges.len();
        self.exchanges.push(Exchange {
            outgoing,
            node,
            life: self.machines[node].life,
            sent_at: self.time.now,
            is_over: false,
            reply: None,
        });
        let link = self.machines[node].link;
        self.time.send_report(link, node, number);
    }

    fn arrive(&mut self, number: usize) {
        let Exchange { node, life, .. } = self.exchanges[number];
        if self.machines[node].life != life {
            // The store would need the name of a machine that is gone; its lease ends by itself.
            return;
        }
        let reply = self.apply_in_store(number);
        self.exchanges[number].reply = Some((reply, self.time.now));
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
        let Some((mut reply, arrived_at)) = exchange.reply.clone() else {
            return;
        };
        let hash = exchange.outgoing.hash;
        // As `LeaseClock::learn`: the store's time, and the time since the request was sent.
        let ahead = i64::try_from(arrived_at - exchange.sent_at).expect("in range");
        let machine = &mut self.machines[node];
        machine.ahead = if machine.knows_time {
            machine.ahead.min(ahead)
        } else {
            ahead
        };
        machine.knows_time = true;
        let now = self.time_of(node);
        match self.mistake {
            Mistake::OutliveEnd if reply.lease.units > 0 => {
                reply.lease.ends_at = reply.lease.ends_at.plus(Duration::from_nanos(LIFE));
            }
            Mistake::UseLateReply if reply.lease.units > 0 => {
                reply.lease.ends_at = now.plus(Duration::from_nanos(LIFE));
            }
            _ => {}
        }
        self.machines[node].node.adopt(hash, now, &reply);
        self.resume(node);
    }

    fn time_out(&mut self, number: usize) {
        let exchange = &mut self.exchanges[number];
        let node = exchange.node;
        if exchange.is_over || exchange.life != self.machines[node].life {
            return;
        }
        exchange.is_over = true;
        let hash = exchange.outgoing.hash;
        let error = StoreError::new("no reply", true);
        self.machines[node].node.fail(hash, &error);
        self.resume(node);
    }

    /// Decides again on the requests whose exchange is over.
    fn resume(&mut self, node: usize) {
        for mut waiting in std::mem::take(&mut self.machines[node].waiting) {
            match waiting.receiver.try_recv() {
                Ok(Ok(())) => self.ask(node, waiting.key, waiting.cost),
                Err(TryRecvError::Empty) => self.machines[node].waiting.push(waiting),
                Ok(Err(_)) | Err(TryRecvError::Closed) => {}
            }
        }
        self.send_due(node, Due::Urgent);
    }

    fn crash(&mut self, node: usize) {
        let life = self.machines[node].life + 1;
        let algorithm = self.decider.algorithm.clone();
        self.machines[node] = self.machine(&algorithm, life);
    }

    /// How much of a key the store would admit at the end.
    fn remaining(&self, key: u64) -> u64 {
        let algorithm = &self.decider.algorithm;
        let now = Tick::from_nanos(self.time.now);
        match self.records.get(&key.to_string()) {
            Some(record) => {
                let state = self.state_in_store(record, now);
                A::Packing::available(algorithm, &state, now)
            }
            None => A::Packing::available(algorithm, &algorithm.fresh(now), now),
        }
    }
}
