//! The effects of a fault, checked against the promises.

use std::{fmt, time::Duration};

use tokio::time::Instant;

use super::fleet::{Call, DEADLINE, Fleet, HOT, Log, MACHINES, SHARE, charges, settled};
use crate::redis_server::RedisServer;

/// The most that a call may take beyond its deadline and a timer beside it.
const GRACE: Duration = Duration::from_millis(500);
/// If timers are later than this, the machine is too busy to say what a late call means.
const BUSY: Duration = Duration::from_millis(20);
/// The longest recovery.
const RECOVERY: Duration = Duration::from_secs(1);
/// Load after that.
const TAIL: Duration = Duration::from_millis(500);

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// The fault happened at all.
    Happened,
    /// No call took longer than its deadline.
    Deadline,
    /// Every admission was counted.
    Charges,
    /// No call was executed twice.
    Once,
    /// At most the limit was admitted, once more per loss of data.
    Limit,
    /// Every machine gets replies within a second of the end, and from then on.
    Recovery,
    /// The fallback no longer decides, and never covered a permanent error.
    StandIn,
    /// Nothing panicked.
    Panics,
    /// No task is left behind.
    Tasks,
    /// No connection is left behind.
    Connections,
    /// Calls that the fault of one server did not concern got replies.
    #[cfg(feature = "redis-cluster")]
    Others,
}

/// The servers at the end, and the expectations about a fault.
pub(crate) struct Evidence<'a> {
    /// The servers that hold the keys.
    pub(crate) servers: Vec<&'a RedisServer>,
    /// How often the fault happened, in its own unit.
    pub(crate) happened: u64,
    pub(crate) what: &'static str,
    /// Tasks that a connected machine may have.
    pub(crate) tasks: usize,
    /// Clients of each server besides the machines.
    pub(crate) others: usize,
    /// How long after the end every machine gets replies again.
    pub(crate) recovery: Duration,
}

impl<'a> Evidence<'a> {
    pub(crate) fn new(server: &'a RedisServer, happened: u64, what: &'static str) -> Self {
        Self {
            servers: vec![server],
            happened,
            what,
            tasks: 1,
            others: 0,
            recovery: RECOVERY,
        }
    }
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    fault: &'static str,
    happened: String,
    calls: usize,
    admitted: usize,
    failed: usize,
    charged: u64,
    covered: u64,
    /// Of these, calls while the machine was not busy.
    covered_idle: u64,
    worst: Duration,
    recovered: Option<Duration>,
    pub(crate) broken: Vec<(Check, String)>,
}

impl Row {
    /// Ends the load and checks everything.
    pub(super) fn of(fault: &'static str, mut fleet: Fleet, evidence: &Evidence<'_>) -> Self {
        fleet.calms_down(evidence.recovery + TAIL);
        let mut broken = Vec::new();
        let mut says = |check: Check, is_so: bool, text: String| {
            if is_so {
                broken.push((check, text));
            }
        };
        let (happened, what) = (evidence.happened, evidence.what);
        says(Check::Happened, happened == 0, format!("no {what}"));

        let covering = fleet.is_covering_on();
        says(
            Check::StandIn,
            covering,
            "the fallback still decides".to_owned(),
        );
        let charges = charges(&evidence.servers);
        let charged = |key: &str| charges.get(key).copied().unwrap_or(0);
        let hot_charged = charged("{throttle:hot:key}");

        let row = fleet.with_log(|log| {
            let since = fleet.lost;
            let counts = |call: &&Call| {
                call.is_admitted()
                    && !call.is_covered()
                    && since.is_none_or(|since| call.began > since)
            };
            let mut missing = 0;
            let mut twice = 0;
            for call in &log.calls {
                let Some(key) = &call.key else { continue };
                let used = charged(&format!("{{throttle:each:{key}}}"));
                missing += u64::from(counts(&call) && used == 0);
                twice += u64::from(used > 1);
            }
            let hot = log.calls.iter().filter(|call| call.is_hot());
            let hot_counted = hot.clone().filter(counts).count() as u64;
            missing += hot_counted.saturating_sub(hot_charged);
            says(Check::Charges, missing > 0, format!("{missing} lost"));
            says(Check::Once, twice > 0, format!("{twice} executed twice"));

            let admitted = hot.filter(|call| call.is_admitted());
            let (alone, together): (Vec<_>, Vec<_>) = admitted.partition(|call| call.is_covered());
            let (alone, together) = (alone.len() as u64, together.len() as u64);
            let over = together > HOT * (1 + fleet.losses) || alone > SHARE;
            let text = format!("{together} of {HOT}, {alone} of {SHARE} alone");
            says(Check::Limit, over, text);

            let (worst, late) = worst(log);
            let text = format!("{late:?} later than a timer");
            says(Check::Deadline, late > GRACE, text);
            let covered = log.calls.iter().filter(|call| call.is_covered());
            let covered_idle = covered.filter(|call| !is_busy(log, call)).count() as u64;
            let recovered = recovery(&fleet, log, evidence.recovery);
            let text = format!("{recovered:?}");
            let is_late =
                recovered.is_err() || recovered.as_ref().is_ok_and(|it| *it > evidence.recovery);
            says(Check::Recovery, is_late, text);

            Self {
                fault,
                happened: format!("{happened} {what}"),
                calls: log.calls.len(),
                admitted: log.calls.iter().filter(|call| call.is_admitted()).count(),
                failed: log.calls.iter().filter(|call| call.heard.is_err()).count(),
                charged: charges.values().sum(),
                covered: fleet.covered(),
                covered_idle,
                worst,
                recovered: recovered.ok(),
                broken: Vec::new(),
            }
        });

        let panics = fleet.panics();
        says(Check::Panics, panics > 0, format!("{panics} panics"));
        let allowed = MACHINES * evidence.tasks;
        let tasks = fleet.tasks(allowed);
        says(Check::Tasks, tasks > allowed, format!("{tasks} tasks"));
        for server in &evidence.servers {
            let allowed = MACHINES + evidence.others;
            let open = settled(allowed, || clients(server));
            let text = format!("{open} connections to one server");
            says(Check::Connections, open > allowed, text);
        }
        fleet.goes_away();
        let left = fleet.tasks(0);
        says(Check::Tasks, left > 0, format!("{left} tasks are left"));
        Self { broken, ..row }
    }

    /// Checks that the fallback decided, or that it did not because the error is permanent. On a busy machine
    /// it also decides calls that time out.
    pub(crate) fn covered(mut self, expected: bool) -> Self {
        let covered = if expected {
            self.covered
        } else {
            self.covered_idle
        };
        if (covered > 0) != expected {
            let text = format!("{covered} calls covered");
            self.broken.push((Check::StandIn, text));
        }
        self
    }

    /// Checks the percentage of calls that got replies during the fault.
    #[cfg(feature = "redis-cluster")]
    pub(crate) fn answered(mut self, share: usize, least: usize) -> Self {
        if share < least {
            let text = format!("{share} in 100 answered");
            self.broken.push((Check::Others, text));
        }
        self
    }

    pub(crate) fn title() -> String {
        format!(
            "{:<22} {:>34} {:>7} {:>8} {:>7} {:>7} {:>7} {:>9} {:>12}  {}",
            "fault",
            "happened",
            "calls",
            "admitted",
            "charged",
            "failed",
            "covered",
            "worst",
            "recovered",
            "result"
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |span: Duration| format!("{} ms", span.as_millis());
        write!(
            f,
            "{:<22} {:>34} {:>7} {:>8} {:>7} {:>7} {:>7} {:>9} {:>12}  ",
            self.fault,
            self.happened,
            self.calls,
            self.admitted,
            self.charged,
            self.failed,
            self.covered,
            ms(self.worst),
            self.recovered.map_or_else(|| "never".to_owned(), ms),
        )?;
        if self.broken.is_empty() {
            return f.write_str("ok");
        }
        for (check, text) in &self.broken {
            write!(f, "{check:?}: {text}; ")?;
        }
        Ok(())
    }
}

/// What the longest call took, and how much later than a timer beside it the latest one was.
fn worst(log: &Log) -> (Duration, Duration) {
    let mut worst = Duration::ZERO;
    let mut latest = Duration::ZERO;
    for call in &log.calls {
        worst = worst.max(call.took);
        let late = call.took.saturating_sub(DEADLINE);
        if late > GRACE {
            let slow = slowness(log, call.began, call.ended());
            latest = latest.max(late.saturating_sub(slow));
        }
    }
    (worst, latest)
}

/// How late the timers were that ran in this time: the machine was as slow for all else.
fn slowness(log: &Log, from: Instant, to: Instant) -> Duration {
    let timers = log.timers.iter();
    let beside = timers.filter(|(began, took)| *began < to && *began + *took > from);
    let late = beside.map(|(_, took)| took.saturating_sub(DEADLINE));
    late.max().unwrap_or(Duration::ZERO)
}

/// Whether timers were late beside a call: then it is late because the machine is busy.
fn is_busy(log: &Log, call: &Call) -> bool {
    slowness(log, call.began, call.ended()) >= BUSY
}

/// How long after the fault's end the last machine got a reply, or why it did not.
fn recovery(fleet: &Fleet, log: &Log, allowed: Duration) -> Result<Duration, String> {
    let ended = fleet.ended.expect("the fault is over");
    let mut longest = Duration::ZERO;
    for machine in 0..MACHINES {
        let after = |since| {
            log.calls.iter().filter(move |call| {
                call.machine == machine && call.began > since && !call.is_covered()
            })
        };
        let answered = after(ended).filter(|call| call.heard.is_ok());
        let Some(first) = answered.map(Call::ended).min() else {
            let last = after(ended)
                .filter_map(|call| call.heard.as_ref().err())
                .next_back();
            return Err(format!("machine {machine} never gets a reply: {last:?}"));
        };
        let slow = slowness(log, ended, first);
        longest = longest.max((first - ended).saturating_sub(slow));
        let tail = after(ended + allowed);
        let tail = tail.filter(|call| call.heard.is_ok() || !is_busy(log, call));
        let tail: Vec<_> = tail.collect();
        let failed: Vec<_> = tail
            .iter()
            .filter_map(|call| call.heard.as_ref().err())
            .collect();
        if failed.len() * 20 > tail.len() {
            let (count, all) = (failed.len(), tail.len());
            return Err(format!("{count} of {all} fail later: {}", failed[0]));
        }
    }
    Ok(longest)
}

/// How many clients a server has, without this one.
fn clients(server: &RedisServer) -> usize {
    let list: String = redis::cmd("CLIENT")
        .arg("LIST")
        .arg("TYPE")
        .arg("normal")
        .query(&mut server.connection())
        .expect("a list");
    list.lines().filter(|line| !line.is_empty()).count() - 1
}
