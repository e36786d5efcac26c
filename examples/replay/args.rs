//! The command line.

use std::{ffi::OsString, path::PathBuf};

/// What the arguments ask for.
pub(crate) enum Command {
    Help,
    Replay(Args),
}

pub(crate) struct Args {
    pub(crate) source: Source,
    pub(crate) summary: bool,
    pub(crate) svg: Option<PathBuf>,
    /// The URL of the Redis server that decides.
    pub(crate) redis: Option<String>,
    /// The store with a compare-and-swap that holds the states.
    pub(crate) store: Option<String>,
}

/// The files of the policy and the steps; `-` is standard input.
pub(crate) enum Source {
    Trace(PathBuf),
    AccessLog { policy: PathBuf, log: PathBuf },
}

/// Parses the arguments after the program's name.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let mut args = args;
    let (mut trace, mut policy, mut log, mut svg) = (None, None, None, None);
    let (mut redis, mut store) = (None, None);
    let mut summary = false;
    while let Some(arg) = args.next() {
        let option = arg
            .to_str()
            .filter(|arg| arg.starts_with('-') && arg.len() > 1);
        let place = match option {
            Some("--help" | "-h") => return Ok(Command::Help),
            Some("--summary") => {
                summary = true;
                continue;
            }
            Some("--svg") => &mut svg,
            Some("--policy") => &mut policy,
            Some("--access-log") => &mut log,
            Some("--redis") => &mut redis,
            Some("--store") => &mut store,
            Some(other) => return Err(format!("unknown option {other}; --help lists them")),
            None if trace.is_none() => {
                trace = Some(PathBuf::from(arg));
                continue;
            }
            None => {
                return Err(format!(
                    "expected one trace, found also \"{}\"; see --help",
                    arg.display()
                ));
            }
        };
        let value = args.next().filter(|value| !value.is_empty());
        let value =
            value.ok_or_else(|| format!("\"{}\" needs a value; see --help", arg.display()))?;
        if place.replace(PathBuf::from(value)).is_some() {
            return Err(format!("\"{}\" is given twice", arg.display()));
        }
    }
    if redis.is_some() && store.is_some() {
        return Err("expected --redis or --store, not both".into());
    }
    let text = |place: PathBuf| place.to_string_lossy().into_owned();
    let (redis, store) = (redis.map(text), store.map(text));
    let source = match (trace, policy, log) {
        (Some(trace), None, None) => Source::Trace(trace),
        (None, Some(policy), Some(log)) if is_stdin(&policy) && is_stdin(&log) => {
            return Err("standard input is either the policy or the log, not both".into());
        }
        (None, Some(policy), Some(log)) => Source::AccessLog { policy, log },
        _ => return Err("expected a trace, or --policy and --access-log; see --help".into()),
    };
    Ok(Command::Replay(Args {
        source,
        summary,
        svg,
        redis,
        store,
    }))
}

pub(crate) fn is_stdin(path: &std::path::Path) -> bool {
    path.as_os_str() == "-"
}

pub(crate) const HELP: &str = include_str!("help.txt");
