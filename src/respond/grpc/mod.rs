//! Denials as a gRPC status.

mod protobuf;

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};

use super::Respond;
use super::http::{
    digits, finish, is_denial, no_store, note, response_from_request, retry_after, set_header,
    timeout,
};
use crate::decision::Decision;
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
/// [`Auto`](super::Auto) answer so what is a gRPC request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grpc;

impl<A, B: Default, Err> Respond<Request<A>, Response<B>, Err> for Grpc {
    fn deny(&self, request: &Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        // The default body is empty, so that the headers end the stream.
        let mut response = Response::new(B::default());
        trailers_only(&mut response, content_type(request.headers()), denied);
        Ok(response)
    }

    fn refuse(&self, request: Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        let media = content_type(request.headers());
        let mut response = response_from_request(request, B::default());
        trailers_only(&mut response, media, denied);
        Ok(response)
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

/// Writes the gRPC status for `denied` into a response without a body.
pub(super) fn trailers_only<B>(
    response: &mut Response<B>,
    media: HeaderValue,
    denied: RateLimited,
) {
    set_status(response.headers_mut(), media, &denied);
    finish(response.extensions_mut(), denied);
}

// Neither generic nor inlined: a program has one copy.
#[inline(never)]
fn set_status(headers: &mut HeaderMap, media: HeaderValue, denied: &RateLimited) {
    retry_after(headers, denied);
    no_store(headers);
    let code = code(denied);
    let message = denied.to_string();
    set_header(headers, header::CONTENT_TYPE, media);
    set_header(headers, STATUS, digits(code.into()));
    insert(headers, MESSAGE, &percent_encode(&message));
    if let Some(wait) = denied.retry_after() {
        let ms = wait.as_nanos().div_ceil(1_000_000).max(1);
        // Clients read 32 bits: more milliseconds cannot be sent, and fewer would be wrong.
        if let Some(ms) = u64::try_from(ms).ok().filter(|ms| *ms <= MAX_PUSHBACK) {
            set_header(headers, PUSHBACK, digits(ms));
        }
        let details = protobuf::status_with_retry_info(code, &message, wait);
        insert(headers, DETAILS, &protobuf::base64(&details));
    } else if denied.is_permanent() {
        set_header(headers, PUSHBACK, HeaderValue::from_static("-1"));
    }
}

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
pub(super) fn is_grpc<A>(request: &Request<A>) -> bool {
    request.method() == Method::POST && has_grpc_headers(request.headers())
}

#[inline(never)]
fn has_grpc_headers(headers: &HeaderMap) -> bool {
    let Some(kind) = media_type(headers).and_then(|asked| asked.strip_prefix(b"application/grpc"))
    else {
        return false;
    };
    let text = kind.strip_prefix(b"-web-text");
    let web = text.or_else(|| kind.strip_prefix(b"-web"));
    // Not `application/grpcfoo`.
    matches!(web.unwrap_or(kind).first(), None | Some(b'+' | b';' | b' '))
        && (web.is_some() || takes_trailers(headers))
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::TE).iter();
    let is_trailers = |part: &[u8]| part.trim_ascii().eq_ignore_ascii_case(b"trailers");
    accepted.any(|value| {
        value
            .as_bytes()
            .split(|byte| *byte == b',')
            .any(is_trailers)
    })
}

#[inline(never)]
fn media_type(headers: &HeaderMap) -> Option<&[u8]> {
    Some(headers.get(header::CONTENT_TYPE)?.as_bytes())
}

/// The content type of the request's kind: clients of gRPC-Web accept no other.
pub(super) fn content_type(headers: &HeaderMap) -> HeaderValue {
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
    match denied.status() {
        StatusCode::TOO_MANY_REQUESTS => 8,
        StatusCode::BAD_REQUEST => 3,
        StatusCode::UNAUTHORIZED => 16,
        StatusCode::FORBIDDEN => 7,
        StatusCode::NOT_FOUND => 5,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => {
            14
        }
        StatusCode::NOT_IMPLEMENTED => 12,
        status if status.is_server_error() => 13,
        _ => 2,
    }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        set_header(headers, name, value);
    }
}

/// Everything outside printable ASCII, and `%` itself, as `%XX`.
fn percent_encode(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push(char::from(HEX[usize::from(byte >> 4)]));
            encoded.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(content_type: &'static str) -> HeaderMap {
        let value = HeaderValue::from_static(content_type);
        [(header::CONTENT_TYPE, value)].into_iter().collect()
    }

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

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(percent_encode("100 % of\nü"), "100 %25 of%0A%C3%BC");
    }
}
