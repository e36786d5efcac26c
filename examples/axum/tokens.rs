//! A gateway that charges what a language model streams: `cargo run --example tokens`
//!
//! The program starts a fake model, which streams words as server-sent events, and a gateway in front of it. A user
//! has 10 requests per minute and 100 tokens per day, of which each request reserves 20. The gateway counts the
//! tokens that pass and charges these. It prints what is left after a short answer and after a long one, and how a
//! request is denied for which too little is left.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::{Path, Request},
    http::StatusCode,
    response::Response,
    routing::get,
};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{net::TcpListener, task::yield_now};
use tower::BoxError;
use tower_throttle::{
    FixedWindow, HeaderKey, Quota, RateLimitLayer, TokenBucket,
    respond::{AtEnd, CostHandle},
};

type HttpClient = Client<HttpConnector, Body>;

/// An answer of the model: each frame is a word.
struct Answer {
    words_left: u64,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(left) = self.words_left.checked_sub(1) else {
            return Poll::Ready(None);
        };
        self.words_left = left;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from("data: word\n\n")))))
    }
}

/// Passes the answer of the model on and counts the events in it.
async fn complete(
    Extension(model): Extension<(HttpClient, String)>,
    Extension(cost): Extension<CostHandle>,
    Path(words): Path<u64>,
) -> Result<Response, StatusCode> {
    let (client, address) = model;
    let request = Request::get(format!("http://{address}/answer/{words}"));
    let request = request
        .body(Body::empty())
        .map_err(|_| StatusCode::BAD_REQUEST)?;
    let answer = client
        .request(request)
        .await
        .map_err(|_| StatusCode::BAD_GATEWAY)?;
    // An event may be split between frames, so its last byte is counted.
    let mut last = 0;
    Ok(answer.map(|body| {
        Body::new(body.map_frame(move |frame| {
            for byte in frame.data_ref().into_iter().flatten() {
                if (last, *byte) == (b'\n', b'\n') {
                    cost.add(1);
                }
                last = *byte;
            }
            frame
        }))
    }))
}

async fn serve(app: Router) -> Result<String, BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let answer = async |Path(words_left): Path<u64>| Body::new(Answer { words_left });
    let model = serve(Router::new().route("/answer/{words}", get(answer))).await?;

    let user = || HeaderKey::new("x-api-key");
    let tokens = RateLimitLayer::new(user(), FixedWindow::new(Quota::per_day(100)))
        .name("tokens")
        .cost(|_: &Request| 20)
        .settle(AtEnd);
    let handle = tokens.handle();
    let limit = RateLimitLayer::new(user(), TokenBucket::new(Quota::per_minute(10)))
        .name("requests")
        .and(tokens);
    let client: HttpClient = Client::builder(TokioExecutor::new()).build_http();
    let app = Router::new()
        .route("/complete/{words}", get(complete))
        .layer(limit)
        .layer(Extension((client.clone(), model)));
    let gateway = serve(app).await?;

    let ask = async |words: u64| {
        let uri = format!("http://{gateway}/complete/{words}");
        let request = Request::get(uri).header("x-api-key", "secret");
        Ok::<_, BoxError>(client.request(request.body(Body::empty())?).await?)
    };
    let left = || handle.peek_now(&HeaderKey::key("secret"), 0).remaining();
    let settled = async |expected: u64| {
        while left() != expected {
            yield_now().await;
        }
        println!("{expected} tokens are left");
    };

    println!("an answer of 5 tokens");
    ask(5).await?.into_body().collect().await?;
    settled(95).await;

    println!("an answer of 80 tokens");
    ask(80).await?.into_body().collect().await?;
    settled(15).await;

    let denied = ask(1).await?.status();
    println!("a request that would reserve 20: {denied}");
    assert_eq!(denied, StatusCode::TOO_MANY_REQUESTS);
    Ok(())
}
