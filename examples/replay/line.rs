//! Who of a key still waits, and when each one's turn is.
//!
//! A limiter's state knows how long its line is, but not who stands in it. A replay has to know
//! that to tell whether a request that is cancelled still waits, and when the others go.

use std::collections::VecDeque;

use tower_throttle::{Quota, clock::Tick};

/// The waiting requests of one key, the next turn first.
#[derive(Default)]
pub(crate) struct Line {
    places: VecDeque<Place>,
}

struct Place {
    /// Which request it is; later ones have higher numbers. None once the state that made it wait
    /// was forgotten: it goes at its turn, but its place is worth nothing to the others.
    number: Option<u64>,
    turn: Tick,
    units: u64,
}

impl Line {
    pub(crate) fn join(&mut self, number: u64, turn: Tick, units: u64) {
        let place = Place {
            number: Some(number),
            turn,
            units,
        };
        // Nearly always the end; a refund can bring a later request an earlier turn.
        let at = match self.places.back() {
            Some(last) if last.turn > turn => self.places.partition_point(|one| one.turn <= turn),
            _ => self.places.len(),
        };
        self.places.insert(at, place);
    }

    /// Takes out one whose turn has come: when it was, and what it cost.
    pub(crate) fn next_due(&mut self, now: Tick) -> Option<(Tick, u64)> {
        if self.places.front()?.turn > now {
            return None;
        }
        let place = self.places.pop_front()?;
        Some((place.turn, place.units))
    }

    /// Takes out request `number` if it still waits, and moves up those who stand behind it by as
    /// many intervals as it had taken. Responder how many that were.
    ///
    /// Call it when all whose turn has come are out.
    pub(crate) fn leave(&mut self, number: u64, now: Tick, quota: &Quota) -> Option<u64> {
        let at = self
            .places
            .iter()
            .position(|place| place.number == Some(number))?;
        let units = self.places.remove(at)?.units;
        let up = u128::from(units) * quota.period().as_nanos() / u128::from(quota.limit());
        let up = u64::try_from(up).unwrap_or(u64::MAX);
        for place in &mut self.places {
            if place.number > Some(number) {
                let turn = Tick::from_nanos(place.turn.as_nanos().saturating_sub(up));
                place.turn = turn.max(now);
            }
        }
        self.places
            .make_contiguous()
            .sort_by_key(|place| place.turn);
        Some(units)
    }

    /// The state was forgotten, and with it what a place in the line is worth.
    pub(crate) fn detach(&mut self) {
        for place in &mut self.places {
            place.number = None;
        }
    }
}
