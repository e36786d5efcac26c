//! The requests on which policies are compared.

use crate::setting::{Fault, Traffic, within};

/// How many requests are computed at most, per policy.
pub(super) const MAX_REQUESTS: u64 = 2_000_000;
const MAX_SECONDS: u64 = 7 * 24 * 3_600;

const SECOND: u64 = 1_000_000_000;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Nanoseconds; they do not decrease.
    pub(super) at: u64,
    /// The index of the client.
    pub(super) client: usize,
    pub(super) cost: u64,
}

/// Requests in the order of their times.
#[derive(Debug)]
pub(super) enum Requests {
    /// Made as they are needed.
    Made { traffic: Traffic, seconds: u64 },
    /// Read from a log: the names of the clients, and the requests, at least one.
    Read {
        clients: Vec<String>,
        requests: Vec<Request>,
    },
}

impl Requests {
    pub(super) fn made(traffic: Traffic, seconds: u64) -> Result<Self, Vec<Fault>> {
        traffic.check()?;
        within("seconds", seconds, &(1..=MAX_SECONDS), "seconds").map_err(|fault| vec![fault])?;
        let requests = Self::Made { traffic, seconds };
        let count = requests.count();
        if count > MAX_REQUESTS {
            return Err(vec![Fault::new(
                "seconds",
                format!(
                    "{} requests per second for {seconds} s are {count} requests; \
                     at most {MAX_REQUESTS} are allowed: choose a shorter time or a lower rate",
                    traffic.rate
                ),
            )]);
        }
        Ok(requests)
    }

    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Made { traffic, seconds } => {
                let bursts = (seconds * SECOND).div_ceil(pause(traffic));
                bursts * traffic.burst
            }
            Self::Read { requests, .. } => requests.len() as u64,
        }
    }

    /// The time of the first request.
    pub(super) fn start(&self) -> u64 {
        match self {
            Self::Made { .. } => 0,
            Self::Read { requests, .. } => requests.first().map_or(0, |first| first.at),
        }
    }

    /// The time from the first request to the end, in nanoseconds.
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Made { seconds, .. } => seconds * SECOND,
            Self::Read { requests, .. } => {
                let last = requests.last().map_or(0, |last| last.at);
                last - self.start() + 1
            }
        }
    }

    pub(super) fn clients(&self) -> usize {
        match self {
            Self::Made { traffic, .. } => usize::try_from(traffic.clients).unwrap_or(usize::MAX),
            Self::Read { clients, .. } => clients.len(),
        }
    }

    pub(super) fn name(&self, client: usize) -> String {
        match self {
            Self::Made { .. } => (client + 1).to_string(),
            Self::Read { clients, .. } => clients[client].clone(),
        }
    }

    /// All requests, the first one first.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = Request> + '_> {
        match self {
            Self::Made { traffic, .. } => {
                let clients = self.clients();
                let request = move |(number, client)| Request {
                    at: number / traffic.burst * pause(traffic),
                    client,
                    cost: traffic.cost,
                };
                Box::new((0..self.count()).zip((0..clients).cycle()).map(request))
            }
            Self::Read { requests, .. } => Box::new(requests.iter().copied()),
        }
    }
}

/// Nanoseconds from one burst to the next.
fn pause(traffic: &Traffic) -> u64 {
    traffic.burst * SECOND / traffic.rate
}
