//! Applies steps to the states of all keys.

use std::{
    collections::{HashMap, hash_map::Entry},
    rc::Rc,
};

use tower_throttle::{Decision, Quota, Verdict, algorithm::Algorithm, clock::Tick};

use crate::{
    answer::{Answer, Outcome, nanos},
    line::Line,
    policy::{Policy, QuotaChange},
    states::States,
    step::{Op, Step},
};

pub(crate) struct Replay {
    policy: Policy,
    states: Box<dyn States>,
    /// The newest time so far. The time of a step may go back, this one does not.
    now: Tick,
    keys: Vec<Key>,
    by_name: HashMap<Rc<str>, usize>,
    /// Requests with an id: their key and number.
    named: HashMap<String, (usize, u64)>,
    /// The number of requests so far.
    requests: u64,
    released: Vec<Released>,
}

struct Key {
    name: Rc<str>,
    line: Line,
}

/// An admitted request.
pub(crate) struct Released {
    pub(crate) key: usize,
    pub(crate) at: u64,
    pub(crate) units: u64,
    /// Whether it was queued.
    pub(crate) waited: bool,
}

/// The result of an operation.
struct Reply {
    outcome: Outcome,
    decision: Decision,
    taken: Option<u64>,
    dropped: Option<u64>,
}

impl Replay {
    pub(crate) fn new(policy: Policy, states: Box<dyn States>) -> Self {
        Self {
            policy,
            states,
            now: Tick::ZERO,
            keys: Vec::new(),
            by_name: HashMap::new(),
            named: HashMap::new(),
            requests: 0,
            released: Vec::new(),
        }
    }

    /// Applies a step, or returns what is wrong with it.
    pub(crate) fn step(&mut self, step: Step) -> Result<Answer, String> {
        self.now = self.now.max(Tick::from_nanos(step.t_ns));
        self.released.clear();
        let key = self.key_of(&step)?;
        self.release(key, self.now);

        let Step { t_ns, n, op, .. } = step;
        let name = op.name();
        let offers = matches!(op, Op::Check { .. } | Op::Acquire { .. } | Op::TakeUpTo);
        let reply = self.apply(key, n, op)?;
        Ok(Answer {
            t_ns,
            now: self.now.as_nanos(),
            key,
            op: name,
            outcome: reply.outcome,
            limit: reply.decision.limit,
            remaining: reply.decision.remaining(),
            retry_after_ns: reply.decision.retry_after.map(nanos),
            reset_after_ns: nanos(reply.decision.reset_after),
            taken: reply.taken,
            offered: offers.then_some(n),
            dropped: reply.dropped,
        })
    }

    /// Releases all queued requests at their turns.
    pub(crate) fn finish(&mut self) {
        self.released.clear();
        for key in 0..self.keys.len() {
            self.release(key, Tick::MAX);
        }
    }

    /// The requests admitted by the last step; those of one key in the order of their turns.
    pub(crate) fn released(&self) -> &[Released] {
        &self.released
    }

    /// The quota of each key.
    pub(crate) fn quota(&self) -> Quota {
        self.policy.algorithm.quota()
    }

    /// The name of a key.
    pub(crate) fn name(&self, key: usize) -> &str {
        &self.keys[key].name
    }

    /// The index of the step's key; a new key gets one.
    fn key_of(&mut self, step: &Step) -> Result<usize, String> {
        let named = step.key.as_deref();
        if let Op::Cancel { of } = &step.op {
            let (key, _) = self.request(of)?;
            let name = self.name(key);
            return match named {
                Some(other) if other != name => Err(format!(
                    "key: expected {name:?}, the key of request {of:?}, found {other:?}"
                )),
                _ => Ok(key),
            };
        }
        let name = named.unwrap_or_default();
        if let Some(key) = self.by_name.get(name) {
            return Ok(*key);
        }
        let name: Rc<str> = name.into();
        self.states.begin(&name, self.now)?;
        self.keys.push(Key {
            name: Rc::clone(&name),
            line: Line::default(),
        });
        self.by_name.insert(name, self.keys.len() - 1);
        Ok(self.keys.len() - 1)
    }

    fn apply(&mut self, key: usize, n: u64, op: Op) -> Result<Reply, String> {
        let now = self.now;
        let states = &mut self.states;
        Ok(match op {
            Op::Check { id } => {
                let decision = match self.policy.longest_check() {
                    Some(longest) => states.reserve(key, now, n, longest)?,
                    None => states.decide(key, now, n)?,
                };
                self.request_decided(key, n, id, decision)?
            }
            Op::Acquire { .. } if !self.policy.keeps_line => {
                return Err("acquire: expected a policy with a queue: \
                     token_bucket, leaky_bucket or warm_up"
                    .into());
            }
            Op::Acquire { id, max_wait } => {
                let max_wait = max_wait.unwrap_or(self.policy.max_wait);
                let decision = states.reserve(key, now, n, max_wait)?;
                self.request_decided(key, n, id, decision)?
            }
            Op::Peek => {
                let decision = self.peek(key, n)?;
                let mut reply = Reply::decided(decision);
                // A `peek` at the queue of `acquire` reports an admission after the wait.
                if let (true, Outcome::Wait(wait)) = (self.policy.peeks_at_line, reply.outcome) {
                    reply.outcome = Outcome::Admit(wait);
                }
                reply
            }
            Op::TakeUpTo => self.take_up_to(key, n)?,
            Op::Refund => {
                states.refund(key, now, n)?;
                self.done(key)?
            }
            Op::Charge => {
                let owed = states.charge(key, now, n)?;
                Reply {
                    outcome: Outcome::Done(nanos(owed)),
                    ..self.done(key)?
                }
            }
            Op::Cancel { of } => {
                let (_, number) = self.request(&of)?;
                self.cancel(key, number)?
            }
            Op::Reset => {
                states.reset(key, now)?;
                self.keys[key].line.detach();
                self.done(key)?
            }
            Op::SetQuota(change) => {
                self.set_quota(&change)?;
                self.done(key)?
            }
        })
    }

    /// Records a request and its decision.
    fn request_decided(
        &mut self,
        key: usize,
        n: u64,
        id: Option<String>,
        decision: Decision,
    ) -> Result<Reply, String> {
        self.requests += 1;
        if let Some(id) = id {
            match self.named.entry(id) {
                Entry::Vacant(vacant) => vacant.insert((key, self.requests)),
                Entry::Occupied(taken) => {
                    return Err(format!(
                        "id: expected a new one, {:?} is taken",
                        taken.key()
                    ));
                }
            };
        }
        match decision.verdict {
            Verdict::Admit => self.released.push(Released {
                key,
                at: self.now.as_nanos(),
                units: n,
                waited: false,
            }),
            Verdict::Wait(wait) => {
                let turn = self.now.plus(wait);
                self.keys[key].line.join(self.requests, turn, n);
            }
            _ => {}
        }
        Ok(Reply::decided(decision))
    }

    fn peek(&mut self, key: usize, n: u64) -> Result<Decision, String> {
        if !self.policy.peeks_at_line {
            return self.states.peek(key, self.now, n);
        }
        // A plain peek says nothing of turns.
        self.states
            .peek_at_line(key, self.now, n, self.policy.max_wait)
    }

    fn take_up_to(&mut self, key: usize, most: u64) -> Result<Reply, String> {
        let (taken, mut decision) = self.states.take_up_to(key, self.now, most)?;
        let outcome = if taken > 0 || most == 0 {
            Outcome::Admit(0)
        } else {
            // The next take succeeds once a single unit is there.
            decision.retry_after = self.states.peek(key, self.now, 1)?.retry_after;
            Outcome::Deny
        };
        self.released.push(Released {
            key,
            at: self.now.as_nanos(),
            units: taken,
            waited: false,
        });
        Ok(Reply {
            outcome,
            taken: Some(taken),
            ..Reply::decided(decision)
        })
    }

    fn cancel(&mut self, key: usize, number: u64) -> Result<Reply, String> {
        let quota = self.policy.algorithm.quota();
        let dropped = self.keys[key].line.leave(number, self.now, &quota);
        if let Some(units) = dropped {
            self.states.refund(key, self.now, units)?;
        }
        Ok(Reply {
            dropped,
            ..self.done(key)?
        })
    }

    /// Changes the quota of all keys.
    fn set_quota(&mut self, change: &QuotaChange) -> Result<(), String> {
        self.policy.set_quota(change, 1)?;
        self.states.set_quota(&self.policy, change, self.now)
    }

    fn done(&mut self, key: usize) -> Result<Reply, String> {
        Ok(Reply {
            outcome: Outcome::Done(0),
            ..Reply::decided(self.peek(key, 0)?)
        })
    }

    fn request(&self, id: &str) -> Result<(usize, u64), String> {
        let request = self.named.get(id).copied();
        request.ok_or_else(|| format!("of: expected the id of an earlier request, found {id:?}"))
    }

    fn release(&mut self, key: usize, now: Tick) {
        while let Some((turn, units)) = self.keys[key].line.next_due(now) {
            let at = turn.as_nanos();
            self.released.push(Released {
                key,
                at,
                units,
                waited: true,
            });
        }
    }
}

impl Reply {
    fn decided(decision: Decision) -> Self {
        Self {
            outcome: Outcome::from(&decision),
            decision,
            taken: None,
            dropped: None,
        }
    }
}
