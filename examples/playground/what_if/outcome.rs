//! What one policy does to the requests.

use std::{cmp::Reverse, collections::VecDeque, time::Duration};

use serde::Serialize;
use tower_throttle::{
    algorithm::{Algorithm, AnyState},
    clock::Tick,
};

use super::requests::{Request, Requests};
use crate::{policy::Policy, sample::millis};

/// Bars of the chart.
const BINS: u64 = 120;
/// Clients that are listed.
const LISTED: usize = 5;
const MILLISECOND: u64 = 1_000_000;

/// Requests by outcome.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) admitted: u64,
    pub(super) queued: u64,
    pub(super) denied: u64,
}

/// What a policy does.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    line: String,
    pub(super) total: Counts,
    bins: Vec<Counts>,
    /// Milliseconds.
    pub(super) longest_wait: u64,
    pub(super) worst: Worst,
    clients: usize,
    pub(super) busiest: Vec<ClientCounts>,
}

/// The most that one client was granted in any period of the policy.
#[derive(Debug, Serialize)]
pub(super) struct Worst {
    pub(super) cost: u64,
    /// Milliseconds.
    period: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct ClientCounts {
    pub(super) client: String,
    #[serde(flatten)]
    pub(super) counts: Counts,
}

/// A client under the policy.
#[derive(Default)]
struct Client {
    /// `None` before the first request.
    state: Option<AnyState>,
    /// The turns of those that wait, the first one first. The state is as of the last one.
    turns: VecDeque<u64>,
    counts: Counts,
    granted: Window,
}

/// The costs that were granted in the last period.
#[derive(Default)]
struct Window {
    recent: VecDeque<(u64, u64)>,
    cost: u64,
    most: u64,
}

/// The length of a bar of the chart, in milliseconds.
pub(super) fn bin(requests: &Requests) -> u64 {
    requests.length().div_ceil(BINS * MILLISECOND)
}

impl Outcome {
    /// Decides about all requests, one after the other.
    pub(super) fn of(policy: &Policy, requests: &Requests) -> Self {
        let algorithm = policy.algorithm();
        let quota = algorithm.quota();
        let period = u64::try_from(quota.period().as_nanos()).unwrap_or(u64::MAX);
        let (start, bin) = (requests.start(), bin(requests) * MILLISECOND);
        let bins = usize::try_from(requests.length().div_ceil(bin)).unwrap_or_default();
        let mut outcome = Self {
            line: policy.line().to_owned(),
            total: Counts::default(),
            bins: vec![Counts::default(); bins],
            longest_wait: 0,
            worst: Worst {
                cost: 0,
                period: millis(quota.period()),
            },
            clients: requests.clients(),
            busiest: Vec::new(),
        };
        let mut clients: Vec<Client> = Vec::new();
        clients.resize_with(requests.clients(), Client::default);
        let mut longest = Duration::ZERO;
        for request in requests.iter() {
            let client = &mut clients[request.client];
            let turn = client.turn(policy, request);
            let wait = turn.map(|turn| Duration::from_nanos(turn - request.at));
            let at = usize::try_from((request.at - start) / bin).unwrap_or_default();
            for counts in [
                &mut outcome.total,
                &mut outcome.bins[at],
                &mut client.counts,
            ] {
                match wait {
                    Some(Duration::ZERO) => counts.admitted += 1,
                    Some(_) => counts.queued += 1,
                    None => counts.denied += 1,
                }
            }
            longest = longest.max(wait.unwrap_or_default());
            if let Some(turn) = turn {
                client.granted.add(turn, request.cost, period);
            }
        }
        outcome.longest_wait = millis(longest);
        outcome.worst.cost = clients
            .iter()
            .map(|client| client.granted.most)
            .max()
            .unwrap_or(0);
        outcome.busiest = busiest(&clients, requests);
        outcome
    }
}

impl Client {
    /// When the request goes on, or `None` if it is denied.
    fn turn(&mut self, policy: &Policy, request: Request) -> Option<u64> {
        let algorithm = policy.algorithm();
        let (queue, max_wait) = policy.queue().unwrap_or_default();
        while self.turns.front().is_some_and(|turn| *turn <= request.at) {
            self.turns.pop_front();
        }
        // Each of those that wait takes its cost when its turn has come, and this one after them.
        let behind = self.turns.back().copied().unwrap_or(request.at);
        let mut at = Tick::from_nanos(behind);
        let state = self.state.get_or_insert_with(|| algorithm.fresh(at));
        if queue == 0 {
            let decision = algorithm.decide(state, at, request.cost);
            return decision.is_admitted().then_some(behind);
        }
        let mut after = state.clone();
        let mut decision = algorithm.decide(&mut after, at, request.cost);
        if let (true, Some(wait)) = (decision.is_denied(), decision.retry_after) {
            at = at.plus(wait);
            decision = algorithm.decide(&mut after, at, request.cost);
        }
        let wait = at.since(Tick::from_nanos(request.at));
        let may_wait =
            self.turns.len() < queue as usize && max_wait.is_none_or(|most| wait <= most);
        if decision.is_denied() || !(wait.is_zero() || may_wait) {
            return None;
        }
        *state = after;
        if !wait.is_zero() {
            self.turns.push_back(at.as_nanos());
        }
        Some(at.as_nanos())
    }
}

impl Window {
    /// Adds a cost that is granted at `at`. The worst of all periods ends with one.
    fn add(&mut self, at: u64, cost: u64, period: u64) {
        self.recent.push_back((at, cost));
        self.cost += cost;
        // Half open: a cost exactly one period old is outside.
        while let Some((first, old)) = self.recent.front() {
            if at.saturating_sub(*first) < period {
                break;
            }
            self.cost -= old;
            self.recent.pop_front();
        }
        self.most = self.most.max(self.cost);
    }
}

/// The clients with the most denials.
fn busiest(clients: &[Client], requests: &Requests) -> Vec<ClientCounts> {
    let mut order: Vec<_> = clients.iter().enumerate().collect();
    order.sort_by_key(|(at, client)| {
        let Counts {
            admitted,
            queued,
            denied,
        } = client.counts;
        (Reverse(denied), Reverse(admitted + queued), *at)
    });
    order.truncate(LISTED);
    let named = order.into_iter().map(|(at, client)| ClientCounts {
        client: requests.name(at),
        counts: client.counts,
    });
    named.collect()
}
