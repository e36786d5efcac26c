//! Patterns of paths, as in axum's routes.

use matchit::{InsertError, Router};
use serde::{Deserialize, Serialize};

/// A pattern of paths: `/users/{id}`, `/api/{*rest}`.
///
/// The matcher is that of axum's router, at the version that axum uses: a limit that applies to fewer
/// paths than the route is bypassed. A path is compared as the client sent it, without its query.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct PathPattern {
    text: String,
    /// Has this one route: several could conflict, or hide each other.
    router: Router<()>,
}

/// `matchit` panics if a route has more.
const MAX_NAMES: usize = 25;

impl TryFrom<String> for PathPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let fault = |why: &str| Err(format!("{text:?} is not allowed; {why}"));
        if !text.starts_with('/') {
            return fault("a path begins with /");
        }
        if text.contains("/:") || text.replace("{*", "{").contains('*') {
            return fault("write {name} for a segment, and {*name} for the rest");
        }
        if let Some(why) = never_sent(&text) {
            return fault(&why);
        }
        if text.matches('{').count() > MAX_NAMES {
            return fault("a path has at most 25 names");
        }
        let mut router = Router::new();
        match router.insert(&*text, ()) {
            Ok(()) => Ok(Self { text, router }),
            Err(InsertError::InvalidCatchAll) => fault("nothing can follow the rest of a path"),
            Err(_) => fault("{name} ends its segment, and {*name} the path"),
        }
    }
}

impl PathPattern {
    pub(super) fn matches(&self, path: &str) -> bool {
        self.router.at(path).is_ok()
    }
}

/// Why clients do not send this text in a path.
fn never_sent(text: &str) -> Option<String> {
    let found = text
        .chars()
        .find(|c| !c.is_ascii_graphic() || matches!(c, '?' | '#' | '<' | '>' | '`' | '"'))?;
    Some(match found {
        '?' | '#' => format!("a path ends before {found}: leave out what follows"),
        other => format!("write {other:?} percent-encoded, as clients send it"),
    })
}

/// The text says all.
impl PartialEq for PathPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for PathPattern {}

impl From<PathPattern> for String {
    fn from(pattern: PathPattern) -> Self {
        pattern.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows promise 304.
    #[test]
    fn a_pattern_that_no_route_could_have_is_refused() {
        let many = "/{a}".repeat(MAX_NAMES + 1);
        for (pattern, why) in [
            ("api", "a path begins with /"),
            ("", "a path begins with /"),
            ("/{*rest}/x", "nothing can follow"),
            ("/:id", "write {name} for a segment"),
            ("/*", "write {name} for a segment"),
            ("/a*", "write {name} for a segment"),
            ("/login?next=/", "a path ends before ?"),
            ("/login#top", "a path ends before #"),
            ("/my files", "write ' ' percent-encoded"),
            ("/login ", "write ' ' percent-encoded"),
            ("/a\tb", "write '\\t' percent-encoded"),
            ("/caf\u{e9}", "write '\u{e9}' percent-encoded"),
            ("/a<b", "write '<' percent-encoded"),
            ("/{id}.json", "ends its segment"),
            ("/{}", "ends its segment"),
            ("/{*}", "ends its segment"),
            ("/{a{b}}", "ends its segment"),
            (&many, "at most 25 names"),
        ] {
            let error = PathPattern::try_from(pattern.to_owned()).expect_err(pattern);
            assert!(error.contains(why), "{pattern}: {error}");
        }
        assert!(PathPattern::try_from(many[4..].to_owned()).is_ok());
    }
}
