//! The states of the keys in a Redis server, decided upon by the scripts that a fleet uses.
//!
//! Redis counts microseconds and a trace nanoseconds: a nanosecond of the trace is a microsecond
//! there, so that nothing is rounded. Where times are too large for that, they are counted from a
//! moment at which all windows begin.

use std::time::Duration;

use tokio::runtime::Runtime;
use tower_throttle::{
    Decision, Verdict,
    algorithm::{AnyAlgorithm, Inherit, quotas},
    clock::Tick,
    store::{
        Backend, Op,
        redis::{Redis, RedisFuture, RedisLimiter},
    },
};

use crate::{
    policy::{Policy, QuotaChange},
    states::{States, with_figures_of},
    timed::Timed,
};

/// A nanosecond of the trace in nanoseconds of the server.
pub(crate) const UNIT: u32 = 1_000;
/// The largest time, 78 days: scripts count to 2^53, which leaves room for what comes after it.
const MOST: u64 = 3 << 51;
/// In microseconds of the server.
const SECOND: u64 = 1_000_000;

/// What the keys of all replays begin with.
const PREFIX: &str = "replay";

pub(crate) struct InRedis {
    runtime: Runtime,
    server: Timed,
    redis: Redis,
    /// As the policy of the trace, in the unit of the server.
    policy: Policy,
    limiter: RedisLimiter<AnyAlgorithm>,
    names: Vec<String>,
    shift: Shift,
}

/// Which time of the trace is which of the server: both at the beginning of all windows.
#[derive(Clone, Copy)]
struct Shift {
    from: u64,
    to: u64,
}

impl InRedis {
    pub(crate) fn connect(url: &str, policy: Policy) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("--redis: {error}"))?;
        // What another replay left, or does beside this one, is not ours.
        let prefix = format!("{PREFIX}.{}", std::process::id());
        let (server, connection) = runtime.block_on(Timed::connect(url))?;
        let redis = Redis::with_connection(connection)
            .prefix(&prefix)
            .map_err(|error| error.to_string())?
            .deadline(Duration::from_secs(10))
            .without_deny_cache();
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

    /// The time in microseconds of the server.
    fn time(&mut self, now: Tick) -> Result<u64, String> {
        let now = now.as_nanos();
        if self.shift.time(now).is_none() {
            // Where the server has forgotten every key, it may be any time there.
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

    /// Asks about a key at a time, whose decision is told in the trace's unit.
    fn ask(
        &mut self,
        key: usize,
        time: u64,
        ask: impl FnOnce(&RedisLimiter<AnyAlgorithm>, &str) -> RedisFuture<AnyAlgorithm>,
    ) -> Result<Decision, String> {
        self.server.set(time);
        // A limiter begins to ask when it is called.
        let entered = self.runtime.enter();
        let asked = ask(&self.limiter, &self.names[key]);
        drop(entered);
        let told = self.runtime.block_on(asked);
        told.map(in_the_traces_unit)
            .map_err(|error| error.to_string())
    }

    /// As [`ask`](Self::ask), but nothing is written.
    fn try_out(
        &mut self,
        key: usize,
        time: u64,
        ask: impl FnOnce(&RedisLimiter<AnyAlgorithm>, &str) -> RedisFuture<AnyAlgorithm>,
    ) -> Result<Decision, String> {
        self.server.is_dry(true);
        let told = self.ask(key, time, ask);
        self.server.is_dry(false);
        told
    }

    /// Has the state of a key written, without a change.
    fn writes(&mut self, key: usize, now: Tick) -> Result<(), String> {
        self.charge(key, now, 1)?;
        self.refund(key, now, 1)
    }

    /// Whether more is used at that time than allowed: then one unit that is given back leaves
    /// nothing to take.
    fn is_in_debt(&mut self, key: usize, time: u64) -> Result<bool, String> {
        let told = self.try_out(key, time, |limiter, name| {
            limiter.apply(name, Op::Refund(1))
        })?;
        Ok(told.remaining() == 0)
    }
}

impl States for InRedis {
    fn begin(&mut self, name: &str, now: Tick) -> Result<(), String> {
        self.names.push(name.to_owned());
        if self.policy.script.begins_with_less {
            // A script begins a key when it writes it. Here that is when it is seen.
            self.writes(self.names.len() - 1, now)?;
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
            limiter.reserve(name, n, max_wait)
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
        let rest = self.try_out(key, time, |limiter, name| {
            limiter.reserve(name, 0, Duration::MAX)
        })?;
        let decision = self.try_out(key, time, |limiter, name| {
            limiter.reserve(name, n, max_wait)
        })?;
        Ok(with_figures_of(decision, &rest))
    }

    fn take_up_to(&mut self, key: usize, now: Tick, most: u64) -> Result<(u64, Decision), String> {
        // Nobody else asks in between, and the time stands still.
        let taken = self.peek(key, now, 0)?.remaining().min(most);
        Ok((taken, self.decide(key, now, taken)?))
    }

    fn refund(&mut self, key: usize, now: Tick, n: u64) -> Result<(), String> {
        let time = self.time(now)?;
        self.ask(key, time, |limiter, name| {
            limiter.apply(name, Op::Refund(n))
        })
        .map(drop)
    }

    fn charge(&mut self, key: usize, now: Tick, n: u64) -> Result<Duration, String> {
        let time = self.time(now)?;
        let told = self.ask(key, time, |limiter, name| {
            limiter.apply(name, Op::Charge(n))
        })?;
        if self.policy.script.charges_queue {
            // Whoever asks for nothing waits for those before.
            let next = self.try_out(key, time, |limiter, name| {
                limiter.reserve(name, 0, Duration::MAX)
            })?;
            return Ok(next.wait().unwrap_or_default());
        }
        // A script does not tell when a debt is paid; it is found out.
        let (mut paid, mut owed) = (told.reset_after, Duration::ZERO);
        if !self.is_in_debt(key, time)? {
            return Ok(Duration::ZERO);
        }
        while owed + Duration::from_nanos(1) < paid {
            let between = (owed + paid) / 2;
            let then = time.saturating_add(nanos(between));
            if self.is_in_debt(key, then)? {
                owed = between;
            } else {
                paid = between;
            }
        }
        Ok(paid)
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
        inherit: Inherit,
    ) -> Result<(), String> {
        if !matches!(inherit, Inherit::AsIs | Inherit::Reset) {
            return Err("inherit: expected as_is or reset in Redis".into());
        }
        if self.policy.script.is_cut {
            return Err(
                "set_quota: not for governor's gcra in Redis, where it counts finer".into(),
            );
        }
        if change
            .period
            .is_some_and(|period| !self.shift.keeps(period))
        {
            return Err("period_ns: expected one that divides the first one, in Redis".into());
        }
        self.policy.set_quota(change, UNIT)?;
        self.limiter = limiter(&self.redis, &self.policy)?;
        for key in 0..self.names.len() {
            match inherit {
                Inherit::Reset => self.reset(key, now)?,
                // A script carries a state over when it writes it. Here that is now.
                _ => self.writes(key, now)?,
            }
        }
        Ok(())
    }
}

/// Nothing of a replay stays.
impl Drop for InRedis {
    fn drop(&mut self) {
        // Whoever cannot be reached keeps them for no longer than an hour.
        let _ = self.runtime.block_on(self.server.forget_all());
    }
}

fn limiter(redis: &Redis, policy: &Policy) -> Result<RedisLimiter<AnyAlgorithm>, String> {
    redis
        .try_limiter("trace", policy.algorithm.clone())
        .map_err(|error| format!("in Redis: {error}"))
}

impl Shift {
    /// So that the server's time is late enough for a first step at `now`, and not too late.
    fn before(now: u64, algorithm: &AnyAlgorithm) -> Result<Self, String> {
        let mut common = 1_u128;
        for quota in quotas(algorithm) {
            let period = quota.period().as_nanos() / u128::from(UNIT);
            common = common / divisor(common, period) * period;
            if common > u128::from(MOST / 2) {
                return Err("period_ns: expected windows that begin together, in Redis".into());
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "no more than MOST / 2")]
        let common = common as u64;
        Ok(Self {
            from: now - now % common,
            // No server's clock is at zero.
            to: SECOND.next_multiple_of(common),
        })
    }

    /// As it is counted, however late it is.
    const fn count(self, now: u64) -> u64 {
        now.saturating_sub(self.from).saturating_add(self.to)
    }

    /// If a script can count so far.
    fn time(self, now: u64) -> Option<u64> {
        Some(self.count(now)).filter(|time| *time <= MOST && now >= self.from)
    }

    /// Whether windows of another length begin where they did.
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

fn in_the_traces_unit(mut told: Decision) -> Decision {
    if let Verdict::Wait(wait) = &mut told.verdict {
        *wait /= UNIT;
    }
    told.retry_after = told.retry_after.map(|span| span / UNIT);
    told.reset_after /= UNIT;
    told
}
