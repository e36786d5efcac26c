//! What a response says about the limits of its server.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use crate::clock::unix_time;

/// The limits that a response states, and whether one of them denied the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Feedback {
    pub(super) is_denied: bool,
    /// The server says that a retry is useless.
    pub(super) is_final: bool,
    /// After how long a request may be sent again. `None` if the server does not say.
    pub(super) wait: Option<Duration>,
    pub(super) windows: Vec<Window<Duration>>,
}

/// How many requests are left until when, as a time from now or as a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window<T> {
    pub(super) remaining: u64,
    pub(super) reset: T,
    /// The most that remaining may be. `None` if it is not known.
    pub(super) limit: Option<u64>,
}

/// The limits of one response. More are ignored.
const MAX_WINDOWS: usize = 8;

impl Feedback {
    pub(super) const fn allows_retry(&self) -> bool {
        self.is_denied && !self.is_final
    }

    /// Reads the headers. What cannot be read is ignored.
    pub(super) fn read(status: StatusCode, headers: &HeaderMap) -> Self {
        let date = |name| {
            let date = httpdate::parse_http_date(text(headers, name)?).ok()?;
            let since_1970 = date.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            Some(since_1970.as_secs())
        };
        // Moments are compared with the server's clock, or else with this one.
        let now = date("date").unwrap_or_else(|| unix_time().as_secs());
        let until = date("retry-after").map(|at| at.saturating_sub(now));
        let after = text(headers, "retry-after").and_then(seconds).or(until);
        let is_unavailable = status == StatusCode::SERVICE_UNAVAILABLE && after.is_some();
        let mut feedback = Self {
            is_denied: status == StatusCode::TOO_MANY_REQUESTS || is_unavailable,
            is_final: false,
            wait: after.map(Duration::from_secs),
            windows: windows(headers, now),
        };
        if text(headers, "grpc-status").is_some_and(|code| code != "0") {
            feedback.read_grpc(headers);
        }
        let windows = feedback.windows.iter();
        let used_up = windows.filter(|window| window.remaining == 0);
        let reset = used_up.map(|window| window.reset).max();
        feedback.wait = feedback.wait.or(reset);
        feedback
    }

    /// A gRPC status is a denial if it says when to retry: `RESOURCE_EXHAUSTED` alone may be about
    /// the size of a message.
    fn read_grpc(&mut self, headers: &HeaderMap) {
        let pushback = text(headers, "grpc-retry-pushback-ms");
        let millis = pushback.and_then(number).map(Duration::from_millis);
        // What is not a number of milliseconds means "do not retry".
        self.is_final = pushback.is_some() && millis.is_none();
        self.wait = self.wait.max(millis);
        self.is_denied |= self.wait.is_some();
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    Some(headers.get(name)?.to_str().ok()?.trim())
}

/// The members of all lines of a header.
fn members<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).iter().flat_map(|line| line.to_str());
    lines.flat_map(|line| split(line, ','))
}

/// Splits outside quotes.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let parts = text.split(move |c| {
        let is_literal = is_escaped;
        is_escaped = is_quoted && !is_literal && c == '\\';
        is_quoted ^= c == '"' && !is_literal;
        c == separator && !is_quoted
    });
    parts.map(str::trim)
}

/// The value of `key=value` among the parts.
fn parameter<'a>(mut parts: impl Iterator<Item = &'a str>, key: &str) -> Option<&'a str> {
    parts.find_map(|part| part.strip_prefix(key)?.strip_prefix('='))
}

/// What separate headers, and the members of one, say of a limit.
const FIGURES: [&str; 3] = ["remaining", "reset", "limit"];

/// All limits that the headers state.
fn windows(headers: &HeaderMap, now: u64) -> Vec<Window<Duration>> {
    let mut found = Vec::new();
    for member in members(headers, "ratelimit").take(MAX_WINDOWS) {
        let name = split(member, ';').next();
        let same_name = |policy: &&str| split(policy, ';').next() == name;
        let policy = members(headers, "ratelimit-policy").find(same_name);
        let limit = policy.and_then(|policy| parameter(split(policy, ';'), "q"));
        let part = |key| parameter(split(member, ';'), key);
        found.extend(window([part("r"), part("t"), limit], now));
    }
    let part = |key| parameter(members(headers, "ratelimit"), key);
    found.extend(window(FIGURES.map(part), now));
    for prefix in ["ratelimit", "x-ratelimit"] {
        let part = |name| members(headers, &format!("{prefix}-{name}")).next();
        found.extend(window(FIGURES.map(part), now));
    }
    found
}

fn window([remaining, reset, limit]: [Option<&str>; 3], now: u64) -> Option<Window<Duration>> {
    let reset = match seconds(reset?)? {
        delta @ 0..1_000_000_000 => delta,
        // Since 1970, in seconds or in milliseconds.
        unix @ 1_000_000_000..1_000_000_000_000 => unix.saturating_sub(now),
        unix => unix.div_ceil(1_000).saturating_sub(now),
    };
    // A reset that has passed says nothing.
    (reset > 0).then_some(Window {
        remaining: number(remaining?)?,
        reset: Duration::from_secs(reset),
        limit: limit.and_then(number),
    })
}

/// `5` or `4.2`, rounded up.
fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let more = u64::from(number(fraction)? > 0);
    Some(number(whole)?.saturating_add(more))
}

/// A number that is too large for 64 bits is read as the largest one.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
