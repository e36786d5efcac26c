//! The limits of a layer as clients are told them.

use std::sync::{Arc, OnceLock};

use http::HeaderValue;

use crate::decision::Decision;
use crate::quota::Quota;

/// The limits of a layer as clients are told them: a name and how much it allows.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    pub(super) list: Vec<Policy>,
    /// The list as a header value, which the first response writes that needs it.
    pub(super) header_value: OnceLock<HeaderValue>,
}

/// One limit as clients are told it.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// Printable ASCII.
    pub(crate) name: Arc<str>,
    /// How much it allows per period. `None` for a limit on concurrency, which has no period, and for a key that
    /// is blocked.
    pub(crate) quota: Option<Quota>,
    /// How much a limit on concurrency allows.
    pub(crate) at_once: u64,
}

impl Policies {
    /// One policy per quota. A single one is called `name`; several are numbered from 1, `name-1`,
    /// `name-2`, in the order of [`Decision::policy`].
    pub(crate) fn new(name: &str, quotas: &[Quota]) -> Self {
        let list = (1..).zip(quotas).map(|(number, quota)| Policy {
            name: match quotas.len() {
                1 => name.into(),
                _ => format!("{name}-{number}").into(),
            },
            quota: Some(*quota),
            at_once: 0,
        });
        Self {
            list: list.collect(),
            header_value: OnceLock::new(),
        }
    }

    /// The policy of a limit on concurrency, or of a key that is blocked.
    pub(crate) fn at_once(name: &str, limit: u64) -> Self {
        let policy = Policy {
            name: name.into(),
            quota: None,
            at_once: limit,
        };
        Self {
            list: vec![policy],
            header_value: OnceLock::new(),
        }
    }

    /// The policy that decided.
    pub(crate) fn of(&self, decision: &Decision) -> Option<&Policy> {
        self.list.get(decision.policy)
    }
}
