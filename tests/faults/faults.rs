//! The faults.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    runtime::{Builder, Runtime},
    sync::watch::{self, Receiver},
    task::JoinSet,
};

use crate::client::{Wire, head, http2, stream};
use crate::limits::{CLIENTS, SEATS, name};
use crate::server::{Server, until};

/// Causes a fault with about this many connections.
pub(crate) type Fault = fn(&mut Server, usize);

pub(crate) const FAULTS: &[(&str, Fault)] = &[
    ("HTTP/1 resets", resets),
    ("HTTP/2 rapid resets", rapid_resets),
    ("slow readers", slow_readers),
    ("slow writers", slow_writers),
    ("handlers that panic", panics),
    ("handlers that never end", never_ending),
    ("runtime shut down", shut_down),
];

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Completes when the other side says so.
async fn released(mut hold: Receiver<bool>) {
    let _ = hold.wait_for(|released| *released).await;
}

/// The requests on `/slow` that wait, of so many.
fn expected_to_wait(requests: usize) -> u64 {
    u64::try_from(requests.saturating_sub(CLIENTS).min(SEATS)).unwrap()
}

/// Connections that are reset in the request line, in the head, in the body, and after the request:
/// at once, and while it is queued.
pub(crate) fn resets(server: &mut Server, connections: usize) {
    let (release, hold) = watch::channel(false);
    let address = server.address;
    runtime().block_on(async {
        let mut clients = JoinSet::new();
        for at in 0..connections {
            let hold = hold.clone();
            clients.spawn(async move {
                let name = name(at);
                let Some(mut wire) = Wire::connect(address).await else {
                    return;
                };
                match at % 5 {
                    0 => wire.bytes(b"GET /queued/qui").await,
                    1 => {
                        let head = head("GET", "/queued/quick", &name);
                        wire.bytes(head.as_bytes()).await;
                    }
                    2 => {
                        wire.get("/queued/quick", &name).await;
                        return wire.reset();
                    }
                    3 => {
                        wire.get("/slow/quick", &name).await;
                        released(hold).await;
                        return wire.reset();
                    }
                    _ => return half_an_upload(wire, &name).await.reset(),
                }
                wire.reset();
            });
        }
        let expected = expected_to_wait(connections / 5);
        assert!(
            until(|| server.limits.waiting() >= expected).await,
            "{} of {expected} requests are queued",
            server.limits.waiting()
        );
        release.send_replace(true);
        clients.join_all().await;
    });
}

/// Sends a request whose body stops in the middle.
async fn half_an_upload(mut wire: Wire, client: &str) -> Wire {
    let head = head("POST", "/limited/upload", client);
    wire.bytes(format!("{head}content-length: 100000\r\n\r\n").as_bytes())
        .await;
    wire.bytes(&[b'x'; 10_000]).await;
    wire
}

/// Streams that are reset at once, and while their requests are queued.
fn rapid_resets(server: &mut Server, connections: usize) {
    const STREAMS: usize = 20;
    let (release, hold) = watch::channel(false);
    let address = server.address;
    let connections = connections.div_ceil(STREAMS).max(4);
    runtime().block_on(async {
        let mut clients = JoinSet::new();
        for at in 0..connections {
            let hold = hold.clone();
            clients.spawn(async move {
                // Half of the connections send to the limit whose requests wait for hours.
                let waits = at % 2 == 0;
                for _ in 0..if waits { 1 } else { 10 } {
                    let Some(sender) = http2(address).await else {
                        continue;
                    };
                    let mut streams = JoinSet::new();
                    for number in 0..STREAMS {
                        let path = match number % 2 {
                            _ if waits => "/slow/quick",
                            0 => "/queued/quick",
                            _ => "/limited/quick",
                        };
                        let call = stream(sender.clone(), path, name(number));
                        streams.spawn(call);
                    }
                    if waits {
                        released(hold.clone()).await;
                    } else {
                        // The requests are on their way, and few have a response.
                        for _ in 0..at {
                            tokio::task::yield_now().await;
                        }
                    }
                    streams.shutdown().await;
                }
            });
        }
        let expected = expected_to_wait(connections / 2 * STREAMS);
        assert!(
            until(|| server.limits.waiting() >= expected).await,
            "{} of {expected} requests are queued",
            server.limits.waiting()
        );
        release.send_replace(true);
        clients.join_all().await;
    });
}

/// Clients that read the status of a large response and then nothing more.
fn slow_readers(server: &mut Server, connections: usize) {
    let address = server.address;
    runtime().block_on(async {
        let mut clients = JoinSet::new();
        for at in 0..connections.min(100) {
            clients.spawn(async move {
                let mut wire = Wire::connect(address).await?;
                let path = ["/queued/large", "/limited/large"][at % 2];
                wire.get(path, &name(at)).await;
                wire.status().await?;
                Some(wire)
            });
        }
        let held = clients.join_all().await;
        assert!(held.iter().any(Option::is_some), "no response to hold");
        assert!(server.open() > 0, "the server still sends");
        held.into_iter().flatten().for_each(Wire::reset);
    });
}

/// Clients that send half a head, or half a body, and then nothing more.
fn slow_writers(server: &mut Server, connections: usize) {
    let address = server.address;
    runtime().block_on(async {
        let mut clients = JoinSet::new();
        for at in 0..connections {
            clients.spawn(async move {
                let mut wire = Wire::connect(address).await?;
                let name = name(at);
                if at % 2 == 0 {
                    let head = head("GET", "/queued/quick", &name);
                    wire.bytes(head.as_bytes()).await;
                    return Some(wire);
                }
                Some(half_an_upload(wire, &name).await)
            });
        }
        let held = clients.join_all().await;
        // Those that are admitted wait for the rest of the body.
        let admitted = until(|| server.admitted.count() > 0).await;
        assert!(admitted, "no upload has begun");
        held.into_iter().flatten().for_each(Wire::reset);
    });
}

/// Requests whose handlers panic, over HTTP/1 and HTTP/2.
fn panics(server: &mut Server, connections: usize) {
    let address = server.address;
    runtime().block_on(async {
        let mut clients = JoinSet::new();
        for at in 0..connections {
            let path = ["/queued/panic", "/limited/panic"][at % 2];
            clients.spawn(async move {
                if at % 4 < 2 {
                    if let Some(mut wire) = Wire::connect(address).await {
                        wire.get(path, &name(at)).await;
                        wire.status().await;
                    }
                } else if let Some(sender) = http2(address).await {
                    stream(sender, path, name(at)).await;
                }
            });
        }
        clients.join_all().await;
        assert!(server.admitted.count() > 0, "no handler has panicked");
    });
}

/// Requests whose handlers never end, until their clients leave.
fn never_ending(server: &mut Server, connections: usize) {
    let address = server.address;
    let ended = Arc::new(AtomicUsize::new(0));
    runtime().block_on(async {
        let mut clients = JoinSet::new();
        for at in 0..connections {
            let ended = Arc::clone(&ended);
            clients.spawn(async move {
                if let Some(mut wire) = Wire::connect(address).await {
                    wire.get(["/queued/never", "/limited/never"][at % 2], &name(at))
                        .await;
                    wire.status().await;
                }
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        let all_decided = || ended.load(Ordering::Relaxed) + server.stuck() == connections;
        assert!(until(all_decided).await, "{} handlers run", server.stuck());
        assert!(server.stuck() > 0, "no handler runs");
        assert_eq!(server.limits.waiting(), 0);
        let free = server.limits.free_seats();
        assert_eq!(free, 2 * SEATS, "a request in its handler has no seat");
        clients.shutdown().await;
        let is_right = until(|| server.stuck() == 0).await;
        assert!(is_right, "the handlers are dropped");
    });
}

/// A runtime that is dropped while requests are queued, in handlers and in responses.
fn shut_down(server: &mut Server, connections: usize) {
    let address = server.address;
    let runtime = runtime();
    let mut clients = JoinSet::new();
    runtime.block_on(async {
        for at in 0..connections {
            clients.spawn(async move {
                if let Some(mut wire) = Wire::connect(address).await {
                    let path = match at % 3 {
                        0 => "/slow/quick",
                        1 => "/queued/quick",
                        _ => "/limited/never",
                    };
                    wire.get(path, &name(at)).await;
                    wire.status().await;
                }
            });
        }
        let expected = expected_to_wait(connections / 3);
        let limits = &server.limits;
        let under_load = until(|| limits.waiting() >= expected && server.stuck() > 0);
        assert!(under_load.await, "{} requests are queued", limits.waiting());
    });
    server.shut_down();
    assert_eq!(server.open(), 0, "the runtime dropped its connections");
    runtime.block_on(clients.join_all());
}
