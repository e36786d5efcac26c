//! Connections that are made in the background, shared by calls, and replaced when they break.
//!
//! One attempt to connect runs at a time, in a task that outlives the calls that wait for it. A call that ends by
//! its deadline does not end the attempt.

use std::{
    fmt,
    future::Future,
    mem,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, sync::watch};

use super::task::{catch_panic, runtime};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::{deadline::within, events::RemoteMetrics};
use crate::sync::{Mutex, lock};

/// If every connection has so many calls in flight, another one is made.
const CALLS_PER_CONNECTION: usize = 4;
/// A connection with so many calls in a row without a reply counts as dead.
const MAX_UNANSWERED: u32 = 3;
/// The pause after an attempt that was refused, as an operator has to correct something first: a server may count wrong
/// passwords.
const AFTER_REFUSAL: Duration = Duration::from_secs(2);
/// A younger connection to several servers is not replaced: a server that is silent does not reply on another one either.
const MIN_AGE: Duration = Duration::from_secs(1);

/// What makes connections, or something else that a call needs first.
pub(crate) trait Connect: Send + Sync + 'static {
    type Connection: Send + Sync + 'static;

    /// The store's name in errors.
    const STORE: &'static str;
    /// The pause after a failed attempt, unless it was refused. Calls fail with its error meanwhile.
    const PAUSE: Duration;
    /// No connection counts as dead that has replied within this time.
    const SILENCE: Duration = Duration::ZERO;

    /// How long an attempt may take.
    fn timeout(&self) -> Duration;

    /// Where it connects.
    fn runtime(&self) -> Result<Handle, StoreError> {
        runtime(Self::STORE)
    }

    /// How many connections there may be.
    fn most(&self) -> usize {
        1
    }

    /// Whether a connection leads to several servers. Then one call without a reply breaks it, and it is used until
    /// there is another one.
    fn has_several_servers(&self) -> bool {
        false
    }

    fn is_open(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        true
    }

    fn connect(&self) -> impl Future<Output = Result<Self::Connection, StoreError>> + Send;
}

/// Makes connections when they are needed, and keeps them.
pub(crate) struct Connector<C: Connect> {
    connect: C,
    state: Mutex<ConnectorState<C::Connection>>,
}

struct ConnectorState<T> {
    connections: Vec<Arc<Made<T>>>,
    /// When the last attempt began, and its outcome. It has no sender if its runtime was shut down.
    attempt: Option<(Tick, watch::Receiver<Connected>)>,
}

/// When an attempt ended, and whether it failed. `None` until then.
type Connected = Option<(Tick, Result<(), StoreError>)>;

/// A connection that was made.
struct Made<T> {
    connection: T,
    connected_at: Tick,
    is_broken: AtomicBool,
    /// Calls that were dropped since the last reply.
    unanswered: AtomicU32,
    /// When that came, in nanoseconds.
    replied_at: AtomicU64,
}

/// A connection that is taken for a call. Dropped without a [`release`](Self::release), it had no reply.
pub(crate) struct Taken<C: Connect> {
    connector: Arc<Connector<C>>,
    made: Arc<Made<C::Connection>>,
    has_replied: bool,
}

impl<C: Connect> Taken<C> {
    /// The server has replied. No other call gets the connection if it `is_broken`.
    pub(crate) fn release(mut self, is_broken: bool) {
        self.has_replied = true;
        let now = MonotonicClock.now();
        self.made
            .replied_at
            .store(now.as_nanos(), Ordering::Relaxed);
        self.made.unanswered.store(0, Ordering::Relaxed);
        if is_broken {
            self.give_up(now);
        }
    }

    /// Gives it up, unless another one would be the same.
    fn give_up(&self, now: Tick) {
        let is_young = now.since(self.made.connected_at) < MIN_AGE;
        if !(self.connector.connect.has_several_servers() && is_young) {
            self.made.is_broken.store(true, Ordering::Relaxed);
        }
    }
}

impl<C: Connect> Drop for Taken<C> {
    fn drop(&mut self) {
        if self.has_replied {
            return;
        }
        let now = MonotonicClock.now();
        let unanswered = self.made.unanswered.fetch_add(1, Ordering::Relaxed) + 1;
        let replied_at = Tick::from_nanos(self.made.replied_at.load(Ordering::Relaxed));
        let is_silent = unanswered >= MAX_UNANSWERED && now.since(replied_at) >= C::SILENCE;
        // Replies of other servers end a silence.
        if is_silent || self.connector.connect.has_several_servers() {
            self.give_up(now);
        }
    }
}

impl<C: Connect> Deref for Taken<C> {
    type Target = C::Connection;

    fn deref(&self) -> &C::Connection {
        &self.made.connection
    }
}

impl<C: Connect> Connector<C> {
    pub(crate) fn new(connect: C) -> Arc<Self> {
        Arc::new(Self {
            connect,
            state: Mutex::new(ConnectorState {
                connections: Vec::new(),
                attempt: None,
            }),
        })
    }

    pub(crate) const fn settings(&self) -> &C {
        &self.connect
    }

    /// Lets the next call try at once: what was refused has been corrected.
    #[cfg(feature = "cassandra")]
    pub(crate) fn forget_failure(&self) {
        lock(&self.state).attempt = None;
    }

    /// Takes the connection with the fewest calls in flight. Waits for an attempt if there is none.
    pub(crate) async fn get(self: &Arc<Self>) -> Result<Taken<C>, StoreError> {
        loop {
            let mut attempt = match self.existing()? {
                Ok(taken) => return Ok(taken),
                Err(attempt) => attempt,
            };
            let ended = attempt.wait_for(Option::is_some).await;
            let ended = ended.map_err(|_| {
                let text = format!("{}: the runtime of the call shuts down", C::STORE);
                StoreError::new(text, true)
            })?;
            if let Some((_, Err(error))) = &*ended {
                return Err(error.clone());
            }
        }
    }

    /// Takes a connection that there is, or returns the attempt to wait for.
    fn existing(
        self: &Arc<Self>,
    ) -> Result<Result<Taken<C>, watch::Receiver<Connected>>, StoreError> {
        // They are dropped after the lock.
        let mut unusable = Vec::new();
        let mut state = lock(&self.state);
        let is_usable = |made: &Arc<Made<_>>| {
            !made.is_broken.load(Ordering::Relaxed) && self.connect.is_open(&made.connection)
        };
        let has_usable = state.connections.iter().any(is_usable);
        let keeps_all = state.connections.iter().all(is_usable)
            || !has_usable && self.connect.has_several_servers();
        if !keeps_all {
            let all = mem::take(&mut state.connections).into_iter();
            let (usable, broken) = all.partition::<Vec<_>, _>(is_usable);
            state.connections = usable;
            unusable.extend(broken);
        }
        // Each call has one, beside the one here.
        let in_flight = |made: &Arc<Made<_>>| Arc::strong_count(made) - 1;
        let least = state.connections.iter().min_by_key(|made| in_flight(made));
        let is_busy = least.is_some_and(|made| in_flight(made) >= CALLS_PER_CONNECTION);
        let wants_another = !has_usable || is_busy && state.connections.len() < self.connect.most();
        let taken = least.map(|made| Taken {
            connector: Arc::clone(self),
            made: Arc::clone(made),
            has_replied: false,
        });
        let taken = match taken {
            Some(taken) if !wants_another => return Ok(Ok(taken)),
            taken => taken,
        };
        let begun = self.attempt(&mut state);
        drop(state);
        match (begun, taken) {
            (Err(error), None) => Err(error),
            (Err(_), Some(taken)) => Ok(Ok(taken)),
            (Ok((attempt, sender)), taken) => {
                if let Some(sender) = sender {
                    let connecting = Arc::clone(self).run(sender);
                    self.connect.runtime()?.spawn(connecting);
                }
                Ok(taken.ok_or(attempt))
            }
        }
    }

    /// The attempt that runs, or one that has to be started with this sender.
    ///
    /// # Errors
    /// If the last one failed a short time ago.
    fn attempt(
        &self,
        state: &mut ConnectorState<C::Connection>,
    ) -> Result<(watch::Receiver<Connected>, Option<watch::Sender<Connected>>), StoreError> {
        let now = MonotonicClock.now();
        if let Some((begun, attempt)) = &state.attempt {
            let is_running =
                attempt.has_changed().is_ok() && now.since(*begun) < 2 * self.connect.timeout();
            match &*attempt.borrow() {
                Some((at, Err(error))) => {
                    let refused = !error.is_transient();
                    if now.since(*at) < if refused { AFTER_REFUSAL } else { C::PAUSE } {
                        return Err(error.clone());
                    }
                }
                None if is_running => return Ok((attempt.clone(), None)),
                _ => {}
            }
        }
        let (sender, attempt) = watch::channel(None);
        state.attempt = Some((now, attempt.clone()));
        Ok((attempt, Some(sender)))
    }

    /// Connects.
    async fn run(self: Arc<Self>, outcome: watch::Sender<Connected>) {
        let timeout = self.connect.timeout();
        let ends_at = MonotonicClock.now().plus(timeout);
        let connecting = catch_panic(C::STORE, self.connect.connect());
        let connected = within(ends_at, connecting).await.unwrap_or_else(|| {
            let text = format!("{}: no connection within {timeout:?}", C::STORE);
            Ok(Err(StoreError::new(text, true)))
        });
        let connected = connected.and_then(|connected| connected);
        RemoteMetrics(C::STORE).connected(connected.is_ok());
        let at = MonotonicClock.now();
        let connected = connected.map(|connection| {
            lock(&self.state).connections.push(Arc::new(Made {
                connection,
                connected_at: at,
                is_broken: AtomicBool::new(false),
                unanswered: AtomicU32::new(0),
                replied_at: AtomicU64::new(at.as_nanos()),
            }));
        });
        outcome.send_replace(Some((at, connected)));
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
        Connector::new(connect)
    }

    /// Whether a call has to wait for an attempt, or why there is none.
    fn waits(connector: &Arc<Connector<Failing>>) -> Result<bool, StoreError> {
        connector.existing().map(|existing| existing.is_err())
    }

    /// A refused password is tried again once per two seconds.
    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_tried_again_once_per_two_seconds() {
        for (is_transient, allowed) in [(true, 80..=110), (false, 5..=6)] {
            let connector = failing(is_transient);
            for _ in 0..1_000 {
                let error = connector.get().await.err().expect("no entry");
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
        let error = connector.get().await.err().expect("no entry");
        // During the pause all calls fail that have no connection, and after it there is another attempt.
        assert_eq!(waits(&connector), Err(error));
        tokio::time::advance(Failing::PAUSE).await;
        assert_eq!(waits(&connector), Ok(true));
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
            let _ = reply.send(called.get().await.err());
        });
        let other = ReportDrop(shut_down);
        runtime.spawn(async move {
            pending::<()>().await;
            drop(other);
        });
        begun.recv().expect("the task runs");
        runtime.shutdown_background();
        let result = replied.recv_timeout(Duration::from_secs(10));
        let error = result.expect("the call ends").expect("no task");
        assert!(error.is_transient());
        // A runtime that runs tries at once.
        assert_eq!(connector.settings().tried.load(Ordering::Relaxed), 0);
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build().expect("a runtime");
        let error = runtime.block_on(connector.get()).err();
        assert_eq!(error, Some(StoreError::new("no entry", true)));
    }

    #[cfg(feature = "cassandra")]
    #[tokio::test(start_paused = true)]
    async fn the_next_call_after_a_correction_tries_at_once() {
        let connector = failing(false);
        let error = connector.get().await.err().expect("no entry");
        assert_eq!(waits(&connector), Err(error));
        connector.forget_failure();
        assert_eq!(waits(&connector), Ok(true));
    }

    /// The runtime of its task does not run any more.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_does_not_end_is_given_up_after_twice_its_time() {
        let connector = failing(true);
        let (_sender, attempt) = watch::channel(None);
        lock(&connector.state).attempt = Some((MonotonicClock.now(), attempt.clone()));
        let nanosecond = Duration::from_nanos(1);
        let twice = 2 * connector.settings().timeout();
        let awaited = || connector.existing().expect("no failure").err();
        let is_given_up = || !awaited().is_some_and(|other| other.same_channel(&attempt));
        tokio::time::advance(twice.saturating_sub(nanosecond)).await;
        assert!(!is_given_up());
        tokio::time::advance(nanosecond).await;
        assert!(is_given_up());
    }

    /// Connects to one server, or to several.
    struct Silent {
        has_several_servers: bool,
    }

    impl Connect for Silent {
        type Connection = ();

        const STORE: &'static str = "store";
        const PAUSE: Duration = Duration::ZERO;

        fn timeout(&self) -> Duration {
            Duration::from_secs(1)
        }

        fn has_several_servers(&self) -> bool {
            self.has_several_servers
        }

        async fn connect(&self) -> Result<(), StoreError> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn three_calls_in_a_row_without_a_reply_break_a_connection() {
        let has_several_servers = false;
        let connector = Connector::new(Silent {
            has_several_servers,
        });
        for (replied, breaks) in [
            (false, false),
            (false, false),
            (true, false),
            (false, false),
            (false, false),
            (false, true),
        ] {
            let taken = connector.get().await.expect("a connection");
            let made = Arc::clone(&taken.made);
            if replied {
                taken.release(false);
            } else {
                drop(taken);
            }
            assert_eq!(made.is_broken.load(Ordering::Relaxed), breaks);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_connection_to_several_servers_is_used_until_there_is_another() {
        let has_several_servers = true;
        let connector = Connector::new(Silent {
            has_several_servers,
        });
        let first = connector.get().await.expect("a connection");
        let made = Arc::clone(&first.made);
        drop(first);
        // Another one would be the same.
        assert!(!made.is_broken.load(Ordering::Relaxed));
        tokio::time::advance(MIN_AGE).await;
        drop(connector.get().await.expect("a connection"));
        assert!(made.is_broken.load(Ordering::Relaxed));
        let meanwhile = connector.get().await.expect("the same");
        assert!(Arc::ptr_eq(&meanwhile.made, &made));
        meanwhile.release(false);
        tokio::task::yield_now().await;
        let next = connector.get().await.expect("another one");
        assert!(!Arc::ptr_eq(&next.made, &made));
        next.release(false);
    }
}
