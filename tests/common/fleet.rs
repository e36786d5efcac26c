//! A fleet of processes that share limits in a real server, and what they admitted.
//!
//! Every process runs [`run_machine`] with all [`cases`] at once, each of which is a limit of its own.

use std::{
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use tokio::task::JoinSet;
use tower_throttle::{
    AnyAlgorithm, Decision, FixedWindow, Gcra, LeakyBucket, Quota, SlidingGrid, SlidingLog,
    SlidingWindow, TokenBucket, WarmUp,
    store::{
        Backend,
        cas::{CasStore, postgres::PostgreSql},
        redis::Redis,
        synced::{Synced, SyncedBuilder},
    },
};

#[path = "../../src/store/fleet/simulation/promise.rs"]
#[expect(dead_code, reason = "shared with the simulation")]
mod promise;

use self::promise::Promise;

/// Units per second, and the burst of buckets.
pub(crate) const LIMIT: u64 = 100;
const SECOND: u64 = 1_000_000_000;
/// The time per unit.
const UNIT: u64 = SECOND / LIMIT;
/// By how much the clocks of two processes may differ: each is as late as its quickest reply was.
const CLOCKS: u64 = SECOND / 50;
/// The budget of the cases with one.
const BUDGET: u32 = 5;
/// The variable that tells a process what to do.
const JOB: &str = "TOWER_THROTTLE_FLEET";

/// Which cases a fleet runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "the tests and the comparison use one each")]
pub(crate) enum Extent {
    /// A few algorithms, at twice the limit.
    Short,
    /// Every algorithm, at loads from half the limit to ten times.
    Full,
}

/// One limit, and the load on it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    algorithm: AnyAlgorithm,
    promise: Promise,
    /// Tenths of the limit.
    pub(crate) load: u64,
    /// Whether one machine gets four fifths of the load.
    pub(crate) is_skewed: bool,
    pub(crate) strict: Option<u32>,
}

/// What a fleet does.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) url: String,
    pub(crate) extent: Extent,
    pub(crate) machines: u64,
    pub(crate) interval: Duration,
    pub(crate) seconds: u64,
}

/// What the machines admitted in one case.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    pub(crate) case: Case,
    pub(crate) total: u64,
    /// By how many units the promise of the algorithm was exceeded.
    pub(crate) excess: u64,
    /// By how many units it may be.
    pub(crate) bound: u64,
}

/// All cases, in the same order in every process.
pub(crate) fn cases(extent: Extent) -> Vec<Case> {
    let quota = Quota::per_second(LIMIT);
    let bucket = Promise::Bucket(LIMIT, UNIT);
    let any = [
        ("TokenBucket", TokenBucket::new(quota).into(), bucket),
        (
            "FixedWindow",
            FixedWindow::new(quota).into(),
            Promise::Window(LIMIT, SECOND),
        ),
        (
            "SlidingLog",
            SlidingLog::new(quota).into(),
            Promise::Interval(LIMIT, SECOND),
        ),
        ("LeakyBucket", LeakyBucket::new(quota).into(), bucket),
        (
            "SlidingWindow",
            SlidingWindow::new(quota).into(),
            Promise::Weighted(LIMIT, SECOND),
        ),
        (
            "SlidingGrid",
            SlidingGrid::new(quota).cells(10).into(),
            Promise::Interval(LIMIT, SECOND / 10 * 9),
        ),
        ("Gcra", Gcra::new(quota).into(), bucket),
        (
            "WarmUp",
            WarmUp::new(quota, Duration::from_secs(1)).into(),
            // A unit takes at least the time of a warm one, and none is stored.
            Promise::Bucket(1, UNIT),
        ),
    ];
    let (algorithms, loads): (usize, &[u64]) = match extent {
        Extent::Short => (3, &[20]),
        Extent::Full => (any.len(), &[5, 10, 20, 100]),
    };
    let mut cases = Vec::new();
    for (name, algorithm, promise) in any.into_iter().take(algorithms) {
        let case = |load, is_skewed, strict| Case {
            name,
            algorithm: AnyAlgorithm::clone(&algorithm),
            promise,
            load,
            is_skewed,
            strict,
        };
        for load in loads {
            cases.push(case(*load, false, None));
            cases.push(case(*load, true, None));
        }
        cases.push(case(20, false, Some(BUDGET)));
    }
    cases
}

impl Case {
    /// By how many units `machines` may exceed the promise.
    fn bound(&self, machines: u64, interval: Duration) -> u64 {
        let others = machines - 1;
        if let Some(strict) = self.strict {
            return others * u64::from(strict);
        }
        // A machine admits the limit before it learns of others, and its share when they left nothing. A
        // share is at least one unit.
        let (limit, between) = match self.promise {
            Promise::Bucket(capacity, unit) => {
                let longest = interval.clamp(Duration::from_millis(50), Duration::from_secs(1));
                let nanos = u64::try_from((interval + longest).as_nanos()).expect("short");
                (capacity, nanos.div_ceil(unit))
            }
            _ => (LIMIT, 0),
        };
        others * (limit + between) + limit.max(machines)
    }

    /// The requests of one machine up to this many microseconds after the start.
    fn requests(&self, machine: u64, machines: u64, micros: u64) -> u64 {
        let all = LIMIT * self.load * micros / 10;
        let part = match (self.is_skewed, machine) {
            (false, _) => all / machines,
            (true, 0) => all / 5 * 4,
            (true, _) => all / 5 / (machines - 1),
        };
        part / 1_000_000
    }
}

/// By how many units the promise was exceeded, whatever the clocks of the machines showed.
fn certain_excess(promise: Promise, costs: &mut Vec<(u64, u64)>) -> u64 {
    match promise {
        Promise::Window(_, length) => {
            // A machine whose clock is late may have counted it in the next window.
            costs.retain(|(at, _)| at % length + CLOCKS < length);
            promise.excess(costs)
        }
        Promise::Interval(limit, length) => Promise::Interval(limit, length - CLOCKS).excess(costs),
        Promise::Weighted(limit, length) => Promise::Weighted(limit, length - CLOCKS).excess(costs),
        Promise::Bucket(_, unit) => {
            let refilled = CLOCKS.div_ceil(unit);
            promise.excess(costs).saturating_sub(refilled)
        }
        Promise::None => 0,
    }
}

/// Microseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "processes share no other clock")]
fn micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.expect("a clock that is set").as_micros()).expect("this century")
}

/// Runs a fleet whose processes are started by `command`, and call [`run_machine`].
pub(crate) fn run_fleet(job: &Job, command: impl Fn() -> Command) -> Vec<Admitted> {
    let Job {
        url,
        extent,
        machines,
        interval,
        seconds,
    } = job;
    let begin = micros() + 1_500_000;
    let extent_name = match extent {
        Extent::Short => "short",
        Extent::Full => "full",
    };
    let interval_micros = interval.as_micros();
    let processes: Vec<_> = (0..*machines)
        .map(|machine| {
            let text = format!(
                "{url} {extent_name} {machine} {machines} {interval_micros} {seconds} {begin}"
            );
            let mut command = command();
            command.env(JOB, text).stdout(Stdio::piped());
            command.spawn().expect("it starts")
        })
        .collect();
    let cases = cases(*extent);
    let mut moments = vec![Vec::new(); cases.len()];
    for process in processes {
        let output = process.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        for line in text
            .lines()
            .filter_map(|line| line.strip_prefix("admitted "))
        {
            let (case, moment) = line.split_once(' ').expect("two numbers");
            let case: usize = case.parse().expect("a number");
            moments[case].push((moment.parse().expect("a number"), 1));
        }
    }
    let admitted = cases.into_iter().zip(moments).map(|(case, mut moments)| {
        moments.sort_unstable();
        Admitted {
            total: moments.len() as u64,
            excess: certain_excess(case.promise, &mut moments),
            bound: case.bound(*machines, *interval),
            case,
        }
    });
    admitted.collect()
}

/// The work of one process, if it was started by [`run_fleet`]. Returns false if it was not.
pub(crate) fn run_machine() -> bool {
    let Ok(job) = std::env::var(JOB) else {
        return false;
    };
    let words: Vec<_> = job.split(' ').collect();
    let [url, extent, numbers @ ..] = &*words else {
        panic!("{job}");
    };
    let numbers: Vec<u64> = numbers
        .iter()
        .map(|number| number.parse().expect("a number"))
        .collect();
    let &[machine, machines, interval, seconds, begin] = &*numbers else {
        panic!("{job}");
    };
    let extent = match *extent {
        "short" => Extent::Short,
        _ => Extent::Full,
    };
    let part = Part {
        extent,
        machine,
        machines,
        interval: Duration::from_micros(interval),
        seconds,
        begin,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let admitted = runtime.block_on(async {
        if url.starts_with("redis") {
            part.run(Redis::open(url).expect("a URL")).await
        } else {
            part.run(PostgreSql::open(url).expect("a URL")).await
        }
    });
    println!();
    for (case, moment) in admitted {
        println!("admitted {case} {moment}");
    }
    true
}

/// The part of one machine.
struct Part {
    extent: Extent,
    machine: u64,
    machines: u64,
    interval: Duration,
    seconds: u64,
    begin: u64,
}

impl Part {
    async fn run<S: CasStore + Clone>(&self, store: S) -> Vec<(usize, u64)> {
        let cases = cases(self.extent);
        let limits: Vec<_> = cases
            .iter()
            .enumerate()
            .map(|(number, case)| self.limit(store.clone(), number, case))
            .collect();
        let mut asked = vec![0; cases.len()];
        let (mut admitted, mut waiting) = (Vec::new(), JoinSet::new());
        let mut turns = tokio::time::interval(Duration::from_millis(1));
        loop {
            turns.tick().await;
            let passed = micros().saturating_sub(self.begin);
            if passed >= self.seconds * 1_000_000 {
                break;
            }
            for (number, (case, limit)) in cases.iter().zip(&limits).enumerate() {
                let requests = case.requests(self.machine, self.machines, passed);
                for _ in asked[number]..requests {
                    let decided = limit.decide("key", 1);
                    if case.strict.is_some() {
                        waiting.spawn(async move { (number, decided.await) });
                        continue;
                    }
                    if let Some(decision) = decided.await.ok().filter(Decision::is_admitted) {
                        admitted.push((number, decision.receipt().moment()));
                    }
                }
                asked[number] = requests;
            }
        }
        // A request fails if there was no exchange within the deadline.
        for (number, decided) in waiting.join_all().await {
            if let Some(decision) = decided.ok().filter(Decision::is_admitted) {
                admitted.push((number, decision.receipt().moment()));
            }
        }
        let mut closing = JoinSet::new();
        for limit in limits {
            closing.spawn(async move { limit.close().await });
        }
        closing.join_all().await;
        admitted
    }

    fn limit<S: CasStore>(&self, store: S, number: usize, case: &Case) -> Synced<S, AnyAlgorithm> {
        let mut builder = SyncedBuilder::new(store)
            .interval(self.interval)
            .prefix(format!("fleet{}", self.begin))
            .capacity(100);
        if let Some(strict) = case.strict {
            builder = builder.strict_budget(strict);
        }
        let limit = builder.build(&format!("case{number}"), case.algorithm.clone());
        limit.expect("a limit")
    }
}
