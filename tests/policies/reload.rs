//! Reloading a file while requests are served.

use std::time::Duration;

use tokio::time::{Instant, advance};
use tokio_test::{assert_pending, task};
use tower_throttle::{
    Local,
    clock::{Clock, MonotonicClock},
    policy::{PolicyFile, PolicyKey, Reloaded},
    store::SaveState,
};

use crate::support::{App, environment, file, from, limit};

const GLOBAL: &str = "\"global\"";

/// A line per algorithm, with 4 per minute.
const LINES: [&str; 9] = [
    "token_bucket 4/min",
    "leaky_bucket 4/min",
    "leaky_bucket 4/min; queue=3; max_wait=1us",
    "fixed_window 4/min",
    "fixed_window 4/min; anchored=true",
    "sliding_window 4/min",
    "sliding_grid 4/min; cells=6",
    "sliding_log 4/min",
    "token_bucket 4/min + sliding_log 40/h",
];

/// Shows promise 223.
#[tokio::test(start_paused = true)]
async fn a_loop_of_reloads_admits_the_same_requests_as_none() {
    for line in LINES
        .into_iter()
        .chain(["warm_up 4/min; warm_up=30s", "lockout 4/min; block=20s"])
    {
        // A lockout counts failures.
        let more = if line.starts_with("lockout") {
            "failure = 200"
        } else {
            ""
        };
        let policy = limit("all", line, GLOBAL, more);
        let (reloaded, left_alone) = (App::new(&policy), App::new(&policy));
        let mut admitted = 0;
        for step in 0..300 {
            assert_eq!(reloaded.reload(&policy), Reloaded::default());
            let statuses = (reloaded.get().await, left_alone.get().await);
            assert_eq!(statuses.0, statuses.1, "{line}, step {step}");
            admitted += usize::from(statuses.0 == 200);
            advance(Duration::from_millis(100 + 700 * (step % 4))).await;
        }
        assert!((4..200).contains(&admitted), "{line}: {admitted}");
    }
}

/// Advances to second 35 of a minute: seconds away from the edges of aligned windows and of their cells.
async fn away_from_edges() {
    const MINUTE: u64 = 60_000_000_000;
    let into = MonotonicClock.now().as_nanos() % MINUTE;
    advance(Duration::from_nanos(MINUTE - into + 35_000_000_000)).await;
}

/// Alternates between two files for ever. Each change keeps what was used. Time goes on in between, so that
/// what is used is no whole number of units, but by less than a thousandth of a unit in all.
///
/// Shows promise 223.
#[tokio::test(start_paused = true)]
async fn a_loop_of_changes_never_admits_more_than_the_larger_limit() {
    for line in LINES.into_iter().filter(|line| !line.contains("queue")) {
        let other = line.replacen("4/min", "5/min", 1);
        away_from_edges().await;
        let app = App::new(&limit("all", line, GLOBAL, ""));
        let mut admitted = 0;
        for round in 0..200 {
            let line = if round % 2 == 0 { &other } else { line };
            app.reload(&limit("all", line, GLOBAL, ""));
            admitted += app.admitted(1).await;
            advance(Duration::from_micros(1 + round % 7)).await;
        }
        assert!((4..=5).contains(&admitted), "{line}: {admitted}");
    }
}

/// Shows promise 223.
#[tokio::test(start_paused = true)]
async fn another_key_algorithm_store_capacity_or_name_begins_anew_and_is_reported() {
    let before = limit("all", "fixed_window 2/h", "\"client_ip\"", "");
    let window = "fixed_window 2/h";
    for (name, line, key, more) in [
        ("all", window, "\"header:x-key\"", ""),
        ("all", "sliding_log 2/min", "\"client_ip\"", ""),
        ("all", window, "\"client_ip\"", "store = \"table\""),
        ("all", window, "\"client_ip\"", "capacity = 9"),
        ("every", window, "\"client_ip\"", ""),
    ] {
        let environment = environment().store("table", |_, algorithm| Ok(Local::new(algorithm)));
        let app = App::within(&before, environment);
        assert_eq!(app.admitted(9).await, 2);
        let reloaded = app.reload(&limit(name, line, key, more));
        assert_eq!(
            (&*reloaded.added, &*reloaded.removed),
            (&[name.to_owned()][..], &["all".to_owned()][..])
        );
        assert_eq!(app.admitted(9).await, 2, "{line} {key} {more}");
    }
}

/// Shows promise 223.
#[tokio::test(start_paused = true)]
async fn a_file_that_is_wrong_changes_nothing() {
    let app = App::new(&limit("all", "fixed_window 2/h", GLOBAL, ""));
    assert_eq!(app.get().await, 200);
    // The first limit is right, and would have been changed.
    let wrong = limit("all", "fixed_window 9/h", GLOBAL, "")
        + "[lists]\na = { file = \"none\" }\n[[deny]]\nlist = \"a\"";
    assert!(app.handle.reload(file(&wrong)).is_err());
    let wrong = limit("all", "fixed_window 9/h", GLOBAL, "")
        + &limit("b", "fixed_window 9/h", "\"extension:none\"", "");
    assert!(app.handle.reload(file(&wrong)).is_err());
    assert!(PolicyFile::from_toml("version = 1\nlimit = 3").is_err());
    assert_eq!(app.admitted(9).await, 1);
}

#[tokio::test(start_paused = true)]
async fn everything_else_of_a_limit_is_replaced_at_once() {
    let line = "fixed_window 2/h";
    let app = App::new(&limit("all", line, GLOBAL, ""));
    assert_eq!(app.admitted(9).await, 2);
    let reloads = [
        ("shadow = true", 200),
        ("", 429),
        ("match = { path = \"/login\" }", 200),
        ("match = { path = \"/\" }", 429),
        ("match = { methods = \"PUT\" }", 200),
        (
            "except = \"here\"\n[lists]\nhere = { cidrs = [\"192.0.2.0/24\"] }",
            200,
        ),
        (
            "except = \"here\"\n[lists]\nhere = { cidrs = [\"192.0.3.0/24\"] }",
            429,
        ),
    ];
    for (more, expected) in reloads {
        let reloaded = app.reload(&limit("all", line, GLOBAL, more));
        assert_eq!(reloaded.changed, ["all"], "{more}");
        assert_eq!(app.get().await, expected, "{more}");
        let again = app.reload(&limit("all", line, GLOBAL, more));
        assert_eq!(again, Reloaded::default());
    }
    app.reload(&limit("all", line, GLOBAL, "headers = \"draft-11\""));
    let response = app.send(from("192.0.2.1")).await;
    assert_eq!(response.headers()["ratelimit-policy"], "\"all\";q=2;w=3600");
    app.reload(&limit(
        "all",
        "fixed_window 3/h",
        GLOBAL,
        "headers = \"draft-11\"",
    ));
    let response = app.send(from("192.0.2.1")).await;
    assert_eq!(response.headers()["ratelimit-policy"], "\"all\";q=3;w=3600");
}

/// What a file leaves out is the default again.
///
/// Shows promise 223.
#[tokio::test(start_paused = true)]
async fn the_line_in_front_of_a_limit_is_that_of_the_last_file() {
    let line = |rest: &str| limit("all", &format!("leaky_bucket 1/min{rest}"), GLOBAL, "");
    let app = App::new(&line("; queue=1; max_wait=1s"));
    assert_eq!(app.admitted(2).await, 1);
    for (rest, expected) in [
        ("; queue=1", 200),
        ("; queue=1; max_wait=1s", 429),
        ("; queue=1; max_wait=2min", 200),
        ("", 429),
    ] {
        app.reload(&line(rest));
        assert_eq!(app.get().await, expected, "{rest}");
    }
}

/// Shows promise 223.
#[tokio::test(start_paused = true)]
async fn what_waits_for_several_algorithms_goes_at_the_new_pace() {
    let both = |rate: &str| {
        let text = format!("leaky_bucket {rate}; burst=1; queue=1 + fixed_window 40/d");
        limit("all", &text, GLOBAL, "")
    };
    let app = App::new(&both("1/h"));
    assert_eq!(app.get().await, 200);
    let mut second = task::spawn(app.get());
    assert_pending!(second.poll());
    app.reload(&both("1/s"));
    let start = Instant::now();
    assert_eq!(second.await, 200);
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}

/// Shows promise 223.
#[tokio::test(start_paused = true)]
async fn permits_in_flight_outlive_a_reload() {
    let busy = |most: u32| limit("busy", &format!("concurrency {most}"), GLOBAL, "");
    let app = App::new(&busy(1));
    let held = app.send(from("192.0.2.1")).await;
    assert_eq!(app.reload(&busy(1)), Reloaded::default());
    assert_eq!(app.get().await, 429);
    assert_eq!(app.reload(&busy(2)).changed, ["busy"]);
    let second = app.send(from("192.0.2.1")).await;
    assert_eq!((second.status().as_u16(), app.get().await), (200, 429));
    drop((held, second));
    assert_eq!(app.get().await, 200);
}

/// Shows promise 56.
#[tokio::test(start_paused = true)]
async fn a_handle_reads_and_changes_one_key_of_a_limit() {
    let policy = limit("all", "token_bucket 4/min", GLOBAL, "")
        + &limit(
            "accounts",
            "lockout 2/min",
            "\"extension:account\"",
            "failure = 401\nmissing = \"shared\"",
        )
        + &limit("slots", "concurrency 3", GLOBAL, "");
    let app = App::new(&policy);
    assert_eq!(app.admitted(3).await, 3);
    let all = app.handle.limit("all").unwrap();
    let key = PolicyKey::from(());
    let left = async |key| all.peek(key, 0).await.unwrap().remaining();
    assert_eq!(left(&key).await, 1);
    all.refund(&key, 2).await.unwrap();
    assert_eq!(left(&key).await, 3);
    all.charge(&key, 3).await.unwrap();
    assert_eq!(app.get().await, 429);
    let mut saved = Vec::new();
    app.handle.save(&mut saved).unwrap();
    let next = App::new(&policy);
    next.handle.load(&mut &*saved).unwrap();
    assert_eq!(next.get().await, 429);
    // A reload that keeps the limit keeps the handle.
    app.reload(&policy);
    all.reset(&key).await.unwrap();
    assert_eq!(app.admitted(9).await, 4);

    let accounts = app.handle.limit("accounts").unwrap();
    let [alice, bob] = ["alice", "bob"].map(PolicyKey::from);
    accounts.charge(&alice, 100).await.unwrap();
    let denied = async |key| accounts.peek(key, 1).await.unwrap().is_denied();
    assert!(denied(&alice).await && !denied(&bob).await);
    accounts.reset(&alice).await.unwrap();
    assert!(!denied(&alice).await);

    let slots = app.handle.in_flight("slots").unwrap();
    assert_eq!((slots.limit(), slots.in_flight(&key)), (3, 0));
    assert!(app.handle.limit("slots").is_none() && app.handle.in_flight("all").is_none());
    assert!(app.handle.limit("other").is_none());
}
