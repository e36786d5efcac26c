//! Permits that several processes share, one of which is killed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::concurrency::{ConcurrencyLimitLayer, fleet::FleetLimit};
use tower_throttle::layer::OnStoreError;
use tower_throttle::store::redis::Redis;
use tower_throttle::{AsError, Global};

use crate::redis_server::RedisServer;

const LIMIT: u32 = 5;
const LIFE: Duration = Duration::from_secs(6);
const SERVER: &str = "TOWER_THROTTLE_TEST_SERVER";
/// The limit of one process, and how many requests it has at a time.
const SHARE: &str = "TOWER_THROTTLE_TEST_SHARE";
/// How many of them never end.
const ENDLESS: &str = "TOWER_THROTTLE_TEST_ENDLESS";
const PATIENCE: Duration = Duration::from_secs(60);

#[expect(clippy::disallowed_methods, reason = "processes share no other clock")]
fn micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.expect("a clock that is set").as_micros()).expect("this century")
}

fn say(text: &str) {
    // One write, so that lines of several threads are whole.
    let line = format!("\n{text} {}\n", micros());
    std::io::stdout()
        .write_all(line.as_bytes())
        .expect("it is read");
}

/// The body of each process: requests of 5 ms, one after the other, until it is killed.
#[test]
#[ignore = "started by the tests below"]
fn one_process() {
    let Ok(url) = std::env::var(SERVER) else {
        return;
    };
    let number = |name| std::env::var(name).map_or(0, |text| text.parse().expect("a number"));
    let (limit, endless) = (number(SHARE), number(ENDLESS));
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let redis = Redis::open(&url).expect("a url");
        let limit = FleetLimit::new(redis, "processes", limit).life(LIFE);
        let layer = ConcurrencyLimitLayer::new(Global, limit.deadline(PATIENCE))
            .release_at_response()
            .queue(100)
            .max_wait(PATIENCE)
            .on_store_error(OnStoreError::Deny)
            .respond(AsError);
        let service = layer.layer(service_fn(async |is_endless: bool| {
            say("begin");
            if is_endless {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            say("end");
            Ok::<_, BoxError>(())
        }));
        let mut requests = tokio::task::JoinSet::new();
        for at in 0..LIMIT {
            let service = service.clone();
            let is_endless = at < endless;
            requests.spawn(async move {
                // The store is busy when many tests run.
                for _ in 0..if endless == 0 || is_endless {
                    u64::MAX
                } else {
                    0
                } {
                    let _ = service.clone().oneshot(is_endless).await;
                }
            });
        }
        requests.join_all().await;
    });
}

/// What the processes say.
#[derive(Debug, Default)]
struct Log {
    /// The moment, the process, and whether a request has begun or ended.
    events: Vec<(u64, usize, bool)>,
    /// When a process was killed.
    killed: Vec<(usize, u64)>,
}

impl Log {
    /// How many requests were in flight at most, in all processes but `except`, from a moment on.
    fn most(&self, except: Option<usize>, from: u64) -> i64 {
        let mut events = self.events.clone();
        // Those that end at a moment have released their permits before others begin then.
        events.sort_unstable_by_key(|(at, _, begins)| (*at, *begins));
        let (mut now, mut most) = (0, 0);
        let mut killed = self.killed.clone();
        for (at, process, begins) in events {
            killed.retain(|(dead, died_at)| {
                let is_dead = *died_at <= at;
                if is_dead && Some(*dead) != except {
                    let own = self.events.iter().filter(|event| event.1 == *dead);
                    now -= own.map(|event| if event.2 { 1 } else { -1 }).sum::<i64>();
                }
                !is_dead
            });
            if Some(process) == except {
                continue;
            }
            now += if begins { 1 } else { -1 };
            if at >= from {
                most = most.max(now);
            }
        }
        most
    }
}

#[derive(Debug, Default)]
struct Fleet {
    processes: Vec<Child>,
    log: Arc<(Mutex<Log>, Condvar)>,
}

impl Fleet {
    fn start(&mut self, server: &RedisServer, limit: u32, endless: u32) {
        let program = std::env::current_exe().expect("this test");
        let mut process = Command::new(program)
            .args([
                "redis::permits::one_process",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env(SERVER, server.url())
            .env(SHARE, limit.to_string())
            .env(ENDLESS, endless.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let (log, number) = (Arc::clone(&self.log), self.processes.len());
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let Some((what, at)) = line.split_once(' ') else {
                    continue;
                };
                if let ("begin" | "end", Ok(at)) = (what, at.parse()) {
                    let mut events = log.0.lock().expect("no panic");
                    events.events.push((at, number, what == "begin"));
                    log.1.notify_all();
                }
            }
        });
        self.processes.push(process);
    }

    /// Waits until the log is so.
    fn wait(&self, what: &str, is_so: impl Fn(&Log) -> bool) {
        let log = self.log.0.lock().expect("no panic");
        let wait = self
            .log
            .1
            .wait_timeout_while(log, PATIENCE, |log| !is_so(log));
        let (log, timeout) = wait.expect("no panic");
        assert!(
            !timeout.timed_out(),
            "never: {what}; at most {}",
            log.most(None, 0)
        );
    }

    fn kill(&mut self, process: usize) {
        self.processes[process].kill().expect("it runs");
        self.processes[process].wait().expect("it ends");
        // Its requests were in flight until about now.
        let mut log = self.log.0.lock().expect("no panic");
        log.killed.push((process, micros()));
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The log of three processes, of which the first one holds three permits and is killed. The others have
/// `limit`.
fn killed_fleet(limit: u32) -> (Log, u64) {
    let server = RedisServer::start();
    let mut fleet = Fleet::default();
    fleet.start(&server, LIMIT, 3);
    fleet.wait("three requests", |log| log.events.len() == 3);
    fleet.start(&server, limit, 0);
    fleet.start(&server, limit, 0);
    fleet.wait("requests of the others", |log| log.events.len() > 200);
    fleet.kill(0);
    let killed_at = fleet.log.0.lock().expect("no panic").killed[0].1;
    fleet.wait("its permits are free", |log| {
        log.most(Some(0), killed_at) >= i64::from(limit)
    });
    for process in [1, 2] {
        fleet.kill(process);
    }
    let log = std::mem::take(&mut *fleet.log.0.lock().expect("no panic"));
    (log, killed_at)
}

/// Shows promise 360.
#[test]
fn the_permits_of_a_killed_process_go_to_the_others_within_a_life() {
    let (log, killed_at) = killed_fleet(LIMIT);
    let limit = i64::from(LIMIT);
    println!(
        "{} events, {} in flight at most",
        log.events.len(),
        log.most(None, 0)
    );
    assert!(log.most(None, 0) <= limit);
    let before = Log {
        events: log
            .events
            .iter()
            .copied()
            .filter(|event| event.0 < killed_at)
            .collect(),
        killed: Vec::new(),
    };
    assert!(before.most(Some(0), 0) <= limit - 3, "while they were held");
    let until = |log: &Log, at| {
        let events = log.events.iter().copied().filter(|event| event.0 <= at);
        Log {
            events: events.collect(),
            killed: Vec::new(),
        }
        .most(Some(0), killed_at)
    };
    // A busy machine starts what is due late.
    let (life, late) = (6_000_000, 20_000_000);
    assert_eq!(until(&log, killed_at + life + late), limit);
}

/// Shows promise 360.
#[test]
fn the_check_finds_one_permit_too_many() {
    let (log, _) = killed_fleet(LIMIT + 1);
    assert!(log.most(None, 0) > i64::from(LIMIT));
}
