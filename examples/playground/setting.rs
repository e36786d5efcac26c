//! What the page asks for, and its bounds.

use std::{fmt, ops::RangeInclusive, time::Duration};

use serde::{Deserialize, Serialize};

use crate::policy::Policy;

/// How many policies are compared.
pub(crate) const POLICIES: RangeInclusive<usize> = 1..=4;
/// Bytes of the text of a policy.
const MAX_POLICY: usize = 400;

const RATE: RangeInclusive<u64> = 1..=500;
const BURST: RangeInclusive<u64> = 1..=500;
const CLIENTS: RangeInclusive<u64> = 1..=20;
const COST: RangeInclusive<u64> = 1..=100;
const IMPORTANT: RangeInclusive<u64> = 0..=100;

/// Requests that arrive in bursts of equal size, from one client after the other.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Traffic {
    /// Requests per second.
    pub(crate) rate: u64,
    /// Requests that arrive at the same moment.
    pub(crate) burst: u64,
    pub(crate) clients: u64,
    /// The cost of each request.
    pub(crate) cost: u64,
    /// How many percent of the requests of each client go before the others.
    #[serde(default)]
    pub(crate) important: u64,
}

/// One request, as each client sends it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct One {
    pub(crate) cost: u64,
    /// Whether it goes before others that wait.
    #[serde(default)]
    pub(crate) important: bool,
}

impl One {
    pub(crate) fn check(&self) -> Result<(), Vec<Fault>> {
        within("cost", self.cost, &COST, "units").map_err(|fault| vec![fault])
    }
}

impl Traffic {
    /// The time from one burst to the next.
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_nanos(self.burst * 1_000_000_000 / self.rate)
    }

    /// The client of a request, and what it sends.
    pub(crate) fn request(&self, number: u64) -> (u64, One) {
        let (client, round) = (number % self.clients + 1, number / self.clients);
        // Spread evenly.
        let important = |requests| requests * self.important / 100;
        let one = One {
            cost: self.cost,
            important: important(round + 1) > important(round),
        };
        (client, one)
    }

    pub(crate) fn check(&self) -> Result<(), Vec<Fault>> {
        let fields = [
            ("rate", self.rate, RATE, "requests per second"),
            ("burst", self.burst, BURST, "requests"),
            ("clients", self.clients, CLIENTS, "clients"),
            ("cost", self.cost, COST, "units"),
            ("important", self.important, IMPORTANT, "percent"),
        ];
        let faults: Vec<_> = fields
            .into_iter()
            .filter_map(|(field, value, allowed, unit)| within(field, value, &allowed, unit).err())
            .collect();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults)
        }
    }
}

/// Refuses a value outside of its bounds.
pub(crate) fn within(
    field: &str,
    value: u64,
    allowed: &RangeInclusive<u64>,
    unit: &str,
) -> Result<(), Fault> {
    if allowed.contains(&value) {
        return Ok(());
    }
    let (least, most) = (allowed.start(), allowed.end());
    Err(Fault::new(
        field,
        format!("{field}: expected {least} to {most} {unit}, found {value}"),
    ))
}

/// The policies in these texts.
pub(crate) fn policies(texts: &[String]) -> Result<Vec<Policy>, Vec<Fault>> {
    if !POLICIES.contains(&texts.len()) {
        let message = format!(
            "policies: expected {} to {}, found {}",
            POLICIES.start(),
            POLICIES.end(),
            texts.len()
        );
        return Err(vec![Fault::new("policies", message)]);
    }
    let (mut policies, mut faults) = (Vec::new(), Vec::new());
    for (at, text) in texts.iter().enumerate() {
        match policy(text) {
            Ok(policy) => policies.push(policy),
            Err(message) => faults.push(Fault::new(format!("policies[{at}]"), message)),
        }
    }
    if faults.is_empty() {
        Ok(policies)
    } else {
        Err(faults)
    }
}

/// The policy in this text, or what is wrong with it.
pub(crate) fn policy(text: &str) -> Result<Policy, String> {
    if text.len() > MAX_POLICY {
        let found = text.len();
        return Err(format!(
            "expected at most {MAX_POLICY} bytes, found {found}"
        ));
    }
    text.parse()
}

/// What is wrong with one field of the page.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) field: String,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        let (field, message) = (field.into(), message.into());
        Self { field, message }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
