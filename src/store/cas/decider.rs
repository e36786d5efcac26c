//! Decisions on what the store holds for a key.

use std::{sync::Arc, time::Duration};

use super::{
    error::Failure,
    record::{Entry, MAX_ENTRIES, Record},
};
use crate::algorithm::{
    Portable, settings_from_bytes, settings_to_bytes, state_from_bytes, state_to_bytes,
};
use crate::backend::Op;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::receipt::Receipt;
use crate::store::apply::{apply_op, with_receipt};

/// The longest time to live: 20 years, the most that Cassandra takes.
pub(in crate::store) const MAX_TTL: Duration = Duration::from_secs(20 * 365 * 86_400);

/// Decides by one configuration of a limit.
#[derive(Debug)]
pub(in crate::store) struct Decider<A> {
    pub(in crate::store) algorithm: A,
    /// The settings of the algorithm, by which its states are found.
    pub(super) settings: Vec<u8>,
    /// The quota is that of one key: what the key uses counts under each quota that it had, as long as
    /// its use under that one counts.
    is_of_key: bool,
}

/// An operation on the state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Op(Op),
    /// A cost, and the longest wait.
    Reserve(u64, Duration),
}

impl Call {
    pub(super) fn is_reset(self) -> bool {
        self == Self::Op(Op::Reset)
    }

    /// Whether it may end a denial.
    pub(super) const fn is_update(self) -> bool {
        !matches!(
            self,
            Self::Op(Op::Take(_) | Op::Peek(_) | Op::PeekOf(..)) | Self::Reserve(..)
        )
    }

    /// Whether it is a request.
    pub(super) const fn takes(self) -> bool {
        matches!(self, Self::Op(Op::Take(_)) | Self::Reserve(..))
    }

    const fn is_peek(self) -> bool {
        matches!(self, Self::Op(Op::Peek(_) | Op::PeekOf(..)))
    }
}

/// A call, and the quota of its key if that has its own.
#[derive(Debug)]
pub(super) struct KeyCall<A> {
    pub(super) call: Call,
    pub(super) of_key: Option<Arc<Decider<A>>>,
}

impl<A> KeyCall<A> {
    fn has_quota_of(&self, other: &Self) -> bool {
        let [own, other] = [self, other].map(|call| call.of_key.as_ref());
        own.map(|own| &own.settings) == other.map(|other| &other.settings)
    }
}

/// The decisions on several calls.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) decisions: Vec<Decision>,
    /// What has to be written before they hold; `None` if nothing changes.
    pub(super) record: Option<Record>,
}

impl<A: Portable> Decider<A> {
    pub(in crate::store) fn new(algorithm: A) -> Result<Self, ConfigError> {
        algorithm.validate()?;
        let settings = settings_to_bytes(&algorithm).ok_or(ConfigError::Unsupported {
            what: "an algorithm of your own in a store with compare-and-swap",
            instead: "use an algorithm of this crate, or several in a tuple or in All",
        })?;
        Ok(Self {
            algorithm,
            settings,
            is_of_key: false,
        })
    }

    /// The same limit with another quota. Every algorithm of one type has such settings.
    pub(super) fn of_same_type(algorithm: A) -> Self {
        Self {
            settings: settings_to_bytes(&algorithm).unwrap_or_default(),
            algorithm,
            is_of_key: false,
        }
    }

    /// The same limit with the quota of one key.
    pub(super) fn of_key(algorithm: A) -> Self {
        Self {
            is_of_key: true,
            ..Self::of_same_type(algorithm)
        }
    }

    /// Decides on `calls`, each under the quota of its key if that has its own.
    pub(super) fn decide_each<'a>(
        &self,
        record: &Record,
        has_value: bool,
        now: Tick,
        calls: impl IntoIterator<Item = &'a KeyCall<A>>,
    ) -> Result<Decided, Failure> {
        let mut calls = calls.into_iter().peekable();
        let mut all = Decided {
            decisions: Vec::new(),
            record: None,
        };
        while let Some(first) = calls.next() {
            let mut run = vec![first.call];
            while let Some(next) = calls.next_if(|next| next.has_quota_of(first)) {
                run.push(next.call);
            }
            let decider = first.of_key.as_deref().unwrap_or(self);
            let before = all.record.as_ref().unwrap_or(record);
            let decided = decider.decide(before, has_value || all.record.is_some(), now, &run)?;
            all.decisions.extend(decided.decisions);
            all.record = decided.record.or(all.record);
        }
        Ok(all)
    }

    /// Decides on `calls`, one after the other, at `now`. `has_value` says whether the store holds a
    /// value, which `record` is unless it cannot be read.
    pub(super) fn decide(
        &self,
        record: &Record,
        has_value: bool,
        now: Tick,
        calls: &[Call],
    ) -> Result<Decided, Failure> {
        let counting;
        let record = if self.is_of_key {
            counting = record.counting_at(now);
            &counting
        } else {
            record
        };
        let place = record
            .entries
            .iter()
            .position(|entry| entry.settings == self.settings);
        let mut state = match self.state_of(record, place, now) {
            // It is replaced without being read.
            None if calls.iter().any(|call| call.is_reset()) => self.algorithm.fresh(now),
            state => state.ok_or(Failure::Damaged)?,
        };
        let before = self.to_bytes(&state)?;
        let decisions = calls.iter().map(|call| self.apply(&mut state, now, *call));
        let decisions: Vec<_> = decisions.collect();
        let after = self.to_bytes(&state)?;

        // Usage is taken over once: later usage of the other configuration does not count here.
        let is_taken_over = place.is_none()
            && !calls.iter().all(|call| call.is_peek())
            && before != self.to_bytes(&self.algorithm.fresh(now))?;
        // What a reset replaces may be unreadable. A bucket that begins with few tokens begins at the
        // reset.
        let is_kept = has_value || self.algorithm.forgettable_at(&state) > now;
        let replaces = is_kept && calls.iter().any(|call| call.is_reset());
        if before == after && !is_taken_over && !replaces {
            return Ok(Decided {
                decisions,
                record: None,
            });
        }
        // A quota is kept as long as the use under it alone would count, so that the key owes no more under it.
        let is_use = |(call, decision): (&Call, &Decision)| match call {
            Call::Op(Op::Refund(..) | Op::Cancel(..) | Op::Forgive(..)) => false,
            call => call.is_update() || !decision.is_denied() && !call.is_peek(),
        };
        let own = place.and_then(|place| record.entries.get(place));
        let is_used = !self.is_of_key || calls.iter().zip(&decisions).any(is_use);
        let entry = Entry {
            settings: self.settings.clone(),
            forgettable_at: match own {
                Some(own) if !is_used => own.forgettable_at,
                _ => self.algorithm.forgettable_at(&state),
            },
            state: after,
        };
        let mut record = with_entry(record, place, entry, now)?;
        if self.is_of_key {
            let others = record.entries.iter_mut();
            for other in others.filter(|entry| entry.settings != self.settings) {
                self.count_under(other, now, calls, &decisions)?;
            }
        }
        Ok(Decided {
            decisions,
            record: Some(record),
        })
    }

    /// Counts what `calls` used under another quota of the key. That one is not kept for longer because of it.
    fn count_under(
        &self,
        other: &mut Entry,
        now: Tick,
        calls: &[Call],
        decisions: &[Decision],
    ) -> Result<(), Failure> {
        let Some(algorithm) = settings_from_bytes(&self.algorithm, &other.settings) else {
            return Ok(());
        };
        let mut state = read_state(&algorithm, other, now).ok_or(Failure::Damaged)?;
        for (call, decision) in calls.iter().zip(decisions) {
            match *call {
                Call::Op(Op::Peek(_) | Op::PeekOf(..)) => {}
                Call::Op(Op::Reset) => state = algorithm.fresh(now),
                Call::Op(Op::Take(cost)) | Call::Reserve(cost, _) => {
                    if !decision.is_denied() {
                        let _ = algorithm.charge(&mut state, now, cost);
                    }
                }
                Call::Op(op) => {
                    let _ = apply_op(&algorithm, &mut state, now, op);
                }
            }
        }
        other.state = state_to_bytes(&algorithm, &state).ok_or(Failure::Damaged)?;
        Ok(())
    }

    /// How long the store has to keep `record`: until every state in it decides like a fresh one,
    /// and a tenth and a second longer.
    pub(in crate::store) fn time_to_live(record: &Record, now: Tick) -> Duration {
        let needed = record.forgettable_at().since(now).min(MAX_TTL);
        (needed + needed / 10 + Duration::from_secs(1)).min(MAX_TTL)
    }

    /// The state of this configuration, or that of the newest other one converted. `None` if it
    /// cannot be read.
    pub(super) fn state_of(
        &self,
        record: &Record,
        place: Option<usize>,
        now: Tick,
    ) -> Option<A::State> {
        if let Some(entry) = place.and_then(|place| record.entries.get(place)) {
            return read_state(&self.algorithm, entry, now);
        }
        let other = record.entries.last().and_then(|entry| {
            let other = settings_from_bytes(&self.algorithm, &entry.settings)?;
            Some((entry, other))
        });
        let Some((entry, other)) = other else {
            return Some(self.algorithm.fresh(now));
        };
        let mut state = read_state(&other, entry, now)?;
        let algorithm = &self.algorithm;
        if other.forgettable_at(&state) <= now {
            return Some(algorithm.fresh(now));
        }
        algorithm.rescale(&mut state, &other, now);
        Some(state)
    }

    fn apply(&self, state: &mut A::State, now: Tick, call: Call) -> Decision {
        match call {
            Call::Op(op) => {
                if op == Op::Reset {
                    *state = self.algorithm.fresh(now);
                }
                let decision = apply_op(&self.algorithm, state, now, op);
                match op {
                    Op::Take(_) => decision,
                    _ => decision.with_receipt(Receipt::at(now.as_nanos())),
                }
            }
            Call::Reserve(cost, max_wait) => {
                let decision = self.algorithm.reserve(state, now, cost, max_wait);
                with_receipt(&self.algorithm, decision, now)
            }
        }
    }

    pub(super) fn to_bytes(&self, state: &A::State) -> Result<Vec<u8>, Failure> {
        state_to_bytes(&self.algorithm, state).ok_or(Failure::Damaged)
    }
}

fn read_state<A: Portable>(algorithm: &A, entry: &Entry, now: Tick) -> Option<A::State> {
    if entry.state.is_empty() {
        return Some(algorithm.fresh(now));
    }
    state_from_bytes(algorithm, &entry.state)
}

/// `record` with the state of a configuration at `place`, or as its newest one.
pub(super) fn with_entry(
    record: &Record,
    place: Option<usize>,
    entry: Entry,
    now: Tick,
) -> Result<Record, Failure> {
    let mut record = record.clone();
    for other in &mut record.entries {
        // The entry stays, so that its configuration does not take over usage again.
        if other.forgettable_at <= now {
            other.state = Vec::new();
        }
    }
    if let Some(own) = place.and_then(|place| record.entries.get_mut(place)) {
        *own = entry;
        return Ok(record);
    }
    if record.forgettable_at() <= now {
        record.entries.clear();
    } else if record.entries.len() >= MAX_ENTRIES {
        let unused = record
            .entries
            .iter()
            .position(|entry| entry.state.is_empty());
        let Some(unused) = unused else {
            return Err(Failure::TooManyConfigurations);
        };
        record.entries.remove(unused);
    }
    record.entries.push(entry);
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::TokenBucket;
    use crate::quota::Quota;

    const NOW: Tick = Tick::from_nanos(1 << 60);

    fn decider(limit: u64) -> Decider<TokenBucket> {
        let bucket = TokenBucket::new(Quota::per_hour(limit));
        Decider::new(bucket).expect("a limit")
    }

    /// What the store holds after `calls` on an unused key.
    fn record_of(decider: &Decider<TokenBucket>, calls: &[Call]) -> Record {
        let decided = decider.decide(&Record::default(), false, NOW, calls);
        let record = decided.ok().and_then(|decided| decided.record);
        record.expect("something is taken")
    }

    fn takes(cost: u64) -> Call {
        Call::Op(Op::Take(cost))
    }

    #[test]
    fn a_peek_of_a_new_configuration_takes_nothing_over() {
        let record = record_of(&decider(10), &[takes(4)]);
        let writes = |calls: &[Call]| {
            let decided = decider(20).decide(&record, true, NOW, calls);
            decided.expect("a readable record").record.is_some()
        };
        let peek = Call::Op(Op::Peek(1));
        assert!(!writes(&[peek, peek]));
        // A denial takes the usage over, so that later usage of the other one does not count.
        assert!(writes(&[takes(100)]));
        assert!(writes(&[peek, takes(100)]));
    }

    #[test]
    fn a_state_that_cannot_be_read_is_replaced_by_a_reset_and_by_nothing_else() {
        let decider = decider(10);
        let mut record = record_of(&decider, &[takes(4)]);
        record.entries[0].state = vec![0xff; 3];
        for call in [takes(1), Call::Op(Op::Peek(0)), Call::Op(Op::Charge(1))] {
            let decided = decider.decide(&record, true, NOW, &[call]);
            assert!(matches!(decided, Err(Failure::Damaged)), "{call:?}");
        }
        let reset = Call::Op(Op::Reset);
        let decided = decider.decide(&record, true, NOW, &[reset]);
        let replaced = decided.expect("a fresh state").record.expect("is written");
        assert!(decider.state_of(&replaced, Some(0), NOW).is_some());
    }

    /// Use under another quota of the key counts here, and keeps this quota no longer.
    #[test]
    fn a_quota_of_a_key_is_kept_as_long_as_its_own_use_counts() {
        let [one, other] = [10, 20].map(|limit| {
            let bucket = TokenBucket::new(Quota::per_hour(limit));
            Decider::of_key(bucket)
        });
        let record = record_of(&one, &[takes(4)]);
        let kept_until = record.entries[0].forgettable_at;
        let decide = |decider: &Decider<_>, record, calls: &[Call]| {
            let decided = decider.decide(&record, true, NOW, calls);
            decided.expect("a decision").record.expect("is written")
        };
        let record = decide(&other, record, &[takes(4)]);
        let refund = Call::Op(Op::Refund(1, Receipt::at(NOW.as_nanos())));
        let record = decide(&one, record, &[refund, Call::Op(Op::Peek(1)), takes(100)]);
        assert_eq!(record.entries[0].forgettable_at, kept_until);
        let record = decide(&one, record, &[takes(1)]);
        assert!(record.entries[0].forgettable_at > kept_until);
    }

    #[test]
    fn a_reset_is_written_if_a_fresh_key_decides_otherwise() {
        let reset = [Call::Op(Op::Reset)];
        let writes = |decider: &Decider<TokenBucket>, has_value| {
            let decided = decider.decide(&Record::default(), has_value, NOW, &reset);
            decided.expect("a decision").record.is_some()
        };
        // A full bucket decides like a key without a value.
        assert!(!writes(&decider(10), false));
        assert!(writes(&decider(10), true));
        let bucket = TokenBucket::new(Quota::per_hour(10)).initial(1);
        let filling = Decider::new(bucket).expect("a limit");
        assert!(writes(&filling, false));
    }

    /// Only calls of one quota are decided together.
    #[test]
    fn calls_of_one_quota_are_known() {
        let of = |limit| Some(Arc::new(decider(limit)));
        let call = |of_key| KeyCall {
            call: takes(1),
            of_key,
        };
        for (one, other, is_one) in [
            (of(1), of(1), true),
            (of(1), of(2), false),
            (of(1), None, false),
            (None, None, true),
        ] {
            let [one, other] = [one, other].map(call);
            assert_eq!(one.has_quota_of(&other), is_one);
        }
    }
}
