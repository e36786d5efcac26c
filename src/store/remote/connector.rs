//! Connections that are made in the background.
//!
//! One attempt runs at a time, in a task that outlives the calls that wait for it. A call that ends by
//! its deadline does not end the attempt.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::Notify};

use super::task::{catch_panic, runtime};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::{deadline::within, events::RemoteMetrics};
use crate::sync::{Mutex, lock};

/// What makes a connection, or something else that a call needs first.
pub(crate) trait Connect: Send + Sync + 'static {
    type Connection: Send + 'static;

    /// The store's name in errors.
    const STORE: &'static str;
    /// What it makes, in errors.
    const WHAT: &'static str;
    /// The pause after a failed attempt, unless it was refused. Calls fail with its error meanwhile.
    const PAUSE: Duration;

    /// How long an attempt may take.
    fn timeout(&self) -> Duration;

    /// Where it connects.
    fn runtime(&self) -> Result<Handle, StoreError> {
        runtime(Self::STORE)
    }

    fn connect(&self) -> impl Future<Output = Result<Self::Connection, StoreError>> + Send;
}

/// Makes connections when they are needed, and keeps them.
pub(crate) struct Connector<C: Connect> {
    connect: C,
    state: Mutex<State<C::Connection>>,
    /// Notified when an attempt ends.
    changed: Notify,
}

struct State<T> {
    connections: Vec<T>,
    /// When the running attempt began, and its number.
    running: Option<(Tick, u64)>,
    attempts: u64,
    /// The last attempt, if it failed.
    failure: Option<FailedAttempt>,
    /// The last attempt that was dropped before it ended: its runtime shut down.
    dropped: Option<u64>,
}

struct FailedAttempt {
    at: Tick,
    number: u64,
    error: StoreError,
}

/// What a call takes of the connections that there are.
pub(crate) struct Pick<T, C> {
    pub(crate) picked: Option<T>,
    /// Whether another connection should be made.
    pub(crate) wants_another: bool,
    /// Connections that broke. They are dropped outside the lock.
    pub(crate) unusable: Vec<C>,
}

/// How long no attempt is made after one that failed: `least`, or longer if an operator has to correct
/// something first, as a password.
fn pause_after(error: &StoreError, least: Duration) -> Duration {
    /// A server may count wrong passwords.
    const AFTER_REFUSAL: Duration = Duration::from_secs(2);
    if error.is_transient() {
        least
    } else {
        AFTER_REFUSAL
    }
}

impl<C: Connect> Connector<C> {
    pub(crate) fn new(connect: C, connections: Vec<C::Connection>) -> Arc<Self> {
        Arc::new(Self {
            connect,
            state: Mutex::new(State {
                connections,
                running: None,
                attempts: 0,
                failure: None,
                dropped: None,
            }),
            changed: Notify::new(),
        })
    }

    pub(crate) const fn settings(&self) -> &C {
        &self.connect
    }

    /// Lets the next call try at once: what was refused has been corrected.
    #[cfg(feature = "cassandra")]
    pub(crate) fn forget_failure(&self) {
        lock(&self.state).failure = None;
    }

    /// What `pick` takes. Waits for an attempt if it takes nothing.
    pub(crate) async fn get<T>(
        self: &Arc<Self>,
        pick: impl Fn(&mut Vec<C::Connection>) -> Pick<T, C::Connection>,
    ) -> Result<T, StoreError> {
        let mut awaited = None;
        loop {
            // Before the state is read, so that no change is missed.
            let changed = self.changed.notified();
            match self.existing(&pick, awaited)? {
                Ok(picked) => return Ok(picked),
                Err(attempt) => awaited = Some(awaited.unwrap_or(attempt)),
            }
            changed.await;
        }
    }

    /// What `pick` takes, or the number of the attempt to wait for. `awaited` is an attempt that the
    /// caller has waited for: if that or a later one failed, its error is returned.
    fn existing<T>(
        self: &Arc<Self>,
        pick: impl Fn(&mut Vec<C::Connection>) -> Pick<T, C::Connection>,
        awaited: Option<u64>,
    ) -> Result<Result<T, u64>, StoreError> {
        let mut state = lock(&self.state);
        let Pick {
            picked,
            wants_another,
            unusable,
        } = pick(&mut state.connections);
        if !wants_another {
            let attempts = state.attempts;
            drop(state);
            drop(unusable);
            return Ok(picked.ok_or(attempts));
        }
        let now = MonotonicClock.now();
        let is_running = state
            .running
            .is_some_and(|(since, _)| now.since(since) < 2 * self.connect.timeout());
        let failure = state.failure.as_ref().filter(|failure| {
            let is_awaited = awaited.is_some_and(|attempt| failure.number >= attempt);
            is_awaited || now.since(failure.at) < pause_after(&failure.error, C::PAUSE)
        });
        let failure = failure.map(|failure| failure.error.clone());
        let mut task = None;
        if !is_running {
            match failure {
                Some(error) if picked.is_none() => return Err(error),
                Some(_) => {}
                None => {
                    state.attempts += 1;
                    state.running = Some((now, state.attempts));
                    task = Some(Attempt {
                        connector: Arc::clone(self),
                        number: state.attempts,
                        has_ended: false,
                    });
                }
            }
        }
        let attempt = state.running.map_or(state.attempts, |(_, number)| number);
        drop(state);
        drop(unusable);
        if let Some(task) = task {
            // A runtime that shuts down drops the task at once, which locks the state.
            self.connect.runtime()?.spawn(task.run());
            if picked.is_none() && lock(&self.state).dropped == Some(attempt) {
                // The call would start one attempt after the other, without a pause.
                let text = format!("{}: the runtime of the call shuts down", C::STORE);
                return Err(StoreError::new(text, true));
            }
        }
        Ok(picked.ok_or(attempt))
    }
}

#[cfg(feature = "redis")]
impl<C: Connect> Connector<C> {
    /// What `find` finds among the connections that there are.
    pub(crate) fn find<T>(&self, find: impl FnOnce(&[C::Connection]) -> Option<T>) -> Option<T> {
        find(&lock(&self.state).connections)
    }

    /// Why the last attempt failed, if it did.
    pub(crate) fn last_error(&self) -> Option<StoreError> {
        let state = lock(&self.state);
        state.failure.as_ref().map(|failure| failure.error.clone())
    }
}

/// The task that connects.
struct Attempt<C: Connect> {
    connector: Arc<Connector<C>>,
    number: u64,
    has_ended: bool,
}

impl<C: Connect> Attempt<C> {
    async fn run(mut self) {
        let timeout = self.connector.connect.timeout();
        let ends_at = MonotonicClock.now().plus(timeout);
        let connecting = catch_panic(C::STORE, self.connector.connect.connect());
        let connected = within(ends_at, connecting).await.unwrap_or_else(|| {
            let text = format!("{}: no {} within {:?}", C::STORE, C::WHAT, timeout);
            Ok(Err(StoreError::new(text, true)))
        });
        let connected = connected.and_then(|connected| connected);
        RemoteMetrics(C::STORE).connected(connected.is_ok());
        let at = MonotonicClock.now();
        self.has_ended = true;
        let mut state = lock(&self.connector.state);
        match connected {
            Ok(connection) => {
                state.connections.push(connection);
                state.failure = None;
            }
            Err(error) => {
                let number = self.number;
                state.failure = Some(FailedAttempt { at, number, error });
            }
        }
    }
}

/// Runs also when the runtime shuts down, so that no call waits for a task that has ended.
impl<C: Connect> Drop for Attempt<C> {
    fn drop(&mut self) {
        let mut state = lock(&self.connector.state);
        let is_last = state
            .running
            .is_some_and(|(_, number)| number == self.number);
        if is_last {
            state.running = None;
        }
        if !self.has_ended {
            state.dropped = Some(self.number);
        }
        drop(state);
        self.connector.changed.notify_waiters();
    }
}

/// Manual impl: settings hold a password.
impl<C: Connect> fmt::Debug for Connector<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicU32, Ordering},
        sync::mpsc::{Sender, channel},
    };

    use super::*;

    /// Fails, and counts how often it was tried.
    struct Failing {
        is_transient: bool,
        tried: AtomicU32,
    }

    impl Connect for Failing {
        type Connection = ();

        const STORE: &'static str = "store";
        const WHAT: &'static str = "connection";
        const PAUSE: Duration = Duration::from_millis(100);

        fn timeout(&self) -> Duration {
            Duration::from_secs(1)
        }

        async fn connect(&self) -> Result<(), StoreError> {
            self.tried.fetch_add(1, Ordering::Relaxed);
            Err(StoreError::new("no entry", self.is_transient))
        }
    }

    fn failing(is_transient: bool) -> Arc<Connector<Failing>> {
        let connect = Failing {
            is_transient,
            tried: AtomicU32::new(0),
        };
        Connector::new(connect, Vec::new())
    }

    /// A call that takes `picked`, and wants another connection.
    fn pick(picked: Option<()>) -> impl Fn(&mut Vec<()>) -> Pick<(), ()> {
        move |_| Pick {
            picked,
            wants_another: true,
            unusable: Vec::new(),
        }
    }

    /// A refused password is tried again once per two seconds.
    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_tried_again_once_per_two_seconds() {
        for (is_transient, allowed) in [(true, 80..=110), (false, 5..=6)] {
            let connector = failing(is_transient);
            for _ in 0..1_000 {
                let error = connector.get(pick(None)).await.expect_err("no entry");
                assert_eq!(error.is_transient(), is_transient);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let tried = connector.settings().tried.load(Ordering::Relaxed);
            assert!(allowed.contains(&tried), "{is_transient}: {tried}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_attempt_fails_the_calls_that_waited_for_it() {
        let connector = failing(true);
        let error = connector.get(pick(None)).await.expect_err("no entry");
        // During the pause, all calls that have no connection.
        assert_eq!(connector.existing(pick(Some(())), None), Ok(Ok(())));
        assert_eq!(connector.existing(pick(None), None), Err(error.clone()));
        tokio::time::advance(Failing::PAUSE).await;
        // After it, the calls that waited for this attempt, however late they look for its result.
        assert_eq!(connector.existing(pick(None), Some(1)), Err(error));
        // The others wait for the next one.
        assert_eq!(connector.existing(pick(None), Some(2)), Ok(Err(2)));
    }

    /// Reports when it is dropped.
    struct ReportDrop(Sender<()>);

    impl Drop for ReportDrop {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }

    /// One worker shuts the runtime down while another still polls the call.
    ///
    /// Shows promise 86.
    #[test]
    fn a_call_in_a_runtime_that_shuts_down_fails() {
        let builder = &mut tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).build().expect("a runtime");
        let (begin, begun) = channel();
        let (shut_down, shuts_down) = channel();
        let (reply, replied) = channel();
        let connector = failing(true);
        let called = Arc::clone(&connector);
        runtime.spawn(async move {
            begin.send(()).expect("the test waits");
            shuts_down.recv().expect("the other task is dropped");
            let _ = reply.send(called.get(pick(None)).await);
        });
        let other = ReportDrop(shut_down);
        runtime.spawn(async move {
            pending::<()>().await;
            drop(other);
        });
        begun.recv().expect("the task runs");
        runtime.shutdown_background();
        let result = replied.recv_timeout(Duration::from_secs(10));
        let error = result.expect("the call ends").expect_err("no task");
        assert!(error.is_transient());
        // A runtime that runs tries at once.
        assert_eq!(connector.settings().tried.load(Ordering::Relaxed), 0);
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build().expect("a runtime");
        let error = runtime.block_on(connector.get(pick(None)));
        assert_eq!(error, Err(StoreError::new("no entry", true)));
    }

    #[cfg(all(feature = "redis", feature = "cassandra"))]
    #[tokio::test(start_paused = true)]
    async fn the_next_call_after_a_correction_tries_at_once() {
        let connector = failing(false);
        let error = connector.get(pick(None)).await.expect_err("no entry");
        assert_eq!(connector.last_error(), Some(error.clone()));
        assert_eq!(connector.existing(pick(None), None), Err(error));
        connector.forget_failure();
        assert_eq!(connector.last_error(), None);
        assert_eq!(connector.existing(pick(None), None), Ok(Err(2)));
    }

    /// The runtime of its task does not run any more.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_does_not_end_is_given_up_after_twice_its_time() {
        let connector = failing(true);
        lock(&connector.state).running = Some((MonotonicClock.now(), 7));
        let nanosecond = Duration::from_nanos(1);
        let twice = 2 * connector.settings().timeout();
        tokio::time::advance(twice.saturating_sub(nanosecond)).await;
        assert_eq!(connector.existing(pick(None), None), Ok(Err(7)));
        tokio::time::advance(nanosecond).await;
        assert_eq!(connector.existing(pick(None), None), Ok(Err(1)));
    }
}
