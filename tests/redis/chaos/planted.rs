//! Limiters with a planted mistake each, which a check must find.

use std::{
    future::Future,
    net::TcpStream,
    panic::PanicHookInfo,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tower_throttle::store::redis::RedisLimiter;
use tower_throttle::{
    Decision, FixedWindow, Quota, StoreError,
    store::{Backend, Op, Receipt},
};

use super::fleet::DEADLINE;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// None: the limiter as it is.
    Nothing,
    /// It sends a call again that may have been executed.
    AsksAgain,
    /// It waits for ten seconds.
    Waits,
    /// It refunds what it took, now and then.
    GivesBack,
    /// Each machine has a limit of its own.
    Alone,
    /// After an error it never calls the server again.
    StaysAway,
    /// It leaks a task after an error.
    LeavesTask,
    /// It leaks a connection to this port after an error.
    LeavesConnection(u16),
    /// A task panics after an error.
    Panics,
}

impl Plant {
    pub(super) const fn deadline(self) -> Duration {
        match self {
            Self::Waits => Duration::from_secs(10),
            _ => DEADLINE,
        }
    }

    /// The policy of the hot key.
    pub(super) const fn hot(self, machine: usize) -> &'static str {
        match self {
            Self::Alone => ["hot", "hot1", "hot2", "hot3"][machine],
            _ => "hot",
        }
    }
}

const SAID: &str = "a panic that was planted";

pub(super) fn is_planted(panic: &PanicHookInfo<'_>) -> bool {
    panic.payload().downcast_ref::<&str>() == Some(&SAID)
}

/// A limiter in Redis, as it is or with a mistake.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    limiter: RedisLimiter<FixedWindow>,
    plant: Plant,
    away: Arc<AtomicBool>,
    admitted: Arc<AtomicU64>,
    left: Arc<Mutex<Vec<TcpStream>>>,
}

impl Subject {
    pub(super) fn new(limiter: RedisLimiter<FixedWindow>, plant: Plant) -> Self {
        Self {
            limiter,
            plant,
            away: Arc::default(),
            admitted: Arc::default(),
            left: Arc::default(),
        }
    }

    async fn errs(&self, key: &str, op: Op, error: StoreError) -> Result<Decision, StoreError> {
        match self.plant {
            Plant::AsksAgain => return self.limiter.apply(key, op).await,
            Plant::StaysAway => self.away.store(true, Ordering::Relaxed),
            Plant::LeavesTask => {
                tokio::spawn(std::future::pending::<()>());
            }
            Plant::LeavesConnection(port) => {
                let stream = TcpStream::connect(("127.0.0.1", port));
                self.left.lock().expect("connections").extend(stream);
            }
            Plant::Panics => {
                tokio::spawn(async { std::panic::panic_any(SAID) });
            }
            _ => {}
        }
        Err(error)
    }
}

impl Backend<str> for Subject {
    type Future = Pin<Box<dyn Future<Output = Result<Decision, StoreError>> + Send>>;

    fn apply(&self, key: &str, op: Op) -> Self::Future {
        let (subject, key) = (self.clone(), key.to_owned());
        if subject.away.load(Ordering::Relaxed) {
            return Box::pin(async { Err(StoreError::new("planted: no more calls", true)) });
        }
        // The call begins here, not when it is polled.
        let first = self.limiter.apply(key.as_str(), op);
        Box::pin(async move {
            match first.await {
                Ok(decision) => {
                    let gives_back = subject.plant == Plant::GivesBack
                        && decision.is_admitted()
                        && subject.admitted.fetch_add(1, Ordering::Relaxed) % 50 == 49;
                    if gives_back {
                        let _ = subject
                            .limiter
                            .apply(key.as_str(), Op::Refund(1, Receipt::NOW))
                            .await;
                    }
                    Ok(decision)
                }
                Err(error) => subject.errs(&key, op, error).await,
            }
        })
    }

    fn quotas(&self) -> Vec<Quota> {
        Backend::<str>::quotas(&self.limiter)
    }
}
