//! The script of days, weeks and months. A server has no calendar, so each call brings the ends of the windows
//! around it.

use super::call::Call;
use super::params::{checked_count, value_header};
use super::script::{Args, Part, StateWords, sealed::Script};
use crate::algorithm::{Algorithm, CalendarWindow, CalendarWindowState, settings};
use crate::error::ConfigError;

const MICROS: u64 = 1_000_000;

impl Script for CalendarWindow {
    fn prepared(self) -> Result<Self, ConfigError> {
        checked_count("limit", self.quota().limit())?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let settings = settings(self).into_iter();
        let settings = settings.map(|(_, value)| value.unwrap_or_default());
        let shape: Vec<_> = settings.chain([self.quota().period_ns()]).collect();
        parts.push(Part {
            sources: &[include_str!("lua/calendar_window.lua")],
            header: value_header('d', &shape),
            params: vec![self.quota().limit()],
        });
    }

    fn push_args(&self, call: Call, args: &mut Vec<Args>) {
        let (start, end) = self.window_at(machine_seconds());
        let before = self.window_at(start.saturating_sub(1)).0;
        let [before, start, end, next] =
            [before, start, end, self.window_at(end).1].map(|second| second * MICROS);
        let numbers = [call.cost(), before, start, end, next];
        args.push(Args::new(numbers).and_taken_at(call, false));
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<CalendarWindowState> {
        let (end, used) = (words.next_word()?, words.next_word()?);
        let end = end / MICROS;
        Some(CalendarWindowState { end, used })
    }
}

#[cfg(not(test))]
use crate::clock::unix_seconds as machine_seconds;

/// The wall clock of this machine, which tests replace.
#[cfg(test)]
fn machine_seconds() -> u64 {
    tests::MACHINE
        .get()
        .unwrap_or_else(crate::clock::unix_seconds)
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    thread_local! {
        pub(in crate::store::redis) static MACHINE: Cell<Option<u64>> = const { Cell::new(None) };
    }
}
