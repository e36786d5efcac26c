//! Headers of which a response has one each, although several limits may have something to state.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::header_text::{ValueBuffer, digits, set_header};

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
        let replaces = self.replace(
            number(headers, &names.remaining),
            number(headers, &names.reset),
        );
        let stated = headers
            .get(&names.limit)
            .and_then(|line| line.to_str().ok());
        let (limit, others) = stated.map_or(("", ""), |line| {
            line.split_at(line.find(',').unwrap_or(line.len()))
        });
        if !policies.is_empty() || !others.is_empty() {
            let limit = if replaces {
                self.limit.to_string()
            } else {
                limit.to_owned()
            };
            if let Ok(line) = HeaderValue::try_from(limit + others + policies) {
                set_header(headers, names.limit.clone(), line);
            }
        } else if replaces {
            set_header(headers, names.limit.clone(), digits(self.limit));
        }
        if !replaces {
            return;
        }
        set_header(headers, names.remaining.clone(), digits(self.remaining));
        match self.reset {
            Some(reset) => set_header(headers, names.reset.clone(), digits(reset)),
            None => drop(headers.remove(&names.reset)),
        }
    }

    /// Writes `limit=10, remaining=9, reset=1`.
    pub(super) fn state_in_one_line(&self, headers: &mut HeaderMap, name: HeaderName) {
        let stated = headers.get(&name).and_then(|line| line.to_str().ok());
        let part = |key: &str| {
            stated.and_then(|line| {
                line.split(", ")
                    .find_map(|part| part.strip_prefix(key)?.parse().ok())
            })
        };
        let remaining = part("remaining=");
        if !self.replace(remaining, part("reset=")) {
            return;
        }
        let mut line = ValueBuffer::<96>::new();
        let reset = self.reset.map(|reset| (", reset=", reset));
        let others = [("limit=", self.limit), (", remaining=", self.remaining)];
        for (text, number) in others.into_iter().chain(reset) {
            line.text(text.as_bytes());
            line.number(number);
        }
        // A line of another form stays.
        if remaining.is_some() {
            set_header(headers, name, line.value());
        } else {
            headers.append(name, line.value());
        }
    }
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}
