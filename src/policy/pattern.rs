//! Patterns of paths, as in axum's routes.

use std::fmt::{self, Write};

/// A pattern of paths: `/users/{id}`, `/api/{*rest}`.
///
/// `{name}` is one segment, and `{*name}` at the end is the rest, at least one character. A path is
/// compared as the client sent it, without its query; so does axum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathPattern {
    text: String,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Text(String),
    One,
    Rest,
}

impl PathPattern {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let fault = |why: &str| Err(format!("{text:?} is not allowed; {why}"));
        let Some(path) = text.strip_prefix('/') else {
            return fault("a path begins with /");
        };
        let mut segments = Vec::new();
        for segment in path.split('/') {
            if segments.last() == Some(&Segment::Rest) {
                return fault("nothing can follow the rest of a path");
            }
            let inner = segment
                .strip_prefix('{')
                .and_then(|inner| inner.strip_suffix('}'));
            let is_braced = |text: &str| text.contains(['{', '}']);
            segments.push(
                match inner.map(|inner| inner.strip_prefix('*').ok_or(inner)) {
                    Some(Ok(name)) if !name.is_empty() && !is_braced(name) => Segment::Rest,
                    Some(Err(name)) if !name.is_empty() && !is_braced(name) => Segment::One,
                    None if segment.starts_with([':', '*']) => {
                        return fault("write {name} for a segment, and {*name} for the rest");
                    }
                    None if !is_braced(segment) => match never_sent(segment) {
                        Some(why) => return fault(&why),
                        None => Segment::Text(segment.to_owned()),
                    },
                    _ => {
                        return fault(
                            "{name} is a whole segment, and {*name} the rest of the path",
                        );
                    }
                },
            );
        }
        Ok(Self {
            text: text.to_owned(),
            segments,
        })
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        let Some(mut rest) = path.strip_prefix('/') else {
            return false;
        };
        let mut segments = self.segments.iter().peekable();
        while let Some(segment) = segments.next() {
            if *segment == Segment::Rest {
                return !rest.is_empty();
            }
            let (head, tail) = match rest.split_once('/') {
                Some((head, tail)) => (head, Some(tail)),
                None => (rest, None),
            };
            let is_same = match segment {
                Segment::Text(text) => text == head,
                _ => !head.is_empty(),
            };
            match (is_same, segments.peek(), tail) {
                (true, None, None) => return true,
                (true, Some(_), Some(tail)) => rest = tail,
                _ => return false,
            }
        }
        false
    }
}

/// Why no path has this text in it.
fn never_sent(segment: &str) -> Option<String> {
    let found = segment
        .chars()
        .find(|c| !c.is_ascii_graphic() || matches!(c, '?' | '#' | '*' | '<' | '>' | '`' | '"'))?;
    Some(match found {
        '?' | '#' => format!("a path ends before {found}: leave out what follows"),
        '*' => "write {name} for a segment, and {*name} for the rest".to_owned(),
        other => {
            let mut encoded = String::new();
            for byte in other.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(encoded, "%{byte:02X}");
            }
            format!("write {encoded} for {other:?}, as clients send it")
        }
    })
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_as_a_route_of_axum_does() {
        for (pattern, matching, other) in [
            ("/", &["/"][..], &["", "/a", "//"][..]),
            ("/api", &["/api"], &["/api/", "/apis", "/", "api"]),
            ("/api/", &["/api/"], &["/api", "/api/x"]),
            (
                "/users/{id}",
                &["/users/7", "/users/%2f"],
                &["/users/", "/users", "/users/7/"],
            ),
            (
                "/users/{id}/posts",
                &["/users/7/posts"],
                &["/users//posts", "/users/7"],
            ),
            (
                "/api/{*rest}",
                &["/api/x", "/api/x/y/", "/api//"],
                &["/api/", "/api"],
            ),
            ("/{*rest}", &["/x", "/x/y"], &["/"]),
        ] {
            let parsed = PathPattern::parse(pattern).expect("a pattern");
            for path in matching {
                assert!(parsed.matches(path), "{pattern} {path}");
            }
            for path in other {
                assert!(!parsed.matches(path), "{pattern} {path}");
            }
        }
    }

    #[test]
    fn a_pattern_that_no_route_could_have_is_refused() {
        for (pattern, why) in [
            ("api", "a path begins with /"),
            ("", "a path begins with /"),
            ("/{*rest}/x", "nothing can follow"),
            ("/:id", "write {name} for a segment"),
            ("/*", "write {name} for a segment"),
            ("/a*", "write {name} for a segment"),
            ("/login?next=/", "a path ends before ?"),
            ("/login#top", "a path ends before #"),
            ("/my files", "write %20 for ' '"),
            ("/login ", "write %20 for ' '"),
            ("/a\tb", "write %09 for '\\t'"),
            ("/caf\u{e9}", "write %C3%A9 for '\u{e9}'"),
            ("/a<b", "write %3C for '<'"),
            ("/{id}.json", "is a whole segment"),
            ("/{}", "is a whole segment"),
            ("/{*}", "is a whole segment"),
            ("/{a{b}}", "is a whole segment"),
        ] {
            let error = PathPattern::parse(pattern).expect_err(pattern);
            assert!(error.contains(why), "{pattern}: {error}");
        }
    }
}
