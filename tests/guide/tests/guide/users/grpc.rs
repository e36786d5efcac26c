//! A tonic service with a limit of calls per caller, and one of the messages of a stream.

use std::{convert::Infallible, future::Future, net::SocketAddr, pin::Pin, time::Duration};

use http::StatusCode;
use tonic::codegen::tokio_stream::{Stream, StreamExt};
use tonic::codegen::{Context, Poll, Service};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::transport::{Server, server::TcpIncoming};
use tonic::{Request, Response, Status, Streaming, body::Body};
use tonic_health::pb::HealthCheckRequest as Message;
use tonic_prost::ProstCodec;
use tower_throttle::key::Missing;
use tower_throttle::stream::{LimitedStream, StreamLimit};
use tower_throttle::{HeaderKey, Quota, RateLimitLayer, TokenBucket};

/// What `tonic-build` makes of `service Chat { rpc Say(stream Message) returns (stream Message); }`.
#[derive(Clone)]
struct Chat;

impl NamedService for Chat {
    const NAME: &'static str = "shop.Chat";
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Messages = Pin<Box<dyn Stream<Item = Result<Message, Status>> + Send>>;

impl Service<http::Request<Body>> for Chat {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Boxed<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let codec = ProstCodec::<Message, Message>::default();
            Ok(Grpc::new(codec).streaming(Say, request).await)
        })
    }
}

struct Say;

impl StreamingService<Message> for Say {
    type Response = Message;
    type ResponseStream = Messages;
    type Future = Boxed<Result<Response<Messages>, Status>>;

    fn call(&mut self, request: Request<Streaming<Message>>) -> Self::Future {
        // Three messages per hour of this stream. One above that ends it.
        let bucket = TokenBucket::new(Quota::per_hour(3));
        let limit = StreamLimit::new(bucket, ()).max_wait(Duration::ZERO);
        let messages = LimitedStream::new(request.into_inner(), limit);
        let replies = messages.map(|message| match message {
            Ok(message) => message,
            Err(denied) => Err(Status::from(denied)),
        });
        Box::pin(async { Ok(Response::new(Box::pin(replies) as Messages)) })
    }
}

/// Serves with two calls per hour of each caller, which names itself in the metadata.
fn serve() -> SocketAddr {
    let caller = HeaderKey::new("x-caller").if_missing(Missing::Reject(StatusCode::UNAUTHORIZED));
    let limit = RateLimitLayer::new(caller, TokenBucket::new(Quota::per_hour(2)));
    let any = "127.0.0.1:0".parse().expect("an address");
    let incoming = TcpIncoming::bind(any).expect("a port");
    let address = incoming.local_addr().expect("its address");
    let server = Server::builder().layer(limit).add_service(Chat);
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

// ---- What its users see.

use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream;
use tonic::{Code, transport::Endpoint};
use tonic_types::StatusExt;

/// How many messages of `sent` were answered, and what ended the call.
async fn say(address: SocketAddr, caller: Option<&'static str>, sent: u64) -> (u64, Status) {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a URL");
    let channel = endpoint.connect().await.expect("a server");
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.expect("ready");
    let messages = (0..sent).map(|n| Message {
        service: n.to_string(),
    });
    let mut request = Request::new(tokio_stream::iter(messages.collect::<Vec<_>>()));
    if let Some(caller) = caller {
        request
            .metadata_mut()
            .insert("x-caller", caller.parse().expect("ASCII"));
    }
    let codec = ProstCodec::<Message, Message>::default();
    let path = PathAndQuery::from_static("/shop.Chat/Say");
    let mut replies = match client.streaming(request, path, codec).await {
        Ok(response) => response.into_inner(),
        Err(status) => return (0, status),
    };
    let mut count = 0;
    loop {
        match replies.message().await {
            Ok(Some(_)) => count += 1,
            Ok(None) => return (count, Status::ok("")),
            Err(status) => return (count, status),
        }
    }
}

fn retry_delay(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

#[tokio::test]
async fn a_caller_has_so_many_calls_and_a_stream_so_many_messages() {
    let address = serve();
    let (replies, status) = say(address, Some("ann"), 3).await;
    assert_eq!((replies, status.code()), (3, Code::Ok));

    let (replies, status) = say(address, Some("ann"), 9).await;
    assert_eq!((replies, status.code()), (3, Code::ResourceExhausted));
    assert!(retry_delay(&status) > Some(Duration::from_secs(1_000)));

    let (replies, status) = say(address, Some("ann"), 1).await;
    assert_eq!((replies, status.code()), (0, Code::ResourceExhausted));
    assert!(retry_delay(&status) > Some(Duration::from_secs(1_700)));

    assert_eq!(say(address, Some("bob"), 1).await.0, 1);
    assert_eq!(say(address, None, 1).await.1.code(), Code::Unauthenticated);
}
