//! Every store that refuses, times every mode.

use std::{fmt, time::Duration};

use tokio::time::Instant;
use tower_throttle::store::{
    Backend, Fallback,
    cas::{
        CasBuilder, CasStore, Loaded, Swapped, Value, Version,
        postgres::{Connections, PostgreSql},
    },
    fleet::{LeasedBuilder, SyncedBuilder},
    redis::Redis,
    remote::StoreLimiter,
};
use tower_throttle::{FixedWindow, Local, Quota, StoreError};

use crate::operator::alerts::counted;
use crate::operator::log::log;
use crate::operator::measured::{Measured, SECRET, measured};
use crate::operator::postgres_server::PostgresServer;
use crate::operator::redis_server::RedisServer;

fn window() -> FixedWindow {
    FixedWindow::new(Quota::per(1_000_000, Duration::from_secs(1_000_000)))
}

/// A store of a user's own that refuses every call, or only swaps.
#[derive(Clone, Copy, Debug)]
struct Refusing {
    loads: bool,
}

const REFUSED: &str = "the account of this store is closed";

impl CasStore for Refusing {
    const NAME: &'static str = "own";

    async fn load(&self, _: &str) -> Result<Loaded, StoreError> {
        if self.loads {
            return Ok(Loaded::default());
        }
        Err(StoreError::new(REFUSED, false))
    }

    async fn swap(
        &self,
        _: &str,
        _: Option<Version>,
        _: &Value,
        _: Duration,
    ) -> Result<Swapped, StoreError> {
        Err(StoreError::new(REFUSED, false))
    }
}

/// The first error of a limit, which may decide by itself until it has heard of the store. A busy machine may
/// take longer to connect than a call may.
async fn first_error(limit: &impl Backend<str>) -> StoreError {
    let begun = Instant::now();
    loop {
        match limit.decide(SECRET, 1).await {
            Err(error) if !error.to_string().contains("no decision within") => return error,
            _ => tokio::task::yield_now().await,
        }
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(60), "it goes on without store");
    }
}

/// A limit of a store that refuses returns what the store says, as a permanent error, and reports it.
async fn check(limit: &impl Backend<str>, store: &str, cause: &str, metrics: &Measured) {
    let _ = log();
    let count = || counted("ThrottleStorePermanentErrors", store, metrics);
    let before = count();
    let error = first_error(limit).await;
    let text = error.to_string();
    assert!(!error.is_transient(), "{store}: {text}");
    assert!(text.contains(cause), "{store}: {text}");
    assert!(
        !text.contains("whether the call was counted"),
        "{store}: {text}"
    );
    for _ in 0..50 {
        // It stays.
        let error = limit.decide(SECRET, 1).await.expect_err("a refusal");
        assert!(!error.is_transient(), "{store}: {error}");
    }
    assert!(count() > before, "{store}: the alert does not fire");
    let text = log();
    let lines: Vec<_> = text.lines().filter(|line| line.contains(cause)).collect();
    assert_eq!(lines.len(), 1, "{store}, once per cause: {text}");
    let expected = format!("ERROR tower_throttle: {store} refuses calls");
    assert!(lines[0].contains(&expected), "{text}");
}

/// What every limiter of a store that refuses says of it.
fn check_reports(limit: &impl StoreLimiter, cause: &str) {
    let error = limit.last_error().expect("an error");
    assert!(error.to_string().contains(cause), "{error}");
}

/// The modes of a store with a compare-and-swap. It refuses in the same way each time `store` makes one.
async fn check_modes<S: CasStore>(store: impl Fn() -> S, cause: &str, metrics: &Measured) {
    let name = S::NAME;
    let exact = CasBuilder::new(store()).deadline(Duration::from_secs(5));
    let exact = exact.build("exact", window()).expect("a limit");
    check(&exact, name, cause, metrics).await;
    check_reports(&exact, cause);
    // A mistake is no outage: no fallback stands in.
    let fallback = CasBuilder::new(store()).deadline(Duration::from_secs(5));
    let fallback = fallback.build("fallback", window()).expect("a limit");
    let local = Local::new(window());
    let limit = Fallback::new(fallback, local);
    check(&limit, name, cause, metrics).await;
    let interval = Duration::from_millis(10);
    let synced = SyncedBuilder::new(store()).interval(interval);
    let synced = synced.build("synced", window()).expect("a limit");
    check(&synced, name, cause, metrics).await;
    check_reports(&synced, cause);
    let leased = LeasedBuilder::new(store());
    let leased = leased.build("leased", window()).expect("a limit");
    check(&leased, name, cause, metrics).await;
    check_reports(&leased, cause);
    let calls = format!("tower_throttle_store_call_seconds store={name} outcome=permanent");
    assert!(metrics.all(&calls).len() >= 100);
    let batches = format!("tower_throttle_store_batch_size store={name}");
    assert!(metrics.all(&batches).iter().all(|size| *size >= 1.0));
    let depth = format!("tower_throttle_store_queue_depth store={name}");
    assert!(metrics.value(&depth).abs() < 0.5, "none waits");
}

/// Shows promise 97.
#[test]
fn a_store_of_a_users_own_that_refuses_is_no_outage_in_any_mode() {
    measured(|metrics| async move {
        for loads in [false, true] {
            check_modes(|| Refusing { loads }, REFUSED, &metrics).await;
        }
    });
}

fn postgres(url: &str, table: &str) -> PostgreSql {
    let store = PostgreSql::new(Connections::open(url).expect("a URL"));
    store.table(table).expect("a name").without_sweeps()
}

/// Shows promise 97.
#[test]
fn postgresql_that_refuses_is_no_outage_in_any_mode() {
    measured(|metrics| async move {
        let server = PostgresServer::start();
        let client = server.client().await;
        let setup = "CREATE ROLE needs_password LOGIN PASSWORD 'right'; CREATE ROLE limited LOGIN";
        client.batch_execute(setup).await.expect("roles");
        let made = postgres(&server.url(), "limits").create_table().await;
        made.expect("a table");
        let wrong = server.url_of("needs_password:wr0ng");
        let password = "check the user, the password";
        check_modes(|| postgres(&wrong, "limits"), password, &metrics).await;
        let missing = "with `create_table`";
        check_modes(|| postgres(&server.url(), "nowhere"), missing, &metrics).await;
        let rights = "this role needs SELECT, INSERT";
        let limited = server.url_of("limited");
        check_modes(|| postgres(&limited, "limits"), rights, &metrics).await;
        // A role that only reads.
        let reads = "GRANT SELECT ON limits TO limited";
        client.batch_execute(reads).await.expect("a right");
        check_modes(|| postgres(&limited, "limits"), rights, &metrics).await;
    });
}

fn redis(url: impl fmt::Display) -> Redis {
    let redis = Redis::open(&url.to_string()).expect("a URL");
    redis.deadline(Duration::from_secs(5))
}

/// Shows promise 97.
#[test]
fn redis_that_refuses_is_no_outage_in_any_mode() {
    measured(|metrics| async move {
        let server = RedisServer::with(&["--requirepass", "right", "--protected-mode", "no"]);
        let port = server.port();
        let at = |user: &str| format!("redis://{user}127.0.0.1:{port}");
        let client = redis_client(&at(":right@"));
        let mut connection = client.get_connection().expect("a server that responds");
        let mut small = redis::cmd("ACL");
        small.arg(
            [
                "SETUSER", "small", "on", ">small", "~*", "+evalsha", "+eval",
            ]
            .as_slice(),
        );
        small.exec(&mut connection).expect("a user");
        for (user, cause) in [
            (":wr0ng@", "user or password"),
            ("", "user or password"),
            ("small:small@", "let this user run"),
        ] {
            let url = at(user);
            let exact = redis(&url).limiter("exact", window());
            check(&exact, "Redis", cause, &metrics).await;
            check_reports(&exact, cause);
            assert!(StoreLimiter::ready(&exact).await.is_err());
            check_modes(|| redis(&url), cause, &metrics).await;
        }
    });
}

fn redis_client(url: &str) -> redis::Client {
    redis::Client::open(url).expect("a URL")
}
