//! Response headers that state the limit, in the forms that clients know.

use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::header_text::{Quoted, header_value};
use crate::clock::unix_time;
use crate::decision::{Decision, ceil_seconds};
use crate::error::RateLimited;
use crate::quota::Quota;
use crate::respond::{OwnRules, Policies, Policy, Tell};

/// Response headers that state the limit, for admitted and for denied requests.
///
/// A response states the limits of several layers, one inside the other: [`Draft11`](Self::Draft11) and lists of policies name
/// each of them. The older forms have one remaining count and one reset. These are of the limit that denied
/// the request, else of the one with the fewest requests left, and of the latest reset if as many are left.
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
///     .headers(Headers::Draft11);
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
    /// `RateLimit-Policy: "search";q=10;w=10` and `RateLimit: "search";r=9;t=1`. The default, by its name: a later
    /// draft will be another variant, so that an update of this crate changes nothing on the wire.
    #[default]
    Draft11,
    /// Drafts 04 to 06: `RateLimit-Limit: 10`, `RateLimit-Remaining: 9` and `RateLimit-Reset: 1`.
    Draft6,
    /// `X-RateLimit-Limit: 10`, `X-RateLimit-Remaining: 9` and `X-RateLimit-Reset: 1`, the last in
    /// seconds from now.
    XRateLimitDelta,
    /// The same with the reset as a moment, in seconds since 1970, as GitHub sends it. It is wrong by
    /// the difference between the clocks of client and server.
    XRateLimitEpoch,
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// Limit, remaining and reset.
const DRAFT6: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];
const X: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// The largest number of a structured field: 15 digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;

impl<B> Tell<Response<B>> for Headers {
    fn tell(
        &self,
        _: OwnRules<'_>,
        response: &mut Response<B>,
        policies: &Policies,
        decision: &Decision,
    ) {
        let is_denied_within =
            !decision.is_denied() && response.extensions().get::<RateLimited>().is_some();
        let headers = response.headers_mut();
        let policy = policies.of(decision);
        // A limit on concurrency has no period.
        let has_period = policy.is_none_or(|policy| policy.quota.is_some());
        let reset = decision.retry_after.unwrap_or(decision.reset_after);
        let mut figures = Figures {
            limit: integer(decision.limit),
            remaining: integer(decision.remaining()),
            reset: has_period.then(|| integer(ceil_seconds(reset).max(1))),
            is_denied_within,
        };
        match self {
            Self::Draft11 => {
                let Some(policy) = policy else { return };
                headers.reserve(2);
                let list = policies.header_value.get_or_init(|| named(&policies.list));
                headers.append(RATELIMIT_POLICY, list.clone());
                let (name, left) = (Quoted(&policy.name), figures.remaining);
                let value = match figures.reset {
                    Some(reset) => header_value(format_args!("{name};r={left};t={reset}")),
                    None => header_value(format_args!("{name};r={left}")),
                };
                headers.append(RATELIMIT, value);
            }
            Self::Draft6 => figures.state(headers, DRAFT6),
            Self::XRateLimitDelta => figures.state(headers, X),
            Self::XRateLimitEpoch => {
                let now = unix_time().as_secs();
                figures.reset = figures.reset.map(|reset| now.saturating_add(reset));
                figures.state(headers, X);
            }
        }
    }
}

/// The figures of one limit.
struct Figures {
    limit: u64,
    remaining: u64,
    /// In seconds. `None` for a limit on concurrency.
    reset: Option<u64>,
    /// An inner limit has denied the request, so the figures of that one stay.
    is_denied_within: bool,
}

impl Figures {
    /// Writes three headers. Those of another limit stay if more is left here, or as much for a shorter time.
    fn state(&self, headers: &mut HeaderMap, names: [HeaderName; 3]) {
        let number = |name| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
        if let Some(remaining) = number(&names[1]) {
            let is_stricter = self.remaining < remaining
                || (self.remaining == remaining && self.reset > number(&names[2]));
            if self.is_denied_within || !is_stricter {
                return;
            }
        }
        let figures = [Some(self.limit), Some(self.remaining), self.reset];
        for (name, figure) in names.into_iter().zip(figures) {
            match figure {
                Some(figure) => drop(headers.insert(name, header_value(format_args!("{figure}")))),
                None => drop(headers.remove(name)),
            }
        }
    }
}

fn integer(number: u64) -> u64 {
    number.min(MAX_INTEGER)
}

/// `"burst";q=100;w=60, "daily";q=1000;w=86400`
fn named(policies: &[Policy]) -> HeaderValue {
    let items = policies.iter().map(|policy| {
        let name = Quoted(&policy.name);
        let Some(quota) = &policy.quota else {
            return match integer(policy.at_once) {
                0 => format!("{name};q=0"),
                most => format!("{name};q={most};qu=\"concurrent-requests\""),
            };
        };
        // The form has whole seconds from 1 on; less is left out rather than stated wrong.
        let most = integer(quota.capacity());
        match refill_ns(quota) {
            0..SECOND => format!("{name};q={most}"),
            refill => {
                let seconds = u64::try_from(refill.div_ceil(SECOND)).unwrap_or(u64::MAX);
                format!("{name};q={most};w={}", integer(seconds))
            }
        }
    });
    let items: Vec<_> = items.collect();
    header_value(format_args!("{}", items.join(", ")))
}

const SECOND: u128 = 1_000_000_000;

/// The time in which the whole capacity is refilled: the period of a window, the refill of a bucket.
fn refill_ns(quota: &Quota) -> u128 {
    u128::from(quota.capacity()) * quota.period().as_nanos() / u128::from(quota.limit())
}
