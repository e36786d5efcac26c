//! The policy of a trace, and its changes by `set_quota`.

use std::{fmt, time::Duration};

use serde_json::Value;
use tower_throttle::{
    All, ConfigError, Quota,
    algorithm::{Algorithm, AnyAlgorithm},
};

use crate::{
    algorithms,
    fields::{Fault, Fields, required, wrong},
    text,
};

/// An algorithm, and what a replay needs to know about it.
pub(crate) struct Policy {
    pub(crate) algorithm: AnyAlgorithm,
    /// The maximum wait of an `acquire` without one of its own.
    pub(crate) max_wait: Duration,
    /// Whether `acquire` can queue.
    pub(crate) keeps_line: bool,
    /// How many units a `check` may wait for, if it may.
    pub(crate) queue: Option<u64>,
    /// Whether `peek` shows what `acquire` would do: a leaky bucket with the wait of `acquire` only.
    pub(crate) peeks_at_line: bool,
    /// What matters if scripts decide.
    #[cfg(feature = "redis")]
    pub(crate) script: ScriptTraits,
    takes_burst: bool,
    /// The quota of the trace. That of governor's algorithm is truncated.
    quota: Quota,
    /// The burst, if set. Without one the capacity is the limit.
    burst: Option<u64>,
    /// The quota by which the algorithm decides, given that of the trace and the unit.
    own_quota: fn(Quota, u32) -> Result<Quota, ConfigError>,
    title: String,
}

/// How a script differs from the algorithm in process.
#[cfg(feature = "redis")]
#[derive(Default)]
pub(crate) struct ScriptTraits {
    /// Windows begin at multiples of their length.
    pub(crate) has_grid: bool,
    /// A new key does not begin with the full capacity.
    pub(crate) begins_with_less: bool,
    /// An `absorb` is queued.
    pub(crate) charges_queue: bool,
}

/// The fields of `set_quota`; None keeps a value.
pub(crate) struct QuotaChange {
    pub(crate) limit: Option<u64>,
    pub(crate) period: Option<Duration>,
    pub(crate) burst: Option<u64>,
}

impl Policy {
    /// Parses a policy; its durations are multiplied by `unit`.
    pub(crate) fn parse(text: &[u8], unit: u32) -> Result<Self, Fault> {
        let mut fields = match text::policy(text) {
            Some(text) => text::object(text).and_then(Fields::of),
            None => Ok(Fields::parse(text)?),
        }
        .map_err(|fault| (1, fault))?;
        fields.unit = unit;
        Self::read(fields).map_err(|fault| (1, fault))
    }

    fn read(mut fields: Fields) -> Result<Self, String> {
        if fields.has("policy") {
            let policy = required("policy", fields.text("policy")?)?;
            fields.take("_meta");
            let unit = fields.unit;
            fields.end("a policy as text")?;
            let mut fields = Fields::of(text::object(&policy)?)?;
            fields.unit = unit;
            return Self::read(fields);
        }
        let name = required("algorithm", fields.text("algorithm")?)?;
        fields.take("_meta");
        let policy = match &*name {
            "all" => Self::all(&mut fields)?,
            name => Self::one(name, &mut fields)?,
        };
        fields.end(&name)?;
        Ok(policy)
    }

    fn one(name: &str, fields: &mut Fields) -> Result<Self, String> {
        algorithms::known(name)?;
        let limit = required("limit", fields.number("limit")?)?;
        let period = required("period_ns", fields.span("period_ns")?)?;
        let quota = Quota::try_from((limit, period));
        let mut quota = quota.map_err(|error| error.to_string())?;

        let takes_burst = ["token_bucket", "leaky_bucket", "gcra"].contains(&name);
        let burst = if takes_burst {
            fields.number("burst")?
        } else {
            None
        };
        if let Some(burst) = burst {
            let bursting = Quota::try_from((limit, period, burst));
            quota = bursting.map_err(|error| error.to_string())?;
        }

        let options = fields.rest();
        let keeps_line = matches!(name, "token_bucket" | "leaky_bucket" | "warm_up");
        let (mut max_wait, mut queue) = (None, None);
        if keeps_line {
            max_wait = fields.span("max_wait_ns")?;
            queue = fields.number("queue")?;
        }
        #[cfg(feature = "redis")]
        let script = ScriptTraits {
            has_grid: match name {
                "fixed_window" => !fields.is_set("anchored"),
                "sliding_window" | "sliding_grid" => true,
                _ => false,
            },
            begins_with_less: fields.has("initial"),
            charges_queue: name == "warm_up",
        };
        let peeks_at_line = name == "leaky_bucket" && max_wait.is_some() && queue.is_none();
        Ok(Self {
            quota,
            own_quota: match name {
                "gcra" => algorithms::gcra_quota,
                _ => |quota, _| Ok(quota),
            },
            algorithm: algorithms::build(name, quota, fields)?,
            max_wait: max_wait.unwrap_or(Duration::MAX),
            keeps_line,
            queue,
            peeks_at_line,
            #[cfg(feature = "redis")]
            script,
            takes_burst,
            burst,
            title: format!("{name} {quota}{options}"),
        })
    }

    fn all(fields: &mut Fields) -> Result<Self, String> {
        let parts = match required("parts", fields.take("parts"))? {
            Value::Array(parts) if !parts.is_empty() => parts,
            other => return Err(wrong("parts", "a list of policies", &other)),
        };
        let unit = fields.unit;
        let read = |(at, part)| {
            let part = Fields::of(part).and_then(|mut part| {
                part.unit = unit;
                Self::read(part)
            });
            part.map_err(|fault| format!("parts[{at}]: {fault}"))
        };
        let mut parts: Vec<Self> = (0..).zip(parts).map(read).collect::<Result<_, String>>()?;

        let titles: Vec<&str> = parts.iter().map(|part| &*part.title).collect();
        let title = format!("all of: {}", titles.join(" + "));
        let all = All::new(parts.iter().map(|part| part.algorithm.clone()));
        if parts.len() == 1 {
            let part = parts.remove(0);
            return Ok(Self {
                algorithm: AnyAlgorithm::new(all),
                title,
                ..part
            });
        }
        Ok(Self {
            quota: all.quota(),
            own_quota: |quota, _| Ok(quota),
            algorithm: AnyAlgorithm::new(all),
            // The strictest part decides.
            max_wait: parts
                .iter()
                .map(|part| part.max_wait)
                .min()
                .unwrap_or(Duration::MAX),
            keeps_line: parts.iter().all(|part| part.keeps_line),
            queue: parts.iter().find_map(|part| part.queue),
            peeks_at_line: false,
            #[cfg(feature = "redis")]
            script: ScriptTraits {
                has_grid: parts.iter().any(|part| part.script.has_grid),
                begins_with_less: parts.iter().any(|part| part.script.begins_with_less),
                ..ScriptTraits::default()
            },
            // Let the algorithm refuse the change: its message names the reason.
            takes_burst: true,
            burst: None,
            title,
        })
    }

    /// How long a `check` may wait: until all the units of the queue have gone before it.
    pub(crate) fn longest_check(&self) -> Option<Duration> {
        let turn = |quota: &Quota| {
            let units = u128::from(self.queue?) * quota.period().as_nanos();
            Some(units.div_ceil(quota.limit().into()))
        };
        let longest = self.algorithm.quotas().iter().filter_map(turn).max()?;
        let longest = Duration::from_nanos(u64::try_from(longest).unwrap_or(u64::MAX));
        Some(longest.min(self.max_wait))
    }

    pub(crate) fn period(&self) -> Duration {
        self.algorithm.quota().period()
    }

    /// Changes the quota of a policy that was parsed with `unit`.
    pub(crate) fn set_quota(&mut self, change: &QuotaChange, unit: u32) -> Result<(), String> {
        if change.burst.is_some() && !self.takes_burst {
            return Err("burst: this policy has no burst to set".into());
        }
        let burst = change.burst.or(self.burst);
        let before = self.quota;
        let limit = change.limit.unwrap_or_else(|| before.limit());
        let period = change.period.map(|period| period.saturating_mul(unit));
        let period = period.unwrap_or_else(|| before.period());
        let quota = match burst {
            Some(burst) => Quota::try_from((limit, period, burst)),
            None => Quota::try_from((limit, period)),
        };
        let changed = quota.and_then(|quota| {
            let own = (self.own_quota)(quota, unit)?;
            Ok((quota, self.algorithm.with_quota(own)?))
        });
        (self.quota, self.algorithm) = changed.map_err(|error| error.to_string())?;
        self.burst = burst;
        Ok(())
    }
}

/// The policy in one line, for titles.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)
    }
}
