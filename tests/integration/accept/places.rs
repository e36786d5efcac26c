//! A place is taken while a connection is open, and no longer.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use test_support::random::Random;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};
use tower_throttle::accept::{Connection, ConnectionLimit};

use crate::accept::support::{ONE, bind, connect};

/// The first message of a protocol.
async fn handshake(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut hello = [0; 5];
    stream.read_exact(&mut hello).await?;
    match &hello {
        b"hello" => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

async fn serve_one(mut connection: Connection<TcpStream>) {
    if handshake(&mut connection).await.is_ok() {
        let _ = connection.read_u8().await;
    }
}

/// Whether all places are free after clients that shake hands, that do not, and that hang up.
async fn frees_all<F: Future<Output = ()> + Send + 'static>(
    serve_one: fn(Connection<TcpStream>) -> F,
) -> bool {
    let limit = ConnectionLimit::new(100);
    let mut listener = limit.clone().listen(bind().await);
    let server = listener.local_addr().unwrap();
    let mut serving = JoinSet::new();
    for first in [&b"hello"[..], b"hullo", b"hel", b""] {
        for _ in 0..5 {
            let mut client = connect(ONE, server).await;
            client.write_all(first).await.unwrap();
            serving.spawn(serve_one(listener.accept().await.0));
        }
    }
    assert_eq!(limit.counts().accepted, 20);
    serving.join_all().await;
    limit.open(ONE) == 0 && limit.counts().open == 0
}

/// Shows promise 319.
#[tokio::test]
async fn a_handshake_that_fails_frees_the_place() {
    assert!(frees_all(serve_one).await);
}

/// Shows promise 319.
#[tokio::test]
async fn a_task_that_panics_frees_the_place() {
    let limit = ConnectionLimit::new(1);
    let mut listener = limit.clone().listen(bind().await);
    let server = listener.local_addr().unwrap();
    let _client = connect(ONE, server).await;
    let (connection, _) = listener.accept().await;
    let task = tokio::spawn(async move {
        let _connection = connection;
        std::panic::resume_unwind(Box::new("a bug"));
    });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(limit.open(ONE), 0);
}

/// The most connections of one client and of all that threads hold at a time, and how many are left at the
/// end.
fn hold_at_random(limit: &ConnectionLimit) -> (u32, u32, u64) {
    const CLIENTS: usize = 3;
    let address = |client: usize| {
        let last = u8::try_from(client).unwrap();
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
    };
    let held = [const { AtomicU32::new(0) }; CLIENTS];
    let all = AtomicU32::new(0);
    let (most, most_of_all) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for thread in 0..4 {
            let (held, all, most, most_of_all) = (&held, &all, &most, &most_of_all);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut below = |most: usize| usize::try_from(random.below(most as u64)).unwrap();
                let mut own: Vec<(usize, _)> = Vec::new();
                for _ in 0..20_000 {
                    let client = below(CLIENTS);
                    if let (true, Ok(permit)) = (own.len() < 12, limit.admit(address(client), ())) {
                        let now = held[client].fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        let now = all.fetch_add(1, Ordering::SeqCst) + 1;
                        most_of_all.fetch_max(now, Ordering::SeqCst);
                        own.push((client, permit));
                    } else if !own.is_empty() {
                        let (client, permit) = own.swap_remove(below(own.len()));
                        held[client].fetch_sub(1, Ordering::SeqCst);
                        all.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                }
                for (client, permit) in own {
                    held[client].fetch_sub(1, Ordering::SeqCst);
                    all.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            });
        }
    });
    let open = limit.counts().open;
    (most.into_inner(), most_of_all.into_inner(), open)
}

/// Shows promise 319.
#[test]
fn threads_hold_at_most_the_limit_and_return_all() {
    let (most, _, open) = hold_at_random(&ConnectionLimit::new(5));
    assert_eq!((most, open), (5, 0));
    let (_, most, open) = hold_at_random(&ConnectionLimit::new(100).total(5));
    assert!((2..=5).contains(&most), "{most} are open");
    assert_eq!(open, 0);
}
