//! Decisions on what the store holds for a key.

use std::sync::Arc;

use super::{Kernels, Runs, error::damaged, record::Record, swap::Held};
use crate::algorithm::{
    Algorithm, settings_from_bytes, settings_to_bytes, state_from_bytes, state_to_bytes,
};
use crate::backend::Op;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError};
use crate::receipt::Receipt;
use crate::store::{apply::apply_op, remote::layout_of};

/// Decides by one limit.
#[derive(Debug)]
pub(in crate::store) struct Decider<A> {
    pub(in crate::store) algorithm: A,
    /// The settings of the algorithm, which are stored with the states that it writes.
    settings: Vec<u8>,
    /// What the name of a key ends with.
    pub(super) layout: String,
    /// What a script knows of the limit, if one decides it.
    pub(in crate::store) kernels: Option<Kernels>,
}

/// A call, and what decides it.
#[derive(Clone, Debug)]
pub(super) struct KeyCall<A> {
    pub(super) op: Op,
    pub(super) decider: Arc<Decider<A>>,
}

/// Decisions, and a moment of this machine that is not later than when they were made.
pub(super) type Decisions = (Tick, Vec<Decision>);

/// Whether an operation may end a denial.
pub(super) const fn is_update(op: Op) -> bool {
    !matches!(op, Op::Peek(_)) && !is_request(op)
}

pub(super) const fn is_request(op: Op) -> bool {
    matches!(op, Op::Take(_) | Op::Reserve { .. })
}

/// Decides on `calls`, one after the other. Returns also what has to be written before the decisions hold, if
/// anything changes.
pub(super) fn decide<A: Algorithm>(
    store: &str,
    held: &Held<'_>,
    calls: &[&KeyCall<A>],
) -> Result<(Option<Record>, Decisions), StoreError> {
    let (mut decisions, mut record) = (Vec::with_capacity(calls.len()), None);
    for run in calls.chunk_by(|one, other| one.decider.settings == other.decider.settings) {
        let now_held = Held {
            record: record.as_ref().unwrap_or(held.record),
            has_value: held.has_value || record.is_some(),
            ..*held
        };
        let written = run[0]
            .decider
            .decide_run(store, &now_held, run, &mut decisions)?;
        record = written.or(record);
    }
    Ok((record, (held.asked_at, decisions)))
}

impl<A: Algorithm> Decider<A> {
    /// A limit in a store that runs such programs.
    pub(super) fn new(algorithm: A, runs: Runs) -> Result<Self, ConfigError> {
        algorithm.validate()?;
        let decider = Self::of_same_type(algorithm, runs == Runs::Scripts);
        if decider.settings.is_empty() && decider.kernels.is_none() {
            return Err(ConfigError::unsupported(
                "an algorithm of your own in a store with compare-and-swap",
                "use an algorithm of this crate, or several in a tuple or in All",
            ));
        }
        Ok(decider)
    }

    /// The same limit with another quota, decided by a script if it `has_script` and one can. Every algorithm of one type
    /// has such settings.
    pub(super) fn of_same_type(algorithm: A, has_script: bool) -> Self {
        let kernels = has_script.then(|| Kernels::of(&algorithm));
        let kernels = kernels.flatten();
        let layout = kernels.as_ref().map(Kernels::layout);
        Self {
            layout: layout.unwrap_or_else(|| layout_of(&algorithm)),
            settings: settings_to_bytes(&algorithm).unwrap_or_default(),
            kernels,
            algorithm,
        }
    }

    /// The same with what the script is to know at this moment, if that depends on the moment.
    pub(super) fn at_present(&self) -> Option<Self> {
        let is_dated = self.kernels.as_ref().is_some_and(Kernels::is_dated);
        is_dated.then(|| Self::of_same_type(self.algorithm.clone(), true))
    }

    /// Decides on calls under this limit. Returns what has to be written.
    fn decide_run(
        &self,
        store: &str,
        &Held {
            record,
            has_value,
            now,
            ..
        }: &Held<'_>,
        calls: &[&KeyCall<A>],
        decisions: &mut Vec<Decision>,
    ) -> Result<Option<Record>, StoreError> {
        let resets = calls.iter().any(|call| call.op == Op::Reset);
        let mut state = match self.state_of(record, now) {
            // It is replaced without being read.
            None if resets => self.algorithm.fresh(now),
            state => state.ok_or_else(|| damaged(store))?,
        };
        let to_bytes = |state: &A::State| {
            let bytes = state_to_bytes(&self.algorithm, state);
            bytes.ok_or_else(|| damaged(store))
        };
        let before = to_bytes(&state)?;
        decisions.extend(
            calls
                .iter()
                .map(|call| self.apply(&mut state, now, call.op)),
        );
        let after = to_bytes(&state)?;
        let forgettable_at = self.algorithm.forgettable_at(&state);
        // What a reset replaces may be unreadable. A bucket that begins with few tokens begins at the
        // reset.
        let replaces = resets && (has_value || forgettable_at > now);
        if before == after && !replaces {
            return Ok(None);
        }
        Ok(Some(Record {
            settings: self.settings.clone(),
            forgettable_at,
            state: after,
            ..record.clone()
        }))
    }

    /// What is used under this limit. `None` if it cannot be read.
    fn state_of(&self, record: &Record, now: Tick) -> Option<A::State> {
        if record.settings == self.settings {
            return state_from_bytes(&self.algorithm, &record.state);
        }
        // A limit that has passed on its use forgets it when that one would have.
        if record.forgettable_at <= now {
            return Some(self.algorithm.fresh(now));
        }
        let other = settings_from_bytes(&self.algorithm, &record.settings)?;
        let mut state = state_from_bytes(&other, &record.state)?;
        self.algorithm.rescale(&mut state, &other, now);
        Some(state)
    }

    fn apply(&self, state: &mut A::State, now: Tick, op: Op) -> Decision {
        if op == Op::Reset {
            *state = self.algorithm.fresh(now);
        }
        let decision = apply_op(&self.algorithm, state, now, op);
        if is_request(op) {
            decision
        } else {
            decision.with_receipt(Receipt::at(now.as_nanos()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::TokenBucket;
    use crate::quota::Quota;

    const NOW: Tick = Tick::from_nanos(1 << 60);

    type Bucket = Arc<Decider<TokenBucket>>;

    fn decider(limit: u64) -> Bucket {
        of(TokenBucket::new(Quota::per_hour(limit)))
    }

    fn of(bucket: TokenBucket) -> Bucket {
        Arc::new(Decider::new(bucket, Runs::None).expect("a limit"))
    }

    /// What is to be written of `ops` on what the store holds.
    fn written(
        decider: &Bucket,
        record: &Record,
        ops: &[Op],
    ) -> Result<Option<Record>, StoreError> {
        let calls: Vec<_> = ops
            .iter()
            .map(|op| KeyCall {
                op: *op,
                decider: Arc::clone(decider),
            })
            .collect();
        let decided = decide(
            "store",
            &Held {
                record,
                has_value: *record != Record::default(),
                now: NOW,
                asked_at: NOW,
            },
            &calls.iter().collect::<Vec<_>>(),
        );
        decided.map(|(record, _)| record)
    }

    fn record_of(decider: &Bucket, ops: &[Op]) -> Record {
        let record = written(decider, &Record::default(), ops).expect("a decision");
        record.expect("something is taken")
    }

    #[test]
    fn a_denial_under_another_limit_writes_nothing() {
        let record = record_of(&decider(10), &[Op::Take(4)]);
        for ops in [[Op::Peek(1), Op::Peek(1)], [Op::Peek(1), Op::Take(100)]] {
            assert_eq!(written(&decider(20), &record, &ops), Ok(None));
        }
        let changed = written(&decider(20), &record, &[Op::Take(16)]);
        assert!(matches!(changed, Ok(Some(_))), "4 of 20 were used");
        assert_eq!(written(&decider(20), &record, &[Op::Take(17)]), Ok(None));
    }

    #[test]
    fn a_state_that_cannot_be_read_is_replaced_by_a_reset_and_by_nothing_else() {
        let decider = decider(10);
        let mut record = record_of(&decider, &[Op::Take(4)]);
        record.state = vec![0xff; 3];
        for op in [Op::Take(1), Op::Peek(0), Op::Charge(1)] {
            assert_eq!(
                written(&decider, &record, &[op]),
                Err(damaged("store")),
                "{op:?}"
            );
        }
        let replaced = written(&decider, &record, &[Op::Reset]).expect("a fresh state");
        let replaced = replaced.expect("is written");
        assert!(decider.state_of(&replaced, NOW).is_some());
    }

    #[test]
    fn a_reset_is_written_if_a_fresh_key_decides_otherwise() {
        // A full bucket decides like a key without a value.
        assert_eq!(
            written(&decider(10), &Record::default(), &[Op::Reset]),
            Ok(None)
        );
        let record = record_of(&decider(10), &[Op::Take(1)]);
        assert!(matches!(
            written(&decider(10), &record, &[Op::Reset]),
            Ok(Some(_))
        ));
        let bucket = TokenBucket::new(Quota::per_hour(10)).initial(1);
        assert!(matches!(
            written(&of(bucket), &Record::default(), &[Op::Reset]),
            Ok(Some(_))
        ));
    }

    /// Two quotas of a key in turn see what was used under either.
    #[test]
    fn calls_under_several_quotas_are_decided_in_their_order() {
        let calls = [(10, 4), (10, 4), (20, 12), (20, 1), (30, 1)];
        let calls = calls.map(|(limit, cost)| KeyCall {
            op: Op::Take(cost),
            decider: decider(limit),
        });
        let held = Held {
            record: &Record::default(),
            has_value: false,
            now: NOW,
            asked_at: NOW,
        };
        let decided = decide("store", &held, &calls.each_ref());
        let decisions = decided.expect("decisions").1.1;
        let admitted: Vec<_> = decisions.iter().map(Decision::is_admitted).collect();
        assert_eq!(admitted, [true, true, true, false, true]);
    }
}
