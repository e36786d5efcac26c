//! One machine and the record of one key.

use std::{sync::Arc, time::Duration};

use super::clock::LeaseClock;
use super::decide::decide_slow;
use super::exchange::{Due, Outgoing};
use super::fleet::Fleet;
use super::node::Node;
use super::plan::Settings;
use crate::algorithm::{FixedWindow, Words};
use crate::clock::{Clock, Tick};
use crate::error::StoreError;
use crate::quota::Quota;
use crate::store::{
    cas::{
        Fault, Faulty, MemoryStore, decider::Decider, lease::LeaseReport, record::Record,
        report::Change,
    },
    fleet::{Place, Slow, WhenCutOff},
};

const LIFE: Duration = Duration::from_millis(1_200);
const KEY: u64 = 7;

fn at(ms: u64) -> Tick {
    Tick::from_nanos((1 << 60) + ms * 1_000_000)
}

fn settings() -> Settings {
    Settings {
        most: 20,
        life: LIFE,
        clock_error: Duration::ZERO,
        capacity: 1_000,
        when_cut_off: WhenCutOff::Fail,
        cut_off_after: 3,
        nodes: None,
    }
}

struct Machine {
    node: Node<FixedWindow>,
    clock: LeaseClock,
    decider: Decider<FixedWindow>,
    record: Record,
}

impl Machine {
    /// A limit of 100 units per `period`.
    fn new(period: Duration) -> Self {
        let window = FixedWindow::new(Quota::per(100, period));
        let clock = LeaseClock::of_store(true);
        clock.simulate_store(at(0));
        Self {
            node: Node::new(window, settings(), &clock).expect("a valid limit"),
            clock,
            decider: Decider::new(window).expect("a valid limit"),
            record: Record::default(),
        }
    }

    /// A limit whose units do not come back during a test.
    fn long() -> Self {
        Self::new(Duration::from_secs(1_000_000))
    }

    /// Makes a request. Returns whether it waits for an exchange.
    fn request(&self, now: Tick, cost: u64) -> bool {
        self.clock.simulate_store(now);
        let decided = self.node.decide_slow(KEY, || "key".into(), now, cost);
        matches!(decided, Slow::Wait(_))
    }

    fn change(&self, now: Tick, change: Change) {
        let _ = self.node.change(KEY, || "key".into(), now, change);
    }

    fn urgent(&self, now: Tick) -> Vec<Outgoing> {
        self.node.collect(now, Due::Urgent, 10)
    }

    /// The store gets a report. The machine gets its reply, unless that is lost.
    fn exchange(&mut self, outgoing: &Outgoing, now: Tick, is_lost: bool) {
        let report = self.node.report(outgoing, now);
        let replied = self.decider.lease(&self.record, now, &report);
        let (reply, after) = replied.expect("a reply");
        self.record = after.unwrap_or_else(|| self.record.clone());
        if !is_lost {
            self.node.adopt(outgoing.hash, now, &reply);
        }
    }

    /// Makes a request, and the exchange that it waits for.
    fn take(&mut self, now: Tick, cost: u64) {
        assert!(self.request(now, cost));
        let outgoing = self.urgent(now).remove(0);
        self.exchange(&outgoing, now, false);
        assert!(!self.request(now, cost));
    }

    fn left(&self, now: Tick) -> u64 {
        let mut shard = self.node.keys.shard(KEY);
        let Some(key) = shard.get_mut(&KEY) else {
            return 0;
        };
        self.node.settle(KEY, key, now);
        let left = key.left();
        self.node.release(KEY, key, now);
        left
    }

    /// What is left in the store, beyond what is out.
    fn left_in_store(&self, now: Tick) -> u64 {
        let nothing = LeaseReport {
            node: 99,
            sequence: 1,
            changes: &[],
            leased: 0,
            kept: 0,
            wanted: 0,
            needed: 0,
            life: LIFE,
            present_since: Tick::ZERO,
            clocks_differ: false,
        };
        let replied = self.decider.lease(&self.record, now, &nothing);
        let (reply, _) = replied.expect("a reply");
        FixedWindow::available(&self.decider.algorithm, &reply.state, now)
    }
}

fn no_reply() -> StoreError {
    StoreError::new("no reply", true)
}

fn refusal() -> StoreError {
    StoreError::new("damaged", false)
}

#[test]
fn a_round_goes_on_where_it_stopped() {
    let machine = Machine::long();
    for hash in 0..5 {
        let _ = machine.node.decide_slow(hash, || "key".into(), at(0), 1);
    }
    let (mut place, mut taken) = (Some(Place::default()), Vec::new());
    let mut counts = Vec::new();
    while let Some(first) = place {
        let (due, next) = machine.node.collect_from(first, at(400), Due::Round, 2);
        counts.push(due.len());
        taken.extend(due.iter().map(|outgoing| outgoing.hash));
        place = next;
    }
    taken.sort_unstable();
    assert_eq!((counts, taken), (vec![2, 2, 1], vec![0, 1, 2, 3, 4]));
}

#[test]
fn keys_without_units_are_forgotten_although_no_exchange_is_possible() {
    let machine = Machine::long();
    machine.node.probe(KEY, || "key".into(), at(0));
    machine.node.forget_empty(at(399));
    assert_eq!(machine.node.keys.len(), 1);
    let (due, place) = machine
        .node
        .collect_from(Place::default(), at(400), Due::Round, 0);
    assert!(due.is_empty() && place.is_some());
    machine.node.forget_empty(at(400));
    assert_eq!(machine.node.keys.len(), 0);
}

#[test]
fn a_clock_that_was_set_back_does_not_stop_renewals() {
    let mut machine = Machine::long();
    machine.take(at(3_600_000), 1);
    assert_eq!(machine.node.collect(at(0), Due::Round, 10).len(), 1);
}

#[test]
fn a_change_after_a_failure_follows_the_report_that_is_sent_again() {
    let mut machine = Machine::long();
    machine.take(at(0), 1);
    machine.change(
        at(1),
        Change::Charge {
            taken_at: at(1).into(),
            cost: 5,
        },
    );
    assert_eq!(machine.urgent(at(1)).len(), 1);
    machine.node.fail(KEY, &no_reply());
    machine.change(at(2), Change::Reset);
    let again = machine.urgent(at(2)).remove(0);
    assert!(!again.sent.changes.contains(&Change::Reset));
    machine.exchange(&again, at(2), false);
    let next = machine.urgent(at(2));
    assert_eq!(next.len(), 1);
    assert!(next[0].sent.changes.contains(&Change::Reset));
    machine.exchange(&next[0], at(2), false);
    assert!(machine.urgent(at(2)).is_empty());
}

#[test]
fn a_request_after_a_failure_is_exchanged_at_once() {
    let mut machine = Machine::long();
    machine.take(at(0), 1);
    machine.change(
        at(1),
        Change::Charge {
            taken_at: at(1).into(),
            cost: 5,
        },
    );
    assert_eq!(machine.urgent(at(1)).len(), 1);
    machine.change(
        at(2),
        Change::Charge {
            taken_at: at(2).into(),
            cost: 5,
        },
    );
    machine.node.fail(KEY, &no_reply());
    assert!(!machine.node.has_urgent(), "no exchange after exchange");
    assert!(machine.request(at(3), 80));
    assert_eq!(machine.urgent(at(3)).len(), 1);
}

#[test]
fn a_report_that_may_be_stored_keeps_its_number() {
    let mut machine = Machine::long();
    machine.take(at(0), 1);
    machine.change(
        at(1),
        Change::Charge {
            taken_at: at(1).into(),
            cost: 30,
        },
    );
    let first = machine.urgent(at(1)).remove(0);
    machine.exchange(&first, at(1), true);
    machine.node.fail(KEY, &no_reply());
    let again = |machine: &Machine, ms| machine.node.collect(at(ms), Due::Round, 1).remove(0);
    let second = again(&machine, 101);
    machine.node.refuse(KEY, &refusal());
    let third = again(&machine, 201);
    let sequences = [&second, &third].map(|outgoing| outgoing.sent.sequence);
    assert_eq!(sequences, [first.sent.sequence; 2]);
    let before = machine.left_in_store(at(201));
    machine.exchange(&third, at(201), false);
    assert_eq!(machine.left_in_store(at(201)), before, "counted once");
    // Nothing can have been stored of this one.
    machine.change(
        at(202),
        Change::Charge {
            taken_at: at(202).into(),
            cost: 1,
        },
    );
    let first = machine.urgent(at(202)).remove(0);
    machine.node.refuse(KEY, &refusal());
    machine.change(at(203), Change::Reset);
    let next = machine.urgent(at(203)).remove(0);
    assert!(next.sent.sequence > first.sent.sequence);
    assert!(next.sent.changes.contains(&Change::Reset));
}

/// Otherwise a reset could not replace a damaged value.
#[test]
fn a_reset_replaces_a_report_that_may_be_stored() {
    let mut machine = Machine::long();
    machine.take(at(0), 1);
    machine.change(
        at(1),
        Change::Charge {
            taken_at: at(1).into(),
            cost: 30,
        },
    );
    assert_eq!(machine.urgent(at(1)).len(), 1);
    machine.node.fail(KEY, &no_reply());
    machine.change(at(2), Change::Reset);
    assert_eq!(machine.urgent(at(2)).len(), 1);
    machine.node.refuse(KEY, &refusal());
    let next = machine.node.collect(at(500), Due::Round, 1).remove(0);
    assert!(next.sent.changes.contains(&Change::Reset));
}

#[test]
fn what_is_granted_before_a_suspension_is_not_used_after_it() {
    let mut machine = Machine::long();
    assert!(machine.request(at(0), 10));
    let outgoing = machine.urgent(at(0)).remove(0);
    machine.node.drop_units(at(0));
    machine.exchange(&outgoing, at(0), false);
    assert_eq!(machine.left(at(0)), 0);
    assert_eq!(machine.left_in_store(at(0)), 89);
    let back = machine.node.collect(at(400), Due::Round, 1).remove(0);
    machine.exchange(&back, at(400), false);
    assert_eq!(machine.left_in_store(at(400)), 100, "they are given back");
    assert_eq!(machine.node.keys.len(), 0);
    machine.take(at(400), 10);
}

/// A machine that holds units.
async fn fleet_with_units(
    store: &Faulty<MemoryStore>,
    settings: Settings,
) -> Arc<Fleet<Faulty<MemoryStore>, FixedWindow>> {
    let window = FixedWindow::new(Quota::per(100, Duration::from_secs(1_000_000)));
    let fleet = Fleet::new(store.clone(), "throttle", "api", &window, settings);
    let fleet = Arc::new(fleet.expect("a valid limit"));
    for _ in 0..12 {
        let decided =
            decide_slow(&fleet, KEY, || "key".into(), fleet.clock.now(), 4).expect("a decision");
        if let Slow::Wait(exchanged) = decided {
            exchanged.await.expect("a reply").expect("a reply");
        }
    }
    fleet
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_cut_off_uses_what_it_holds() {
    for when_cut_off in [WhenCutOff::Fail, WhenCutOff::Deny] {
        let settings = Settings {
            when_cut_off,
            ..settings()
        };
        let fleet = fleet_with_units(&Faulty::new(MemoryStore::new()), settings).await;
        fleet.link.set_cut_off(true);
        let is_admitted = || {
            let decided = decide_slow(&fleet, KEY, || "key".into(), fleet.clock.now(), 1);
            matches!(decided, Ok(Slow::Decided(decision)) if decision.is_admitted())
        };
        let admitted = (0..100).filter(|_| is_admitted()).count();
        assert!((1..=20).contains(&admitted), "{when_cut_off:?}: {admitted}");
        fleet.link.close();
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_suspended_uses_nothing_that_was_granted_before() {
    let store = Faulty::new(MemoryStore::new());
    let fleet = fleet_with_units(&store, settings()).await;
    let left = || {
        let mut shard = fleet.node.keys.shard(KEY);
        let key = shard.get_mut(&KEY).expect("a key");
        fleet.node.settle(KEY, key, fleet.clock.now());
        let left = key.left();
        fleet.node.release(KEY, key, fleet.clock.now());
        left
    };
    assert!(left() > 0);
    // No renewal before the look that finds it.
    store.plan([Fault::Delay(LIFE); 10]);
    fleet.clock.simulate_suspension();
    tokio::time::sleep(LIFE / 11).await;
    assert_eq!(left(), 0);
    fleet.link.close();
}

#[test]
fn a_charge_after_a_reset_counts_although_the_lease_has_ended() {
    let mut machine = Machine::long();
    machine.take(at(0), 10);
    machine.change(at(1), Change::Reset);
    machine.change(
        at(1),
        Change::Charge {
            taken_at: at(1).into(),
            cost: 5,
        },
    );
    let end = at(2_000);
    let outgoing = machine.urgent(end).remove(0);
    machine.exchange(&outgoing, end, false);
    assert_eq!(machine.left_in_store(end) + machine.left(end), 95);
}

#[test]
fn dropped_costs_do_not_hide_a_penalty() {
    let mut machine = Machine::new(Duration::from_millis(10));
    machine.take(at(0), 10);
    let mut shard = machine.node.keys.shard(KEY);
    let key = shard.get_mut(&KEY).expect("a key");
    // These are too many to be kept, and those of the first window count no more.
    for number in 1..=8 {
        let taken_at = at(1_000 + number);
        let change = Change::Charge {
            taken_at: taken_at.into(),
            cost: 1,
        };
        machine.node.push(key, change, taken_at);
    }
    drop(shard);
    let outgoing = machine.node.collect(at(1_010), Due::Round, 1).remove(0);
    let cost = |change: &Change| match change {
        Change::Charge { cost, .. } => *cost,
        _ => 0,
    };
    let charged: u64 = outgoing.sent.changes.iter().map(cost).sum();
    assert_eq!((charged, outgoing.sent.leased), (8, 0));
}
