//! What has to hold after a fault.

use std::{ops::RangeInclusive, sync::Arc};

use crate::client::Wire;
use crate::counting::process_live;
use crate::faults::{Fault, runtime};
use crate::limits::{CLIENTS, Limits, SEATS};
use crate::server::{Server, until};

/// The bytes that two rounds may differ by, which are those of the runtime and of the test.
const NOISE: i64 = 512;

/// The fault is caused three times, and more often while the memory grows. What only some rounds
/// allocate is not a leak.
const ROUNDS: RangeInclusive<usize> = 3..=6;

/// Causes the fault on a new server per round, and checks what it has left behind in the limits.
pub(crate) fn run(fault: Fault, connections: usize) -> Vec<String> {
    let limits = Arc::new(Limits::new());
    let mut broken = Vec::with_capacity(100);
    let mut bytes = Vec::with_capacity(*ROUNDS.end());
    let mut growth = i64::MAX;
    for round in 1..=*ROUNDS.end() {
        let mut server = Server::start(&limits);
        fault(&mut server, connections);
        runtime().block_on(settled(&server, &mut broken));
        if let Some(excess) = server.admitted.excess() {
            broken.push(excess);
        }
        drop(server);
        serves(&limits, &mut broken);
        bytes.push(process_live());
        if let [.., before, now] = bytes[..] {
            growth = growth.min(now - before);
        }
        if !broken.is_empty() || (ROUNDS.contains(&round) && growth <= NOISE) {
            break;
        }
    }
    if broken.is_empty() && growth > NOISE {
        broken.push(format!("{growth} bytes more per round"));
    }
    broken
}

async fn settled(server: &Server, broken: &mut Vec<String>) {
    let limits = &server.limits;
    let mut check = |holds: bool, text: &dyn Fn() -> String| {
        if !holds {
            broken.push(text());
        }
    };
    let open = || format!("{} connections are open", server.open());
    check(until(|| server.open() == 0).await, &open);
    let waiting = || format!("{} requests are queued", limits.waiting());
    check(until(|| limits.waiting() == 0).await, &waiting);
    let seats = || format!("{} of {} seats are free", limits.free_seats(), 2 * SEATS);
    check(until(|| limits.free_seats() == 2 * SEATS).await, &seats);
    // No client has used more than its admitted requests.
    for client in 0..CLIENTS {
        let used = limits.used_slowly(client);
        check(used <= 1, &|| {
            format!("client {client} has one request admitted, and {used} count")
        });
        let unused = until(|| limits.used(client).is_zero()).await;
        check(unused, &|| {
            format!("client {client} has used more than it was admitted")
        });
    }
    // No key has lost its slot, and only the clients that have used something have one.
    let slots = || limits.slots() == [0, limits.slots()[1].min(CLIENTS), 0];
    check(until(slots).await, &|| {
        format!("{:?} slots are in use", limits.slots())
    });
    for stats in limits.tables() {
        let lost = stats.evicted + stats.denied;
        check(lost == 0, &|| format!("{stats:?}"));
    }
}

/// A server with the same limits serves a client that is new to it.
fn serves(limits: &Arc<Limits>, broken: &mut Vec<String>) {
    let server = Server::start(limits);
    let mut served = 0;
    runtime().block_on(async {
        for path in ["/queued/quick", "/limited/quick"].repeat(10) {
            if let Some(mut wire) = Wire::connect(server.address).await {
                wire.get(path, "another client").await;
                served += usize::from(wire.status().await == Some(200));
            }
        }
    });
    if served != 20 {
        broken.push(format!("{served} of 20 requests are served"));
    }
}
