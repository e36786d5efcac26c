//! Reads a policy file from any format of serde.

use std::mem;

use serde::{Deserialize, Deserializer, de::Error};

use super::lines::Lines;
use super::model::{Content, FileLimit, PolicyFile};
use super::problem::{Problem, Problems};

/// The first mistake is in the message, with the path of its field. The format adds lines, if it has them.
impl<'de> Deserialize<'de> for PolicyFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let lines = Lines::default();
        let read: Result<Content, Problem> = read(deserializer, "", &lines);
        let mut content = read.map_err(D::Error::custom)?;
        let limits = mem::take(&mut content.limits).into_iter().map(Ok).collect();
        checked(Ok(content), limits, lines).map_err(D::Error::custom)
    }
}

/// Reads what is at `path`.
pub(super) fn read<'de, T, D>(deserializer: D, path: &str, lines: &Lines) -> Result<T, Problem>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let (inside, message) = (error.path().to_string(), error.inner().to_string());
        // toml adds lines with the path.
        let message = message.lines().next().unwrap_or_default();
        let path = match &*inside {
            "." | "?" => path.to_owned(),
            inside if path.is_empty() => inside.to_owned(),
            inside => format!("{path}.{inside}"),
        };
        Problem::of_serde(&path, lines.of(&path), message)
    })
}

/// Checks the parts of a file: the first mistake of each limit, or else those about several parts.
pub(super) fn checked(
    rest: Result<Content, Problem>,
    limits: Vec<Result<FileLimit, Problem>>,
    lines: Lines,
) -> Result<PolicyFile, Problems> {
    let mut problems = Vec::new();
    let mut right = Vec::new();
    for (at, limit) in limits.into_iter().enumerate() {
        let limit = limit.and_then(|limit| {
            limit.checked().map_err(|(field, message)| {
                let path = format!("limit[{at}].{field}");
                Problem::new(&path, lines.of(&path), message)
            })
        });
        match limit {
            Ok(limit) => right.push(limit),
            Err(problem) => problems.push(problem),
        }
    }
    match rest {
        Ok(mut content) if problems.is_empty() => {
            (content.limits, content.schema) = (right, None);
            match content.check() {
                Ok(()) => return Ok(PolicyFile { content, lines }),
                Err((path, message)) => {
                    problems.push(Problem::new(&path, lines.of(&path), message));
                }
            }
        }
        Ok(_) => {}
        Err(problem) => problems.push(problem),
    }
    Err(Problems::of(problems))
}
