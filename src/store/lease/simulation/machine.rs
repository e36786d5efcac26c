//! A simulated machine: its clock, its requests, its crashes and its sleep.

use tokio::sync::oneshot::error::TryRecvError;

use super::{Admitted, Clocks, LIFE, Machine, Mistake, Reply, Simulation, Waiting};
use crate::algorithm::{Inherit, Portable};
use crate::clock::{Tick, nanos};
use crate::error::StoreError;
use crate::store::{
    cas::{record::Lease, report::Change},
    fleet::{
        Slow,
        simulation::{Event, KEYS, Link, MS, Quotas},
    },
    lease::{
        clock::{LeaseClock, latest_time},
        node::Node,
        plan::stop_of,
    },
};
use crate::sync::Ordering;

/// A wall clock that has gained less than this does not show that a machine was suspended.
const LEAST_SUSPENSION: u64 = 101 * MS;

/// The hash of a key.
pub(super) const fn hash_of(key: u64) -> u64 {
    key << 32 | key
}

/// The number of nanoseconds from `from` to `to`.
fn difference(to: u64, from: u64) -> i64 {
    i64::try_from(i128::from(to) - i128::from(from)).expect("in range")
}

impl<A: Portable> Simulation<A> {
    pub(super) fn machine(&mut self, configuration: usize, life: u64) -> Machine<A> {
        let (ahead, wall) = match self.conditions.clocks {
            Clocks::Machines => {
                let wall = self.clock_error();
                (wall, wall)
            }
            _ => (self.time.wrong_clock(), 0),
        };
        let clock = LeaseClock::of_store(self.conditions.clocks != Clocks::Servers);
        clock.simulate(Tick::from_nanos(self.time.now));
        let algorithm = self.deciders[configuration].algorithm.clone();
        let mut node = Node::new(algorithm, self.settings.clone(), &clock).expect("a valid limit");
        node.id = self.time.random();
        Machine {
            node,
            clock,
            link: Link::Good,
            ahead,
            wall,
            store_time: None,
            life,
            configuration,
            asleep_until: 0,
            stands_still: 0,
            stood_still: 0,
            under_way: 0,
            next: None,
            waiting: Vec::new(),
        }
    }

    /// How far a clock is ahead: two of them differ by as much as is configured at most.
    pub(super) fn clock_error(&mut self) -> i64 {
        let most = nanos(self.settings.clock_error);
        difference(self.time.below(most + 1), most / 2)
    }

    /// The time by the clock of a machine.
    pub(super) fn time_of(&self, node: usize) -> Tick {
        let machine = &self.machines[node];
        let now = Tick::from_nanos(self.time.now.saturating_add_signed(machine.ahead));
        machine.clock.simulate(now);
        now
    }

    pub(super) fn ask(&mut self, node: usize, key: u64, cost: u64) {
        let now = self.time_of(node);
        let hash = hash_of(key);
        let machine = &mut self.machines[node];
        let mut receiver = None;
        let quickly = machine.node.table.try_decide_hashed(hash, now, cost);
        let decision = quickly.unwrap_or_else(|| {
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
            self.admitted.push(Admitted {
                key,
                at: self.time.now,
                cost,
                configuration: machine.configuration,
            });
            if self.time.below(12) == 0 {
                // It is given back at once, and was never used.
                let taken_at = now;
                self.change_key(node, key, Change::Refund { taken_at, cost });
                self.admitted.pop();
            }
        }
        self.send_due(node, false);
    }

    pub(super) fn change_key(&mut self, node: usize, key: u64, change: Change) {
        let now = self.time_of(node);
        let name = || key.to_string().into();
        let _ = self.machines[node]
            .node
            .change(hash_of(key), name, now, change);
    }

    /// A reply arrives. Late replies arrive as well, but then the machine has given up the exchange.
    pub(super) fn reply(&mut self, number: usize) {
        let Some(Reply {
            mut reply,
            server_time,
        }) = self.exchanges[number].reply.clone()
        else {
            return;
        };
        let Some(node) = self.end(number) else { return };
        self.learn_time(node, number, server_time);
        let now = self.time_of(node);
        let hash = self.exchanges[number].outgoing.hash;
        self.mistake_reply(node, hash, now, &mut reply.lease);
        let configuration = self.exchanges[number].configuration;
        let decided_by = &self.deciders[configuration].algorithm;
        let machine = &self.machines[node];
        let current = machine.node.algorithm();
        if current.quota() != decided_by.quota() {
            current.rescale(&mut reply.state, decided_by, now, Inherit::AsIs);
        }
        machine.node.adopt(hash, now, &reply);
        self.resume(node);
    }

    /// Ends an exchange of a machine, unless it is over. Returns the machine.
    fn end(&mut self, number: usize) -> Option<usize> {
        let exchange = &mut self.exchanges[number];
        let machine = &mut self.machines[exchange.node];
        if exchange.is_over || exchange.life != machine.life {
            return None;
        }
        exchange.is_over = true;
        machine.under_way -= 1;
        Some(exchange.node)
    }

    /// As `LeaseClock::learn` and `StoreTime::learn`.
    pub(super) fn learn_time(&mut self, node: usize, number: usize, server_time: u64) {
        let shown = self.time_of(node);
        let machine = &mut self.machines[node];
        let has_time = self.conditions.clocks != Clocks::Machines;
        machine.clock.simulate_reply(has_time);
        if self.conditions.clocks == Clocks::Machines {
            machine.ahead = machine.wall;
            return;
        }
        let took = self.time.now - machine.stood_still - self.exchanges[number].sent_at;
        let shown = machine.store_time.map(|_| shown);
        let latest = latest_time(Tick::from_nanos(server_time), took, shown);
        machine.ahead = difference(latest.as_nanos(), self.time.now);
        machine.store_time = Some(difference(server_time, self.time.now));
    }

    fn mistake_reply(&self, node: usize, hash: u64, now: Tick, lease: &mut Lease) {
        let life = self.settings.life;
        let stop = stop_of(lease.ends_at, &self.settings, self.may_differ());
        match self.mistake {
            Mistake::OutliveEnd if lease.units > 0 => lease.ends_at = lease.ends_at.plus(life),
            Mistake::UseLateReply if lease.units > 0 && now >= stop => {
                lease.ends_at = now.plus(life);
            }
            Mistake::TrustClocks => lease.ends_at = lease.ends_at.plus(self.settings.clock_error),
            Mistake::UseReplyOfBefore => {
                let node = &self.machines[node].node;
                if let Some(key) = node.keys.shard(hash).get_mut(&hash) {
                    key.suspensions = node.suspensions.load(Ordering::Relaxed);
                }
            }
            _ => {}
        }
    }

    pub(super) fn may_differ(&self) -> bool {
        self.conditions.clocks != Clocks::Store
    }

    pub(super) fn time_out(&mut self, number: usize) {
        let Some(node) = self.end(number) else { return };
        let hash = self.exchanges[number].outgoing.hash;
        let error = StoreError::new("no reply", true);
        self.machines[node].node.fail(hash, &error);
        self.resume(node);
    }

    /// There is no connection, so that the report was not sent.
    pub(super) fn refuse(&mut self, number: usize) {
        let Some(node) = self.end(number) else { return };
        let hash = self.exchanges[number].outgoing.hash;
        let error = StoreError::new("no connection", true);
        self.machines[node].node.refuse(hash, &error);
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
        self.send_due(node, false);
    }

    pub(super) fn crash(&mut self, node: usize) {
        let Machine {
            life,
            configuration,
            ..
        } = self.machines[node];
        // In a rolling deploy, it may begin again with the other configuration.
        let configuration = if self.conditions.quotas == Quotas::Deploying {
            usize::from(self.time.below(2) == 0)
        } else {
            configuration
        };
        self.machines[node] = self.machine(configuration, life + 1);
    }

    pub(super) fn sleep(&mut self, node: usize) {
        // Long enough for a lease to end by the clocks of others, although they may differ.
        let most = 3 * LIFE + 2 * nanos(self.settings.clock_error);
        let length = LEAST_SUSPENSION + self.time.below(most);
        let machine = &mut self.machines[node];
        machine.asleep_until = self.time.now + length;
        // The monotonic clock of some stands still.
        machine.stands_still = length * self.time.below(2);
        self.time.after(length, Event::Wake { node });
    }

    /// A machine goes on. Before anything else, it looks whether it was suspended.
    pub(super) fn wake(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        let stood_still = std::mem::take(&mut machine.stands_still);
        if stood_still == 0 {
            return;
        }
        let late = difference(stood_still, 0);
        machine.stood_still += stood_still;
        machine.ahead -= late;
        machine.store_time = machine.store_time.map(|ahead| ahead - late);
        let now = self.time_of(node);
        if self.mistake != Mistake::ClockStops {
            self.machines[node].node.drop_units(now);
        }
    }

    /// Sets the clocks of a machine and of a server, within the configured error.
    pub(super) fn set_clock(&mut self, node: usize) {
        let server = usize::try_from(self.time.below(KEYS)).expect("small");
        self.servers[server] = self.clock_error();
        self.machines[node].wall = self.clock_error();
        if self.time.below(2) == 0 {
            // Its wall clock was set ahead, as if it had been suspended.
            let now = self.time_of(node);
            self.machines[node].node.drop_units(now);
        }
    }
}
