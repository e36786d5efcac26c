//! Runs recorded traffic through a policy in virtual time and says what would have happened.
//!
//! "What would 10 a second with bursts of 50 have done to yesterday's traffic?"
//!
//! ```text
//! cargo run --release --example replay -- CASE.jsonl              # a decision a line
//! cargo run --release --example replay -- --summary CASE.jsonl
//! cargo run --release --example replay -- --svg out.svg CASE.jsonl
//! cargo run --release --example replay -- --policy POLICY.json --access-log access.log
//! cargo run --release --example replay -- --help                  # the format of a trace
//! ```
//!
//! It reads step by step, so a trace may be longer than the memory; what it keeps is a state for
//! each key and the names of requests that a later step may cancel.
//!
//! The algorithm `gcra` is governor's with the crate's feature `governor`. Without it the token
//! bucket takes its place, which decides the same but for governor's cut of the interval between
//! two requests to whole nanoseconds.

use std::{
    fs,
    io::{self, BufWriter, ErrorKind, Write},
    process::ExitCode,
};

mod access_log;
mod algorithms;
mod answer;
mod args;
mod chart;
mod draw;
mod fields;
mod input;
mod line;
mod policy;
mod replay;
mod step;
mod summary;
mod tally;
mod window;

use crate::{args::Command, chart::Chart, input::Input, replay::Replay, summary::Summary};

/// Why it ends before the input does.
enum Stop {
    /// Something is wrong; one line that says what and what was expected.
    Fault(String),
    /// Whoever read the output has seen enough, as `head` does.
    Closed,
}

fn main() -> ExitCode {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let ended = run(&mut out);
    // What was decided before a fault is an answer too.
    let flushed = out.flush().map_err(Stop::from);
    // Dropping the writer would try once more to write what could not be written.
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
    let (policy, mut input) = Input::open(&args.source)?;
    let title = policy.to_string();
    let mut decisions = !args.summary;
    let mut summary = args.summary.then(|| Summary::new(policy.period()));
    let mut chart = args.svg.as_ref().map(|_| Chart::new());

    let mut replay = Replay::new(policy);
    while let Some(step) = input.next()? {
        let answer = replay.step(step).map_err(|fault| input.at(&fault))?;
        if decisions {
            match answer.write(out, replay.name(answer.key)) {
                // The chart is still wanted.
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
            chart.record(&answer);
        }
    }

    if let (Some(chart), Some(path)) = (&chart, &args.svg) {
        let written = fs::write(path, draw::svg(chart, &title)?);
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    if let Some(summary) = &mut summary {
        replay.finish();
        summary.release(replay.released());
        summary.write(out, &title, &replay)?;
    }
    Ok(())
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
