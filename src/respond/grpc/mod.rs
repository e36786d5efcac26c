//! Denials as a gRPC status.

mod protobuf;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};

use super::http::{header_value, no_store, response_from_request, retry_after};
use super::{Http, Respond};
use crate::error::RateLimited;

/// A gRPC status in a trailers-only response.
///
/// A denied request gets `RESOURCE_EXHAUSTED` and the time to wait in two forms: as `RetryInfo` in
/// `grpc-status-details-bin`, which says that a retry makes sense at all, and as
/// `grpc-retry-pushback-ms`, which gRPC's own retries obey. A request that costs more than the limit
/// ever grants is told not to retry. Clients would read a plain HTTP 429 as `UNAVAILABLE`, which many
/// of them retry at once.
///
/// `Retry-After` and `Cache-Control: no-store` are set as well, for proxies.
///
/// Every denied request is answered so, whatever it is: HTTP sees a status of 200. It is for a service that
/// only gRPC reaches, for example through a proxy that removes `te`. [`Standard`](super::Standard) and
/// [`ProblemJson`](crate::ProblemJson) answer so what is a gRPC request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grpc;

impl<A, B: Default, Err> Respond<Request<A>, Response<B>, Err> for Grpc {
    type Protocol = Http;

    fn deny(&self, request: Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        let media = content_type(request.headers());
        // The default body is empty, so that the headers end the stream.
        let mut response = response_from_request(request, B::default());
        set_status(response.headers_mut(), media, &denied);
        response.extensions_mut().insert(denied);
        Ok(response)
    }
}

fn set_status(headers: &mut HeaderMap, media: HeaderValue, denied: &RateLimited) {
    retry_after(headers, denied);
    no_store(headers);
    let code = code(denied);
    let message = denied.to_string();
    headers.insert(header::CONTENT_TYPE, media);
    headers.insert(STATUS, header_value(format_args!("{code}")));
    let encoded = header_value(format_args!("{}", percent_encode(&message)));
    headers.insert(MESSAGE, encoded);
    if let Some(wait) = denied.retry_after() {
        let ms = wait.as_nanos().div_ceil(1_000_000).max(1);
        // Clients read 32 bits: more milliseconds cannot be sent, and fewer would be wrong.
        if let Some(ms) = u64::try_from(ms).ok().filter(|ms| *ms <= MAX_PUSHBACK) {
            headers.insert(PUSHBACK, header_value(format_args!("{ms}")));
        }
        let details = protobuf::status_with_retry_info(code, &message, wait);
        let details = header_value(format_args!("{}", protobuf::base64(&details)));
        headers.insert(DETAILS, details);
    } else if denied.is_permanent() {
        headers.insert(PUSHBACK, HeaderValue::from_static("-1"));
    }
}

/// `RESOURCE_EXHAUSTED` with `RetryInfo` and `grpc-retry-pushback-ms`, as [`Grpc`] answers: for handlers and
/// clients whose error is a status.
///
/// ```
/// use tonic::{Code, Status};
/// use tower_throttle::{Limiter, Quota, RateLimited, TokenBucket};
///
/// let limiter = Limiter::new(TokenBucket::new(Quota::per_hour(1)));
/// let handler = || match limiter.check(1) {
///     decision if decision.is_denied() => Err(Status::from(RateLimited::new(decision))),
///     _ => Ok(()),
/// };
/// assert!(handler().is_ok());
/// assert_eq!(handler().unwrap_err().code(), Code::ResourceExhausted);
/// ```
#[cfg(feature = "tonic")]
impl From<RateLimited> for tonic::Status {
    fn from(denied: RateLimited) -> Self {
        let mut headers = HeaderMap::new();
        set_status(&mut headers, content_type(&HeaderMap::new()), &denied);
        headers.remove(header::CONTENT_TYPE);
        Self::from_header_map(&headers)
            .unwrap_or_else(|| Self::resource_exhausted(denied.to_string()))
    }
}

/// Longer texts are cut off, because clients limit the size of all headers.
const MAX_MESSAGE_LEN: usize = 1_024;

/// The most milliseconds in a pushback.
const MAX_PUSHBACK: u64 = i32::MAX as u64;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Whether a request is gRPC or gRPC-Web by its specification: `POST`, the content type, and for gRPC
/// `te: trailers`.
///
/// The content type alone would let a client turn its denials into responses with status 200. The version
/// is not asked for: behind the gRPC-Web layer of tonic, gRPC has the version of the browser's request.
pub(crate) fn is_grpc<A>(request: &Request<A>) -> bool {
    request.method() == Method::POST && has_grpc_headers(request.headers())
}

fn has_grpc_headers(headers: &HeaderMap) -> bool {
    let asked = media_type(headers).unwrap_or_default();
    let Some(kind) = asked.strip_prefix(b"application/grpc") else {
        return false;
    };
    let text = kind.strip_prefix(b"-web-text");
    let web = text.or_else(|| kind.strip_prefix(b"-web"));
    // Not `application/grpcfoo`.
    matches!(web.unwrap_or(kind).first(), None | Some(b'+' | b';' | b' '))
        && (web.is_some() || takes_trailers(headers))
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::TE).iter();
    let mut parts = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    parts.any(|part| part.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

fn media_type(headers: &HeaderMap) -> Option<&[u8]> {
    Some(headers.get(header::CONTENT_TYPE)?.as_bytes())
}

/// The content type of the request's kind: clients of gRPC-Web accept no other.
fn content_type(headers: &HeaderMap) -> HeaderValue {
    let asked = media_type(headers).unwrap_or_default();
    let essence = asked.split(|byte| *byte == b';').next().unwrap_or_default();
    HeaderValue::from_static(match essence.trim_ascii() {
        b"application/grpc-web" => "application/grpc-web",
        b"application/grpc-web-text" => "application/grpc-web-text",
        b"application/grpc-web-text+proto" => "application/grpc-web-text+proto",
        web if web.starts_with(b"application/grpc-web") => "application/grpc-web+proto",
        _ => "application/grpc",
    })
}

/// The code that says the same as the status in HTTP.
fn code(denied: &RateLimited) -> u16 {
    match denied.status().as_u16() {
        429 => 8,
        400 => 3,
        401 => 16,
        403 => 7,
        404 => 5,
        501 => 12,
        502..=504 => 14,
        500..=599 => 13,
        _ => 2,
    }
}

/// The start of `text`, with everything outside printable ASCII, and `%` itself, as `%XX`.
fn percent_encode(text: &str) -> String {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = ends.take_while(|end| *end <= MAX_MESSAGE_LEN).last();
    let encoded = text[..end.unwrap_or(0)].bytes().map(|byte| match byte {
        b'%' | ..b' ' | 0x7f.. => format!("%{byte:02X}"),
        _ => char::from(byte).into(),
    });
    encoded.collect()
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn asking(content_type: &'static str) -> HeaderMap {
        let value = HeaderValue::from_static(content_type);
        [(header::CONTENT_TYPE, value)].into_iter().collect()
    }

    /// Shows promise 74.
    #[test]
    fn grpc_is_known_by_its_method_its_content_type_and_te() {
        for (asked, is_web) in [
            ("application/grpc", Some(false)),
            ("application/grpc+proto", Some(false)),
            ("application/grpc;charset=utf-8", Some(false)),
            ("application/grpc-web", Some(true)),
            ("application/grpc-web;charset=utf-8", Some(true)),
            ("application/grpc-web+proto", Some(true)),
            ("application/grpc-web-text+proto", Some(true)),
            ("application/grpcfoo", None),
            ("application/grpc-", None),
            ("application/grpc-webfoo", None),
            ("application/grpc-web-textual", None),
            ("application/json", None),
            ("text/plain, application/grpc", None),
            ("", None),
        ] {
            for (te, has_trailers) in [
                ("trailers", true),
                ("deflate, Trailers", true),
                ("deflate", false),
                ("", false),
            ] {
                for method in [Method::GET, Method::HEAD, Method::PUT, Method::POST] {
                    let expected = method == Method::POST
                        && is_web.is_some_and(|is_web| is_web || has_trailers);
                    let mut request = Request::new(());
                    *request.headers_mut() = asking(asked);
                    request
                        .headers_mut()
                        .insert(header::TE, te.parse().unwrap());
                    *request.method_mut() = method;
                    assert_eq!(is_grpc(&request), expected, "{asked} {te} {request:?}");
                }
            }
        }
        let mut bare = Request::new(());
        *bare.method_mut() = Method::POST;
        assert!(!is_grpc(&bare));
    }

    #[test]
    fn the_answer_is_of_the_family_of_the_request() {
        for (asked, answered) in [
            ("application/grpc", "application/grpc"),
            ("application/grpc+json", "application/grpc"),
            ("application/grpc-web", "application/grpc-web"),
            ("application/grpc-web-text", "application/grpc-web-text"),
            (
                "application/grpc-web-text+proto",
                "application/grpc-web-text+proto",
            ),
            ("application/grpc-web+thrift", "application/grpc-web+proto"),
            ("application/grpc-web; charset=x", "application/grpc-web"),
        ] {
            assert_eq!(content_type(&asking(asked)), answered, "{asked}");
        }
    }

    /// The codes of <https://github.com/grpc/grpc/blob/master/doc/statuscodes.md>.
    ///
    /// Shows promise 74.
    #[test]
    fn every_status_has_its_code() {
        for (status, expected) in [
            (429, 8),
            (400, 3),
            (401, 16),
            (403, 7),
            (404, 5),
            (502, 14),
            (503, 14),
            (504, 14),
            (501, 12),
            (500, 13),
            (507, 13),
            (418, 2),
            (409, 2),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let rejection = crate::error::Rejection::from(status);
            assert_eq!(code(&rejection.into()), expected, "{status}");
        }
    }

    /// Shows promise 76.
    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(percent_encode("100 % of\nü"), "100 %25 of%0A%C3%BC");
        assert_eq!(percent_encode(&"ü".repeat(600)), "%C3%BC".repeat(512));
        assert_eq!(percent_encode(&"€".repeat(600)).len(), 341 * 9);
    }
}
