//! Which connections are refused, and what their peers see.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use tokio::io::AsyncReadExt;
use tower_throttle::{Quota, accept::ConnectionLimit, key::Networks};

use crate::accept::support::{
    ONE, OTHER, ask, bind, connect, is_reset, serve, served, try_connect,
};
use test_support::wait::until;

/// Shows promise 319.
#[tokio::test]
async fn a_client_has_at_most_n_connections_and_further_ones_are_reset() {
    let limit = ConnectionLimit::new(2);
    let server = serve(limit.clone()).await;
    let mut first = served(ONE, server).await;
    let second = served(ONE, server).await;
    assert!(is_reset(ONE, server).await);
    let others = served(OTHER, server).await;
    // Those that were accepted go on.
    assert!(ask(&mut first).await.unwrap().starts_with("HTTP/1.1 200"));
    let counts = limit.counts();
    assert_eq!((counts.open, counts.accepted, counts.refused), (3, 3, 1));
    drop((second, others));
}

/// Shows promise 319.
#[tokio::test]
async fn a_reset_follows_even_if_the_peer_has_sent_something() {
    let server = serve(ConnectionLimit::new(1)).await;
    let _first = served(ONE, server).await;
    let asked = async { ask(&mut try_connect(ONE, server).await?).await };
    let error = asked.await.expect_err("it is refused");
    let expected = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(expected.contains(&error.kind()), "{error:?}");
}

/// Shows promise 319.
#[tokio::test]
async fn all_clients_together_have_at_most_a_total_and_excepted_ones_only_that() {
    let limit = ConnectionLimit::new(1).total(3).rate(Quota::per_hour(1));
    let limit = limit.except(Networks::new(["127.0.0.2/32"]));
    let server = serve(limit.clone()).await;
    let _one = served(ONE, server).await;
    assert!(is_reset(ONE, server).await);
    let _others = [served(OTHER, server).await, served(OTHER, server).await];
    assert!(is_reset(OTHER, server).await);
    let counts = limit.counts();
    assert_eq!(counts.refused, 2);
}

/// Shows promise 319.
#[tokio::test(start_paused = true)]
async fn a_refused_connection_takes_nothing_and_time_returns_the_rate() {
    const OPEN: &str = "the client has too many open connections";
    const RATE: &str = "the client opens connections too fast";
    let limit = ConnectionLimit::new(1).rate(Quota::per_second(2));
    let first = limit.admit(ONE, ()).unwrap();
    for _ in 0..10 {
        assert_eq!(limit.admit(ONE, ()).unwrap_err().to_string(), OPEN);
    }
    drop(first);
    // The second of two. Those that the rate refuses keep no place either.
    drop(limit.admit(ONE, ()).unwrap());
    for _ in 0..10 {
        assert_eq!(limit.admit(ONE, ()).unwrap_err().to_string(), RATE);
    }
    tokio::time::advance(Duration::from_millis(499)).await;
    assert_eq!(limit.admit(ONE, ()).unwrap_err().to_string(), RATE);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(limit.admit(ONE, ()).is_ok());
}

/// Shows promise 319.
#[test]
fn the_addresses_of_a_network_are_one_client() {
    let limit = ConnectionLimit::new(10);
    let addresses = (0..100).map(|n| {
        let first = "2001:db8::".parse::<Ipv6Addr>().unwrap().to_bits();
        IpAddr::V6(Ipv6Addr::from_bits(first | n))
    });
    let open: Vec<_> = addresses
        .filter_map(|address| limit.admit(address, ()).ok())
        .collect();
    assert_eq!(open.len(), 10);
}

/// Shows promise 319.
#[tokio::test]
async fn peers_that_are_gone_before_they_are_accepted_end_no_loop() {
    let limit = ConnectionLimit::new(1_000);
    let listener = bind().await;
    let server = listener.local_addr().unwrap();
    for _ in 0..50 {
        connect(ONE, server).await.set_zero_linger().unwrap();
    }
    let mut listener = limit.clone().listen(listener);
    let accepting = tokio::spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });
    let mut last = connect(OTHER, server).await;
    assert_eq!(last.read(&mut [0]).await.unwrap(), 0, "closed as usual");
    until("all are closed", async || limit.counts().open == 0).await;
    assert!(!accepting.is_finished());
}
