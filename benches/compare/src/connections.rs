//! Connections per second of an accept loop, with and without a limit.
//!
//! One connection at a time: the client connects, the server accepts and closes it. The server runs on one
//! core and the client on another.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tower_throttle::Quota;
use tower_throttle::accept::ConnectionLimit;

use crate::row::{Effort, Row};
use crate::served::pin_to;

const SIDES: [&str; 3] = ["bare", "ours, accepted", "ours, refused"];

pub(crate) fn run(effort: &Effort) {
    let servers = serve();
    pin_to(1);
    let turn = Duration::from_millis(if effort.quick { 30 } else { 100 });
    // A connection that stays has the only place.
    let _held = TcpStream::connect(servers[2]).expect("a server");
    let mut figures = [const { Vec::new() }; SIDES.len()];
    for _ in 0..effort.rounds() {
        let mut best = [0.0_f64; SIDES.len()];
        for _ in 0..if effort.quick { 3 } else { 10 } {
            for (server, best) in servers.iter().zip(&mut best) {
                *best = best.max(rate(*server, turn));
            }
        }
        for (best, figures) in best.into_iter().zip(&mut figures) {
            figures.push(best);
        }
    }
    for (work, side, goal) in [
        ("accept, with a limit: connections per second", 1, 0.97),
        ("accept, refused: connections per second", 2, 0.97),
    ] {
        if effort.wants(work) {
            let row = Row {
                work: work.into(),
                peer: SIDES[0],
                unit: "connections/s",
                ours: figures[side].clone(),
                theirs: figures[0].clone(),
                goal,
                absolute: false,
                more: true,
            };
            row.print(effort);
        }
    }
}

/// Serves all sides from one thread.
fn serve() -> [SocketAddr; SIDES.len()] {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        pin_to(0);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let bind = || TcpListener::bind("127.0.0.1:0");
            let bare = bind().await.expect(SIDES[0]);
            let listener = bind().await.expect(SIDES[1]);
            let limit = ConnectionLimit::new(1_000_000).total(1_000_000);
            let mut accepting = limit.rate(Quota::per_second(1_000_000)).listen(listener);
            let listener = bind().await.expect(SIDES[2]);
            let mut refusing = ConnectionLimit::new(1).listen(listener);
            let addresses = [
                bare.local_addr(),
                accepting.local_addr(),
                refusing.local_addr(),
            ];
            tokio::spawn(async move {
                loop {
                    drop(bare.accept().await.expect("a connection"));
                }
            });
            tokio::spawn(async move {
                loop {
                    drop(accepting.accept().await);
                }
            });
            tokio::spawn(async move {
                let mut held = Vec::new();
                loop {
                    held.push(refusing.accept().await);
                }
            });
            sender
                .send(addresses.map(|address| address.expect("an address")))
                .expect("the receiver is alive");
            std::future::pending::<()>().await;
        });
    });
    receiver.recv().expect("servers")
}

/// Connections per second that `server` closes.
fn rate(server: SocketAddr, turn: Duration) -> f64 {
    let (begin, mut connections) = (Instant::now(), 0_u32);
    while begin.elapsed() < turn {
        let mut stream = TcpStream::connect(server).expect("a server");
        let end = stream.read(&mut [0]);
        assert!(matches!(end, Ok(0) | Err(_)), "a byte");
        close(stream);
        connections += 1;
    }
    f64::from(connections) / begin.elapsed().as_secs_f64()
}

/// Closes without `TIME_WAIT`, so that the ports of the client suffice.
fn close(stream: TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the option is plain data, and its size is passed to the call.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        );
    }
}
