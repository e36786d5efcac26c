//! A limit on connections: `cargo run --example connections --features accept`
//!
//! One client opens ten connections and says nothing. Two are accepted, the others are reset. Another client is
//! served meanwhile.

use std::{io::Result, net::SocketAddr};

use axum::{Router, extract::ConnectInfo, routing::get};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
};
use tower_throttle::{Quota, accept::ConnectionLimit};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let limit = ConnectionLimit::new(2)
        .rate(Quota::per_second(20))
        .total(1_000);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    // A clone is the same limit: it reads what the listener counts.
    let listener = limit.clone().listen(listener).for_axum();
    let hello = async |ConnectInfo(peer): ConnectInfo<SocketAddr>| format!("hello {}", peer.ip());
    let app = Router::new().route("/", get(hello));
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });

    let silent = [
        connect([127, 0, 0, 1], address).await?,
        connect([127, 0, 0, 1], address).await?,
    ];
    for number in 3..=10 {
        let read = async { connect([127, 0, 0, 1], address).await?.read_u8().await };
        let reset = read.await.err().map(|error| error.kind());
        println!("connection {number}: {reset:?}");
    }
    let client = [127, 0, 0, 1].into();
    println!(
        "open: {}, a further one: {:?}",
        limit.open(client),
        limit.admit(client, ()).err()
    );
    assert!(limit.admit(client, ()).is_err());

    let mut other = connect([127, 0, 0, 2], address).await?;
    other
        .write_all(b"GET / HTTP/1.1\r\nhost: local\r\nconnection: close\r\n\r\n")
        .await?;
    let mut response = String::new();
    other.read_to_string(&mut response).await?;
    println!(
        "another client: {}",
        response.lines().last().unwrap_or_default()
    );
    assert!(response.ends_with("hello 127.0.0.2"));

    let counts = limit.counts();
    println!("{counts:?}");
    // Eight connections, and the two questions above.
    assert_eq!((counts.accepted, counts.refused), (3, 10));
    drop(silent);
    Ok(())
}

/// Connects from an address of the loopback network, each of which is a client.
async fn connect(source: [u8; 4], server: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    socket.connect(server).await
}
