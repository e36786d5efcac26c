//! Faults of a server, and of the network before it, while machines share a limit. Under each one holds:
//! every call ends by its deadline, and fails as the fault lets it; no more is admitted than the limit, and once more
//! what the server forgot; no call is executed twice, and each admission was counted; every machine gets decisions
//! again; and nothing panics or is left behind.

use std::cell::Cell;
use std::fmt::Debug;
use std::sync::Once;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::{Backend, Op};
use tower_throttle::{Decision, Quota, TokenBucket};

use super::{Store, block_on};
use crate::proxy::Harm;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Replies arrive byte by byte.
    Split,
    /// Replies arrive late, but in time.
    Delayed,
    /// Calls are executed twice, as by a client that sends them again.
    Doubled,
    /// Replies do not arrive.
    Lost,
    /// Connections are cut instead of a reply.
    Cut,
    /// Connections are cut in the middle of a reply.
    CutInside,
    /// Connections are reset instead of a reply.
    Reset,
    /// The server is killed, and started when the fault ends.
    Killed,
    /// The server does not run until the fault ends.
    Stopped,
    /// The server is killed and started at once.
    Restarted,
}

impl Fault {
    /// What a proxy does to replies; `None` if it is a fault of the server.
    pub(crate) fn harm(self) -> Option<Harm> {
        match self {
            Self::Lost => Some(Harm::Lost),
            Self::Cut => Some(Harm::Cut),
            Self::CutInside => Some(Harm::CutInside),
            Self::Reset => Some(Harm::Reset),
            Self::Split => Some(Harm::Split),
            Self::Delayed => Some(Harm::Delay(Duration::from_millis(20))),
            Self::Doubled => Some(Harm::Twice),
            Self::Killed | Self::Stopped | Self::Restarted => None,
        }
    }
}

impl Fault {
    pub(super) const ALL: [Self; 10] = [
        Self::Split,
        Self::Delayed,
        Self::Doubled,
        Self::Lost,
        Self::Cut,
        Self::CutInside,
        Self::Reset,
        Self::Killed,
        Self::Stopped,
        Self::Restarted,
    ];

    /// Whether a server without a file forgets its states.
    pub(crate) const fn loses_states(self) -> bool {
        matches!(self, Self::Killed | Self::Restarted)
    }

    /// Whether no call waits in vain.
    const fn fails_no_call(self) -> bool {
        matches!(
            self,
            Self::Split | Self::Delayed | Self::Doubled | Self::Restarted
        )
    }
}

/// A fault that only one kind of server has.
pub(crate) struct OwnFault<S> {
    pub(crate) name: &'static str,
    pub(crate) harm: fn(&mut S),
    pub(crate) heal: fn(&mut S),
    /// A part of the errors of calls meanwhile, or nothing if calls may go on.
    pub(crate) error: &'static str,
    pub(crate) loses_states: bool,
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

/// A fault with what is expected of it.
struct Case<S> {
    harm: Box<dyn FnOnce(&mut S) -> bool>,
    heal: Box<dyn FnOnce(&mut S)>,
    has_harmed: Box<dyn Fn(&S) -> bool>,
    /// Errors that have to be heard.
    error: Option<&'static str>,
    loses_states: bool,
    /// Where no call waits in vain, it is so late that none fails by it: one that fails is charged and not
    /// admitted, which would hide an admission too many.
    deadline: Duration,
}

impl<S: Store> Case<S> {
    fn of(fault: Fault) -> Self {
        let waits = if fault.fails_no_call() { 30_000 } else { 200 };
        // Where another server decides meanwhile, it may lack the last states.
        let fails = fault == Fault::Stopped && !S::loses_states(fault);
        Self {
            harm: Box::new(move |store| store.inflict(fault)),
            heal: Box::new(move |store| store.heal(fault)),
            has_harmed: Box::new(move |store| store.has_harmed(fault)),
            error: fails.then_some(""),
            loses_states: S::loses_states(fault),
            deadline: Duration::from_millis(waits),
        }
    }

    fn of_own(fault: &OwnFault<S>) -> Self {
        let (harm, heal) = (fault.harm, fault.heal);
        Self {
            harm: Box::new(move |store| {
                harm(store);
                true
            }),
            heal: Box::new(heal),
            has_harmed: Box::new(|_| true),
            error: Some(fault.error).filter(|error| !error.is_empty()),
            loses_states: fault.loses_states,
            deadline: Duration::from_millis(200),
        }
    }

    async fn fault(self) -> Result<(), String> {
        let panics = count_panics();
        let mut store = S::start();
        let quota = Quota::per(LIMIT, Duration::from_secs(100_000_000));
        let bucket = AnyAlgorithm::new(TokenBucket::new(quota));
        let machine = |_| store.limit("chaos", bucket.clone(), self.deadline);
        let machines: Vec<_> = (0..MACHINES).map(machine).collect();
        let mut calls = Calls::default();
        connected(&machines).await?;
        calls.round(&machines, self.deadline).await?;
        if !(self.harm)(&mut store) {
            return Ok(());
        }
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
        if !is_heard(&calls) {
            return Err(format!("calls failed otherwise: {:?}", calls.errors));
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

fn found<S: Store>(case: Case<S>, name: impl Debug) -> Option<String> {
    let found = block_on(case.fault());
    found.err().map(|found| format!("{name:?}: {found}"))
}

pub(crate) fn fault<S: Store>() -> Option<String> {
    Fault::ALL
        .into_iter()
        .find_map(|fault| found(Case::<S>::of(fault), fault))
        .or_else(|| {
            let own = S::own_faults();
            own.iter()
                .find_map(|fault| found(Case::of_own(fault), fault.name))
        })
}
