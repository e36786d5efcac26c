//! Limits on what flows within a request: messages one by one, and bytes per second.
//!
//! A [`RateLimitLayer`](crate::RateLimitLayer) counts a WebSocket, a gRPC stream or an upload of a gigabyte
//! once. This module counts what they carry. Needs the feature `stream`.
//!
//! | | limits |
//! |---|---|
//! | [`LimitedStream`] | the items of any stream: messages of a WebSocket, or of a tonic `Streaming` |
//! | [`LimitedBody`] | the bytes of a body, or the gRPC messages in it |
//! | [`BodyLimitLayer`] | the same for all requests or all responses of a service, by key |
//! | [`StreamLimit`] | what they count by: a [`Limiter`](crate::Limiter), or one key of a [`Backend`](crate::store::Backend) |
//!
//! What is over the limit waits, and the sender with it: nothing is read ahead, so a connection's flow control
//! slows the sender down. With [`max_wait`](StreamLimit::max_wait) it fails instead.
//!
//! ```
//! use axum::{Router, body::Body, extract::Request, routing::get};
//! use tower_throttle::{HeaderKey, Quota, TokenBucket, stream::BodyLimitLayer};
//!
//! // All downloads of one tenant together: 10 MB per second, after a burst of 256 KiB.
//! let bucket = TokenBucket::new(Quota::per_second(10_000_000).burst(262_144));
//! let layer = BodyLimitLayer::responses(HeaderKey::new("x-tenant"), bucket);
//! let app: Router = Router::new().route("/file", get(async || vec![0_u8; 100_000]).layer(layer));
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn ask(app: Router) {
//! # use tower::ServiceExt;
//! # let response = app.oneshot(Request::get("/file").body(Body::empty()).unwrap()).await.unwrap();
//! # let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
//! # assert_eq!(body.len(), 100_000);
//! # }
//! # ask(app);
//! ```

mod body;
mod layer;
mod limit;
mod messages;
mod pace;

pub use self::{
    body::LimitedBody,
    layer::{BodyLimit, BodyLimitFuture, BodyLimitLayer},
    limit::StreamLimit,
    messages::LimitedStream,
};
