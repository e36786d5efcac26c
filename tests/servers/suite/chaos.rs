//! Faults of a server, and of the network before it, while machines share a limit. Under each one holds:
//! every call ends by its deadline, and fails as the fault lets it; no more is admitted than the limit, and once more
//! what the server forgot; no call is executed twice, and each admission was counted; every machine gets decisions
//! again; and nothing panics or is left behind.

use std::cell::Cell;
use std::sync::Once;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::{Backend, Op};
use tower_throttle::{Decision, Quota, TokenBucket};

use super::{Store, block_on};
use crate::proxy::{Harm, Proxy};

/// What happens to a store, and what its calls may come to meanwhile.
pub(crate) struct Fault<S> {
    pub(crate) name: String,
    pub(crate) harm: Box<dyn Fn(&mut S)>,
    pub(crate) heal: fn(&mut S),
    pub(super) has_harmed: fn(&S) -> bool,
    /// A part of the errors of calls, if some have to fail.
    error: Option<&'static str>,
    /// What was stored before may be lost.
    pub(crate) loses_states: bool,
    /// Where no call waits in vain, it is so late that none fails by it: one that fails is charged and not
    /// admitted, which would hide an admission too many.
    deadline: Duration,
}

impl<S> Fault<S> {
    pub(crate) fn new(
        name: impl Into<String>,
        harm: impl Fn(&mut S) + 'static,
        heal: fn(&mut S),
    ) -> Self {
        Self {
            name: name.into(),
            harm: Box::new(harm),
            heal,
            has_harmed: |_| true,
            error: None,
            loses_states: false,
            deadline: Duration::from_millis(200),
        }
    }

    pub(crate) fn failing(mut self, error: &'static str) -> Self {
        self.error = Some(error);
        self
    }

    pub(crate) fn losing(mut self, loses_states: bool) -> Self {
        self.loses_states = loses_states;
        self
    }

    pub(crate) fn fails_no_call(mut self) -> Self {
        self.deadline = Duration::from_secs(30);
        self
    }
}

pub(crate) const KILLED: &str = "killed, and started when the fault ends";

/// A store on servers, each behind a proxy.
pub(crate) trait Servers: Store {
    fn proxies(&self) -> &[Proxy];

    fn kill(&mut self);

    fn restart(&mut self);

    fn signal(&mut self, name: &str);
}

/// The reply to every second call is harmed.
fn harmed<S: Servers>(harm: Harm) -> Fault<S> {
    let harms = move |store: &mut S| {
        let proxies = store.proxies().iter();
        proxies.for_each(|proxy| proxy.harms_every(harm, 2));
    };
    let heals = |store: &mut S| store.proxies().iter().for_each(Proxy::harms_none);
    let mut fault = Fault::new(format!("{harm:?}"), harms, heals);
    fault.has_harmed = |store| store.proxies().iter().any(|proxy| proxy.harmed() > 0);
    fault
}

/// Calls are executed twice, as by a client that sends them again. Nothing sends a script twice.
pub(crate) fn twice<S: Servers>() -> Fault<S> {
    harmed(Harm::Twice).fails_no_call()
}

/// The faults of all servers, and of the network before them. Whether the store forgets its states if it is killed,
/// and whether another server decides while it is stopped, which may lack the last states.
pub(crate) fn usual<S: Servers>([forgets, fails_over]: [bool; 2]) -> Vec<Fault<S>> {
    let stopped = Fault::new(
        "stopped",
        |it: &mut S| it.signal("STOP"),
        |it| it.signal("CONT"),
    );
    let kills_and_starts = |it: &mut S| {
        it.kill();
        it.restart();
    };
    vec![
        harmed(Harm::Split).fails_no_call(),
        harmed(Harm::Delay(Duration::from_millis(20))).fails_no_call(),
        harmed(Harm::Lost),
        harmed(Harm::Cut),
        harmed(Harm::CutInside),
        harmed(Harm::Reset),
        Fault::new(KILLED, S::kill, S::restart).losing(forgets),
        Fault::new("restarted", kills_and_starts, |_| {})
            .losing(forgets)
            .fails_no_call(),
        if fails_over {
            stopped.losing(true)
        } else {
            stopped.failing("")
        },
    ]
}

const LIMIT: u64 = 50;
const MACHINES: usize = 3;
/// More than a call takes on a busy machine.
const GRACE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(30);

/// What the calls of all machines came to.
#[derive(Default)]
struct Calls {
    admitted: u64,
    failed: u64,
    /// Errors, each once.
    errors: Vec<String>,
    /// The keys that were asked for once, and whether that was admitted since states were lost.
    once: Vec<(String, bool)>,
}

impl Calls {
    /// Calls of all machines in flight at the same time: for the key that they share, and for keys of their own.
    async fn round<L: Backend<str>>(
        &mut self,
        machines: &[L],
        deadline: Duration,
    ) -> Result<(), String> {
        let mut calls = Vec::new();
        for machine in machines {
            for number in 0..10 {
                let key = match number {
                    0 | 1 => format!("once-{}-{}", self.once.len() + calls.len(), number),
                    _ => "key".to_owned(),
                };
                calls.push((machine.apply(&key, Op::Take(1)), key));
            }
        }
        for (call, key) in calls {
            let ended = timeout(deadline + GRACE, call).await;
            let heard = ended.map_err(|_| "a call did not end by its deadline")?;
            let is_admitted = heard.as_ref().is_ok_and(Decision::is_admitted);
            if let Err(error) = &heard {
                let error = error.to_string();
                if !self.errors.contains(&error) {
                    self.errors.push(error);
                }
            }
            if key == "key" {
                self.failed += u64::from(heard.is_err());
                self.admitted += u64::from(is_admitted);
            } else {
                self.once.push((key, is_admitted));
            }
        }
        Ok(())
    }

    fn heard(&self, part: &str) -> bool {
        self.errors.iter().any(|error| error.contains(part))
    }
}

/// Waits until every machine gets a decision.
async fn connected<L: Backend<str>>(machines: &[L]) -> Result<(), String> {
    let begun = Instant::now();
    for machine in machines {
        while machine.apply("key", Op::Peek(0)).await.is_err() {
            if begun.elapsed() > PATIENCE {
                return Err("no decision without a fault".to_owned());
            }
            // The breaker lets a probe through. Tasks that connect go on.
            tokio::task::yield_now().await;
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
    Ok(())
}

impl<S: Store> Fault<S> {
    async fn found(&self) -> Result<(), String> {
        let panics = count_panics();
        let mut store = S::start();
        let quota = Quota::per(LIMIT, Duration::from_secs(100_000_000));
        let bucket = AnyAlgorithm::new(TokenBucket::new(quota));
        let machine = |_| store.limit("chaos", bucket.clone(), self.deadline);
        let machines: Vec<_> = (0..MACHINES).map(machine).collect();
        let mut calls = Calls::default();
        connected(&machines).await?;
        calls.round(&machines, self.deadline).await?;
        (self.harm)(&mut store);
        let forgotten = if self.loses_states {
            calls
                .once
                .iter_mut()
                .for_each(|(_, counts)| *counts = false);
            calls.admitted
        } else {
            0
        };
        calls.errors.clear();
        for _ in 0..4 {
            calls.round(&machines, self.deadline).await?;
        }
        // On a busy machine calls may have timed out before they came to the fault.
        let begun = Instant::now();
        let is_heard = |calls: &Calls| self.error.is_none_or(|error| calls.heard(error));
        while !((self.has_harmed)(&store) && is_heard(&calls)) && begun.elapsed() < PATIENCE {
            std::thread::park_timeout(Duration::from_millis(5));
            calls.round(&machines, self.deadline).await?;
        }
        if !(self.has_harmed)(&store) || !is_heard(&calls) {
            return Err(format!("no harm, or another one: {:?}", calls.errors));
        }
        (self.heal)(&mut store);
        connected(&machines).await?;
        for _ in 0..6 {
            calls.round(&machines, self.deadline).await?;
        }
        let (admitted, failed, bound) = (calls.admitted, calls.failed, LIMIT + forgotten);
        if admitted > bound {
            return Err(format!("{admitted} admitted of {bound}"));
        }
        // What was not admitted was counted for a call that failed.
        if admitted + failed < LIMIT {
            return Err(format!(
                "{admitted} admitted and {failed} failed of {LIMIT}"
            ));
        }
        for (key, counts) in &calls.once {
            let peeked = machines[0].apply(key, Op::Peek(0)).await;
            // A call may be late on a busy machine.
            let Ok(peeked) = peeked else { continue };
            match LIMIT.saturating_sub(peeked.remaining()) {
                0 if *counts => return Err(format!("{key} was admitted and not counted")),
                0 | 1 => {}
                times => return Err(format!("{key} was executed {times} times")),
            }
        }
        drop(machines);
        let is_over = || {
            tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks()
                == 0
        };
        let begun = Instant::now();
        drop(store);
        while !is_over() {
            if begun.elapsed() > PATIENCE {
                return Err("tasks are left".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        match count_panics() - panics {
            0 => Ok(()),
            new => Err(format!("{new} panics")),
        }
    }
}

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// The panics of this thread from the first call on: tokio catches those of tasks.
fn count_panics() -> u64 {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            usual(panic);
        }));
    });
    PANICS.get()
}

pub(crate) fn fault<S: Store>() -> Option<String> {
    S::faults().iter().find_map(|fault| {
        let found = block_on(fault.found());
        found.err().map(|found| format!("{}: {found}", fault.name))
    })
}
