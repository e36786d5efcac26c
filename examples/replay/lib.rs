//! Runs traffic through a policy in virtual time: the program `replay`, and the pictures of the guide.
//!
//! It reads one step at a time, so a trace may be larger than the memory. It keeps one state per key
//! and the ids of requests that a later step may cancel.
//!
//! With the feature `governor`, the algorithm `gcra` is governor's. Without it, a token bucket makes the
//! same decisions, except that governor truncates the interval between requests to whole nanoseconds.

use std::{
    fs,
    io::{self, BufWriter, ErrorKind, Write},
    process::ExitCode,
};

mod access_log;
mod algorithms;
mod answer;
mod args;
mod axis;
mod chart;
mod draw;
mod fields;
mod gallery;
#[cfg(feature = "redis")]
mod in_redis;
#[cfg(feature = "cas")]
mod in_store;
mod input;
mod line;
mod log;
mod policy;
mod replay;
mod states;
mod step;
mod summary;
pub mod svg;
mod tally;
mod text;
#[cfg(feature = "redis")]
mod timed;
mod title;
mod window;

pub use crate::{
    gallery::pictures,
    log::{Request, read_log},
};

use crate::{
    args::{Args, Command},
    chart::Chart,
    input::Input,
    policy::Policy,
    replay::Replay,
    states::{InProcess, States},
    summary::Summary,
};

/// Why the program ends before the input does.
enum Stop {
    /// An error: one line that says what is wrong and what was expected.
    Fault(String),
    /// The reader of the output closed it, as `head` does.
    Closed,
}

/// The program `replay`: reads the command line, prints to standard output.
pub fn program() -> ExitCode {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let ended = run(&mut out);
    // Print the decisions before an error, too.
    let flushed = out.flush().map_err(Stop::from);
    // Dropping the writer would try to flush again.
    let _ = out.into_parts();
    match ended.and(flushed) {
        Ok(()) | Err(Stop::Closed) => ExitCode::SUCCESS,
        Err(Stop::Fault(fault)) => {
            eprintln!("{fault}");
            ExitCode::from(2)
        }
    }
}

fn run(out: &mut impl Write) -> Result<(), Stop> {
    let args = match args::parse(std::env::args_os().skip(1))? {
        Command::Help => return Ok(out.write_all(args::HELP.as_bytes())?),
        Command::Replay(args) => args,
    };
    let ([policy, own], mut input) = Input::open(&args.source, unit(&args))?;
    let title = title::readable(&policy.to_string());
    let mut decisions = !args.summary;
    let mut summary = args.summary.then(|| Summary::new(policy.period()));
    let mut chart = args.svg.as_ref().map(|_| Chart::new());

    let states = states(&args, &policy, own)?;
    let mut replay = Replay::new(policy, states);
    while let Some(step) = input.next()? {
        let answer = replay.step(step).map_err(|fault| input.at(&fault))?;
        if decisions {
            match answer.write(out, replay.name(answer.key)) {
                // The chart is still to be written.
                Err(error) if error.kind() == ErrorKind::BrokenPipe && chart.is_some() => {
                    decisions = false;
                }
                written => written?,
            }
        }
        if let Some(summary) = &mut summary {
            summary.record(&answer, replay.released());
        }
        if let Some(chart) = &mut chart {
            chart.record(&answer, replay.released(), replay.quota());
        }
    }
    replay.finish();

    if let (Some(chart), Some(path)) = (&mut chart, &args.svg) {
        chart.release(replay.released());
        let written = fs::write(path, draw::svg(chart, &title));
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    if let Some(summary) = &mut summary {
        summary.release(replay.released());
        summary.write(out, &title, &replay)?;
    }
    Ok(())
}

/// The states: in process, in Redis, or in a store with a compare-and-swap. `own` is the policy in the
/// unit of [`unit`].
fn states(args: &Args, policy: &Policy, own: Policy) -> Result<Box<dyn States>, String> {
    match (&args.redis, &args.store) {
        (Some(url), _) => in_redis(url, own),
        (_, Some(store)) => in_store(store, own),
        _ => Ok(Box::new(InProcess::new(policy))),
    }
}

/// A nanosecond of the trace in nanoseconds of the states.
fn unit(args: &Args) -> u32 {
    #[cfg(feature = "redis")]
    if args.redis.is_some() {
        return in_redis::UNIT;
    }
    let _ = args;
    1
}

#[cfg(feature = "redis")]
fn in_redis(url: &str, policy: Policy) -> Result<Box<dyn States>, String> {
    Ok(Box::new(in_redis::InRedis::connect(url, policy)?))
}

#[cfg(not(feature = "redis"))]
fn in_redis(_url: &str, _policy: Policy) -> Result<Box<dyn States>, String> {
    Err("--redis: this build has no Redis support".into())
}

#[cfg(feature = "cas")]
fn in_store(store: &str, policy: Policy) -> Result<Box<dyn States>, String> {
    in_store::open(store, policy)
}

#[cfg(not(feature = "cas"))]
fn in_store(_store: &str, _policy: Policy) -> Result<Box<dyn States>, String> {
    Err("--store: this build has no support for stores".into())
}

impl From<String> for Stop {
    fn from(fault: String) -> Self {
        Self::Fault(fault)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Fault(format!("cannot write the output: {error}")),
        }
    }
}
