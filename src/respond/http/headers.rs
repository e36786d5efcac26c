//! Response headers that state the limit, in the forms that clients know.

use std::fmt::Write;

use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::header_text::{ValueBuffer, digits};
use super::response::ceil_seconds;
use crate::clock::unix_seconds;
use crate::decision::Decision;
use crate::quota::Quota;
use crate::respond::{Policies, Policy, Tell};

/// Response headers that state the limit, for admitted and for denied requests.
///
/// They are added to the headers that are there, so a response states the limits of several layers.
/// Times are whole seconds, rounded up. The time beside the remaining count is the time until the
/// whole limit is available again; for a denied request, the time until the same request passes, as
/// in `Retry-After`.
///
/// A policy is stated as what an unused client may use at once (`q`) and the time in which that is
/// refilled (`w`). For a window these are its limit and its period. For a quota with a burst they are
/// the burst and the time to refill it: 10 per second with bursts of 50 is `q=50;w=5`. So `q` is
/// never less than the remaining count, and `q` per `w` is the sustained rate. The limit and its
/// period would hide the burst; the burst and the period of the limit would promise five times the
/// rate. A period that is not whole seconds is rounded up, and one below a second is left out.
///
/// A limit on [concurrency](crate::concurrency) has no period and no reset: those parts are left out.
/// Its policy is `q=10;qu="concurrent-requests"`.
///
/// ```
/// use axum::{Router, body::Body, http::Request, routing::get};
/// use tower::ServiceExt as _;
/// use tower_throttle::{Global, Headers, Quota, RateLimitLayer, TokenBucket};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let limit = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_minute(60).burst(10)))
///     .name("search")
///     .headers(Headers::standard());
/// let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
///
/// let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
/// assert_eq!(response.headers()["ratelimit-policy"], r#""search";q=10;w=10"#);
/// assert_eq!(response.headers()["ratelimit"], r#""search";r=9;t=1"#);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Headers {
    /// draft-ietf-httpapi-ratelimit-headers-11 (and, on the wire, 08 to 10):
    /// `RateLimit-Policy: "search";q=10;w=10` and `RateLimit: "search";r=9;t=1`.
    #[default]
    Draft11,
    /// Draft 07: `RateLimit: limit=10, remaining=9, reset=1` and `RateLimit-Policy: 10;w=10`.
    Draft7,
    /// Drafts 04 to 06: `RateLimit-Limit: 10`, `RateLimit-Remaining: 9`, `RateLimit-Reset: 1` and
    /// `RateLimit-Policy: 10;w=10`.
    Draft6,
    /// Drafts 00 to 03: `RateLimit-Limit: 10, 10;w=10`, `RateLimit-Remaining: 9` and
    /// `RateLimit-Reset: 1`.
    Draft3,
    /// `X-RateLimit-Limit: 10`, `X-RateLimit-Remaining: 9` and `X-RateLimit-Reset: 1`, the last in
    /// seconds from now.
    XRateLimitDelta,
    /// The same with the reset as a moment, in seconds since 1970, as GitHub sends it. It is wrong by
    /// the difference between the clocks of client and server.
    XRateLimitEpoch,
}

impl Headers {
    /// The newest form of the draft standard, at present [`Draft11`](Self::Draft11).
    pub const fn standard() -> Self {
        Self::Draft11
    }
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The largest number of a structured field: 15 digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;

impl<B> Tell<Response<B>> for Headers {
    fn tell(&self, response: &mut Response<B>, policies: &Policies, decision: &Decision) {
        let headers = response.headers_mut();
        if let Some(policy) = policies
            .of(decision)
            .filter(|policy| policy.quota.is_none())
        {
            return self.tell_at_once(headers, policy, decision);
        }
        let limit = integer(decision.limit);
        let remaining = integer(decision.remaining());
        let reset =
            integer(ceil_seconds(decision.retry_after.unwrap_or(decision.reset_after)).max(1));
        match self {
            Self::Draft11 => {
                let Some(policy) = policies.of(decision) else {
                    return;
                };
                headers.reserve(2);
                headers.append(RATELIMIT_POLICY, policies.header_value(0, named));
                headers.append(RATELIMIT, ratelimit_item(&policy.name, remaining, reset));
            }
            Self::Draft7 => {
                headers.append(RATELIMIT_POLICY, policies.header_value(1, unnamed_policies));
                let mut line = ValueBuffer::<96>::new();
                for (text, number) in [
                    ("limit=", limit),
                    (", remaining=", remaining),
                    (", reset=", reset),
                ] {
                    line.text(text.as_bytes());
                    line.number(number);
                }
                headers.append(RATELIMIT, line.value());
            }
            Self::Draft6 => {
                headers.append(RATELIMIT_POLICY, policies.header_value(1, unnamed_policies));
                headers.append(RATELIMIT_LIMIT, digits(limit));
                headers.append(RATELIMIT_REMAINING, digits(remaining));
                headers.append(RATELIMIT_RESET, digits(reset));
            }
            Self::Draft3 => {
                let mut line = limit.to_string();
                for quota in policies.list().iter().filter_map(|policy| policy.quota) {
                    let _ = write!(line, ", {}", bare(&quota));
                }
                if let Ok(line) = HeaderValue::try_from(line) {
                    headers.append(RATELIMIT_LIMIT, line);
                }
                headers.append(RATELIMIT_REMAINING, digits(remaining));
                headers.append(RATELIMIT_RESET, digits(reset));
            }
            Self::XRateLimitDelta | Self::XRateLimitEpoch => {
                let epoch = *self == Self::XRateLimitEpoch;
                let since = if epoch { unix_seconds() } else { 0 };
                headers.append(X_RATELIMIT_LIMIT, digits(decision.limit));
                headers.append(X_RATELIMIT_REMAINING, digits(decision.remaining()));
                headers.append(X_RATELIMIT_RESET, digits(since.saturating_add(reset)));
            }
        }
    }
}

impl Headers {
    /// States a limit on concurrency, which has neither a period nor a reset.
    fn tell_at_once(self, headers: &mut HeaderMap, policy: &Policy, decision: &Decision) {
        let (limit, remaining) = (integer(policy.at_once), integer(decision.remaining()));
        let text = |text: String| HeaderValue::try_from(text).ok();
        match self {
            Self::Draft11 => {
                let name = quoted(&policy.name);
                let unit = "concurrent-requests";
                let stated = text(format!("{name};q={limit};qu=\"{unit}\""));
                stated.map(|stated| headers.append(RATELIMIT_POLICY, stated));
                let left = text(format!("{name};r={remaining}"));
                left.map(|left| headers.append(RATELIMIT, left));
            }
            Self::Draft7 => {
                let line = text(format!("limit={limit}, remaining={remaining}"));
                line.map(|line| headers.append(RATELIMIT, line));
            }
            Self::Draft6 | Self::Draft3 => {
                headers.append(RATELIMIT_LIMIT, digits(limit));
                headers.append(RATELIMIT_REMAINING, digits(remaining));
            }
            Self::XRateLimitDelta | Self::XRateLimitEpoch => {
                headers.append(X_RATELIMIT_LIMIT, digits(limit));
                headers.append(X_RATELIMIT_REMAINING, digits(remaining));
            }
        }
    }
}

/// `"search";r=9;t=1`
fn ratelimit_item(name: &str, remaining: u64, reset: u64) -> HeaderValue {
    if name.len() > MAX_INLINE_NAME {
        let line = format!("{};r={remaining};t={reset}", quoted(name));
        return HeaderValue::try_from(line).unwrap_or(HeaderValue::from_static(""));
    }
    let mut line = ValueBuffer::<{ 2 * MAX_INLINE_NAME + 50 }>::new();
    line.text(b"\"");
    for byte in name.bytes() {
        if matches!(byte, b'"' | b'\\') {
            line.text(b"\\");
        }
        line.text(&[byte]);
    }
    line.text(b"\";r=");
    line.number(remaining);
    line.text(b";t=");
    line.number(reset);
    line.value()
}

/// Names up to this length are written without allocating.
const MAX_INLINE_NAME: usize = 48;

fn integer(number: u64) -> u64 {
    number.min(MAX_INTEGER)
}

/// `"burst";q=100;w=60, "daily";q=1000;w=86400`
fn named(policies: &[Policy]) -> HeaderValue {
    list(policies, |policy| {
        let mut item = quoted(&policy.name);
        if let Some(quota) = &policy.quota {
            let _ = write!(item, ";q={}", integer(quota.capacity()));
            // The form has whole seconds from 1 on; less is left out rather than stated wrong.
            if refill_ns(quota) >= SECOND {
                let _ = write!(item, ";w={}", window(quota));
            }
        }
        item
    })
}

/// `100;w=60, 1000;w=86400`
fn unnamed_policies(policies: &[Policy]) -> HeaderValue {
    list(policies, |policy| {
        policy.quota.as_ref().map(bare).unwrap_or_default()
    })
}

fn list(policies: &[Policy], item: impl Fn(&Policy) -> String) -> HeaderValue {
    let items: Vec<_> = policies.iter().map(item).collect();
    // Numbers and names of printable ASCII always make a value.
    HeaderValue::try_from(items.join(", ")).unwrap_or(HeaderValue::from_static(""))
}

fn bare(quota: &Quota) -> String {
    format!("{};w={}", integer(quota.capacity()), window(quota))
}

/// A string of a structured field.
fn quoted(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 32);
    text.push('"');
    for c in name.chars() {
        if matches!(c, '"' | '\\') {
            text.push('\\');
        }
        text.push(c);
    }
    text.push('"');
    text
}

const SECOND: u128 = 1_000_000_000;

/// The time in which the whole capacity is refilled: the period of a window, the refill of a bucket.
fn refill_ns(quota: &Quota) -> u128 {
    u128::from(quota.capacity()) * quota.period().as_nanos() / u128::from(quota.limit())
}

/// The same in whole seconds, rounded up.
fn window(quota: &Quota) -> u64 {
    let seconds = refill_ns(quota).div_ceil(SECOND).max(1);
    integer(u64::try_from(seconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest name that is written without allocating takes the whole buffer if each character is
    /// escaped.
    #[test]
    fn items_of_long_names_are_written_as_those_of_short_ones() {
        for length in [
            0,
            1,
            MAX_INLINE_NAME - 1,
            MAX_INLINE_NAME,
            MAX_INLINE_NAME + 1,
            2 * MAX_INLINE_NAME,
        ] {
            for character in ["a", "\"", "\\"] {
                for number in [0, 7, u64::MAX] {
                    let name = character.repeat(length);
                    let item = format!("{};r={number};t={number}", quoted(&name));
                    assert_eq!(ratelimit_item(&name, number, number), item);
                }
            }
        }
    }
}
