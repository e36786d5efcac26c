//! Denials as problem details (RFC 9457).

use std::fmt::Write;

use std::time::Duration;

use http::{HeaderValue, Request, Response, header};

use super::grpc_timeout::timeout;
use super::header_text::set_header;
use super::response::{is_denial, note, plain, response_from_request};
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::respond::Respond;

/// The status, `Retry-After` and a body of `application/problem+json`, of the types that the
/// `RateLimit` draft registers.
///
/// The body is the service's own type, which has to be `From<String>`, as the bodies of axum, reqwest
/// and `http_body_util::Full` are.
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

impl<A, B: From<String>, Err> Respond<Request<A>, Response<B>, Err> for ProblemJson {
    fn deny(&self, _: &Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        let body = B::from(problem(&denied));
        Ok(problem_response(Response::new(body), denied))
    }

    fn refuse(&self, request: Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        let body = B::from(problem(&denied));
        Ok(problem_response(
            response_from_request(request, body),
            denied,
        ))
    }

    fn admit(&self, request: &mut Request<A>, decision: &Decision) {
        note(request, decision);
    }

    fn timeout(&self, request: &Request<A>) -> Option<Duration> {
        timeout(request)
    }

    fn is_denial(&self, response: &Response<B>) -> bool {
        is_denial(response)
    }
}

fn problem_response<B>(mut response: Response<B>, denied: RateLimited) -> Response<B> {
    let media = HeaderValue::from_static("application/problem+json");
    set_header(response.headers_mut(), header::CONTENT_TYPE, media);
    plain(&mut response, denied);
    response
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
    let mut body = format!(
        r#"{{"type":"{kind}","title":"{title}","status":{}"#,
        status.as_u16()
    );
    if let Some(rejection) = denied.rejection() {
        body.push_str(r#","detail":"#);
        quote(&mut body, &rejection.to_string());
    }
    if let Some(policy) = denied.policy() {
        body.push_str(r#","violated-policies":["#);
        quote(&mut body, policy);
        body.push(']');
    }
    body.push('}');
    body
}

/// Writes `text` as a JSON string.
fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            // Writing to a string does not fail.
            '\0'..='\x1f' => write!(out, "\\u{:04x}", u32::from(c)).unwrap_or_default(),
            _ => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::decision::Verdict;
    use crate::error::{Rejection, StoreError};

    #[test]
    fn the_violated_policy_is_named() {
        let decision = Decision::new(Verdict::Deny, 1, 0, Some(1), 1);
        let denied = RateLimited::new(decision).by("say \"hi\"".into());
        assert!(problem(&denied).ends_with(r#""status":429,"violated-policies":["say \"hi\""]}"#));
    }

    #[test]
    fn a_rejection_includes_its_message_and_an_outage_no_details() {
        let rejection = Rejection::new(StatusCode::BAD_REQUEST, "line\nbreak");
        assert_eq!(
            problem(&rejection.into()),
            r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"line\u000abreak"}"#
        );
        let outage = RateLimited::unavailable(StoreError::new("redis at 10.0.0.1 is down", true));
        let body = problem(&outage);
        assert!(body.contains("#temporary-reduced-capacity") && body.contains("503"));
        assert!(!body.contains("redis"));
    }
}
