//! A whole server: axum's hello world on the loopback interface, with and without a limit.
//!
//! The server runs on one core and the client on another. Several keep-alive connections have one
//! request in flight each, so the server is never idle. Its CPU time per request is reported too,
//! because it does not depend on the load of the rest of the machine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use tower::Service;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_throttle::{ClientIp, RateLimitLayer, TokenBucket};

use crate::peers;
use crate::row::{Effort, Row};

/// The sides, in the order of their servers.
const SIDES: [&str; 6] = [
    "bare",
    "ours, admitted",
    "ours, denied",
    "tower_governor, admitted",
    "tower_governor, denied",
    "a layer that does nothing",
];

pub(crate) fn run(effort: &Effort) {
    let rows = [
        ("axum, admitted: requests per second", 1, 0, 0.97),
        ("axum, denied: requests per second", 2, 0, 1.0),
        // Compares with an empty layer too, because axum boxes the response of every layer.
        ("axum, admitted: requests per second", 1, 5, 0.97),
        ("axum, admitted: requests per second", 1, 3, 1.0),
        ("axum, denied: requests per second", 2, 4, 1.0),
    ];
    let cores = [
        ("axum, admitted: CPU time of the server", 1, 0, 1.03),
        ("axum, denied: CPU time of the server", 2, 0, 1.0),
        ("axum, admitted: CPU time of the server", 1, 5, 1.03),
        ("axum, admitted: CPU time of the server", 1, 3, 1.0),
        ("axum, denied: CPU time of the server", 2, 4, 1.0),
    ];
    if !rows.iter().chain(&cores).any(|row| effort.wants(row.0)) {
        return;
    }
    let servers = serve();
    pin_to(1);
    let mut loads: Vec<_> = servers.sides.iter().map(|at| Load::connect(*at)).collect();
    let turn = Duration::from_millis(if effort.quick { 30 } else { 100 });
    let mut figures = [const { (Vec::new(), Vec::new()) }; SIDES.len()];
    for _ in 0..effort.rounds() {
        let mut best = [(0.0_f64, f64::INFINITY); SIDES.len()];
        for number in 0..if effort.quick { 4 } else { 10 } {
            // There and back, so that no side is always measured after the same one.
            for place in 0..SIDES.len() {
                let side = if number % 2 == 0 {
                    place
                } else {
                    SIDES.len() - 1 - place
                };
                let (rate, core) = loads[side].run(turn, &servers.usage);
                let best = &mut best[side];
                *best = (best.0.max(rate), best.1.min(core));
            }
        }
        for (best, figures) in best.iter().zip(&mut figures) {
            figures.0.push(best.0);
            figures.1.push(best.1);
        }
    }
    let print = |(work, ours, theirs, goal): (&str, usize, usize, f64), more: bool| {
        if !effort.wants(work) {
            return;
        }
        let of = |side: usize| match more {
            true => figures[side].0.clone(),
            false => figures[side].1.clone(),
        };
        let row = Row {
            work: work.into(),
            peer: SIDES[theirs],
            unit: if more { "requests/s" } else { "us" },
            ours: of(ours),
            theirs: of(theirs),
            goal,
            absolute: false,
            more,
        };
        row.print(effort);
    };
    rows.into_iter().for_each(|row| print(row, true));
    cores.into_iter().for_each(|row| print(row, false));
}

struct Servers {
    sides: Vec<SocketAddr>,
    /// The file with the CPU time of the server's thread.
    usage: String,
}

/// Serves all sides from one thread.
fn serve() -> Servers {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        pin_to(0);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut sides = Vec::new();
            for (side, app) in apps().into_iter().enumerate() {
                let listener = TcpListener::bind("127.0.0.1:0").expect(SIDES[side]);
                listener.set_nonblocking(true).expect("a socket");
                sides.push(listener.local_addr().expect("an address"));
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                let app = app.into_make_service_with_connect_info::<SocketAddr>();
                tokio::spawn(async move { axum::serve(listener, app).await });
            }
            // SAFETY: the call has no arguments and cannot fail.
            let thread = unsafe { libc::gettid() };
            let usage = format!("/proc/self/task/{thread}/schedstat");
            sender
                .send(Servers { sides, usage })
                .expect("the receiver is alive");
            std::future::pending::<()>().await;
        });
    });
    receiver.recv().expect("servers")
}

fn apps() -> [Router; SIDES.len()] {
    let hello = || Router::new().route("/", get(async || "Hello, World!"));
    let ours = |admits| {
        let bucket = TokenBucket::new(peers::quota(admits));
        hello().layer(RateLimitLayer::new(ClientIp::peer(), bucket))
    };
    let theirs = |admits| {
        let mut builder = GovernorConfigBuilder::default();
        if admits {
            builder.per_nanosecond(1).burst_size(u32::MAX);
        } else {
            builder.per_second(86_400).burst_size(1);
        }
        hello().layer(GovernorLayer::new(builder.finish().expect("a valid quota")))
    };
    [
        hello(),
        ours(true),
        ours(false),
        theirs(true),
        theirs(false),
        hello().layer(tower::layer::layer_fn(Idle)),
    ]
}

/// Forwards every call.
#[derive(Clone)]
struct Idle<S>(S);

impl<R, S: Service<R>> Service<R> for Idle<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.0.call(request)
    }
}

/// Connections with one request in flight each.
struct Load {
    connections: Vec<TcpStream>,
    /// The length of a response, except for the first one.
    response: usize,
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

impl Load {
    fn connect(to: SocketAddr) -> Self {
        let connections = (0..32).map(|_| {
            let stream = TcpStream::connect(to).expect("a connection");
            stream.set_nodelay(true).expect("a socket");
            stream
        });
        let mut load = Self {
            connections: connections.collect(),
            response: 0,
        };
        // The first response of each connection may be an admission, which has another length.
        for stream in &mut load.connections {
            for _ in 0..2 {
                stream.write_all(REQUEST).expect("a server");
                load.response = read_response(stream);
            }
        }
        load
    }

    /// Returns requests per second, and the server's CPU time per request in microseconds.
    fn run(&mut self, span: Duration, usage: &str) -> (f64, f64) {
        let mut buffer = [0; 4_096];
        for stream in &mut self.connections {
            stream.write_all(REQUEST).expect("a server");
        }
        let (begin, used) = (Instant::now(), nanos_used(usage));
        let mut requests = 0_u32;
        loop {
            let done = begin.elapsed() >= span;
            for stream in &mut self.connections {
                let mut left = self.response;
                while left > 0 {
                    let read = stream.read(&mut buffer).expect("a server");
                    assert!(read > 0 && read <= left, "a response of another length");
                    left -= read;
                }
                requests += 1;
                if !done {
                    stream.write_all(REQUEST).expect("a server");
                }
            }
            if done {
                break;
            }
        }
        let (took, used) = (begin.elapsed(), nanos_used(usage) - used);
        (
            f64::from(requests) / took.as_secs_f64(),
            used / f64::from(requests) / 1e3,
        )
    }
}

/// Reads one response by its content length. Returns its whole length.
fn read_response(stream: &mut TcpStream) -> usize {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a server");
        text.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&text).to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let length = length.map_or(0, |length| length.trim().parse().expect("a number"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a server");
    text.len() + length
}

/// The CPU time of a thread in nanoseconds.
fn nanos_used(usage: &str) -> f64 {
    let text = std::fs::read_to_string(usage).unwrap_or_default();
    let used = text.split(' ').next().and_then(|used| used.parse().ok());
    used.unwrap_or(f64::NAN)
}

/// Pins this thread to `core`, if the machine has it.
pub(crate) fn pin_to(core: usize) {
    // SAFETY: the set is plain data, and its size is passed to the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}
