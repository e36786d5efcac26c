//! An endpoint that says what a client has left.

use std::{convert::Infallible, fmt, future::Future, pin::Pin, sync::Arc, task};

use http::{HeaderValue, Request, Response, header};
use tower_service::Service;

use super::LimitLayer;
use super::gate::Limiting;
use crate::backend::{Backend, Op};
use crate::decision::{Decision, ceil_seconds};
use crate::key::{Extracted, KeyExtractor};

/// A service that returns what the caller has left of some limits, as JSON: `GET /rate_limit`.
///
/// It finds the key of the request as the layers do, and takes nothing from their limits. A client that is
/// denied elsewhere can ask it, so put a limit of its own around it.
///
/// ```text
/// {"limits":[{"name":"search","limit":50,"remaining":49,"reset":1},
///            {"name":"login","limit":5,"remaining":0,"reset":60,"retry_after":12}]}
/// ```
///
/// The figures are those of the headers of a response: `limit` is what an unused client may use at once,
/// `remaining` what is left, and `reset` the seconds until all of it is. `retry_after` is there if a request of
/// cost 1 would be denied now. Each limit of a tuple is listed, `export-1` and `export-2`, as headers name
/// them. A limit that does not apply to the caller is left out, and one whose plan for the caller is
/// `Unlimited` has `"unlimited":true`. If a store does not reply, or the request has no key, the limit has
/// `"error":"unknown"`; so have the limits of a tuple in a [fleet](crate::store::fleet), except for the one
/// that binds.
///
/// ```
/// use axum::{Router, body::{Body, to_bytes}, extract::Request, routing::get};
/// use tower::ServiceExt;
/// use tower_throttle::{FixedWindow, HeaderKey, Quota, RateLimitLayer, layer::Usage};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let search = FixedWindow::new(Quota::per_day(10));
/// let search = RateLimitLayer::new(HeaderKey::new("x-api-key"), search).name("search");
/// let usage = Usage::new().of(&search);
/// let app: Router = Router::new()
///     .route("/search", get(async || "found").layer(search))
///     .route_service("/rate_limit", usage);
///
/// let request = |path| Request::get(path).header("x-api-key", "secret").body(Body::empty()).unwrap();
/// app.clone().oneshot(request("/search")).await.unwrap();
/// let response = app.oneshot(request("/rate_limit")).await.unwrap();
/// let body = to_bytes(response.into_body(), 1_000).await.unwrap();
/// # let body = String::from_utf8(body.to_vec()).unwrap();
/// # let body = body.split(",\"reset\"").next().unwrap();
/// assert_eq!(body, r#"{"limits":[{"name":"search","limit":10,"remaining":9"#); // and so on
/// # }
/// ```
#[must_use = "it does nothing until it is added to a router"]
pub struct Usage<Req> {
    limits: Vec<Arc<Ask<Req>>>,
}

/// Asks one layer. `None` if it does not apply to the request. Boxed, because the limits are of different
/// types; an endpoint is asked rarely.
type Ask<Req> = dyn Fn(&Req) -> Option<Boxed<String>> + Send + Sync;
type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<Req> Usage<Req> {
    /// Of no limit yet.
    pub fn new() -> Self {
        Self { limits: Vec::new() }
    }

    /// Also of this limit, under the name that the layer has now. Of several limits in one layer
    /// ([`and`](LimitLayer::and)), add each before they become one.
    pub fn of<K, G, R>(mut self, layer: &LimitLayer<K, G, R>) -> Self
    where
        K: KeyExtractor<Req> + Clone + Send + Sync + 'static,
        G: Limiting<Limiter: Backend<K::Key>>,
    {
        let (keys, state) = (layer.keys.clone(), Arc::clone(layer.gate().state()));
        self.limits.push(Arc::new(move |request: &Req| {
            let name = Arc::clone(state.name());
            let peeked = match keys.extract(request) {
                Extracted::Key(key) => match state.backend.limits() {
                    0 | 1 => vec![state.backend.apply(&key, Op::Peek(1))],
                    limits => (0..limits)
                        .map(|part| state.backend.apply(&key, Op::PeekOf(1, part)))
                        .collect(),
                },
                Extracted::Reject(_) => Vec::new(),
                Extracted::Skip => return None,
            };
            Some(Box::pin(async move {
                if peeked.is_empty() {
                    return limit_as_json(&name, None);
                }
                let is_set = peeked.len() > 1;
                let mut limits = Vec::new();
                for (number, peeked) in (1..).zip(peeked) {
                    let decision = peeked.await.ok();
                    limits.push(if is_set {
                        limit_as_json(&format!("{name}-{number}"), decision)
                    } else {
                        limit_as_json(&name, decision)
                    });
                }
                limits.join(",")
            }))
        }));
        self
    }
}

impl<B> Service<Request<B>> for Usage<Request<B>> {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Boxed<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Infallible>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let asked: Vec<_> = self.limits.iter().filter_map(|ask| ask(&request)).collect();
        Box::pin(async move {
            let mut limits = Vec::new();
            for limit in asked {
                limits.push(limit.await);
            }
            let mut response = Response::new(format!("{{\"limits\":[{}]}}", limits.join(",")));
            let headers = response.headers_mut();
            let json = HeaderValue::from_static("application/json");
            headers.insert(header::CONTENT_TYPE, json);
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            Ok(response)
        })
    }
}

/// Names are printable ASCII, of which `Debug` escapes what JSON does.
fn limit_as_json(name: &str, decision: Option<Decision>) -> String {
    let Some(decision) = decision else {
        return format!("{{\"name\":{name:?},\"error\":\"unknown\"}}");
    };
    if decision.is_unlimited() {
        return format!("{{\"name\":{name:?},\"unlimited\":true}}");
    }
    let (limit, remaining) = (decision.limit, decision.remaining());
    let reset = ceil_seconds(decision.reset_after);
    let retry = match decision.retry_after {
        Some(after) => format!(",\"retry_after\":{}", ceil_seconds(after)),
        None => String::new(),
    };
    format!(
        "{{\"name\":{name:?},\"limit\":{limit},\"remaining\":{remaining},\"reset\":{reset}{retry}}}"
    )
}

impl<Req> Default for Usage<Req> {
    fn default() -> Self {
        Self::new()
    }
}

/// Manual impl: derive would require `Req: Clone`.
impl<Req> Clone for Usage<Req> {
    fn clone(&self) -> Self {
        Self {
            limits: self.limits.clone(),
        }
    }
}

/// Manual impl: closures have no `Debug`.
impl<Req> fmt::Debug for Usage<Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Usage")
            .field("limits", &self.limits.len())
            .finish()
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use super::*;
    use crate::backend::Op;
    use crate::quota::Plan;

    #[test]
    fn a_plan_without_a_quota_is_said() {
        for (plan, expected) in [
            (Plan::Unlimited, r#"{"name":"a","unlimited":true}"#),
            (
                Plan::Blocked,
                r#"{"name":"a","limit":0,"remaining":0,"reset":0}"#,
            ),
        ] {
            assert_eq!(limit_as_json("a", plan.decide(Op::Peek(1))), expected);
        }
    }
}
