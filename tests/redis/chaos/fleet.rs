//! Machines under load, and the log of their decisions.
//!
//! Four machines share two limits, each by a connection of its own. Half of the calls use a new key
//! each, so that the value at the key shows how often its one call was executed. The other calls use
//! one hot key, whose limit is exhausted. The last machine has a fallback for the hot key.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    task::{JoinHandle, JoinSet},
    time::{Instant, MissedTickBehavior},
};
use tower_throttle::store::{Fallback, redis::Redis};
use tower_throttle::{Decision, FixedWindow, Limiter, Quota, StoreError, store::Backend};

use super::planted::{Plant, Subject};
use crate::faults::Local;

pub(super) const DEADLINE: Duration = Duration::from_millis(500);
pub(super) const MACHINES: usize = 4;
/// The limit of the hot key, and that of the fallback of the last machine.
pub(super) const HOT: u64 = 200;
pub(super) const SHARE: u64 = HOT / 4;
/// Each machine makes a burst of calls per interval.
const TICK: Duration = Duration::from_millis(10);
/// The longest wait for a condition. A sentinel that was late does nothing for 30 seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// The load, and how long a fault lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Calls of each kind per burst.
    pub(super) calls: usize,
    pub(super) fault: Duration,
}

/// A finished call.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) machine: usize,
    /// Its own key, or `None` for the hot one.
    pub(super) key: Option<String>,
    pub(super) began: Instant,
    pub(super) took: Duration,
    pub(super) heard: Result<Decision, StoreError>,
}

impl Call {
    pub(super) fn is_hot(&self) -> bool {
        self.key.is_none()
    }

    pub(super) fn is_admitted(&self) -> bool {
        self.heard.as_ref().is_ok_and(Decision::is_admitted)
    }

    /// Decided by the fallback.
    pub(super) fn is_covered(&self) -> bool {
        self.heard.is_ok_and_limit(SHARE)
    }

    pub(super) fn ended(&self) -> Instant {
        self.began + self.took
    }
}

trait HasLimit {
    fn is_ok_and_limit(&self, limit: u64) -> bool;
}

impl HasLimit for Result<Decision, StoreError> {
    fn is_ok_and_limit(&self, limit: u64) -> bool {
        self.as_ref().is_ok_and(|decision| decision.limit == limit)
    }
}

/// What happened so far.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) calls: Vec<Call>,
    /// Timers of [`DEADLINE`]: when they began and how long they took. They show how late everything
    /// is on a busy machine.
    pub(super) timers: Vec<(Instant, Duration)>,
}

#[derive(Debug)]
enum Hot {
    Plain(Subject),
    StandsIn(Fallback<Subject, Local>),
}

/// A machine that shares the limits.
#[derive(Debug)]
pub(super) struct Machine {
    each: Subject,
    hot: Hot,
}

impl Machine {
    fn new(number: usize, redis: Redis, plant: Plant) -> Self {
        let redis = redis.deadline(plant.deadline()).without_deny_cache();
        let window = |limit| FixedWindow::new(Quota::per_day(limit)).anchored();
        let hot = Subject::new(redis.limiter(plant.hot(number), window(HOT)), plant);
        let stands_in = number == MACHINES - 1;
        Self {
            each: Subject::new(redis.limiter("each", window(1_000)), plant),
            hot: if stands_in {
                let share = FixedWindow::new(Quota::per_day(SHARE)).anchored();
                Hot::StandsIn(Fallback::new(hot, Local(Limiter::new(share))))
            } else {
                Hot::Plain(hot)
            },
        }
    }

    async fn ask(&self, key: Option<&str>) -> Result<Decision, StoreError> {
        match (key, &self.hot) {
            (Some(key), _) => self.each.decide(key, 1).await,
            (None, Hot::Plain(limiter)) => limiter.decide("key", 1).await,
            (None, Hot::StandsIn(limiter)) => limiter.decide("key", 1).await,
        }
    }

    fn is_covering(&self) -> bool {
        match &self.hot {
            Hot::Plain(_) => false,
            Hot::StandsIn(limiter) => limiter.is_on_secondary(),
        }
    }

    fn covered(&self) -> u64 {
        match &self.hot {
            Hot::Plain(_) => 0,
            Hot::StandsIn(limiter) => limiter.secondary_calls(),
        }
    }
}

/// The machines, their load, and the times of the fault.
///
/// It has a runtime of its own, on whose threads panics are counted. Faults are caused from other
/// threads.
#[derive(Debug)]
pub(crate) struct Fleet {
    runtime: Runtime,
    machines: Vec<Arc<Machine>>,
    load: Vec<JoinHandle<()>>,
    stops: Arc<AtomicBool>,
    log: Arc<Mutex<Log>>,
    scale: Scale,
    panics: u64,
    pub(super) ended: Option<Instant>,
    /// When stored data was last lost, and how often.
    pub(super) lost: Option<Instant>,
    pub(super) losses: u64,
}

impl Fleet {
    /// Starts the load, and waits until every machine gets replies.
    pub(super) fn start(scale: Scale, plant: Plant, connect: &dyn Fn() -> Redis) -> Self {
        count_panics();
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name(THREADS)
            .enable_all()
            .build()
            .expect("a runtime");
        let machines: Vec<_> = (0..MACHINES)
            .map(|number| Arc::new(Machine::new(number, connect(), plant)))
            .collect();
        let stops = Arc::new(AtomicBool::new(false));
        let log: Arc<Mutex<Log>> = Arc::default();
        let load = machines.iter().enumerate().map(|(number, machine)| {
            let (machine, stops) = (Arc::clone(machine), Arc::clone(&stops));
            let (log, calls) = (Arc::clone(&log), scale.calls);
            runtime.spawn(offer(number, machine, calls, stops, log))
        });
        let load = load.collect();
        let fleet = Self {
            runtime,
            machines,
            load,
            stops,
            log,
            scale,
            panics: PANICS.load(Ordering::Relaxed),
            ended: None,
            lost: None,
            losses: 0,
        };
        fleet.until("every machine gets replies", |fleet| {
            fleet.is_answered_since(None) && fleet.with_log(|log| log.calls.len() >= 200)
        });
        fleet
    }

    pub(super) fn with_log<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(&self.log.lock().expect("a log"))
    }

    /// Whether every machine got a reply to a call that began after `since`.
    pub(super) fn is_answered_since(&self, since: Option<Instant>) -> bool {
        self.with_log(|log| {
            (0..MACHINES).all(|machine| {
                log.calls.iter().rev().any(|call| {
                    call.machine == machine
                        && call.heard.is_ok()
                        && !call.is_covered()
                        && since.is_none_or(|since| call.began > since)
                })
            })
        })
    }

    /// How many calls failed with an error that contains this text.
    pub(super) fn heard(&self, text: &str) -> u64 {
        let has = |call: &&Call| match &call.heard {
            Ok(_) => false,
            Err(error) => error.to_string().contains(text),
        };
        self.with_log(|log| log.calls.iter().filter(has).count() as u64)
    }

    /// The percentage of calls with keys of their own, begun after `since`, that got a reply.
    #[cfg(feature = "redis-cluster")]
    pub(super) fn answered_since(&self, since: Instant) -> usize {
        self.with_log(|log| {
            let asked = log.calls.iter();
            let asked = asked.filter(|call| !call.is_hot() && call.began > since);
            let (answered, failed): (Vec<_>, Vec<_>) = asked.partition(|call| call.heard.is_ok());
            answered.len() * 100 / (answered.len() + failed.len()).max(1)
        })
    }

    /// Waits for an effect of the fault under load.
    pub(super) fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < PATIENCE, "timed out waiting until {what}");
            thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// Repeats an action at an interval while the fault lasts.
    pub(super) fn lasts_with(&self, every: Duration, again: impl FnMut()) {
        Self::goes_on(self.scale.fault, every, again);
    }

    fn goes_on(span: Duration, every: Duration, mut again: impl FnMut()) {
        let begun = Instant::now();
        while begun.elapsed() < span {
            again();
            let next = Instant::now() + every;
            while let Some(left) = next.checked_duration_since(Instant::now()) {
                thread::park_timeout(left);
            }
        }
    }

    /// Waits while the fault lasts, under load.
    pub(super) fn lasts(&self) {
        self.lasts_for(self.scale.fault);
    }

    #[expect(
        clippy::unused_self,
        reason = "a method of the fleet, whose load continues"
    )]
    pub(super) fn lasts_for(&self, span: Duration) {
        Self::goes_on(span, Duration::from_millis(5), || {});
    }

    pub(super) const fn span(&self) -> Duration {
        self.scale.fault
    }

    /// Records that servers have lost their data.
    pub(super) fn loses(&mut self) {
        self.losses += 1;
        self.lost = Some(Instant::now());
    }

    /// Records that the fault has ended: recovery is timed from now.
    pub(super) fn ends(&mut self) {
        self.ended = Some(Instant::now());
    }

    /// Continues the load for a while after the fault, then stops it.
    pub(super) fn calms_down(&mut self, tail: Duration) {
        let ended = *self.ended.get_or_insert_with(Instant::now);
        self.until("the tail is over", |_| ended.elapsed() >= tail);
        self.stops.store(true, Ordering::Relaxed);
        for load in self.load.drain(..) {
            let over = async { tokio::time::timeout(PATIENCE, load).await };
            let over = self.runtime.block_on(over);
            over.expect("all calls end").expect("the load ends");
        }
    }

    pub(super) fn covered(&self) -> u64 {
        self.machines.iter().map(|machine| machine.covered()).sum()
    }

    /// Whether a fallback still decides a second after the load.
    pub(super) fn is_covering_on(&self) -> bool {
        let begun = Instant::now();
        let Some(machine) = self.machines.last() else {
            return false;
        };
        while machine.is_covering() && begun.elapsed() < Duration::from_secs(1) {
            let _ = self.runtime.block_on(machine.ask(None));
        }
        machine.is_covering()
    }

    pub(super) fn panics(&self) -> u64 {
        PANICS.load(Ordering::Relaxed) - self.panics
    }

    /// How many tasks are left. Those above `allowed` get some seconds to end.
    pub(super) fn tasks(&self, allowed: usize) -> usize {
        let metrics = self.runtime.metrics();
        settled(allowed, || metrics.num_alive_tasks())
    }

    /// Drops the machines. Their tasks may be left.
    pub(super) fn goes_away(&mut self) {
        self.machines.clear();
    }
}

/// The last count. It gets some seconds to fall to `allowed`.
pub(super) fn settled(allowed: usize, count: impl Fn() -> usize) -> usize {
    let begun = Instant::now();
    loop {
        let now = count();
        if now <= allowed || begun.elapsed() > Duration::from_secs(8) {
            return now;
        }
        thread::park_timeout(Duration::from_millis(5));
    }
}

async fn offer(
    number: usize,
    machine: Arc<Machine>,
    calls: usize,
    stops: Arc<AtomicBool>,
    log: Arc<Mutex<Log>>,
) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut tasks = JoinSet::new();
    let mut asked = 0_u64;
    while !stops.load(Ordering::Relaxed) {
        ticks.tick().await;
        let timer = Arc::clone(&log);
        tasks.spawn(async move {
            let began = Instant::now();
            tokio::time::sleep(DEADLINE).await;
            let took = began.elapsed();
            timer.lock().expect("a log").timers.push((began, took));
        });
        for _ in 0..calls {
            asked += 1;
            for key in [Some(format!("{number}-{asked}")), None] {
                let (machine, log) = (Arc::clone(&machine), Arc::clone(&log));
                tasks.spawn(async move {
                    let began = Instant::now();
                    let heard = machine.ask(key.as_deref()).await;
                    let took = began.elapsed();
                    log.lock().expect("a log").calls.push(Call {
                        machine: number,
                        key,
                        began,
                        took,
                        heard,
                    });
                });
            }
        }
        while tasks.try_join_next().is_some() {}
    }
    while tasks.join_next().await.is_some() {}
}

/// The name of the threads on which panics are counted.
const THREADS: &str = "chaos";
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts panics by the panic hook, because tokio catches those of tasks.
fn count_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if thread::current().name() == Some(THREADS) {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            if !super::planted::is_planted(panic) {
                usual(panic);
            }
        }));
    });
}

/// How often the call of each key was executed, by the values in the servers.
pub(super) fn charges(servers: &[&crate::redis_server::RedisServer]) -> HashMap<String, u64> {
    let script = "
        local told = {}
        for _, key in ipairs(redis.call('KEYS', '{throttle:*')) do
            local value = redis.pcall('GET', key)
            if type(value) == 'string' and #value > 8 then
                told[#told + 1] = string.match(key, '^[^}]*}')
                told[#told + 1] = string.format('%.0f', (struct.unpack('<d', value, #value - 7)))
            end
        end
        return told";
    let mut charges = HashMap::new();
    for server in servers {
        let told: Vec<(String, u64)> = redis::cmd("EVAL")
            .arg(script)
            .arg(0)
            .query(&mut server.connection())
            .expect("the values of all keys");
        for (key, used) in told {
            *charges.entry(key).or_default() += used;
        }
    }
    charges
}
