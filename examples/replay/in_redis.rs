//! States in a Redis server, where the scripts of the library decide.
//!
//! Redis counts in microseconds and a trace in nanoseconds. A nanosecond of the trace is a microsecond
//! in Redis, so nothing is rounded. Times too large for that are counted from a moment at which all
//! windows begin.

use std::time::Duration;

use tokio::runtime::Runtime;
use tower_throttle::{
    Decision, Lockout, Verdict, WarmUp,
    algorithm::{Algorithm, AnyAlgorithm},
    clock::Tick,
    store::{AnyDecision, Backend, Op, Receipt, cas::Cas, redis::Redis},
};

use crate::{
    policy::{Policy, QuotaChange},
    states::{States, debt_ends, with_figures_of},
    timed::Timed,
};

/// A nanosecond of the trace in nanoseconds of the server.
pub(crate) const UNIT: u32 = 1_000;
/// The largest time, 78 days. Scripts count up to 2^53, and reset times lie after the largest time.
const MOST: u64 = 3 << 51;
/// A second in microseconds.
const SECOND: u64 = 1_000_000;

/// The first part of the key names of every replay.
const PREFIX: &str = "replay";

pub(crate) struct InRedis {
    runtime: Runtime,
    server: Timed,
    redis: Redis,
    /// The policy of the trace, in the server's unit.
    policy: Policy,
    limiter: Cas<Redis, AnyAlgorithm>,
    names: Vec<String>,
    shift: Shift,
}

/// Two moments that correspond, in the trace and in Redis. All windows begin at both.
#[derive(Clone, Copy)]
struct Shift {
    from: u64,
    to: u64,
}

/// A turn in a line of any length.
const fn reserve(cost: u64, max_wait: Duration) -> Op {
    let queue = u64::MAX;
    Op::Reserve {
        cost,
        queue,
        max_wait,
    }
}

impl InRedis {
    pub(crate) fn connect(url: &str, policy: Policy) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("--redis: {error}"))?;
        // Keys of other replays, running or killed, must not be used.
        let prefix = format!("{PREFIX}.{}", std::process::id());
        let (server, connection) = runtime.block_on(Timed::connect(url))?;
        let redis = Redis::with_connection(connection)
            .prefix(&prefix)
            .map_err(|error| error.to_string())?
            .deadline(Duration::from_secs(10));
        let limiter = limiter(&redis, &policy)?;
        let shift = Shift::before(0, &policy.algorithm)?;
        Ok(Self {
            runtime,
            server,
            redis,
            policy,
            limiter,
            names: Vec::new(),
            shift,
        })
    }

    /// The server's time, in microseconds.
    fn time(&mut self, now: Tick) -> Result<u64, String> {
        let now = now.as_nanos();
        if self.shift.time(now).is_none() {
            // If all keys in the server have expired, its time may jump.
            let forgotten = self.server.has_forgotten_all(self.shift.count(now));
            if self.runtime.block_on(forgotten) == Ok(true) {
                self.shift = Shift::before(now, &self.policy.algorithm)?;
            }
        }
        self.shift.time(now).ok_or_else(|| {
            format!(
                "t_ns: expected no more than 78 days after the trace begins, or after the last key \
                 became unused, in Redis, found {now}"
            )
        })
    }

    /// Calls the limiter for a key at a time. The decision is in the trace's unit.
    fn ask(
        &mut self,
        key: usize,
        time: u64,
        ask: impl FnOnce(&Cas<Redis, AnyAlgorithm>, &str) -> AnyDecision,
    ) -> Result<Decision, String> {
        self.server.set(time);
        // The limiter spawns its request when called.
        let entered = self.runtime.enter();
        let asked = ask(&self.limiter, &self.names[key]);
        drop(entered);
        let decision = self.runtime.block_on(asked);
        decision
            .map(in_trace_unit)
            .map_err(|error| error.to_string())
    }

    /// [`ask`](Self::ask) without writing.
    fn dry_run(
        &mut self,
        key: usize,
        time: u64,
        ask: impl FnOnce(&Cas<Redis, AnyAlgorithm>, &str) -> AnyDecision,
    ) -> Result<Decision, String> {
        self.server.is_dry(true);
        let decision = self.ask(key, time, ask);
        self.server.is_dry(false);
        decision
    }

    /// Makes the script write the state of a key, unchanged: of a cost that was taken at the beginning
    /// of time, nothing is left to give back.
    fn rewrite(&mut self, key: usize, now: Tick) -> Result<(), String> {
        let time = self.time(now)?;
        self.ask(key, time, |limiter, name| {
            limiter.apply(name, Op::Refund(1, Receipt::at(0)))
        })
        .map(drop)
    }

    /// Whether the key is in debt at that time: a refund of one unit then leaves nothing to take.
    fn is_in_debt(&mut self, key: usize, time: u64) -> Result<bool, String> {
        let decision = self.dry_run(key, time, |limiter, name| {
            limiter.apply(name, Op::Refund(1, Receipt::NOW))
        })?;
        Ok(decision.remaining() == 0)
    }
}

impl States for InRedis {
    fn begin(&mut self, name: &str, now: Tick) -> Result<(), String> {
        self.names.push(name.to_owned());
        if self.policy.script.begins_with_less {
            // A script creates a key at its first write, the replay at its first use.
            self.rewrite(self.names.len() - 1, now)?;
        }
        Ok(())
    }

    fn decide(&mut self, key: usize, now: Tick, n: u64) -> Result<Decision, String> {
        let time = self.time(now)?;
        self.ask(key, time, |limiter, name| limiter.decide(name, n))
    }

    fn reserve(
        &mut self,
        key: usize,
        now: Tick,
        n: u64,
        max_wait: Duration,
    ) -> Result<Decision, String> {
        let time = self.time(now)?;
        let max_wait = max_wait.saturating_mul(UNIT);
        self.ask(key, time, |limiter, name| {
            limiter.apply(name, reserve(n, max_wait))
        })
    }

    fn peek(&mut self, key: usize, now: Tick, n: u64) -> Result<Decision, String> {
        let time = self.time(now)?;
        self.ask(key, time, |limiter, name| limiter.apply(name, Op::Peek(n)))
    }

    fn peek_at_line(
        &mut self,
        key: usize,
        now: Tick,
        n: u64,
        max_wait: Duration,
    ) -> Result<Decision, String> {
        let time = self.time(now)?;
        let max_wait = max_wait.saturating_mul(UNIT);
        let rest = self.dry_run(key, time, |limiter, name| {
            limiter.apply(name, reserve(0, Duration::MAX))
        })?;
        let decision = self.dry_run(key, time, |limiter, name| {
            limiter.apply(name, reserve(n, max_wait))
        })?;
        Ok(with_figures_of(decision, &rest))
    }

    fn refund(&mut self, key: usize, now: Tick, n: u64) -> Result<(), String> {
        let time = self.time(now)?;
        self.ask(key, time, |limiter, name| {
            limiter.apply(name, Op::Refund(n, Receipt::NOW))
        })
        .map(drop)
    }

    fn charge(&mut self, key: usize, now: Tick, n: u64) -> Result<Duration, String> {
        let time = self.time(now)?;
        let decision = self.ask(key, time, |limiter, name| {
            limiter.apply(name, Op::Charge(n))
        })?;
        if self.policy.script.charges_queue {
            // A request of cost zero waits for the requests before it.
            let next = self.dry_run(key, time, |limiter, name| {
                limiter.apply(name, reserve(0, Duration::MAX))
            })?;
            return Ok(next.wait().unwrap_or_default());
        }
        // A script does not report when a debt is paid.
        debt_ends(decision.reset_after, |after| {
            self.is_in_debt(key, time.saturating_add(nanos(after)))
        })
    }

    fn reset(&mut self, key: usize, now: Tick) -> Result<(), String> {
        let time = self.time(now)?;
        self.ask(key, time, |limiter, name| limiter.apply(name, Op::Reset))
            .map(drop)
    }

    fn set_quota(
        &mut self,
        _policy: &Policy,
        change: &QuotaChange,
        now: Tick,
    ) -> Result<(), String> {
        if self.policy.script.has_grid
            && change
                .period
                .is_some_and(|period| !self.shift.keeps(period))
        {
            return Err(
                "period_ns: expected one that divides 5040 times the first one, in Redis".into(),
            );
        }
        self.policy.set_quota(change, UNIT)?;
        self.limiter = limiter(&self.redis, &self.policy)?;
        for key in 0..self.names.len() {
            // A script converts a state when it writes it: write all states now.
            self.rewrite(key, now)?;
        }
        Ok(())
    }
}

/// Deletes the keys of the replay.
impl Drop for InRedis {
    fn drop(&mut self) {
        // If the server cannot be reached, the keys expire within an hour.
        let _ = self.runtime.block_on(self.server.forget_all());
    }
}

fn limiter(redis: &Redis, policy: &Policy) -> Result<Cas<Redis, AnyAlgorithm>, String> {
    let algorithm = &policy.algorithm;
    if algorithm.get::<WarmUp>().is_some() || algorithm.get::<Lockout>().is_some() {
        return Err(
            "in Redis: no script decides this algorithm, and only scripts have another clock"
                .into(),
        );
    }
    let limiter = redis.limiter("trace", policy.algorithm.clone());
    Ok(limiter.without_deny_cache())
}

impl Shift {
    /// Places a first step at `now` near the beginning of the server's time.
    fn before(now: u64, algorithm: &AnyAlgorithm) -> Result<Self, String> {
        let mut common = 1_u128;
        for quota in algorithm.quotas() {
            let period = quota.period().as_nanos() / u128::from(UNIT);
            common = common / divisor(common, period) * period;
            if common > u128::from(MOST / 2) {
                return Err("period_ns: expected windows that begin together, in Redis".into());
            }
        }
        // Then windows of many other lengths begin at both moments, too.
        let many = [5_040, 60, 12, 1].map(|factor| common * factor);
        let common = many
            .into_iter()
            .find(|common| *common <= u128::from(MOST / 64));
        #[expect(clippy::cast_possible_truncation, reason = "no more than MOST / 2")]
        let common = common.unwrap_or(many[3]) as u64;
        Ok(Self {
            from: now - now % common,
            // A script takes time zero for an unset clock.
            to: SECOND.next_multiple_of(common),
        })
    }

    /// The server's time, however large.
    const fn count(self, now: u64) -> u64 {
        now.saturating_sub(self.from).saturating_add(self.to)
    }

    /// The server's time, if a script can count that far.
    fn time(self, now: u64) -> Option<u64> {
        Some(self.count(now)).filter(|time| *time <= MOST && now >= self.from)
    }

    /// Whether windows of this length begin at the same moments.
    fn keeps(self, period: Duration) -> bool {
        let begins = |at: u64| u128::from(at).checked_rem(period.as_nanos()) == Some(0);
        begins(self.from) && begins(self.to)
    }
}

const fn divisor(mut a: u128, mut b: u128) -> u128 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn in_trace_unit(mut decision: Decision) -> Decision {
    if let Verdict::Wait(wait) = &mut decision.verdict {
        *wait /= UNIT;
    }
    decision.retry_after = decision.retry_after.map(|span| span / UNIT);
    decision.reset_after /= UNIT;
    decision
}
