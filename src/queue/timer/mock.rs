//! Timers for models: the model sets the time and lets timers fire.

use std::{cell::RefCell, collections::BTreeMap, task::Waker};

use super::TimerStatus;
use crate::clock::Tick;

thread_local! {
    /// All threads of a model share one thread of the operating system.
    static STATE: RefCell<State> = const { RefCell::new(State::new()) };
}

struct State {
    now: Tick,
    next_id: u64,
    /// The timers that exist. A deadline of `MAX` is not armed.
    timers: BTreeMap<u64, (Tick, Waker)>,
}

impl State {
    const fn new() -> Self {
        Self {
            now: Tick::ZERO,
            next_id: 0,
            timers: BTreeMap::new(),
        }
    }
}

/// Sets the time.
pub(crate) fn set_now(now: Tick) {
    STATE.with_borrow_mut(|state| state.now = now);
}

/// Fires all timers that are due.
pub(crate) fn fire_due() {
    let due = STATE.with_borrow_mut(|state| {
        let now = state.now;
        let due = state.timers.values_mut().filter(|timer| timer.0 <= now);
        let due = due.map(|timer| {
            timer.0 = Tick::MAX;
            timer.1.clone()
        });
        due.collect::<Vec<_>>()
    });
    due.into_iter().for_each(Waker::wake);
}

/// When the next timer fires.
pub(crate) fn next_deadline() -> Option<Tick> {
    let next = STATE.with_borrow(|state| state.timers.values().map(|timer| timer.0).min());
    next.filter(|next| *next < Tick::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Driver;

impl Driver {
    pub(crate) const fn current() -> Option<Self> {
        Some(Self)
    }

    pub(crate) fn serves(self, _: Option<Self>) -> bool {
        true
    }
}

#[derive(Debug)]
pub(crate) struct LineTimer {
    id: u64,
}

impl LineTimer {
    #[expect(clippy::unnecessary_wraps, reason = "same signature as the others")]
    pub(crate) fn new(_: Driver, waker: impl FnOnce() -> Waker) -> Option<Self> {
        let waker = waker();
        Some(STATE.with_borrow_mut(|state| {
            state.next_id += 1;
            state.timers.insert(state.next_id, (Tick::MAX, waker));
            Self { id: state.next_id }
        }))
    }

    pub(crate) const fn driver(&self) -> Driver {
        Driver
    }

    pub(crate) fn now() -> Tick {
        STATE.with_borrow(|state| state.now)
    }

    pub(crate) fn has_fired(&self) -> bool {
        STATE.with_borrow(|state| {
            state
                .timers
                .get(&self.id)
                .is_none_or(|timer| timer.0 == Tick::MAX)
        })
    }

    pub(crate) fn arm(&mut self, at: Tick) -> TimerStatus {
        STATE.with_borrow_mut(|state| {
            let elapsed = at <= state.now;
            if let Some(timer) = state.timers.get_mut(&self.id) {
                timer.0 = if elapsed { Tick::MAX } else { at };
            }
            if elapsed {
                TimerStatus::Elapsed
            } else {
                TimerStatus::Armed
            }
        })
    }
}

impl Drop for LineTimer {
    fn drop(&mut self) {
        // The waker is dropped after the borrow: it may own a line, whose timers borrow again.
        let _ = STATE.with_borrow_mut(|state| state.timers.remove(&self.id));
    }
}
