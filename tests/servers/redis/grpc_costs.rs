//! Costs of gRPC streams, which are known at their end: a tonic server over HTTP/2.

use std::{pin::Pin, sync::Arc};

use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tonic::{
    Code, Request, Response, Status,
    body::Body,
    metadata::MetadataMap,
    service::Routes,
    transport::{Channel, Endpoint, Server, server::TcpIncoming},
};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse,
    health_client::HealthClient,
    health_server::{Health, HealthServer},
};
use tower::{Service, ServiceExt, layer::layer_fn, service_fn};
use tower_throttle::{
    FixedWindow, Global, Quota, RateLimitLayer,
    respond::{AtEnd, CostHandle},
};

use crate::redis::open;
use crate::redis_server::RedisServer;
use crate::settled_costs::settles;

type Message = Result<HealthCheckResponse, Status>;

/// The name of the service in a request says what becomes of it.
#[derive(Debug)]
struct Algorithm(Arc<Semaphore>);

#[tonic::async_trait]
impl Health for Algorithm {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let cost: &CostHandle = request.extensions().get().expect("a handle");
        cost.set(5);
        if request.get_ref().service == "endless" {
            self.0.add_permits(1);
            std::future::pending::<()>().await;
        }
        Err(Status::unavailable("as asked"))
    }

    type WatchStream = Pin<Box<dyn stream::Stream<Item = Message> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (_, mut extensions, request) = request.into_parts();
        let cost: CostHandle = extensions.remove().expect("a handle");
        let words = |count, each: u64| {
            stream::repeat_with(move || {
                if each > 0 {
                    cost.add(each);
                }
                Ok(HealthCheckResponse::default())
            })
            .take(count)
        };
        Ok(Response::new(match request.service.as_str() {
            "ends" => words(10, 3).boxed(),
            "is left" => words(2, 3).chain(stream::pending()).boxed(),
            "fails" => {
                let failed = Err(Status::internal("as asked"));
                words(4, 3).chain(stream::iter([failed])).boxed()
            }
            "has trailers" => {
                let mut trailers = MetadataMap::new();
                trailers.insert("x-cost", "17".parse().expect("a value"));
                let end = Err(Status::with_metadata(Code::Ok, "", trailers));
                words(2, 0).chain(stream::iter([end])).boxed()
            }
            _ => words(2, 0).boxed(),
        }))
    }
}

/// Reads from the trailers what a request has cost.
fn read_trailers(
    routes: Routes,
) -> impl Service<
    http::Request<Body>,
    Response = http::Response<Body>,
    Error: Into<tower::BoxError> + Send + Sync,
    Future: Send,
> + Clone
+ Send
+ Sync {
    service_fn(move |request: http::Request<Body>| {
        let cost = request.extensions().get::<CostHandle>().cloned();
        let response = routes.clone().oneshot(request);
        async move {
            let response = response.await?;
            Ok::<_, tower::BoxError>(response.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    let said = frame.trailers_ref().and_then(|all| all.get("x-cost"));
                    let said = said.and_then(|said| said.to_str().ok()?.parse().ok());
                    if let (Some(cost), Some(said)) = (&cost, said) {
                        cost.set(said);
                    }
                    frame
                }))
            }))
        }
    })
}

fn ask(what: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: what.to_owned(),
    }
}

/// Reads a stream to its end, or two messages of it.
async fn read(mut client: HealthClient<Channel>, what: &'static str) -> Result<(), Status> {
    let mut words = client.watch(ask(what)).await?.into_inner();
    let most = if what == "is left" { 2 } else { usize::MAX };
    let mut read = 0;
    while read < most && words.message().await?.is_some() {
        read += 1;
    }
    Ok(())
}

/// What is wrong with a limit of requests beside one of tokens.
async fn fault(reads_trailers: bool) -> Option<String> {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let window = |name, quota| redis.limiter(name, FixedWindow::new(quota).anchored());
    let tokens = RateLimitLayer::new(Global, window("tokens", Quota::per_day(400)))
        .cost(|_: &http::Request<Body>| 20)
        .settle(AtEnd);
    let requests = RateLimitLayer::new(Global, window("requests", Quota::per_minute(30)));
    let limit = requests.and(tokens);
    let handle = limit.handle();
    let (requests, tokens) = (handle.first(), handle.second());
    let left = async || {
        let (requests, tokens) = (requests.peek(&(), 0).await, tokens.peek(&(), 0).await);
        (
            requests.expect("a reply").remaining(),
            tokens.expect("a reply").remaining(),
        )
    };

    let started = Arc::new(Semaphore::new(0));
    let health = HealthServer::new(Algorithm(Arc::clone(&started)));
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let endpoint = format!("http://{}", incoming.local_addr().expect("its address"));
    let mut builder = Server::builder().layer(limit);
    if reads_trailers {
        let server = builder.layer(layer_fn(read_trailers)).add_service(health);
        tokio::spawn(server.serve_with_incoming(incoming));
    } else {
        tokio::spawn(builder.add_service(health).serve_with_incoming(incoming));
    }
    // One connection for all.
    let endpoint = Endpoint::from_shared(endpoint).expect("a url");
    let client = HealthClient::new(endpoint.connect_lazy());

    for (what, at_once, code, expected) in [
        ("ends", 1, Code::Ok, (29, 370)),
        ("is left", 1, Code::Ok, (28, 364)),
        ("fails", 1, Code::Internal, (27, 352)),
        ("has trailers", 1, Code::Ok, (26, 335)),
        ("is silent", 1, Code::Ok, (25, 315)),
        ("ends", 10, Code::Ok, (15, 15)),
    ] {
        let reads = (0..at_once).map(|_| tokio::spawn(read(client.clone(), what)));
        for read in reads.collect::<Vec<_>>() {
            let ended = read.await.expect("no panic");
            assert_eq!(
                ended.map_or_else(|status| status.code(), |()| Code::Ok),
                code
            );
        }
        if let Some(wrong) = settles(expected, left).await {
            return Some(format!("{what}: {wrong:?} in place of {expected:?}"));
        }
    }
    let denied = read(client.clone(), "ends").await.expect_err("20 of 15");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert_eq!(settles((15, 15), left).await, None, "it takes nothing");

    // Without a body: an error in place of a stream, and a call that is cancelled.
    tokens.reset(&()).await.expect("a reply");
    let mut unary = client.clone();
    let error = unary.check(ask("fails")).await.expect_err("as asked");
    assert_eq!(error.code(), Code::Unavailable);
    assert_eq!(settles((14, 395), left).await, None);
    let call = tokio::spawn(async move { unary.check(ask("endless")).await });
    started.acquire().await.expect("it is open").forget();
    call.abort();
    assert_eq!(settles((13, 390), left).await, None);
    None
}

/// Shows promises 53, 321.
#[tokio::test]
async fn a_grpc_stream_costs_what_its_handler_or_its_trailers_say() {
    assert_eq!(fault(true).await, None);
}

/// Shows promise 321.
#[tokio::test]
async fn trailers_that_are_not_read_are_found() {
    let fault = fault(false).await.expect("the estimate stays");
    assert!(fault.starts_with("has trailers: (26, 332)"), "{fault}");
}
