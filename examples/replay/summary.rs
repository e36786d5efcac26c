//! The summary of a replay.

use std::{
    cmp::Reverse,
    io::{self, Write},
    time::Duration,
};

use crate::{
    answer::{Answer, Outcome, nanos},
    replay::{Released, Replay},
    tally::{Count, Tally},
    window::{Span, Window},
};

const BUSIEST: usize = 10;

pub(crate) struct Summary {
    period: Duration,
    steps: u64,
    /// The times of the first and the last step.
    times: Option<(u64, u64)>,
    total: Tally,
    keys: Vec<Key>,
    longest_wait: Option<Wait>,
    worst: Option<(usize, Span)>,
    headroom: Headroom,
}

#[derive(Default)]
struct Key {
    tally: Tally,
    window: Window,
}

struct Wait {
    ns: u64,
    key: usize,
    at: u64,
}

/// The remaining share of the limit after each request, in thousandths.
struct Headroom {
    sum: u128,
    least: u128,
}

impl Summary {
    /// `period` is the length of the windows whose worst is reported.
    pub(crate) fn new(period: Duration) -> Self {
        Self {
            period,
            steps: 0,
            times: None,
            total: Tally::default(),
            keys: Vec::new(),
            longest_wait: None,
            worst: None,
            headroom: Headroom {
                sum: 0,
                least: 1000,
            },
        }
    }

    pub(crate) fn record(&mut self, answer: &Answer, released: &[Released]) {
        self.steps += 1;
        let first = self.times.map_or(answer.now, |(first, _)| first);
        self.times = Some((first, answer.now));
        // A key counts from the first step that names it.
        let key = self.key(answer.key);
        if let Some(units) = answer.dropped {
            key.tally.cancelled.add(units);
            self.total.cancelled.add(units);
        }
        let key = self.key(answer.key);
        if let Some(units) = answer.offered {
            key.tally.record(units, answer);
            self.total.record(units, answer);
            self.headroom.record(answer);
            self.record_wait(answer);
        }
        self.release(released);
    }

    fn record_wait(&mut self, answer: &Answer) {
        let longest = self.longest_wait.as_ref().map_or(0, |wait| wait.ns);
        match answer.outcome {
            Outcome::Wait(ns) if ns > longest => {
                self.longest_wait = Some(Wait {
                    ns,
                    key: answer.key,
                    at: answer.now,
                });
            }
            _ => {}
        }
    }

    /// Counts admitted requests.
    pub(crate) fn release(&mut self, released: &[Released]) {
        let period = nanos(self.period);
        for one in released.iter().filter(|one| one.units > 0) {
            let span = self.key(one.key).window.add(one.at, one.units, period);
            if self.worst.is_none_or(|(_, worst)| span.units > worst.units) {
                self.worst = Some((one.key, span));
            }
        }
    }

    fn key(&mut self, key: usize) -> &mut Key {
        if key >= self.keys.len() {
            self.keys.resize_with(key + 1, Key::default);
        }
        &mut self.keys[key]
    }

    pub(crate) fn write(&self, out: &mut impl Write, title: &str, of: &Replay) -> io::Result<()> {
        let (first, last) = self.times.unwrap_or_default();
        let length = Duration::from_nanos(last - first);
        let since = |at: u64| Duration::from_nanos(at.saturating_sub(first));
        writeln!(out, "policy        {title}")?;
        writeln!(
            out,
            "trace         steps: {}, keys: {}, time: {length:?}",
            self.steps,
            self.keys.len()
        )?;

        let total = &self.total;
        writeln!(out, "\n{:<12}{:>16}{:>24}", "", "requests", "units")?;
        row(out, "offered", total.offered, total.offered)?;
        row(out, "admitted", total.admitted(), total.offered)?;
        if total.queued.requests > 0 {
            row(out, "  at once", total.at_once, total.offered)?;
            row(out, "  waited", total.after_wait(), total.offered)?;
        }
        row(out, "denied", total.denied, total.offered)?;
        if total.cancelled.requests > 0 {
            row(out, "cancelled", total.cancelled, total.offered)?;
        }
        writeln!(out)?;

        write!(out, "longest wait  ")?;
        match &self.longest_wait {
            None => writeln!(out, "no request waited")?,
            Some(Wait { ns, key, at }) => {
                let (wait, at) = (Duration::from_nanos(*ns), since(*at));
                writeln!(out, "{wait:?}, key {:?} at {at:?}", of.name(*key))?;
            }
        }
        write!(out, "worst window  ")?;
        match &self.worst {
            None => writeln!(out, "nothing was admitted")?,
            Some((key, Span { start, units })) => writeln!(
                out,
                "{units} units within {:?}, key {:?} from {:?}",
                self.period,
                of.name(*key),
                since(*start)
            )?,
        }
        self.headroom.write(out, total.offered.requests)?;
        self.write_busiest(out, of)
    }

    fn write_busiest(&self, out: &mut impl Write, of: &Replay) -> io::Result<()> {
        let asked = |(_, key): &(_, &Key)| key.tally.offered.requests > 0;
        let mut keys: Vec<_> = self.keys.iter().enumerate().filter(asked).collect();
        // The sort is stable: among equals, the first key seen comes first.
        keys.sort_by_key(|(_, key)| Reverse(key.tally.offered.units));
        // `waited` is a part of `admitted`; the rest of `offered` was cancelled.
        let columns = ["offered", "admitted", "waited", "denied"];
        writeln!(out, "\nunits of the busiest keys")?;
        for column in columns {
            write!(out, "{column:>13} ")?;
        }
        writeln!(out, " key")?;
        for (at, key) in keys.into_iter().take(BUSIEST) {
            let tally = &key.tally;
            for count in [
                tally.offered,
                tally.admitted(),
                tally.after_wait(),
                tally.denied,
            ] {
                write!(out, "{:>13} ", count.units)?;
            }
            writeln!(out, " {:?}", of.name(at))?;
        }
        Ok(())
    }
}

impl Headroom {
    fn record(&mut self, answer: &Answer) {
        let left = thousandths(answer.remaining.into(), answer.limit.into());
        self.sum += left;
        self.least = self.least.min(left);
    }

    fn write(&self, out: &mut impl Write, requests: u64) -> io::Result<()> {
        write!(out, "remaining     ")?;
        if requests == 0 {
            return writeln!(out, "no requests");
        }
        writeln!(
            out,
            "{} of the limit on average after a request, {} at least",
            percent((self.sum + u128::from(requests) / 2) / u128::from(requests)),
            percent(self.least)
        )
    }
}

fn row(out: &mut impl Write, name: &str, count: Count, of: Count) -> io::Result<()> {
    writeln!(
        out,
        "{name:<12}{:>16}{:>24}{:>10}",
        count.requests,
        count.units,
        percent(thousandths(count.units, of.units))
    )
}

/// The share of `part` in `whole`, rounded.
fn thousandths(part: u128, whole: u128) -> u128 {
    let whole = whole.max(1);
    (part.saturating_mul(1000) + whole / 2) / whole
}

/// Thousandths as a percentage.
fn percent(thousandths: u128) -> String {
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}
