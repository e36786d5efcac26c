//! What is wrong with a file.

use std::{error::Error, fmt};

use crate::policy::parse::did_you_mean;

/// One thing that is wrong with a policy file, or worth a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    path: String,
    /// From 1, if the format reports lines.
    line: Option<u32>,
    message: String,
}

impl Problem {
    pub(crate) fn new(path: &str, line: Option<u32>, message: impl Into<String>) -> Self {
        let (mut path, message) = (path.to_owned(), message.into());
        // A name that is a URL may hold a password.
        if let Some(name) = path.find("://") {
            path.truncate(path[..name].rfind('.').map_or(0, |dot| dot + 1));
            path += "(a URL)";
        }
        Self {
            path,
            line,
            message,
        }
    }

    /// What serde says is wrong with the field at `path`.
    pub(super) fn of_serde(path: &str, line: Option<u32>, message: &str) -> Self {
        let mut names = message.split('`').skip(1).step_by(2);
        let near = match names.next() {
            Some(found) if message.starts_with("unknown ") => did_you_mean(found, names),
            _ => String::new(),
        };
        // A URL and a connection string may hold a password.
        let is_secret = message.contains("://") || path.starts_with("stores");
        let message = match message.rsplit_once(", expected ") {
            Some((_, expected)) if is_secret => format!("expected {expected}"),
            _ => message.to_owned(),
        };
        Self::new(path, line, message + &near)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// What is wrong with a policy file, a line of text for each: at least one, and at most one per limit.
///
/// ```
/// use tower_throttle::policy::PolicyFile;
///
/// let text = "version = 1\n\
///     [[limit]]\nname = \"a\"\nlimit = \"token_bucket 1/s\"\nkey = \"global\"\nshadow = 1\n\
///     [[limit]]\nname = \"b\"\nlimit = \"token_bucket 1/s\"\nkey = \"bearer\"\nheaders = \"draft-12\"";
/// let problems = PolicyFile::from_toml(text).unwrap_err();
/// assert_eq!(
///     problems.to_string(),
///     "line 6: limit[0].shadow: invalid type: integer `1`, expected a boolean\n\
///      line 11: limit[1].headers: unknown variant `draft-12`, expected one of `none`, `draft-11`, `draft-6`, \
///      `x-ratelimit`, `x-ratelimit-epoch`; did you mean draft-11?"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub(crate) fn of(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.line);
        Self(problems)
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl Error for Problems {}

/// `"NAME" is not defined`, with the nearest of those that are there.
pub(crate) fn not_defined<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> String {
    let known: Vec<_> = known.map(String::as_str).collect();
    let near = did_you_mean(name, known.iter().copied());
    let known = known.join(", ");
    format!("{name:?} is not defined{near}; there is: {known}")
}
