//! A server with a limit, and clients with addresses.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use axum::{Router, extract::ConnectInfo, routing::get};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    time::timeout,
};
use tower_throttle::accept::ConnectionLimit;

/// Two clients.
pub(crate) const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
pub(crate) const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

pub(crate) async fn bind() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// Serves an app that says the address of the peer.
pub(crate) async fn serve(limit: ConnectionLimit) -> SocketAddr {
    let app = Router::new().route(
        "/",
        get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string()),
    );
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let listener = bind().await;
    let address = listener.local_addr().unwrap();
    let listener = limit.listen(listener).for_axum();
    tokio::spawn(async { axum::serve(listener, service).await });
    address
}

/// A connection that is accepted.
pub(crate) async fn connect(source: IpAddr, server: SocketAddr) -> TcpStream {
    try_connect(source, server).await.unwrap()
}

/// A connection, unless it is reset before this task runs again.
pub(crate) async fn try_connect(source: IpAddr, server: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    socket.connect(server).await
}

/// The response to a request, or the error of the connection.
pub(crate) async fn ask(stream: &mut TcpStream) -> io::Result<String> {
    let request = b"GET / HTTP/1.1\r\nhost: local\r\n\r\n";
    stream.write_all(request).await?;
    let mut buffer = [0; 1_024];
    let read = timeout(Duration::from_secs(10), stream.read(&mut buffer)).await;
    let read = read.expect("an end or a response")?;
    Ok(String::from_utf8_lossy(&buffer[..read]).into_owned())
}

/// A connection that is served.
pub(crate) async fn served(source: IpAddr, server: SocketAddr) -> TcpStream {
    let mut stream = connect(source, server).await;
    let response = ask(&mut stream).await.expect("the connection is accepted");
    let address = stream.local_addr().unwrap().to_string();
    assert!(response.ends_with(&address), "{response}");
    stream
}

/// Whether a new connection is reset without a byte.
pub(crate) async fn is_reset(source: IpAddr, server: SocketAddr) -> bool {
    let read = async { try_connect(source, server).await?.read_u8().await };
    let read = timeout(Duration::from_secs(10), read).await;
    let error = read.expect("an end").expect_err("no byte is sent");
    error.kind() == ErrorKind::ConnectionReset
}
