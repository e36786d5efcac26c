//! Reads the policy and the steps, from a trace or from an access log, line by line.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use crate::{
    access_log,
    args::{Source, is_stdin},
    fields::Fault,
    policy::Policy,
    step::Step,
};

/// The steps not yet read.
pub(crate) struct Input {
    lines: Lines,
    parse: fn(&[u8]) -> Result<Step, String>,
}

/// The lines of a file that are not blank.
struct Lines {
    from: Box<dyn BufRead>,
    path: PathBuf,
    line: Vec<u8>,
    number: usize,
}

impl Input {
    /// Opens the source and reads its policy.
    ///
    /// The second policy is a copy whose durations are multiplied by `unit`.
    pub(crate) fn open(source: &Source, unit: u32) -> Result<([Policy; 2], Self), String> {
        match source {
            Source::Trace(path) => {
                let mut lines = Lines::open(path)?;
                if !lines.advance()? {
                    return Err("line 1: expected a policy, found the end of the input".into());
                }
                let policy = policies(&lines.line, unit);
                let policy = policy.map_err(|(_, fault)| at(lines.number, &fault))?;
                let parse = Step::parse;
                Ok((policy, Self { lines, parse }))
            }
            Source::AccessLog { policy, log } => {
                let policy = policies(&Lines::open(policy)?.rest()?, unit)
                    .map_err(|(line, fault)| at(line, &format!("policy: {fault}")))?;
                let lines = Lines::open(log)?;
                let parse = access_log::parse;
                Ok((policy, Self { lines, parse }))
            }
        }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Step>, String> {
        if !self.lines.advance()? {
            return Ok(None);
        }
        let step = (self.parse)(&self.lines.line);
        step.map(Some).map_err(|fault| self.at(&fault))
    }

    /// An error message about the step read last.
    pub(crate) fn at(&self, fault: &str) -> String {
        at(self.lines.number, fault)
    }
}

fn policies(text: &[u8], unit: u32) -> Result<[Policy; 2], Fault> {
    Ok([Policy::parse(text, 1)?, Policy::parse(text, unit)?])
}

impl Lines {
    fn open(path: &Path) -> Result<Self, String> {
        let from: Box<dyn BufRead> = if is_stdin(path) {
            Box::new(io::stdin().lock())
        } else {
            let file = File::open(path).map_err(|error| unreadable(path, &error))?;
            Box::new(BufReader::with_capacity(1 << 16, file))
        };
        Ok(Self {
            from,
            path: path.to_owned(),
            line: Vec::new(),
            number: 0,
        })
    }

    /// Reads the next line that is not blank; false at the end.
    fn advance(&mut self) -> Result<bool, String> {
        loop {
            self.line.clear();
            let read = self.from.read_until(b'\n', &mut self.line);
            if read.map_err(|error| unreadable(&self.path, &error))? == 0 {
                return Ok(false);
            }
            self.number += 1;
            if !self.line.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    /// The rest of the file.
    fn rest(mut self) -> Result<Vec<u8>, String> {
        let read = self.from.read_to_end(&mut self.line);
        read.map_err(|error| unreadable(&self.path, &error))?;
        Ok(self.line)
    }
}

fn at(line: usize, fault: &str) -> String {
    format!("line {line}: {fault}")
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {error}", path.display())
}
