//! Headers of which a response has one each, although several limits may have something to state.

use http::{HeaderMap, HeaderName};

use super::header_text::{Labelled, header_value, set_header};

/// The figures of one limit.
pub(super) struct Figures {
    pub(super) limit: u64,
    pub(super) remaining: u64,
    /// In seconds. `None` for a limit on concurrency.
    pub(super) reset: Option<u64>,
    /// An inner limit has denied the request, so the figures of that one stay.
    pub(super) is_denied_within: bool,
}

/// The headers of one form.
pub(super) struct Names {
    pub(super) limit: HeaderName,
    pub(super) remaining: HeaderName,
    pub(super) reset: HeaderName,
}

impl Figures {
    /// Whether they replace what is stated: fewer remain, or as few for longer.
    fn replace(&self, remaining: Option<u64>, reset: Option<u64>) -> bool {
        let Some(remaining) = remaining else {
            return true;
        };
        let is_stricter =
            self.remaining < remaining || (self.remaining == remaining && self.reset > reset);
        is_stricter && !self.is_denied_within
    }

    /// Writes three headers. `policies` follow the limit, after those that are stated.
    pub(super) fn state(&self, headers: &mut HeaderMap, names: &Names, policies: &str) {
        let number = |name| text(headers, name)?.parse().ok();
        let replaces = self.replace(number(&names.remaining), number(&names.reset));
        let stated = text(headers, &names.limit).unwrap_or_default();
        let (limit, others) = stated.split_at(stated.find(',').unwrap_or(stated.len()));
        let line = if replaces {
            header_value(format_args!("{}{others}{policies}", self.limit))
        } else {
            header_value(format_args!("{limit}{others}{policies}"))
        };
        set_header(headers, names.limit.clone(), line);
        if !replaces {
            return;
        }
        let remaining = header_value(format_args!("{}", self.remaining));
        set_header(headers, names.remaining.clone(), remaining);
        match self.reset {
            Some(reset) => {
                let reset = header_value(format_args!("{reset}"));
                set_header(headers, names.reset.clone(), reset);
            }
            None => drop(headers.remove(&names.reset)),
        }
    }

    /// Writes `limit=10, remaining=9, reset=1`.
    pub(super) fn state_in_one_line(&self, headers: &mut HeaderMap, name: HeaderName) {
        let part = |key: &str| {
            let mut parts = text(headers, &name)?.split(", ");
            parts.find_map(|part| part.strip_prefix(key)?.parse().ok())
        };
        let remaining = part("remaining=");
        if !self.replace(remaining, part("reset=")) {
            return;
        }
        let reset = Labelled(", reset=", self.reset);
        let line = header_value(format_args!(
            "limit={}, remaining={}{reset}",
            self.limit, self.remaining
        ));
        // A line of another form stays.
        if remaining.is_some() {
            set_header(headers, name, line);
        } else {
            headers.append(name, line);
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
