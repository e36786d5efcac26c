//! Calls that are in flight together go to the server as one.
//!
//! A call that finds fewer than `ROUNDS` rounds on their way starts one of its own at once; else
//! it waits in the queue, and the next round that comes back takes everybody who waits along, up to
//! `GATHERED` of them, as one script call over many keys. So nobody waits for company: calls are
//! gathered only while the server is busy with others.
//!
//! A round is a task. It ends when its answer comes or when the deadline of its last call is over,
//! so no task outlives its calls, and a caller that goes away leaves nothing behind.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use redis::{Cmd, Value};
use tokio::{runtime::Handle, sync::oneshot};

use super::{
    connection::{Failure, Link},
    reply::{self, Class},
    script::{Args, Program},
};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::sync::{Mutex, lock};

/// Rounds on their way at a time.
const ROUNDS: usize = 4;
/// The most calls in a round.
const GATHERED: usize = 64;
/// A cluster has a slot for each key, so each call is a round of its own.
const CLUSTER_ROUNDS: usize = 1_024;
/// The tick of tokio's timers.
const TICK: Duration = Duration::from_millis(1);
/// Calls that wait for a round; more are refused.
const WAITING: usize = 100_000;

/// The calls of one policy.
#[derive(Debug)]
pub(super) struct Batch {
    link: Arc<Link>,
    program: Program,
    deadline: Duration,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// In the order of their deadlines.
    waiting: VecDeque<Request>,
    rounds: usize,
}

#[derive(Debug)]
struct Request {
    call: Asked,
    deadline: Tick,
    waits: oneshot::Sender<Result<Answer, StoreError>>,
}

/// What the script is told of a call.
#[derive(Debug)]
struct Asked {
    key: String,
    op: i64,
    args: Args,
}

/// The numbers of a round, and where those of a call stand among them.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    numbers: Arc<[i64]>,
    at: usize,
    stride: usize,
}

impl Answer {
    /// The server's time in microseconds.
    pub(super) fn now(&self) -> u64 {
        self.numbers
            .first()
            .and_then(|now| u64::try_from(*now).ok())
            .unwrap_or(0)
    }

    /// How the call went, and its state.
    pub(super) fn outcome(&self) -> &[i64] {
        &self.numbers[self.at..self.at + self.stride]
    }
}

impl Batch {
    pub(super) fn new(link: Arc<Link>, program: Program, deadline: Duration) -> Arc<Self> {
        Arc::new(Self {
            link,
            program,
            deadline,
            queue: Mutex::default(),
        })
    }

    /// Sends a call on its way. What it hears is an answer, or an error by the deadline.
    pub(super) fn call(
        self: &Arc<Self>,
        key: String,
        op: i64,
        args: Args,
    ) -> Result<oneshot::Receiver<Result<Answer, StoreError>>, StoreError> {
        let runtime = Handle::try_current()
            .map_err(|_| StoreError::new("Redis: asked outside of a tokio runtime", false))?;
        let now = MonotonicClock.now();
        if !self.link.lets_through(now) {
            let message = "Redis: not asked, because the last calls failed";
            return Err(StoreError::new(message, true));
        }
        let (waits, receiver) = oneshot::channel();
        let request = Request {
            call: Asked { key, op, args },
            deadline: now.plus(self.deadline),
            waits,
        };
        let mut queue = lock(&self.queue);
        if queue.waiting.len() >= WAITING {
            return Err(StoreError::new("Redis: too many calls are waiting", true));
        }
        queue.waiting.push_back(request);
        if queue.rounds < self.rounds() {
            queue.rounds += 1;
            drop(queue);
            let round = Round {
                batch: Arc::clone(self),
                counted: true,
            };
            runtime.spawn(round.run());
        }
        Ok(receiver)
    }

    fn rounds(&self) -> usize {
        if self.link.gathers() {
            ROUNDS
        } else {
            CLUSTER_ROUNDS
        }
    }

    /// One script call for all of `calls`, by its digest or by its text.
    fn command(&self, name: &str, script: &str, calls: &[Asked]) -> Cmd {
        let parts = self.program.parts;
        let mut command = redis::cmd(name);
        command.arg(script).arg(calls.len() * parts);
        for call in calls {
            command.arg(&call.key);
            for part in 1..parts {
                command.arg(format!("{}:{part}", call.key));
            }
        }
        command.arg(&self.program.figures);
        for call in calls {
            command.arg(call.op).arg(call.args.numbers());
        }
        command
    }

    /// Sends `calls`, and the text of the script if the server does not know it.
    async fn exchange(&self, calls: &[Asked]) -> Result<Value, Failure> {
        let command = self.command("EVALSHA", &self.program.hash, calls);
        match self.link.send(&command).await {
            Err(failure) if failure.class == Class::NoScript => {
                let command = self.command("EVAL", &self.program.body, calls);
                self.link.send(&command).await
            }
            reply => reply,
        }
    }

    async fn serve(&self, mut requests: Vec<Request>) {
        // Whoever went away, or has waited too long, was never sent: nobody pays for it. Dropped
        // without an answer, a caller hears that it is too late.
        let now = MonotonicClock.now();
        requests.retain(|request| request.deadline > now && !request.waits.is_closed());
        let (calls, mut waiting): (Vec<_>, VecDeque<_>) = requests
            .into_iter()
            .map(|request| (request.call, (request.deadline, request.waits)))
            .unzip();

        let mut expired = 0;
        let mut exchange = std::pin::pin!(self.exchange(&calls));
        let reply = loop {
            let Some((deadline, _)) = waiting.front() else {
                break None;
            };
            let left = deadline.since(MonotonicClock.now());
            if let Ok(reply) = tokio::time::timeout(left, exchange.as_mut()).await {
                break Some(reply);
            }
            // The others may wait on, but for those whose deadlines are no timer's tick away. What
            // was sent is not sent again.
            let soon = MonotonicClock.now().plus(TICK);
            let over = waiting.iter().take_while(|(deadline, _)| *deadline <= soon);
            let over = over.count().max(1);
            waiting.drain(..over);
            expired += over;
        };
        let stride = self.program.stride();
        let numbers = match reply {
            Some(Ok(value)) => reply::numbers(&value, 1 + stride * calls.len()),
            Some(Err(failure)) => {
                // A server that says what is wrong with us is there.
                if failure.class != Class::Wrong {
                    self.link.failed(MonotonicClock.now());
                }
                Err(failure.error)
            }
            None => {
                if expired > 0 {
                    self.link.failed(MonotonicClock.now());
                }
                return;
            }
        };
        if numbers.is_ok() {
            self.link.succeeded();
        }
        let numbers = numbers.map(Arc::from);
        for (index, (_, waits)) in (expired..).zip(waiting) {
            let _ = waits.send(numbers.clone().map(|numbers| Answer {
                numbers,
                at: 1 + stride * index,
                stride,
            }));
        }
    }
}

/// The task of a round.
struct Round {
    batch: Arc<Batch>,
    /// It is among the rounds that the queue counts.
    counted: bool,
}

impl Round {
    async fn run(mut self) {
        while let Some(requests) = self.next() {
            self.batch.serve(requests).await;
        }
    }

    /// The next calls. With none the round is over, and counted out under the same lock: a call
    /// that comes after it starts a new one.
    fn next(&mut self) -> Option<Vec<Request>> {
        let most = if self.batch.link.gathers() {
            GATHERED
        } else {
            1
        };
        let mut queue = lock(&self.batch.queue);
        let count = queue.waiting.len().min(most);
        if count == 0 {
            queue.rounds -= 1;
            self.counted = false;
            return None;
        }
        Some(queue.waiting.drain(..count).collect())
    }
}

/// A round that is cut off, because its runtime is shut down, takes with it those for whom no
/// other round would come.
impl Drop for Round {
    fn drop(&mut self) {
        if self.counted {
            let mut queue = lock(&self.batch.queue);
            queue.rounds -= 1;
            if queue.rounds == 0 {
                queue.waiting.clear();
            }
        }
    }
}
