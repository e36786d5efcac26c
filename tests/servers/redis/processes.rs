//! One limit shared by several processes.

use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use tower_throttle::store::redis::Redis;
use tower_throttle::{Quota, TokenBucket, store::Backend};

use crate::redis::connect;
use crate::redis_server::RedisServer;

const RATE: u64 = 200;
const BURST: u64 = 50;
const PROCESSES: usize = 4;
const CALLS_A_SECOND: u32 = 2_000;
const SERVER: &str = "TOWER_THROTTLE_TEST_SERVER";
/// Gives each process a limit of its own.
const ALONE: &str = "TOWER_THROTTLE_TEST_ALONE";

/// How long the processes call: `PROCESSES_SECONDS`, or a few seconds.
fn seconds() -> u32 {
    let given = std::env::var("PROCESSES_SECONDS");
    given.map_or(3, |given| {
        given.parse().expect("PROCESSES_SECONDS: a number")
    })
}

/// An admission: the server decided it between the two moments, in microseconds of the clock that
/// all processes of a machine share.
type Admission = (u64, u64);

#[expect(clippy::disallowed_methods, reason = "processes share no other clock")]
fn micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.expect("a clock that is set").as_micros()).expect("this century")
}

/// The first window in which certainly more was admitted than a bucket of that rate and burst allows.
fn broken_window(log: &[Admission]) -> Option<(u64, u64, u64)> {
    for (begin, _) in log {
        let mut ends: Vec<_> = log
            .iter()
            .filter(|(asked, _)| asked >= begin)
            .map(|(_, heard)| *heard)
            .collect();
        ends.sort_unstable();
        for (admitted, end) in (1..).zip(ends) {
            let length = end - begin;
            // Rounded down: the promise is exact.
            if admitted > BURST + length * RATE / 1_000_000 {
                return Some((*begin, end, admitted));
            }
        }
    }
    None
}

/// The body of each process.
#[test]
#[ignore = "started by the tests below"]
fn one_process() {
    let Ok(url) = std::env::var(SERVER) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let (calls, log) = runtime.block_on(async {
        let redis = Redis::open(&url).expect("a url").without_deny_cache();
        let redis = connect(redis.deadline(Duration::from_secs(10))).await;
        let quota = Quota::per_second(RATE).burst(BURST);
        let policy = match std::env::var(ALONE) {
            Ok(_) => format!("process{}", std::process::id()),
            Err(_) => "processes".to_owned(),
        };
        let limiter = redis.limiter(&policy, TokenBucket::new(quota));
        let mut turns = tokio::time::interval(Duration::from_millis(10));
        let (mut calls, mut log) = (0, Vec::new());
        for _ in 0..seconds() * 100 {
            turns.tick().await;
            let mut asked = Vec::new();
            for _ in 0..CALLS_A_SECOND / 100 {
                let at = micros();
                let limiter = limiter.clone();
                asked.push(tokio::spawn(async move {
                    let decision = limiter.decide("key", 1).await.expect("a decision");
                    (at, micros(), decision.is_admitted())
                }));
            }
            for asked in asked {
                let (at, heard, admitted) = asked.await.expect("no panic");
                calls += 1;
                if admitted {
                    log.push((at, heard));
                }
            }
        }
        (calls, log)
    });
    // With one test thread, the harness has begun a line.
    println!("\ncalls {calls}");
    for (asked, heard) in log {
        println!("admitted {asked} {heard}");
    }
}

/// The calls of all processes, and the log of admissions.
fn all_processes(alone: bool) -> (u64, Vec<Admission>) {
    let server = RedisServer::start();
    let program = std::env::current_exe().expect("this test");
    let processes: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let mut command = Command::new(&program);
            if alone {
                command.env(ALONE, "1");
            }
            command
                .args([
                    "redis::processes::one_process",
                    "--exact",
                    "--ignored",
                    "--nocapture",
                ])
                .env(SERVER, server.url())
                .stdout(Stdio::piped())
                .spawn()
                .expect("it starts")
        })
        .collect();
    let (mut calls, mut log) = (0, Vec::new());
    for process in processes {
        let output = process.wait_with_output().expect("it ends");
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).expect("text");
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            match words[0] {
                "calls" => calls += number(1),
                "admitted" => log.push((number(1), number(2))),
                _ => {}
            }
        }
    }
    log.sort_unstable();
    (calls, log)
}

/// Shows promise 83.
#[test]
fn four_processes_on_one_key_keep_its_promise_in_every_window() {
    let (calls, mut log) = all_processes(false);
    let expected = u64::try_from(PROCESSES).unwrap() * u64::from(CALLS_A_SECOND * seconds());
    assert_eq!(calls, expected);
    println!("{calls} calls, {} admitted", log.len());
    assert_eq!(broken_window(&log), None);

    let span = log.last().expect("some").1 - log[0].0;
    let due = BURST + span * RATE / 1_000_000;
    let admitted = log.len() as u64;
    assert!(admitted >= due / 2, "{admitted} of {due}: they did call");

    // The check finds a fleet that admits the burst twice.
    let again: Vec<_> = log
        .iter()
        .zip(0..BURST)
        .map(|(admission, _)| *admission)
        .collect();
    log.extend(again);
    assert!(broken_window(&log).is_some());
}

/// Shows promise 83.
#[test]
fn the_check_finds_processes_with_a_limit_of_their_own() {
    let (_, log) = all_processes(true);
    assert!(broken_window(&log).is_some(), "{} admitted", log.len());
}
