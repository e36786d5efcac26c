//! Messages of a live WebSocket, by client.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    extract::{
        ConnectInfo, State,
        ws::{Message, WebSocket, WebSocketUpgrade},
    },
    response::IntoResponse,
    routing::get,
    serve::ListenerExt,
};
use futures_util::{SinkExt, StreamExt};
use http::StatusCode;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
    time::Instant,
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message as Sent},
};
use tower_throttle::{
    ClientIp, ConcurrencyLimitLayer, Handle, Local, Quota, TokenBucket,
    concurrency::{PermitHolder, Permits},
    key::Client,
    stream::{LimitedStream, StreamLimit},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// Each connection has a limit of its own.
    PerConnection,
    /// All clients share one limit.
    Shared,
    /// The permit goes with the response 101.
    Unheld,
}

#[derive(Clone)]
struct Limits {
    per_client: Arc<Local<TokenBucket>>,
    bucket: TokenBucket,
    max_wait: Duration,
    mistake: Mistake,
}

/// Echoes what is within the limit, and says "denied" in place of the rest. Panics if it is asked to.
async fn echo(socket: WebSocket, limit: StreamLimit) {
    let mut messages = LimitedStream::new(socket, limit).cost(|message| match message {
        Ok(Message::Text(_)) => 1,
        _ => 0, // a close, a ping, a failed connection
    });
    while let Some(message) = messages.next().await {
        let reply = match message {
            Ok(Ok(Message::Text(text))) => Message::Text(text),
            Ok(Ok(Message::Binary(_))) => panic!("as asked"),
            Ok(Ok(_)) => continue,
            Ok(Err(_)) => return,
            Err(_) => Message::text("denied"),
        };
        if messages.get_mut().send(reply).await.is_err() {
            return;
        }
    }
}

async fn upgrade(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    State(limits): State<Limits>,
    upgrade: WebSocketUpgrade,
) -> impl IntoResponse {
    let client = ClientIp::peer().key(peer.ip());
    let limit = match limits.mistake {
        Mistake::PerConnection => StreamLimit::new(limits.bucket, client),
        Mistake::Shared => StreamLimit::new(limits.per_client, ()),
        _ => StreamLimit::new(limits.per_client, client),
    };
    let holder = PermitHolder::new();
    let keep = (limits.mistake != Mistake::Unheld).then(|| Extension(holder.keep()));
    let response = upgrade.on_upgrade(async move |socket| {
        echo(socket, limit.max_wait(limits.max_wait)).await;
        drop(holder);
    });
    (keep, response)
}

/// At most two connections per client, and the messages of each client within the bucket.
async fn serve(
    bucket: TokenBucket,
    max_wait: Duration,
    mistake: Mistake,
) -> (SocketAddr, Handle<Client, Permits>) {
    let limits = Limits {
        per_client: Arc::new(Local::new(bucket)),
        bucket,
        max_wait,
        mistake,
    };
    let connections = ConcurrencyLimitLayer::new(ClientIp::peer(), 2);
    let handle = connections.handle();
    let app = Router::new()
        .route("/", get(upgrade).layer(connections))
        .with_state(limits)
        .into_make_service_with_connect_info::<SocketAddr>();
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Paused time passes while the kernel holds data back.
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
    tokio::spawn(async { axum::serve(listener, app).await });
    (SocketAddr::from(([127, 0, 0, 1], address.port())), handle)
}

/// A connection of the client at 127.0.0.`client`, or the status of the response.
async fn connect(
    address: SocketAddr,
    client: u8,
) -> Result<WebSocketStream<TcpStream>, StatusCode> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_nodelay(true).unwrap();
    socket.bind(([127, 0, 0, client], 0).into()).unwrap();
    let stream = socket.connect(address).await.unwrap();
    match client_async(format!("ws://{address}/"), stream).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(response)) => Err(response.status()),
        Err(error) => panic!("{error}"),
    }
}

/// Sends messages at once. Returns how many come back, and how many are denied.
async fn talk(mut socket: WebSocketStream<TcpStream>, messages: usize) -> (usize, usize) {
    for number in 0..messages {
        let message = Sent::text(number.to_string());
        socket.send(message).await.unwrap();
    }
    let (mut echoed, mut denied) = (0, 0);
    for number in 0..messages {
        match socket.next().await.unwrap().unwrap().to_text().unwrap() {
            "denied" => denied += 1,
            text => {
                assert_eq!(text, number.to_string(), "in order");
                echoed += 1;
            }
        }
    }
    (echoed, denied)
}

/// In how many milliseconds two connections of one client and one of another have ten echoes each.
async fn paced(mistake: Mistake) -> (u128, u128) {
    let bucket = TokenBucket::new(Quota::per_second(10).burst(1));
    let (address, _) = serve(bucket, Duration::MAX, mistake).await;
    let begun = Instant::now();
    let mut talks = JoinSet::new();
    for client in [1, 1, 2] {
        let socket = connect(address, client).await.unwrap();
        talks.spawn(async move {
            assert_eq!(talk(socket, 10).await, (10, 0));
            (client, begun.elapsed().as_millis())
        });
    }
    let ends = talks.join_all().await;
    let last = |client| {
        ends.iter()
            .filter(move |end| end.0 == client)
            .map(|end| end.1)
    };
    (last(1).max().unwrap(), last(2).max().unwrap())
}

/// 20 messages of one client in 1,900 ms, ten of another in 900 ms.
///
/// Shows promise 343.
#[tokio::test(start_paused = true)]
async fn the_messages_of_each_client_are_paced_over_all_its_websockets() {
    assert_eq!(paced(Mistake::None).await, (1_900, 900));
}

/// Shows promise 343.
#[tokio::test]
async fn messages_over_the_limit_of_a_client_are_denied_one_by_one() {
    let bucket = TokenBucket::new(Quota::per_day(5));
    for (mistake, admitted) in [
        (Mistake::None, [4, 1, 5]),
        (Mistake::PerConnection, [4, 5, 5]),
        (Mistake::Shared, [4, 1, 0]),
    ] {
        let (address, _) = serve(bucket, Duration::ZERO, mistake).await;
        for ((client, sent), admitted) in [(1, 4), (1, 8), (2, 7)].into_iter().zip(admitted) {
            let socket = connect(address, client).await.unwrap();
            assert_eq!(talk(socket, sent).await, (admitted, sent - admitted));
        }
    }
}
