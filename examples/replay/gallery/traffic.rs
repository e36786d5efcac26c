//! The kinds of traffic.

/// Milliseconds that a picture shows.
pub(super) const LENGTH: u64 = 4_000;

/// Requests of one unit, and what clients do when they are denied.
pub(super) struct Traffic {
    /// The name of its file.
    pub(super) file: &'static str,
    pub(super) title: &'static str,
    pub(super) says: &'static str,
    /// The times of the requests in milliseconds, and the client of each, 0 or 1.
    pub(super) requests: fn() -> Vec<(u64, usize)>,
    /// After so many milliseconds a denied client tries again.
    pub(super) retry: Option<u64>,
}

pub(super) const TRAFFIC: [Traffic; 6] = [
    Traffic {
        file: "steady",
        title: "Steady, 20 per second",
        says: "20 requests per second, evenly.",
        requests: || (0..80).map(|n| (n * 50, 0)).collect(),
        retry: None,
    },
    Traffic {
        file: "burst",
        title: "Burst at a window edge",
        says: "10 requests at the end of one second, 20 at the start of the next, then 10.",
        requests: || {
            let first = (0..10).map(|n| 800 + n * 20);
            let second = (0..20).map(|n| 1_000 + n * 10);
            let third = (0..10).map(|n| 3_000 + n * 20);
            first.chain(second).chain(third).map(|at| (at, 0)).collect()
        },
        retry: None,
    },
    Traffic {
        file: "on_off",
        title: "On and off",
        says: "20 requests in half a second, then silence, three times.",
        requests: || {
            let cycles = [200, 1_500, 2_800].into_iter();
            let requests = cycles.flat_map(|start| (0..20).map(move |n| start + n * 25));
            requests.map(|at| (at, 0)).collect()
        },
        retry: None,
    },
    Traffic {
        file: "ramp",
        title: "Ramp, 0 to 30 per second",
        says: "More and more requests, up to 30 per second.",
        // Request n comes at the time t with t * t = n * 16 s * s / 60.
        requests: || {
            let time = |n: u64| (n * LENGTH * LENGTH / 60).isqrt();
            (0..60).map(|n| (time(n), 0)).collect()
        },
        retry: None,
    },
    Traffic {
        file: "two_clients",
        title: "Two clients, one key each",
        says: "One client sends 20 requests per second, the other 5. Each has its own limit.",
        requests: || {
            let greedy = (0..80).map(|n| (n * 50, 0));
            let modest = (0..20).map(|n| (70 + n * 200, 1));
            let mut requests: Vec<_> = greedy
                .chain(modest)
                .filter(|(at, _)| *at < LENGTH)
                .collect();
            requests.sort_unstable();
            requests
        },
        retry: None,
    },
    Traffic {
        file: "retry_storm",
        title: "Retry storm",
        says: "30 requests in a tenth of a second; a denied client tries again every 300 ms.",
        requests: || (0..30).map(|n| (500 + n * 100 / 30, 0)).collect(),
        retry: Some(300),
    },
];
