//! A step: an operation on a key at a time.

use std::time::Duration;

use crate::{
    fields::{Fields, required},
    policy::QuotaChange,
};

pub(crate) struct Step {
    pub(crate) t_ns: u64,
    /// None means `""`, or for a cancellation the key of the request.
    pub(crate) key: Option<String>,
    pub(crate) n: u64,
    pub(crate) op: Op,
}

pub(crate) enum Op {
    Check {
        id: Option<String>,
    },
    Peek,
    Acquire {
        id: Option<String>,
        max_wait: Option<Duration>,
    },
    TakeUpTo,
    Refund,
    Charge,
    Cancel {
        of: String,
    },
    Reset,
    SetQuota(QuotaChange),
}

const NAMES: &str = "check, peek, acquire, take_up_to, refund, absorb, cancel, reset or set_quota";

impl Step {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let mut fields = Fields::parse(text).map_err(|(_, fault)| fault)?;
        let t_ns = required("t_ns", fields.number("t_ns")?)?;
        let key = fields.text("key")?;
        let name = fields.text("op")?;
        let n = fields.number("n")?.unwrap_or(1);
        fields.take("expect");
        let op = Op::read(name.as_deref().unwrap_or("check"), &mut fields)?;
        fields.end(op.name())?;
        Ok(Self { t_ns, key, n, op })
    }
}

impl Op {
    fn read(name: &str, fields: &mut Fields) -> Result<Self, String> {
        Ok(match name {
            "check" => Self::Check {
                id: fields.text("id")?,
            },
            "peek" => Self::Peek,
            "acquire" => Self::Acquire {
                id: fields.text("id")?,
                max_wait: fields.span("max_wait_ns")?,
            },
            "take_up_to" => Self::TakeUpTo,
            "refund" => Self::Refund,
            "absorb" => Self::Charge,
            "cancel" => Self::Cancel {
                of: required("of", fields.text("of")?)?,
            },
            "reset" => Self::Reset,
            "set_quota" => {
                keeps_what_is_used(fields)?;
                Self::SetQuota(change(fields)?)
            }
            other => return Err(format!("op: expected {NAMES}; found {other:?}")),
        })
    }

    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Check { .. } => "check",
            Self::Peek => "peek",
            Self::Acquire { .. } => "acquire",
            Self::TakeUpTo => "take_up_to",
            Self::Refund => "refund",
            Self::Charge => "absorb",
            Self::Cancel { .. } => "cancel",
            Self::Reset => "reset",
            Self::SetQuota(_) => "set_quota",
        }
    }
}

fn change(fields: &mut Fields) -> Result<QuotaChange, String> {
    let change = QuotaChange {
        limit: fields.number("limit")?,
        period: fields.span("period_ns")?,
        burst: fields.number("burst")?,
    };
    if change.limit.is_none() && change.period.is_none() && change.burst.is_none() {
        return Err("set_quota: expected limit, period_ns or burst, found none of them".into());
    }
    Ok(change)
}

/// What was used stays used, which a trace calls `as_is` or `additive`.
fn keeps_what_is_used(fields: &mut Fields) -> Result<(), String> {
    match fields.text("inherit")?.as_deref() {
        None | Some("as_is" | "additive") => Ok(()),
        Some(other) => Err(format!(
            "inherit: expected as_is or additive, found {other:?}"
        )),
    }
}
