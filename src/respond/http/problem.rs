//! Denials as problem details (RFC 9457).

use http::{HeaderValue, Request, Response, header};

use super::header_text::Quoted;
use super::response::{plain, response_from_request};
use crate::error::RateLimited;
use crate::respond::{Grpc, Http, Respond, is_grpc};

/// The status, `Retry-After` and a body of `application/problem+json`, of the types that the
/// `RateLimit` draft registers.
///
/// A gRPC request gets a gRPC status, as from [`Standard`](crate::respond::Standard). The body is the service's own
/// type, which has to be `From<String>`, as the bodies of axum, reqwest and `http_body_util::Full` are.
///
/// ```
/// use axum::{Router, body::{Body, to_bytes}, extract::Request, routing::get};
/// use tower::ServiceExt;
/// use tower_throttle::{Global, ProblemJson, Quota, RateLimitLayer, TokenBucket};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_minute(1)))
///     .name("search")
///     .respond(ProblemJson);
/// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
/// let _admitted = app.clone().oneshot(Request::new(Body::empty())).await;
/// let denied = app.oneshot(Request::new(Body::empty())).await.unwrap();
/// let body = to_bytes(denied.into_body(), 1_000).await.unwrap();
/// assert_eq!(
///     body,
///     "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
///      \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
///      \"status\":429,\"violated-policies\":[\"search\"]}"
/// );
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemJson;

impl<A, B: From<String> + Default, Err> Respond<Request<A>, Response<B>, Err> for ProblemJson {
    type Protocol = Http;

    fn deny(&self, request: Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        if is_grpc(&request) {
            return Grpc.deny(request, denied);
        }
        let mut response = response_from_request(request, B::from(problem(&denied)));
        let media = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, media);
        plain(&mut response, denied);
        Ok(response)
    }
}

fn problem(denied: &RateLimited) -> String {
    let status = denied.status();
    let (kind, title) = if denied.decision().is_some() && !status.is_server_error() {
        (
            "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "Request cannot be satisfied as assigned quota has been exceeded",
        )
    } else if denied.decision().is_some() || denied.store_error().is_some() {
        (
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "Request cannot be satisfied due to temporary server capacity constraints",
        )
    } else {
        let reason = status.canonical_reason();
        ("about:blank", reason.unwrap_or("Request refused"))
    };
    let detail = denied.rejection().map(ToString::to_string);
    let detail = detail.map(|text| format!(r#","detail":{}"#, Quoted(&text)));
    let policy = denied.policy();
    let policy = policy.map(|name| format!(r#","violated-policies":[{}]"#, Quoted(name)));
    format!(
        r#"{{"type":"{kind}","title":"{title}","status":{}{}{}}}"#,
        status.as_u16(),
        detail.unwrap_or_default(),
        policy.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::decision::{Decision, Verdict};
    use crate::error::{Rejection, StoreError};

    /// Shows promise 76.
    #[test]
    fn the_violated_policy_is_named() {
        let decision = Decision::new(Verdict::Deny, 1, 0, Some(1), 1);
        let denied = RateLimited::new(decision).by("say \"hi\"".into());
        assert!(problem(&denied).ends_with(r#""status":429,"violated-policies":["say \"hi\""]}"#));
    }

    /// Shows promise 76.
    #[test]
    fn a_rejection_includes_its_message_and_an_outage_no_details() {
        let rejection = Rejection::new(StatusCode::BAD_REQUEST, "line\nbreak");
        assert_eq!(
            problem(&rejection.into()),
            r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"line\u000abreak"}"#
        );
        let outage = RateLimited::unavailable(StoreError::new("redis at 10.0.0.1 is down", true));
        let overload = Decision::new(Verdict::Deny, 1, 0, Some(1), 1);
        for denied in [outage, RateLimited::concurrent(overload, true)] {
            let body = problem(&denied);
            assert!(body.contains("#temporary-reduced-capacity") && body.contains("503"));
            assert!(!body.contains("redis"));
        }
    }
}
