//! Thousands of connections at the same time, from another process.

use std::{
    env, fs,
    net::SocketAddr,
    process::{Command, Stdio},
    sync::Arc,
};

use tokio::{sync::Semaphore, task::JoinSet};

use crate::client::{Outcomes, Wire};
use crate::faults::runtime;
use crate::limits::name;
use crate::server::Server;

/// The address of the server, and the number of connections.
const SERVER: &str = "TOWER_THROTTLE_TEST_CROWD";

/// How many of these connections a process may have. Raises the limit of this process.
pub(crate) fn allowed(wanted: usize) -> usize {
    let process = std::process::id().to_string();
    let nofile = || {
        let limits = fs::read_to_string("/proc/self/limits").ok()?;
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max open files"))?;
        let mut numbers = line.split_whitespace().skip(3);
        let mut number = || {
            numbers
                .next()
                .and_then(|number| number.parse::<usize>().ok())
        };
        Some((number()?, number()?))
    };
    if let Some((soft, hard)) = nofile() {
        if soft < hard {
            let limit = format!("--nofile={hard}:{hard}");
            let _ = Command::new("prlimit")
                .args(["--pid", &process, &limit])
                .status();
        }
    }
    // Without `/proc`, what all systems allow.
    let soft = nofile().map_or(256, |(soft, _)| soft);
    soft.saturating_sub(100).min(wanted)
}

/// Ten times as many connections as other faults have, or as many as file limits allow. All of them
/// are open before the first one sends a request.
pub(crate) fn crowd(server: &mut Server, outcomes: &Outcomes, connections: usize) {
    let connections = allowed(10 * connections);
    let output = Command::new(env::current_exe().unwrap())
        .args([
            "crowd::one_client_process",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env(SERVER, format!("{} {connections}", server.address))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let figures = text.lines().find_map(|line| line.split_once("figures: "));
    let figures = figures.unwrap_or_else(|| panic!("no figures: {text}")).1;
    let figures: Vec<_> = figures
        .split(' ')
        .map(|figure| figure.parse().unwrap())
        .collect();
    let figures: [usize; 5] = figures.try_into().unwrap();
    let [connected, sent, served, denied, cut] = figures;
    assert_eq!(connected, connections, "all are open at the same time");
    assert_eq!((sent, served + denied + cut), (connected, connected));
    outcomes.add(figures);
}

/// Half of the requests are denied or queued for a moment. The others are queued until they are cut.
#[test]
#[ignore = "started by the fault"]
fn one_client_process() {
    let Ok(given) = env::var(SERVER) else {
        return;
    };
    let (address, connections) = given.split_once(' ').unwrap();
    let address: SocketAddr = address.parse().unwrap();
    let connections: usize = connections.parse().unwrap();
    let outcomes = Outcomes::default();
    runtime().block_on(async {
        let connecting = Arc::new(Semaphore::new(128));
        let mut clients = JoinSet::new();
        for at in 0..connections {
            let (outcomes, connecting) = (outcomes.clone(), Arc::clone(&connecting));
            clients.spawn(async move {
                let _permit = connecting.acquire().await;
                Some((at, Wire::connect(address, &outcomes).await?))
            });
        }
        let open = clients.join_all().await;
        let mut waiting = Vec::new();
        let mut clients = JoinSet::new();
        for (at, mut wire) in open.into_iter().flatten() {
            let path = [
                "/slow/quick",
                "/queued/quick",
                "/slow/quick",
                "/limited/quick",
            ][at % 4];
            wire.get(path, &name(0)).await;
            if at % 2 == 0 {
                waiting.push(wire);
            } else {
                clients.spawn(async move { wire.status().await });
            }
        }
        clients.join_all().await;
        waiting.into_iter().for_each(Wire::cut);
    });
    let figures = outcomes.figures().map(|figure| figure.to_string());
    println!("figures: {}", figures.join(" "));
}
