//! How important a request is.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Request};

use super::header::header_name;
use crate::error::{ConfigError, expect_valid};

/// How important a request is: a number from 1 to 100. Higher is more important.
///
/// For [`LimitLayer::priority`](crate::layer::LimitLayer::priority), which states what it does. The default is [`HIGH`](Self::HIGH).
///
/// ```
/// use tower_throttle::key::Priority;
///
/// const REPORTS: Priority = Priority::new(20);
/// assert!(REPORTS < Priority::LOW && Priority::LOW < Priority::HIGH);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// 100, the highest.
    pub const HIGH: Self = Self(100);

    /// 80.
    pub const MEDIUM: Self = Self(80);

    /// 50.
    pub const LOW: Self = Self(50);

    /// The priority of this number. For a number that is not constant, use `try_from`.
    ///
    /// # Panics
    /// If it is not from 1 to 100.
    #[must_use]
    #[track_caller]
    pub const fn new(number: u8) -> Self {
        assert!(
            number >= 1 && number <= 100,
            "a priority is a number from 1 to 100"
        );
        Self(number)
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::HIGH
    }
}

impl TryFrom<u8> for Priority {
    type Error = ConfigError;

    /// # Errors
    /// If it is not from 1 to 100.
    fn try_from(number: u8) -> Result<Self, ConfigError> {
        if (1..=100).contains(&number) {
            return Ok(Self(number));
        }
        let allowed = "a number from 1 to 100";
        Err(ConfigError::out_of_range("priority", number, allowed))
    }
}

/// The priority of a request: a closure `Fn(&Req) -> Priority`, or a [`PriorityHeader`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` finds no priority of `{Req}`: write `|req: &axum::extract::Request| ..`, with the type of the request, and return a `Priority`"
)]
pub trait Prioritize<Req> {
    /// The priority of `request`.
    fn priority(&self, request: &Req) -> Priority;
}

impl<Req, F: Fn(&Req) -> Priority> Prioritize<Req> for F {
    #[inline]
    fn priority(&self, request: &Req) -> Priority {
        self(request)
    }
}

/// The priority that a header names.
///
/// Any client can send a header. Use one that a proxy replaces or removes. A proxy that appends leaves
/// what the client has sent.
///
/// A request with a value that is not mapped, or with the header more than once, has the least of all
/// priorities that are given here.
///
/// ```
/// use http::Request;
/// use tower_throttle::key::{Prioritize, Priority, PriorityHeader};
///
/// let header = PriorityHeader::new("x-priority")
///     .value("batch", Priority::LOW)
///     .value("user", Priority::HIGH)
///     .otherwise(Priority::MEDIUM);
/// let batch = Request::builder().header("x-priority", "batch").body(()).unwrap();
/// assert_eq!(header.priority(&batch), Priority::LOW);
/// assert_eq!(header.priority(&Request::new(())), Priority::MEDIUM);
/// let unknown = Request::builder().header("x-priority", "urgent").body(()).unwrap();
/// assert_eq!(header.priority(&unknown), Priority::LOW);
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is given to a layer"]
pub struct PriorityHeader {
    name: HeaderName,
    values: Arc<Vec<(HeaderValue, Priority)>>,
    otherwise: Priority,
}

impl PriorityHeader {
    /// Reads the header `name`.
    ///
    /// # Panics
    /// If it is not the name of a header.
    #[track_caller]
    pub fn new(name: &str) -> Self {
        Self {
            name: header_name("PriorityHeader::new", name),
            values: Arc::default(),
            otherwise: Priority::HIGH,
        }
    }

    /// Requests whose header is exactly `value` have this priority. The first value that is equal
    /// decides.
    ///
    /// # Panics
    /// If it is not the value of a header.
    #[track_caller]
    pub fn value(mut self, value: &str, priority: Priority) -> Self {
        let allowed = "printable ASCII";
        let parsed = HeaderValue::from_str(value);
        let refused = |_| ConfigError::out_of_range("value", format!("{value:?}"), allowed);
        let value = expect_valid(parsed.map_err(refused));
        Arc::make_mut(&mut self.values).push((value, priority));
        self
    }

    /// The priority of requests without the header; [`Priority::HIGH`] unless set.
    pub const fn otherwise(mut self, priority: Priority) -> Self {
        self.otherwise = priority;
        self
    }
}

impl<B> Prioritize<Request<B>> for PriorityHeader {
    fn priority(&self, request: &Request<B>) -> Priority {
        let mut sent = request.headers().get_all(&self.name).iter();
        let known = match (sent.next(), sent.next()) {
            (None, _) => return self.otherwise,
            (Some(sent), None) => self.values.iter().find(|(value, _)| value == sent),
            // Which of them a proxy has set is not known.
            (Some(_), Some(_)) => None,
        };
        let all = || self.values.iter().map(|(_, priority)| *priority);
        let least = || all().fold(self.otherwise, Priority::min);
        known.map_or_else(least, |(_, priority)| *priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused() {
        for number in [0, 101, 255] {
            let error = Priority::try_from(number).unwrap_err().to_string();
            assert!(error.contains("a number from 1 to 100"), "{error}");
        }
        assert_eq!(Priority::try_from(50), Ok(Priority::LOW));
    }
}
