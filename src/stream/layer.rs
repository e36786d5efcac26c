//! The layer that limits the bodies of requests or responses.

use std::task::{Context, Poll, ready};
use std::{error::Error, fmt, future::Future, pin::Pin, sync::Arc};
use std::{ops::RangeInclusive, time::Duration};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::body::LimitedBody;
use super::limit::{StreamLimit, TERMS, Terms};
use super::pace::{Counting, Pace};
use crate::backend::{Backend, IntoBackend};
use crate::error::{ConfigError, RateLimited, expect_valid};
use crate::key::{Extracted, KeyExtractor};
use crate::respond::{Respond, Standard};

/// Limits the bytes, or the gRPC messages, in the bodies of requests or of responses.
///
/// All bodies of one key share its limit. The key is found as in a
/// [`RateLimitLayer`](crate::RateLimitLayer): a request without one that needs it is answered at once, and
/// one that is skipped is not limited. A key of its own per request, such as a counter, is a limit per body.
///
/// What the limit denies waits. The bodies of one key take turns if the limit is a bucket; otherwise each tries again
/// when it may be admitted.
///
/// ```
/// use axum::{Router, body::Bytes, routing::post};
/// use tower_throttle::{ClientIp, Quota, TokenBucket, stream::BodyLimitLayer};
///
/// // Uploads: 1 MB per second and client.
/// let bucket = TokenBucket::new(Quota::per_second(1_000_000));
/// let layer = BodyLimitLayer::requests(ClientIp::peer(), bucket);
/// let app: Router = Router::new().route("/", post(async |body: Bytes| body.len().to_string()).layer(layer));
/// ```
#[must_use = "a layer does nothing until it is added to a service"]
pub struct BodyLimitLayer<K, B> {
    keys: K,
    backend: Arc<B>,
    /// Limits the bodies of requests, not those of responses.
    requests: bool,
    counting: Counting,
    terms: Terms,
}

impl<K, B> BodyLimitLayer<K, B> {
    /// Limits what clients send: the bodies of requests. `limiter` is an algorithm, or a limiter of a store,
    /// that counts in bytes.
    ///
    /// # Panics
    /// If a setting of an algorithm is invalid or has no effect.
    #[track_caller]
    pub fn requests(keys: K, limiter: impl IntoBackend<Backend = B>) -> Self {
        Self::new(keys, limiter.into_backend(), true)
    }

    /// Limits what clients are sent: the bodies of responses. `limiter` is an algorithm, or a limiter of a
    /// store, that counts in bytes.
    ///
    /// # Panics
    /// If a setting of an algorithm is invalid or has no effect.
    #[track_caller]
    pub fn responses(keys: K, limiter: impl IntoBackend<Backend = B>) -> Self {
        Self::new(keys, limiter.into_backend(), false)
    }

    fn new(keys: K, backend: B, requests: bool) -> Self {
        Self {
            keys,
            backend: Arc::new(backend),
            requests,
            counting: Counting::new(false),
            terms: TERMS,
        }
    }

    /// Counts gRPC messages instead of bytes; see [`LimitedBody::grpc_messages`].
    ///
    /// A stream that fails should say so by its status. In tonic (feature `tonic`):
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{ClientIp, Quota, TokenBucket, stream::BodyLimitLayer};
    ///
    /// let layer = BodyLimitLayer::requests(ClientIp::peer(), TokenBucket::new(Quota::per_second(100)))
    ///     .grpc_messages()
    ///     .max_wait(Duration::from_secs(1));
    /// # #[cfg(feature = "tonic")]
    /// let layer = layer.on_denied(|denied| tonic::Status::from(denied).into());
    /// # drop(layer);
    /// ```
    pub fn grpc_messages(mut self) -> Self {
        self.counting.grpc_messages = true;
        self
    }

    /// The fewest and the most bytes that are counted at once; 1 to 65,536 unless set.
    ///
    /// Larger frames are cut. If pieces are to be at least so large, smaller frames are counted together: the
    /// limit is asked less often, and the last piece of a body counts as one of the least size.
    ///
    /// ```
    /// use tower_throttle::{Global, Quota, TokenBucket, stream::BodyLimitLayer};
    ///
    /// // One decision per 16 KiB or more, whatever the frames are.
    /// let bucket = TokenBucket::new(Quota::per_second(10_000_000).burst(262_144));
    /// let layer = BodyLimitLayer::responses(Global, bucket).pieces(16_384..=65_536);
    /// # drop(layer);
    /// ```
    ///
    /// # Panics
    /// If the range is empty or begins at 0.
    #[track_caller]
    pub fn pieces(mut self, sizes: RangeInclusive<u32>) -> Self {
        let allowed = "a range that begins at 1 or more";
        let invalid = ConfigError::out_of_range("pieces", format!("{sizes:?}"), allowed);
        let is_valid = *sizes.start() > 0 && !sizes.is_empty();
        self.counting.pieces = (*sizes.start(), *sizes.end());
        expect_valid(is_valid.then_some(()).ok_or(invalid));
        self
    }

    /// How long a piece may wait; see [`StreamLimit::max_wait`]. Then the body fails.
    pub const fn max_wait(mut self, max_wait: Duration) -> Self {
        self.terms.max_wait = max_wait;
        self
    }

    /// Lets the body fail while a store is down; see [`StreamLimit::deny_on_store_error`].
    pub const fn deny_on_store_error(mut self) -> Self {
        self.terms.denies_on_error = true;
        self
    }

    /// The error of a body that fails; the [`RateLimited`] itself unless set.
    pub fn on_denied(mut self, error: fn(RateLimited) -> Box<dyn Error + Send + Sync>) -> Self {
        self.counting.on_denied = error;
        self
    }
}

impl<S, K: Clone, B> Layer<S> for BodyLimitLayer<K, B> {
    type Service = BodyLimit<S, K, B>;

    fn layer(&self, inner: S) -> Self::Service {
        let layer = self.clone();
        BodyLimit { inner, layer }
    }
}

/// A service whose bodies are limited; made by a [`BodyLimitLayer`].
#[derive(Clone, Debug)]
pub struct BodyLimit<S, K, B> {
    inner: S,
    layer: BodyLimitLayer<K, B>,
}

impl<S, K, B, A, R> Service<Request<A>> for BodyLimit<S, K, B>
where
    S: Service<Request<LimitedBody<A>>, Response = Response<R>>,
    K: KeyExtractor<Request<A>, Key: Send + Sync + 'static>,
    B: Backend<K::Key>,
    R: Default + 'static,
{
    type Response = Response<LimitedBody<R>>;
    type Error = S::Error;
    type Future = BodyLimitFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let layer = &self.layer;
        let mut pace = match layer.keys.extract(&request) {
            Extracted::Key(key) => {
                let mut limit = StreamLimit::of(Arc::clone(&layer.backend), key);
                limit.terms = layer.terms;
                Some(Pace::new(limit, layer.counting))
            }
            Extracted::Skip => None,
            Extracted::Reject(rejection) => {
                return BodyLimitFuture {
                    inner: None,
                    refused: Some(Standard.deny(request, rejection.into())),
                    pace: None,
                };
            }
        };
        let of_request = pace.take_if(|_| layer.requests);
        let request = request.map(|body| LimitedBody::paced(body, of_request));
        BodyLimitFuture {
            inner: Some(self.inner.call(request)),
            refused: None,
            pace,
        }
    }
}

pin_project! {
    /// The response future of a [`BodyLimit`].
    pub struct BodyLimitFuture<F: Future> {
        #[pin]
        inner: Option<F>,
        // If there is no `inner`.
        refused: Option<F::Output>,
        pace: Option<Pace>,
    }
}

impl<F, R, E> Future for BodyLimitFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<LimitedBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = match (this.inner.as_pin_mut(), this.refused.take()) {
            (Some(inner), _) => ready!(inner.poll(cx)),
            (None, Some(refused)) => refused,
            (None, None) => return Poll::Pending, // polled again after it was ready
        };
        let pace = this.pace.take();
        Poll::Ready(response.map(|response| response.map(|body| LimitedBody::paced(body, pace))))
    }
}

/// Manual impl: derive would require `Debug` of the output.
impl<F: Future> fmt::Debug for BodyLimitFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyLimitFuture").finish_non_exhaustive()
    }
}

/// Manual impl: derive would require `B: Clone`.
impl<K: Clone, B> Clone for BodyLimitLayer<K, B> {
    fn clone(&self) -> Self {
        Self {
            keys: self.keys.clone(),
            backend: Arc::clone(&self.backend),
            ..*self
        }
    }
}

/// Manual impl: closures are not `Debug`, and keys must not be logged.
impl<K, B> fmt::Debug for BodyLimitLayer<K, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyLimitLayer")
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
