//! The published rules of two other limiters, in the same network as ours. Their faults have to show.

use std::collections::BTreeMap;

use crate::algorithm::FixedWindow;
use crate::clock::Tick;
use crate::error::StoreError;
use crate::quota::Quota;
use crate::store::{
    cas::{
        decider::Decider,
        record::Record,
        report::{Change, Report},
    },
    fleet::{
        Slow,
        simulation::{MS, START},
    },
    synced::{
        clock::FleetClock,
        collect::{Due, Outgoing},
        node::Node,
        rules::Rules,
    },
};

const LIMIT: u64 = 40;
const WINDOW: u64 = 500 * MS;
const INTERVAL: u64 = 50 * MS;
const MACHINES: u64 = 4;
/// Requests are made during so many windows.
const WINDOWS: u64 = 6;
/// What our machines admit without the store's knowledge.
const STRICT: u32 = 2;

/// What the network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Good,
    /// One connection in three fails.
    Refuses,
    /// One reply in three is lost.
    LosesReplies,
}

/// Costs by window.
type Counts = BTreeMap<u64, u64>;

/// A machine that decides in memory by some rule.
trait Machine {
    type Store: Default;
    type Report: Clone;
    type Reply;

    fn new(number: u64) -> Self;

    /// Decides on a request. `store` is given if it can be reached.
    fn admits(&mut self, now: u64, store: Option<&Self::Store>) -> bool;

    /// What is to be sent now.
    fn reports(&mut self, now: u64) -> Vec<Self::Report>;

    /// A report arrives at the store.
    fn arrive(store: &mut Self::Store, report: &Self::Report, now: u64) -> Self::Reply;

    fn reply(&mut self, report: &Self::Report, reply: Self::Reply, now: u64);

    /// There was no connection, or no reply.
    fn fail(&mut self, report: &Self::Report, now: u64);

    /// What the store has counted.
    fn counted(store: &Self::Store) -> &Counts;
}

/// Kong's `sync_rate`: a timer adds the deltas to the store and clears what is cached, also if the
/// connection fails. The next request reads the total again.
struct Kong {
    totals: Counts,
    deltas: Counts,
    next_sync: u64,
}

impl Machine for Kong {
    type Store = Counts;
    type Report = (u64, u64);
    type Reply = ();

    fn new(number: u64) -> Self {
        Self {
            totals: Counts::new(),
            deltas: Counts::new(),
            next_sync: START + number * 7 * MS,
        }
    }

    fn admits(&mut self, now: u64, store: Option<&Counts>) -> bool {
        let window = now / WINDOW;
        let read = || store.and_then(|store| store.get(&window)).copied();
        let total = *self
            .totals
            .entry(window)
            .or_insert_with(|| read().unwrap_or(0));
        let delta = self.deltas.entry(window).or_insert(0);
        let admits = total + *delta < LIMIT;
        *delta += u64::from(admits);
        admits
    }

    fn reports(&mut self, now: u64) -> Vec<(u64, u64)> {
        if now < self.next_sync {
            return Vec::new();
        }
        self.next_sync = now + INTERVAL;
        self.totals.clear();
        std::mem::take(&mut self.deltas).into_iter().collect()
    }

    fn arrive(store: &mut Counts, (window, delta): &(u64, u64), _: u64) {
        *store.entry(*window).or_insert(0) += delta;
    }

    fn reply(&mut self, _: &(u64, u64), (): (), _: u64) {}

    fn fail(&mut self, _: &(u64, u64), _: u64) {}

    fn counted(store: &Counts) -> &Counts {
        store
    }
}

/// `RussellLuo/slidingwindow`: a request starts an exchange if the last one is an interval ago, and a
/// later request picks its reply up. At the turn of a window, what was not sent is forgotten. After
/// an error, it is sent again.
#[derive(Default)]
struct SlidingWindowOfRussellLuo {
    window: u64,
    previous: u64,
    count: u64,
    changes: u64,
    synced_at: u64,
    outbox: Option<(u64, u64, u64)>,
    in_progress: bool,
    inbox: Option<((u64, u64, u64), u64)>,
}

impl Machine for SlidingWindowOfRussellLuo {
    type Store = Counts;
    /// The window, the count and the changes.
    type Report = (u64, u64, u64);
    type Reply = u64;

    fn new(_: u64) -> Self {
        Self::default()
    }

    fn admits(&mut self, now: u64, _: Option<&Counts>) -> bool {
        let window = now / WINDOW;
        if window > self.window {
            self.previous = if window == self.window + 1 {
                self.count
            } else {
                0
            };
            (self.window, self.count, self.changes) = (window, 0, 0);
        }
        if let Some(((of, count, changes), total)) = self.inbox.take() {
            if of == self.window {
                self.count = (self.count + total).saturating_sub(count);
                self.changes -= changes;
            }
        }
        let weighted = self.previous * (WINDOW - now % WINDOW) / WINDOW;
        let admits = weighted + self.count < LIMIT;
        self.count += u64::from(admits);
        self.changes += u64::from(admits);
        if !self.in_progress && now >= self.synced_at + INTERVAL {
            (self.in_progress, self.synced_at) = (true, now);
            self.outbox = Some((window, self.count, self.changes));
        }
        admits
    }

    fn reports(&mut self, _: u64) -> Vec<Self::Report> {
        self.outbox.take().into_iter().collect()
    }

    fn arrive(store: &mut Counts, report: &Self::Report, _: u64) -> u64 {
        let count = store.entry(report.0).or_insert(0);
        *count += report.2;
        // Others' changes are the difference to the count of the report, which contains its changes.
        *count
    }

    fn reply(&mut self, report: &Self::Report, total: u64, _: u64) {
        self.in_progress = false;
        self.inbox = Some((*report, total));
    }

    fn fail(&mut self, _: &Self::Report, _: u64) {
        self.in_progress = false;
    }

    fn counted(store: &Counts) -> &Counts {
        store
    }
}

/// A machine of this crate, with a strict budget.
struct Ours {
    node: Node<FixedWindow>,
    clock: FleetClock,
    next_sync: u64,
}

#[derive(Default)]
struct OurStore {
    record: Record,
    counted: Counts,
}

type OurReport = (Outgoing, u64);

fn window() -> FixedWindow {
    FixedWindow::new(Quota::per(LIMIT, std::time::Duration::from_nanos(WINDOW)))
}

impl Ours {
    fn time(&self, now: u64) -> Tick {
        self.clock.simulate(Tick::from_nanos(now));
        Tick::from_nanos(now)
    }
}

impl Machine for Ours {
    type Store = OurStore;
    type Report = OurReport;
    type Reply = (<FixedWindow as crate::algorithm::Algorithm>::State, usize);

    fn new(number: u64) -> Self {
        let clock = FleetClock::of_this_machine();
        clock.simulate(Tick::from_nanos(START));
        let rules = Rules {
            strict_budget: Some(STRICT),
            nodes: None,
        };
        let mut node = Node::new(window(), rules, &clock, 64).expect("a valid limit");
        node.id = number;
        node.set_time_known();
        Self {
            node,
            clock,
            next_sync: START + number * 7 * MS,
        }
    }

    fn admits(&mut self, now: u64, _: Option<&OurStore>) -> bool {
        let now = self.time(now);
        let quickly = self.node.table.try_decide_hashed(1, now, 1);
        let decided = quickly.map_or_else(
            || self.node.decide_slow(1, || "key".into(), now, 1, false),
            Slow::Decided,
        );
        matches!(decided, Slow::Decided(decision) if !decision.is_denied())
    }

    fn reports(&mut self, now: u64) -> Vec<OurReport> {
        let due = if now < self.next_sync {
            Due::Urgent
        } else {
            self.node.begin_round();
            self.next_sync = now + INTERVAL;
            Due::Round
        };
        let outgoing = self.node.collect(self.time(now), due, usize::MAX);
        let id = self.node.id;
        outgoing.into_iter().map(|report| (report, id)).collect()
    }

    fn arrive(store: &mut OurStore, (outgoing, id): &OurReport, now: u64) -> Self::Reply {
        let now = Tick::from_nanos(now);
        let report = Report {
            node: *id,
            sequence: outgoing.sequence,
            changes: &outgoing.changes,
            present_since: Tick::from_nanos(now.as_nanos() - 500 * MS),
            clocks_differ: false,
        };
        let decider = Decider::new(window()).expect("a valid limit");
        let reported = decider.report(&store.record, now, &report);
        let reported = reported.expect("a readable record");
        if let Some(record) = reported.record {
            store.record = record;
            for change in &*outgoing.changes {
                if let Change::Charge { taken_at, cost } = change {
                    *store
                        .counted
                        .entry(taken_at.last.as_nanos() / WINDOW)
                        .or_insert(0) += cost;
                }
            }
        }
        (reported.state, reported.nodes)
    }

    fn reply(&mut self, (outgoing, _): &OurReport, (state, nodes): Self::Reply, now: u64) {
        let now = self.time(now);
        self.node.adopt(outgoing.hash, now, &state, nodes);
    }

    fn fail(&mut self, (outgoing, _): &OurReport, now: u64) {
        let error = StoreError::new("no reply", true);
        self.node.fail(outgoing.hash, self.time(now), &error);
    }

    fn counted(store: &OurStore) -> &Counts {
        &store.counted
    }
}

/// What went wrong in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Faults {
    /// Costs that were admitted and not counted in their window, nor in another.
    lost: u64,
    /// Costs that were counted and not admitted.
    doubled: u64,
    /// By how much a window exceeded the limit, at most.
    excess: u64,
}

/// A message under way, and what its arrival does.
enum Message<M: Machine> {
    ToStore(M::Report),
    ToMachine(M::Report, M::Reply),
    Failure(M::Report),
}

/// Runs a fleet with eight times the load that is allowed.
fn run<M: Machine>(network: Network, seed: u64) -> Faults {
    let mut random = seed;
    let mut below = |bound: u64| {
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    };
    let mut machines: Vec<M> = (0..MACHINES).map(|number| M::new(1 + number)).collect();
    let (mut store, mut admitted) = (M::Store::default(), Counts::new());
    let mut messages: Vec<(u64, usize, Message<M>)> = Vec::new();
    let first = START / WINDOW;
    let end = START + WINDOWS * WINDOW;
    for at in (START..end + WINDOW).step_by(1_000_000) {
        let is_quiet = at >= end - WINDOW / 2;
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut messages)
            .into_iter()
            .partition(|message| message.0 <= at);
        messages = later;
        for (_, machine, message) in due {
            match message {
                Message::ToStore(report) => {
                    let reply = M::arrive(&mut store, &report, at);
                    let is_lost = network == Network::LosesReplies && !is_quiet && below(3) == 0;
                    let (delay, next) = if is_lost {
                        (80, Message::Failure(report))
                    } else {
                        (1 + below(30), Message::ToMachine(report, reply))
                    };
                    messages.push((at + delay * MS, machine, next));
                }
                Message::ToMachine(report, reply) => machines[machine].reply(&report, reply, at),
                Message::Failure(report) => machines[machine].fail(&report, at),
            }
        }
        for (number, machine) in machines.iter_mut().enumerate() {
            let is_refused = network == Network::Refuses && !is_quiet && below(3) == 0;
            // 320 requests per window of 500 steps, with a limit of 40.
            if !is_quiet && below(500) < 80 {
                let reachable = (!is_refused).then_some(&store);
                if machine.admits(at, reachable) {
                    *admitted.entry(at / WINDOW).or_insert(0) += 1;
                }
            }
            for report in machine.reports(at) {
                let (delay, message) = if is_refused {
                    (1, Message::Failure(report))
                } else {
                    (1 + below(30), Message::ToStore(report))
                };
                messages.push((at + delay * MS, number, message));
            }
        }
    }
    let mut faults = Faults::default();
    // Without the last window, of which some cost may not have been sent yet.
    for window in first..first + WINDOWS - 1 {
        let of = |counts: &Counts| counts.get(&window).copied().unwrap_or(0);
        let (admitted, counted) = (of(&admitted), of(M::counted(&store)));
        faults.lost += admitted.saturating_sub(counted);
        faults.doubled += counted.saturating_sub(admitted);
        faults.excess = faults.excess.max(admitted.saturating_sub(LIMIT));
    }
    faults
}

/// The sum of the faults of many runs, with the largest excess.
fn faults<M: Machine>(network: Network) -> Faults {
    let all = (0..30).map(|seed| run::<M>(network, seed));
    all.fold(Faults::default(), |sum, faults| Faults {
        lost: sum.lost + faults.lost,
        doubled: sum.doubled + faults.doubled,
        excess: sum.excess.max(faults.excess),
    })
}

#[test]
fn a_network_that_fails_makes_this_crate_neither_lose_nor_double_a_cost() {
    for network in [Network::Good, Network::Refuses, Network::LosesReplies] {
        let found = faults::<Ours>(network);
        assert_eq!((found.lost, found.doubled), (0, 0), "{network:?}");
        let bound = (MACHINES - 1) * u64::from(STRICT);
        assert!(found.excess <= bound, "{network:?}: {found:?}");
    }
}

/// A mistake: what could not be sent is discarded.
#[test]
fn the_rule_of_kong_loses_what_it_cannot_send_and_has_no_bound() {
    let found = faults::<Kong>(Network::Good);
    assert_eq!((found.lost, found.doubled), (0, 0), "{found:?}");
    assert!(
        found.excess > (MACHINES - 1) * u64::from(STRICT),
        "{found:?}"
    );
    let found = faults::<Kong>(Network::Refuses);
    assert!(found.lost > 0, "{found:?}");
}

/// Two mistakes: what was not sent at the turn of a window is forgotten, and what was sent without a
/// reply is counted twice.
#[test]
fn the_rule_of_russell_luo_loses_costs_at_the_turn_and_doubles_them_after_a_lost_reply() {
    let found = faults::<SlidingWindowOfRussellLuo>(Network::Good);
    assert!(found.lost > 0, "{found:?}");
    assert_eq!(found.doubled, 0, "{found:?}");
    let found = faults::<SlidingWindowOfRussellLuo>(Network::LosesReplies);
    assert!(found.doubled > 0, "{found:?}");
}
