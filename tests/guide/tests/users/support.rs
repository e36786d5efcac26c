//! A minimal HTTP client, which chooses the address that it sends from.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::Router;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket},
};

/// A client of the programs.
#[derive(Clone, Copy)]
pub(crate) struct Client(pub(crate) [u8; 4]);

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Client {
    /// Sends one request, such as `GET /path`, with these header lines.
    pub(crate) async fn send(self, to: SocketAddr, route: &str, headers: &str) -> Response {
        let socket = TcpSocket::new_v4().expect("a socket");
        let from = IpAddr::from(Ipv4Addr::from(self.0));
        socket.bind((from, 0).into()).expect("a loopback address");
        let mut stream = socket.connect(to).await.expect("a connection");
        let request =
            format!("{route} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{headers}\r\n");
        let sent = stream.write_all(request.as_bytes()).await;
        sent.expect("an open connection");
        let mut response = String::new();
        let read = stream.read_to_string(&mut response).await;
        read.expect("a response");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).expect("a status");
        Response {
            status: status.parse().expect("a number"),
            head: head.to_lowercase(),
            body: body.to_owned(),
        }
    }

    /// The statuses of so many of the same requests.
    pub(crate) async fn statuses(
        self,
        to: SocketAddr,
        route: &str,
        headers: &str,
        requests: usize,
    ) -> Vec<u16> {
        let mut statuses = Vec::new();
        for _ in 0..requests {
            statuses.push(self.send(to, route, headers).await.status);
        }
        statuses
    }
}

impl Response {
    /// The value of a header, or nothing.
    pub(crate) fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(header, _)| *header == name)
            .map_or("", |(_, value)| value)
    }
}

/// Serves the app on a free port.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });
    address
}
