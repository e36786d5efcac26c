//! What is wrong with a file.

use std::{error::Error, fmt};

/// One thing that is wrong with a policy file, or worth a warning.
///
/// ```
/// # #[cfg(feature = "toml")] {
/// use tower_throttle::policy::PolicyFile;
///
/// let problems = PolicyFile::from_toml("version = 1\nlimits = []").unwrap_err();
/// let problem = &problems.list()[0];
/// assert_eq!((problem.path(), problem.line()), ("limits", Some(2)));
/// assert!(problem.message().starts_with("unknown field; did you mean limit?"));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    path: String,
    line: Option<u32>,
    message: String,
}

impl Problem {
    pub(in crate::policy) fn new(
        path: impl Into<String>,
        line: Option<u32>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            path: path.into(),
            line,
            message: message.into(),
        }
    }

    /// The field: `limit[0].key`. Empty if it is the file as a whole.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The line, from 1, if the format reports lines.
    pub const fn line(&self) -> Option<u32> {
        self.line
    }

    /// What is wrong, and what is allowed.
    pub fn message(&self) -> &str {
        &self.message
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

/// Everything that is wrong with a policy file: at least one [`Problem`].
///
/// ```
/// # #[cfg(feature = "toml")] {
/// use tower_throttle::policy::PolicyFile;
///
/// let problems = PolicyFile::from_toml("version = 2\nlimti = []").unwrap_err();
/// assert_eq!(
///     problems.to_string(),
///     "line 1: version: 2 is not allowed; this version of the library reads 1 only\n\
///      line 2: limti: unknown field; did you mean limit? \
///      Known are $schema, version, lists, stores, limit, deny"
/// );
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub(in crate::policy) fn of(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.line);
        Self(problems)
    }

    /// The problems, in the order of the lines.
    pub fn list(&self) -> &[Problem] {
        &self.0
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl Error for Problems {}
