//! Virtual time, and a network that delays, loses and doubles messages.

pub(in crate::store) mod promise;
pub(in crate::store) mod seeds;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub(in crate::store) const MS: u64 = 1_000_000;
pub(in crate::store) const MAX_DELAY: u64 = 40 * MS;
/// 2026 in nanoseconds since 1970.
pub(in crate::store) const START: u64 = 1_767_225_600_000_000_000;
/// How wrong the clock of a machine is before its first exchange, at most.
pub(in crate::store) const WRONG: u64 = 1_000 * MS;
/// Requests are made for so long.
pub(in crate::store) const LENGTH: u64 = 4_000 * MS;
pub(in crate::store) const KEYS: u64 = 3;

/// What happens to the machine `node`, or to the exchange `number`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store) enum Event {
    Request {
        node: usize,
    },
    Tick {
        node: usize,
    },
    /// A report arrives at the store.
    Arrival {
        number: usize,
    },
    /// A reply arrives at a machine.
    Reply {
        node: usize,
        number: usize,
    },
    /// A machine gives up an exchange.
    Timeout {
        node: usize,
        number: usize,
    },
    Crash {
        node: usize,
    },
    /// A machine is suspended for some time.
    Sleep {
        node: usize,
    },
    /// A suspended machine goes on.
    Wake {
        node: usize,
    },
    /// A clock is set.
    SetClock {
        node: usize,
    },
    /// A machine adopts another configuration.
    Configure {
        node: usize,
    },
    /// The program that runs on a machine changes keys or closes its limit.
    Change {
        node: usize,
    },
    /// The network of a machine changes.
    Network {
        node: usize,
    },
}

impl Event {
    /// The machine that has to run for this.
    pub(in crate::store) const fn machine(&self) -> Option<usize> {
        match *self {
            Self::Request { node }
            | Self::Tick { node }
            | Self::Reply { node, .. }
            | Self::Timeout { node, .. }
            | Self::Configure { node }
            | Self::Change { node } => Some(node),
            _ => None,
        }
    }
}

/// With which quotas machines use the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Quotas {
    One,
    /// Two, as in a rolling deploy.
    Deploying,
    /// It is changed for the fleet.
    Changed,
}

/// How messages of a machine fare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Link {
    Good,
    Lossy,
    /// Reports arrive, replies do not.
    OneWay,
    Cut,
}

/// Events in the order of their time, and random numbers.
pub(in crate::store) struct Timeline {
    /// In nanoseconds since 1970, by the store's clock.
    pub(in crate::store) now: u64,
    random: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
}

impl Timeline {
    pub(in crate::store) fn new(seed: u64) -> Self {
        Self {
            now: START,
            random: seed,
            events: BinaryHeap::new(),
            count: 0,
        }
    }

    /// splitmix64.
    pub(in crate::store) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(in crate::store) fn quotas(&mut self) -> Quotas {
        match self.below(6) {
            0 => Quotas::Deploying,
            1 => Quotas::Changed,
            _ => Quotas::One,
        }
    }

    pub(in crate::store) fn below(&mut self, bound: u64) -> u64 {
        self.random() % bound
    }

    /// How far the clock of a new machine is ahead: until its first exchange it has only its own.
    pub(in crate::store) fn wrong_clock(&mut self) -> i64 {
        let wrong = i64::try_from(self.below(2 * WRONG)).expect("in range");
        wrong - i64::try_from(WRONG).expect("in range")
    }

    pub(in crate::store) fn after(&mut self, delay: u64, event: Event) {
        self.count += 1;
        self.events
            .push(Reverse((self.now + delay, self.count, event)));
    }

    /// Goes on to the next event.
    pub(in crate::store) fn next_event(&mut self) -> Option<Event> {
        let Reverse((at, _, event)) = self.events.pop()?;
        self.now = at;
        Some(event)
    }

    /// Whether the time of requests and of disturbances is over.
    pub(in crate::store) const fn is_quiet(&self) -> bool {
        self.now >= START + LENGTH
    }

    /// Sends a report over `link`, for the exchange `number` of the machine `node`.
    pub(in crate::store) fn send_report(&mut self, link: Link, node: usize, number: usize) {
        let copies = match link {
            Link::Cut => 0,
            Link::Lossy => self.below(3),
            Link::Good | Link::OneWay => 1,
        };
        for _ in 0..copies {
            let delay = 1 + self.below(MAX_DELAY);
            self.after(delay, Event::Arrival { number });
        }
        self.after(2 * MAX_DELAY, Event::Timeout { node, number });
    }

    /// Sends the reply of that exchange, which may be lost.
    pub(in crate::store) fn send_reply(&mut self, link: Link, node: usize, number: usize) {
        let is_lost = match link {
            Link::Good => false,
            Link::Lossy => self.below(3) == 0,
            Link::OneWay | Link::Cut => true,
        };
        if !is_lost {
            let delay = 1 + self.below(MAX_DELAY);
            self.after(delay, Event::Reply { node, number });
        }
    }

    /// The network of the machine `node` from now on.
    pub(in crate::store) fn next_link(&mut self, node: usize) -> Link {
        if self.is_quiet() {
            return Link::Good;
        }
        let link = match self.below(5) {
            0 => Link::Cut,
            1 => Link::OneWay,
            2 => Link::Lossy,
            _ => Link::Good,
        };
        let pause = self.below(600 * MS);
        self.after(pause, Event::Network { node });
        link
    }
}
