//! Calls that are in flight together go to the server as one.
//!
//! A call that is alone is carried by its caller: no task, no hop. A call beside it finds fewer than
//! `MAX_IN_FLIGHT` rounds on their way and starts one; else it waits in the queue, and the next round that
//! comes back takes everybody who waits along, up to `MAX_BATCH` of them, as one script call over
//! many keys. Nobody waits for company longer than it takes those to ask who are ready to.
//!
//! A round is a task. It ends when its answer comes or when the deadline of its last call is over,
//! so no task outlives its calls, and a caller that goes away leaves nothing behind.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::{runtime::Handle, sync::oneshot};

use super::{
    connection::{CallError, Connection},
    reply::{self, ErrorClass},
    script::{Args, Program},
};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::sync::{Mutex, lock};

/// Rounds on their way at a time: one that the server carries out, and one that is written or read.
const MAX_IN_FLIGHT: usize = 2;
/// The most calls in a round.
const MAX_BATCH: usize = 64;
/// A slot that is on its way is asked for again after so long.
const SLOT_RETRY_DELAY: Duration = Duration::from_millis(5);
/// The tick of tokio's timers.
const TIMER_TICK: Duration = Duration::from_millis(1);
/// Calls that wait for a round; more are refused.
const MAX_QUEUED: usize = 100_000;

/// The calls of one policy.
#[derive(Debug)]
pub(super) struct Batcher {
    link: Arc<Connection>,
    program: Arc<Program>,
    deadline: Duration,
    queue: Mutex<BatchQueue>,
}

#[derive(Debug, Default)]
struct BatchQueue {
    /// In the order of their deadlines.
    waiting: VecDeque<QueuedCall>,
    rounds: usize,
    /// A caller carries its call itself.
    alone: bool,
}

#[derive(Debug)]
struct QueuedCall {
    call: ScriptCall,
    deadline: Tick,
    waits: oneshot::Sender<CallResult>,
}

/// What the script is told of a call.
#[derive(Debug)]
pub(super) struct ScriptCall {
    pub(super) key: String,
    pub(super) args: Args,
}

/// What comes back for a call.
type CallResult = Result<ResponseHooks, StoreError>;

/// The numbers of a round, and where those of a call stand among them.
#[derive(Clone, Debug)]
pub(super) struct ResponseHooks {
    numbers: Arc<[i64]>,
    at: usize,
    stride: usize,
}

impl ResponseHooks {
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

impl Batcher {
    pub(super) fn new(
        link: Arc<Connection>,
        program: Arc<Program>,
        deadline: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            link,
            program,
            deadline,
            queue: Mutex::default(),
        })
    }

    /// Sends a call on its way. What it hears is an answer, or an error by the deadline.
    pub(super) fn call(self: &Arc<Self>, call: ScriptCall) -> Result<PendingCall, StoreError> {
        let runtime = Handle::try_current()
            .map_err(|_| StoreError::new("Redis: asked outside of a tokio runtime", false))?;
        let now = MonotonicClock.now();
        if !self.link.lets_through(now) {
            let message = "Redis: not asked, because the last calls failed";
            return Err(StoreError::new(message, true));
        }
        let deadline = now.plus(self.deadline);
        if !self.link.supports_batching() {
            // A cluster has a slot for each key, so each call goes by itself.
            return Ok(DirectCall::new(self, runtime, call, deadline, false));
        }
        let mut queue = lock(&self.queue);
        if queue.rounds == 0 && !queue.alone {
            queue.alone = true;
            drop(queue);
            return Ok(DirectCall::new(self, runtime, call, deadline, true));
        }
        if queue.waiting.len() >= MAX_QUEUED {
            return Err(StoreError::new("Redis: too many calls are waiting", true));
        }
        let (waits, receiver) = oneshot::channel();
        queue.waiting.push_back(QueuedCall {
            call,
            deadline,
            waits,
        });
        if queue.rounds < MAX_IN_FLIGHT {
            queue.rounds += 1;
            drop(queue);
            let round = BatchTask {
                batch: Arc::clone(self),
                counted: true,
            };
            runtime.spawn(round.run());
        }
        Ok(PendingCall::Batched(receiver))
    }

    /// One script call for all of `calls`, by its digest or by its text.
    fn command(&self, name: &str, script: &str, calls: &[ScriptCall]) -> Cmd {
        let parts = self.program.parts;
        let (figures, headers) = self.program.begin();
        // Room for all, so that it is found once.
        let texts = name.len() + script.len() + figures.len();
        let each = |call: &ScriptCall| (call.key.len() + 2) * parts + call.args.packed().len();
        let bytes = texts + calls.iter().map(each).sum::<usize>() + 64 * parts;
        let mut command = Cmd::with_capacity(4 + (calls.len() + 1) * (parts + 1), bytes);
        command.arg(name).arg(script).arg(calls.len() * parts);
        for call in calls {
            command.arg(&call.key);
            for part in 1..parts {
                command.arg(format!("{}:{part}", call.key));
            }
        }
        command.arg(figures).arg(headers);
        if let Some((first, others)) = calls.split_first() {
            command.arg(first.args.packed());
            if others.iter().any(|call| call.args != first.args) {
                for call in others {
                    command.arg(call.args.packed());
                }
            }
        }
        command
    }

    /// Sends `calls`; once more if that was certainly not carried out, and may be now.
    async fn exchange(&self, calls: &[ScriptCall]) -> Result<Value, CallError> {
        let command = self.command("EVALSHA", &self.program.hash, calls);
        match self.link.send(&command).await {
            // Seldom, and not to weigh on every call.
            Err(failure) => Box::pin(self.execute_again(calls, failure)).await,
            reply => reply,
        }
    }

    async fn execute_again(
        &self,
        calls: &[ScriptCall],
        failure: CallError,
    ) -> Result<Value, CallError> {
        let mut failure = failure;
        let mut tried_again = false;
        loop {
            let is_new = failure.class == ErrorClass::NoScript;
            match failure.class {
                ErrorClass::NoScript => {}
                // The next connection may lead to the right one.
                ErrorClass::WrongServer if !tried_again => {}
                ErrorClass::SlotMigrating if !tried_again => {
                    tokio::time::sleep(SLOT_RETRY_DELAY).await
                }
                _ => return Err(failure),
            }
            tried_again |= !is_new;
            let command = if is_new {
                self.command("EVAL", &self.program.body, calls)
            } else {
                self.command("EVALSHA", &self.program.hash, calls)
            };
            match self.link.send(&command).await {
                // Nothing is unknown to the server that has the text.
                Err(again) if !(is_new && again.class == ErrorClass::NoScript) => failure = again,
                reply => return reply,
            }
        }
    }

    /// The numbers in a reply on so many calls.
    fn hear(
        &self,
        reply: Result<Value, CallError>,
        calls: usize,
    ) -> Result<Arc<[i64]>, StoreError> {
        let numbers = match reply {
            Ok(value) => reply::numbers(&value, 1 + self.program.stride() * calls)?,
            Err(failure) => {
                // A server that says what is wrong with us is there.
                if failure.class != ErrorClass::Permanent {
                    self.link.failed(MonotonicClock.now());
                }
                return Err(failure.error);
            }
        };
        self.link.succeeded();
        Ok(numbers)
    }

    fn answer(&self, numbers: Arc<[i64]>, index: usize) -> ResponseHooks {
        let stride = self.program.stride();
        ResponseHooks {
            numbers,
            at: 1 + stride * index,
            stride,
        }
    }

    async fn run_direct(self: Arc<Self>, call: ScriptCall, deadline: Tick) -> CallResult {
        let left = deadline.since(MonotonicClock.now());
        if left.is_zero() {
            return Err(late(self.deadline));
        }
        let exchange = pin!(self.exchange(std::slice::from_ref(&call)));
        let Ok(reply) = tokio::time::timeout(left, exchange).await else {
            self.link.failed(MonotonicClock.now());
            return Err(late(self.deadline));
        };
        self.hear(reply, 1).map(|numbers| self.answer(numbers, 0))
    }

    async fn serve(&self, mut requests: Vec<QueuedCall>) {
        // Whoever went away, or has waited too long, was never sent: nobody pays for it. Dropped
        // without an answer, a caller hears that it is too late.
        let now = MonotonicClock.now();
        requests.retain(|request| request.deadline > now && !request.waits.is_closed());
        let (calls, mut waiting): (Vec<_>, VecDeque<_>) = requests
            .into_iter()
            .map(|request| (request.call, (request.deadline, request.waits)))
            .unzip();

        let mut expired = 0;
        let mut exchange = pin!(self.exchange(&calls));
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
            let soon = MonotonicClock.now().plus(TIMER_TICK);
            let over = waiting.iter().take_while(|(deadline, _)| *deadline <= soon);
            let over = over.count().max(1);
            waiting.drain(..over);
            expired += over;
        };
        let Some(reply) = reply else {
            if expired > 0 {
                self.link.failed(MonotonicClock.now());
            }
            return;
        };
        let numbers = self.hear(reply, calls.len());
        for (index, (_, waits)) in (expired..).zip(waiting) {
            let heard = numbers.clone();
            let _ = waits.send(heard.map(|numbers| self.answer(numbers, index)));
        }
    }
}

/// What a caller hears whose answer does not come by its deadline.
pub(super) fn late(deadline: Duration) -> StoreError {
    StoreError::new(format!("Redis: no answer within {deadline:?}"), true)
}

/// A call on its way.
#[derive(Debug)]
pub(super) enum PendingCall {
    /// CallFuture by its caller.
    Direct(DirectCall),
    /// CallFuture by a round.
    Batched(oneshot::Receiver<CallResult>),
}

impl PendingCall {
    /// Nothing, where it is too late.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<CallResult>> {
        match self {
            Self::Direct(alone) => alone.poll(cx).map(Some),
            Self::Batched(receiver) => Pin::new(receiver).poll(cx).map(Result::ok),
        }
    }
}

type CallFuture = Pin<Box<dyn Future<Output = CallResult> + Send>>;

/// A call that its caller carries. Left by its caller after it was sent, it goes on in a task, as
/// if it were a round: what comes of it says whether the server answers.
pub(super) struct DirectCall {
    batch: Arc<Batcher>,
    runtime: Handle,
    /// Until it is over.
    carried: Option<CallFuture>,
    polled: bool,
    /// It is the one that the queue knows of.
    counted: bool,
}

impl DirectCall {
    #[expect(clippy::new_ret_no_self, reason = "one kind of a pending call")]
    fn new(
        batch: &Arc<Batcher>,
        runtime: Handle,
        call: ScriptCall,
        deadline: Tick,
        counted: bool,
    ) -> PendingCall {
        let carried = Arc::clone(batch).run_direct(call, deadline);
        PendingCall::Direct(Self {
            batch: Arc::clone(batch),
            runtime,
            carried: Some(Box::pin(carried)),
            polled: false,
            counted,
        })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CallResult> {
        let Some(carried) = &mut self.carried else {
            return Poll::Pending;
        };
        // Whoever polls it need not be of the runtime that it was asked in.
        let entered = self.runtime.enter();
        self.polled = true;
        let heard = carried.as_mut().poll(cx);
        drop(entered);
        if heard.is_ready() {
            self.carried = None;
            self.over();
        }
        heard
    }

    fn over(&mut self) {
        if self.counted {
            self.counted = false;
            lock(&self.batch.queue).alone = false;
        }
    }
}

impl Drop for DirectCall {
    fn drop(&mut self) {
        self.over();
        if let Some(carried) = self.carried.take().filter(|_| self.polled) {
            self.runtime.spawn(carried);
        }
    }
}

/// By hand: a future has nothing to show.
impl fmt::Debug for DirectCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectCall").finish_non_exhaustive()
    }
}

/// The task of a round.
struct BatchTask {
    batch: Arc<Batcher>,
    /// It is among the rounds that the queue counts.
    counted: bool,
}

impl BatchTask {
    async fn run(mut self) {
        loop {
            // Those who are ready to ask, as whoever has just heard an answer, come along.
            tokio::task::yield_now().await;
            let Some(requests) = self.next() else {
                return;
            };
            self.batch.serve(requests).await;
        }
    }

    /// The next calls. With none the round is over, and counted out under the same lock: a call
    /// that comes after it starts a new one.
    fn next(&mut self) -> Option<Vec<QueuedCall>> {
        let mut queue = lock(&self.batch.queue);
        let count = queue.waiting.len().min(MAX_BATCH);
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
impl Drop for BatchTask {
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
