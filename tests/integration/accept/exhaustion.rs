//! A process without file descriptors. It is a child, because the limit is one of the process.
#![cfg(unix)]

use std::{env, fs::File, process::Command, time::Duration};

use test_support::{
    log::log,
    measured::{Measured, measured},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
    task::yield_now,
    time::{Instant, timeout},
};
use tower_throttle::accept::{ConnectionCounts, ConnectionLimit};

use crate::accept::support::bind;

const CHILD: &str = "TOWER_THROTTLE_FEW_FILES";

/// Shows promise 319.
#[test]
fn want_of_descriptors_ends_no_loop_and_does_not_spin() {
    in_child("want_of_descriptors_ends_no_loop_and_does_not_spin", || {
        measured(limited);
    });
}

/// Runs the rest of a test in a process that may open 64 files.
fn in_child(test: &str, rest: fn()) {
    if env::var_os(CHILD).is_some() {
        return rest();
    }
    let script =
        format!("ulimit -n 64 && exec \"$0\" --exact accept::exhaustion::{test} --nocapture");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).arg(env::current_exe().unwrap());
    let output = shell.env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let is_right = output.status.success() && text.contains("1 passed");
    assert!(is_right, "{text}");
}

/// Files until there is no descriptor left.
fn open_all() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// Whether so many failed attempts since `begin` are more than 20 per second.
fn spins(errors: u64, begin: Instant) -> bool {
    u128::from(errors) > 1 + begin.elapsed().as_millis() / 50
}

async fn limited(metrics: Measured) {
    let limit = ConnectionLimit::new(100).name("edge");
    let mut listener = limit.clone().listen(bind().await);
    let server = listener.local_addr().unwrap();
    for outage in 1..=2 {
        let client = TcpSocket::new_v4().unwrap();
        let files = open_all();
        let mut client = client.connect(server).await.unwrap();
        let (begin, before) = (Instant::now(), limit.counts().accept_errors);
        let accepting = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await;
            connection.write_all(b"hello").await.unwrap();
            listener
        });
        while limit.counts().accept_errors < before + 3 {
            assert!(begin.elapsed() < Duration::from_secs(10), "no error");
            yield_now().await;
        }
        let errors = limit.counts().accept_errors;
        assert!(
            !spins(errors - before, begin),
            "{errors} in {:?}",
            begin.elapsed()
        );
        drop(files);
        let mut hello = [0; 5];
        let read = timeout(Duration::from_secs(10), client.read_exact(&mut hello)).await;
        read.expect("the loop goes on").unwrap();
        assert_eq!(&hello, b"hello");
        listener = accepting.await.unwrap();
        let ConnectionCounts {
            accepted,
            open,
            accept_errors,
            ..
        } = limit.counts();
        assert_eq!((accepted, open), (outage, 0));
        let counted =
            metrics.count("tower_throttle_connections_total limit=edge outcome=accept_error");
        assert_eq!(counted, accept_errors);
        // Each outage is logged once.
        assert_eq!(log().matches("no connection can be accepted").count(), 1);
    }
}
